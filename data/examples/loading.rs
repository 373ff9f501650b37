//! How fast a data set becomes rows in memory: read, encoded, split, standardised and partitioned,
//! as `pstrain run` does it. tests/peers/loading.py runs it on files that pandas and numpy read,
//! too.
//!
//! `cargo run --profile dist -p pstrain-data --example loading -- BYTES csv:train.csv`

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "it measures, and prints that"
)]

use std::error::Error;
use std::time::Instant;

use pstrain_data::{Prepared, Settings, formats};

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [bytes, data] = &words[..] else { return Err("usage: loading BYTES DATA".into()) };
    let bytes: f64 = bytes.parse()?;
    let source = formats::open(data, 1)?;
    let mut best = f64::INFINITY;
    for _ in 0..3 {
        let begin = Instant::now();
        let loaded = Prepared::load(&*source, &Settings::default())?;
        best = best.min(begin.elapsed().as_secs_f64());
        assert!(!loaded.train.is_empty(), "no rows");
    }
    println!("{best:.3} s, {:.3} GB/s", bytes / best / 1e9);
    Ok(())
}
