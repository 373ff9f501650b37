//! Assembles parameters from the parts of all servers, in the buffer of earlier parameters:
//! allocating a new buffer takes longer than filling it.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use pstrain_compute::params::KeyRange;
use pstrain_compute::task::MOST_IN_FLIGHT;
use pstrain_wire::worker::{Parameters, ParametersHeader};

/// Limit of incomplete parameters: more than this are never in transit, so the rest of the oldest
/// will not arrive.
const MOST_PARTIAL: usize = 2 * MOST_IN_FLIGHT as usize;

/// The servers that send parts of the parameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sources {
    /// The keys of the coordinator.
    pub(super) own: KeyRange,
    /// Number of other servers.
    pub(super) others: usize,
}

/// Incomplete parameters, and the headers of complete ones.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    /// Incomplete parameters; those with the coordinator's part are in the coordinator's order.
    partial: VecDeque<Partial>,
    /// Headers of complete parameters of the newest version: servers may send them again, some more
    /// often than others.
    known: Vec<ParametersHeader>,
    /// Buffer pool of one: earlier parameters.
    spare: Vec<f32>,
}

#[derive(Debug)]
struct Partial {
    /// Equal in all parts but for the keys. A server that was cut off may still send parameters of
    /// an earlier connection, which must not be mistaken for parameters in step with the other
    /// servers.
    header: ParametersHeader,
    values: Vec<f32>,
    came: Vec<KeyRange>,
}

impl Assembly {
    /// Drops all parts.
    pub(super) fn clear(&mut self) {
        self.partial.clear();
        self.known.clear();
    }

    /// Takes the buffer of parameters that are no longer needed; returns it if it is shared.
    pub(super) fn recycle(&mut self, parameters: Arc<Vec<f32>>) -> Option<Arc<Vec<f32>>> {
        let taken = Arc::try_unwrap(parameters);
        taken.map(|parameters| self.spare = parameters).err()
    }

    /// Adds the `values` of one server, for some of `all` keys; returns the next parameters that
    /// are complete.
    pub(super) fn add(
        &mut self,
        sources: Sources,
        header: ParametersHeader,
        values: &[f32],
        all: KeyRange,
    ) -> Option<Parameters> {
        let keys = header.keys;
        let header = ParametersHeader { keys: all, ..header };
        if self.known.contains(&header) {
            return None;
        }
        let place = self.partial.iter().position(|partial| partial.header == header);
        let known = place.and_then(|place| self.partial.remove(place));
        let mut partial = known.unwrap_or_else(|| {
            let mut memory = core::mem::take(&mut self.spare);
            memory.resize(all.len() as usize, 0.0); // every value is overwritten before use
            Partial { header, values: memory, came: Vec::new() }
        });
        partial.values.get_mut(keys.indices())?.copy_from_slice(values);
        let is_new = !partial.came.contains(&keys);
        if is_new {
            partial.came.push(keys);
        }
        match place {
            Some(place) if !is_new || sources.own != keys => self.partial.insert(place, partial),
            _ => self.partial.push_back(partial),
        }
        if self.partial.len() > MOST_PARTIAL {
            self.partial.pop_front();
        }
        self.next_whole(sources)
    }

    /// The next parameters in the coordinator's order, if all parts have arrived. The order holds
    /// even if a part that a server sent before it was cut off completes later parameters first.
    pub(super) fn next_whole(&mut self, sources: Sources) -> Option<Parameters> {
        let Sources { own, others } = sources;
        let place = self.partial.iter().position(|partial| partial.came.contains(&own))?;
        if self.partial.get(place)?.came.len() <= others {
            return None;
        }
        let Partial { header, values, .. } = self.partial.remove(place)?;
        // Older versions are useless now.
        self.partial.retain(|partial| partial.header.version >= header.version);
        self.known.retain(|known| known.version >= header.version);
        if self.known.len() >= MOST_PARTIAL {
            self.known.remove(0);
        }
        self.known.push(header);
        Some(Parameters { header, values: Arc::new(values), changes: None })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use pstrain_compute::id::{BatchId, PartId, Sequence, Version};
    use pstrain_compute::task::Task;

    fn range(start: u64, end: u64) -> KeyRange {
        KeyRange::new(start, end).unwrap()
    }

    #[test]
    fn parameters_are_put_together_in_the_memory_of_those_before() {
        let (all, parts) = (range(0, 5), [range(0, 2), range(2, 5)]);
        let sources = Sources { own: parts[0], others: 1 };
        let mut assembly = Assembly::default();
        let mut place = None;
        for version in 0..4_u64 {
            let header = |keys| ParametersHeader {
                version: Version(version),
                keys,
                sequence: Sequence(version),
                task: Task { part: PartId(0), batch: BatchId(version), examples: 0 },
                ahead: 0,
                decided: None,
            };
            let value = version as f32;
            // The coordinator is the first in even versions and the last in odd ones.
            let order = if version % 2 == 0 { [0, 1] } else { [1, 0] };
            let values = [vec![value; 2], vec![-value; 3]];
            let mut add = |at: usize| assembly.add(sources, header(parts[at]), &values[at], all);
            assert!(add(order[0]).is_none());
            let whole = add(order[1]).unwrap();
            assert_eq!(whole.header, header(all));
            assert_eq!(*whole.values, [value, value, -value, -value, -value]);
            assert_eq!(*place.get_or_insert(whole.values.as_ptr()), whole.values.as_ptr());
            let shared = Arc::clone(&whole.values);
            assert!(assembly.recycle(shared).is_some(), "somebody else needs it");
            assert!(assembly.recycle(whole.values).is_none());
        }
    }
}
