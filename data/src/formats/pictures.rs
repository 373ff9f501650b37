//! Synthetic pictures of simple shapes.

use std::sync::Arc;

use pstrain_compute::examples::{Picture, Row};
use pstrain_compute::rng::{Random, Stream};

use super::{Format, Paths, numbers};
use crate::dataset::{Dataset, Features, Schema, Visit};
use crate::error::DataError;

const FORM: &str = "pictures[:ROWS[,SIZE[,SEED]]]";

/// Least and greatest height of a picture.
const SIZES: std::ops::RangeInclusive<u64> = 8..=64;

pub(super) const FORMAT: Format = Format {
    form: FORM,
    summary: "pictures of ten shapes in noise, SIZE pixels high and wide (8 to 64, default 16)",
    paths: Paths::None,
    open: |arguments, seed| {
        let write = format!("write {FORM}, with a SIZE from 8 to 64");
        let [rows, size, seed] =
            numbers(arguments, [10_000, 16, seed]).map_err(|error| format!("{error}; {write}"))?;
        match SIZES.contains(&size) {
            true => Ok(Arc::new(SyntheticPictures { rows, size: size as u32, seed })),
            false => Err(write),
        }
    },
};

const KIND: &str = "pictures of shapes";
const CHANNELS: usize = 3;
const CLASSES: [&str; 10] =
    ["disc", "ring", "square", "frame", "plus", "cross", "minus", "bar", "diamond", "triangle"];

/// Coloured pictures, each of one shape whose kind is the class.
///
/// Place, size and colour of the shape, and the colour of the ground, differ from row to row, and
/// each value has noise with a deviation of about 0.16. Values are from -1 to 1. They are made by
/// additions, multiplications and comparisons alone, so that all machines draw the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyntheticPictures {
    /// Number of rows.
    pub rows: u64,
    /// Height and width in pixels.
    pub size: u32,
    /// The seed.
    pub seed: u64,
}

/// True if a shape covers the point (`x`, `y`); its centre is (0, 0), and its radius 1.
fn covers(class: usize, x: f64, y: f64) -> bool {
    let (across, down) = (x.abs(), y.abs());
    let (round, far, near) = (x * x + y * y, across.max(down), across.min(down));
    match class {
        0 => round <= 1.0,
        1 => (0.35..=1.0).contains(&round),
        2 => far <= 0.85,
        3 => (0.5..=0.9).contains(&far),
        4 => near <= 0.3 && far <= 1.0,
        5 => (across - down).abs() <= 0.4 && far <= 0.9,
        6 => down <= 0.35 && across <= 1.0,
        7 => across <= 0.35 && down <= 1.0,
        8 => across + down <= 1.0,
        _ => (-0.8..=0.8).contains(&y) && 2.0 * across <= 1.0 + y,
    }
}

impl SyntheticPictures {
    /// Draws the pixels of a shape, row by row, each with its channels.
    fn draw(self, class: usize, rng: &mut Random, pixels: &mut Vec<f32>) {
        let mut between = |low: f64, high: f64| low + (high - low) * rng.unit();
        let size = f64::from(self.size);
        let radius = size * between(0.2, 0.35);
        let [x, y] = [(); 2].map(|()| between(radius, size - radius));
        let ground = [(); CHANNELS].map(|()| between(-0.6, 0.6));
        // Apart from the ground by 0.4 or more, in each channel up or down.
        let shape = ground.map(|value| value - value.signum() * between(0.4, 0.8));
        pixels.clear();
        for pixel in 0..self.size * self.size {
            let [right, below] = [pixel % self.size, pixel / self.size].map(f64::from);
            let inside = covers(class, (right + 0.5 - x) / radius, (below + 0.5 - y) / radius);
            let colour = if inside { shape } else { ground };
            pixels.extend(colour.map(|value| {
                let noise = between(-0.2, 0.2) + between(-0.2, 0.2);
                (value + noise).clamp(-1.0, 1.0) as f32
            }));
        }
    }
}

impl Dataset for SyntheticPictures {
    fn describe(&self) -> String {
        let Self { rows, size, seed } = self;
        format!("synthetic pictures, {rows} of {size}x{size}x{CHANNELS}, seed {seed}")
    }

    fn kind(&self) -> &'static str {
        KIND
    }

    fn schema(&self, features: &Features) -> Result<Schema, DataError> {
        features.unhashed()?;
        let (height, width, channels) = (self.size, self.size, CHANNELS as u32);
        let picture = Picture { height, width, channels };
        let mut schema = Schema::dense(KIND, picture.values(), &CLASSES);
        schema.standardised = false;
        Ok(schema.with_picture(Some(picture)))
    }

    fn visit(&self, _: &Schema, visit: &mut Visit<'_>) -> Result<(), DataError> {
        let stream = Stream::new(self.seed).fork("pictures", 0);
        let mut pixels = Vec::new();
        (0..self.rows).try_for_each(|row| {
            let mut rng = stream.fork("row", row).rng();
            let class = rng.below(CLASSES.len() as u64) as u16;
            self.draw(class.into(), &mut rng, &mut pixels);
            visit(Row::dense(&pixels, class))
        })
    }

    fn rows(&self) -> Option<u64> {
        Some(self.rows)
    }

    fn words(&self) -> Option<String> {
        let Self { rows, size, seed } = self;
        Some(format!("pictures:{rows},{size},{seed}"))
    }
}
