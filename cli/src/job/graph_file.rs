//! Reads the edges of a graph of workers from a file.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context, bail};
use pstrain_compute::id::WorkerId;
use pstrain_policy::gossip::{Graph, JobGraph, MOST_EDGES, WorkerEdge};

use super::layers::Layers;

/// Stands before the path of a graph.
pub(super) const FILE: &str = "file:";

/// Most bytes of a file: room for the edges that a job carries, with comments.
const MOST_BYTES: u64 = 32 * MOST_EDGES as u64;

impl Layers {
    /// The graph of the workers, and its edges if they are listed in a file.
    pub(super) fn graph(&self, workers: u32) -> anyhow::Result<(Graph, Vec<WorkerEdge>)> {
        let Some(path) = self.text("graph").strip_prefix(FILE) else {
            let graph: Graph = self.get("graph")?;
            if graph == Graph::File {
                bail!("graph = file: name the file of the edges, such as file:edges.txt");
            }
            return Ok((graph, Vec::new()));
        };
        let edges = read(Path::new(path))?;
        JobGraph::check(Graph::File, &edges, workers)
            .map_err(|error| anyhow::anyhow!("graph: {path}: {error}"))?;
        Ok((Graph::File, edges))
    }
}

/// Reads edges: a line has the numbers of two workers, from 1. `#` begins a comment, and an edge
/// may come again in the other direction.
fn read(path: &Path) -> anyhow::Result<Vec<WorkerEdge>> {
    let cannot = || format!("cannot read the graph {}", path.display());
    let mut text = String::new();
    let file = File::open(path).with_context(cannot)?;
    file.take(MOST_BYTES + 1).read_to_string(&mut text).with_context(cannot)?;
    if text.len() as u64 > MOST_BYTES {
        bail!("the graph {} has more than {MOST_BYTES} bytes", path.display());
    }
    let place = |line: usize| format!("{}:{line}", path.display());
    parse(&text).map_err(|(line, why)| anyhow::anyhow!("{}: {why}", place(line)))
}

/// The edges of a text; or the line that is none, and why.
fn parse(text: &str) -> Result<Vec<WorkerEdge>, (usize, String)> {
    let mut edges = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.split('#').next().unwrap_or_default();
        let words: Vec<&str> = text.split_whitespace().collect();
        let worker = |word: &str| word.parse::<WorkerId>().ok();
        match words.as_slice() {
            [] => {}
            [one, other] if let (Some(one), Some(other)) = (worker(one), worker(other)) => {
                if one == other {
                    let why = format!("{one} {one} joins a worker to itself; leave it out");
                    return Err((line, why));
                }
                edges.push((one.min(other), one.max(other)));
            }
            _ => {
                let why = format!(
                    "{:?} is no edge; write the numbers of two workers, from 1, such as 1 2",
                    text.trim()
                );
                return Err((line, why));
            }
        }
    }
    edges.sort_unstable();
    edges.dedup();
    Ok(edges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_are_read_with_comments_and_in_either_direction() {
        let edge = |one, other| (WorkerId(one), WorkerId(other));
        let text = "# a star\n1 2\n\n  3\t1 # far\n2 1\n";
        assert_eq!(parse(text), Ok(vec![edge(0, 1), edge(0, 2)]));
        assert_eq!(parse(""), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_edge_is_named_with_its_line() {
        for (text, line, why) in [
            ("1 2\n1", 2, "\"1\" is no edge; write the numbers of two workers"),
            ("1 2 0.5", 1, "\"1 2 0.5\" is no edge"),
            ("#\n\n0 1", 3, "\"0 1\" is no edge"),
            ("1,2", 1, "\"1,2\" is no edge"),
            ("2 2", 1, "2 2 joins a worker to itself; leave it out"),
        ] {
            let (found, error) = parse(text).unwrap_err();
            assert!(found == line && error.starts_with(why), "{found}: {error}");
        }
    }
}
