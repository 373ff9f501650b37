//! The command `pstrain` with a model and a data format of one's own.

use std::{process::ExitCode, sync::Arc};

use pstrain::compute::examples::{Row, Shape};
use pstrain::compute::model::{ByRow, ModelKind, RowModel};
use pstrain::compute::{params::Layout, rng::Stream};
use pstrain::data::{DataError, Dataset, Features, Format, Paths, Schema, Visit, formats::numbers};

/// A point for each class; rows belong to the nearest.
#[derive(Debug)]
struct Prototypes;

impl RowModel for Prototypes {
    fn layout(&self, shape: Shape) -> Layout {
        Layout::of([("prototypes", &[shape.target.predictions(), shape.dense])])
    }

    fn loss(&self, params: &[f32], row: Row<'_>, scale: f32, gradient: &mut [f32]) -> f64 {
        let add = |(key, x): (usize, &f32)| {
            gradient[key] += scale * (params[key] - x);
            f64::from(params[key] - x).powi(2) / 2.0
        };
        (row.class() * row.dense.len()..).zip(row.dense).map(add).sum()
    }

    fn scores(&self, params: &[f32], row: Row<'_>, scores: &mut [f32]) {
        for (score, point) in scores.iter_mut().zip(params.chunks_exact(row.dense.len())) {
            *score = point.iter().zip(row.dense).map(|(p, x)| -(p - x).powi(2) / 2.0).sum();
        }
    }
}

/// Points around three centres: their number, and the seed.
#[derive(Debug)]
struct Blobs([u64; 2]);

impl Dataset for Blobs {
    fn kind(&self) -> &'static str {
        "points"
    }

    fn words(&self) -> Option<String> {
        Some(format!("blobs:{},{}", self.0[0], self.0[1]))
    }

    fn schema(&self, _: &Features) -> Result<Schema, DataError> {
        Ok(Schema::dense(self.kind(), 2, &["left", "right", "top"]))
    }

    fn visit(&self, _: &Schema, visit: &mut Visit<'_>) -> Result<(), DataError> {
        let mut rng = Stream::new(self.0[1]).rng();
        (0..self.0[0]).try_for_each(|row| {
            let centre = [[-1.0, 0.0], [1.0, 0.0], [0.0, 1.5]][row as usize % 3];
            let point = centre.map(|value| (value + rng.unit() - 0.5) as f32);
            visit(Row::dense(&point, row as u16 % 3))
        })
    }
}

fn main() -> ExitCode {
    let model = ModelKind {
        form: "prototypes",
        summary: "a point for each class; rows belong to the nearest",
        build: |_, shape| ByRow::objective(Prototypes, shape),
    };
    let format = Format {
        form: "blobs[:ROWS]",
        summary: "points around three centres",
        paths: Paths::None,
        open: |arguments, seed| Ok(Arc::new(Blobs(numbers(arguments, [900, seed])?))),
    };
    pstrain::Program::new().model(model).format(format).run()
}
