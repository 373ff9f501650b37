//! The geometry of a product: which rows of values each of its rows reads, and where it goes.
//!
//! A linear layer reads one row of values per sample. A convolution reads, for a pixel of its
//! output, the pixels under its kernel, each a row of channels. Both are one product. Nothing is
//! copied for it, and nothing multiplied with the zeros around a picture: pixels whose kernels
//! cover the same taps form a [`Class`], and a class is a product with the weights of its taps.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::product::Section;

/// A place of the kernel, and the pixel that lies under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::model) struct Tap {
    /// The number of the tap's weight matrix.
    pub(in crate::model) matrix: u32,
    /// The pixel under it, counted from the pixel under the first tap of the class.
    pub(in crate::model) pixel: u32,
}

/// Pixels whose kernels cover the same taps.
#[derive(Clone, Debug)]
pub(in crate::model) struct Class {
    /// The taps, in the order of the pixels under them.
    pub(in crate::model) taps: Vec<Tap>,
    /// The target pixels, each with the source pixel under the first tap.
    pixels: Vec<(u32, u32)>,
}

impl Class {
    /// The number of target pixels.
    pub(in crate::model) const fn len(&self) -> usize {
        self.pixels.len()
    }

    /// A product of whole rows: one pixel per sample and one tap.
    pub(in crate::model) fn rows() -> Self {
        Self { taps: vec![Tap { matrix: 0, pixel: 0 }], pixels: vec![(0, 0)] }
    }

    /// Divides the pixels below `targets`. `taps` appends the taps of a pixel, with the source
    /// pixels under them, which ascend. A pixel without taps belongs to no class.
    pub(in crate::model) fn divide(
        targets: u32,
        mut taps: impl FnMut(u32, &mut Vec<Tap>),
    ) -> Vec<Self> {
        let mut classes: BTreeMap<Vec<Tap>, Vec<(u32, u32)>> = BTreeMap::new();
        for target in 0..targets {
            let mut of_pixel = Vec::new();
            taps(target, &mut of_pixel);
            let Some(first) = of_pixel.first().map(|tap| tap.pixel) else { continue };
            of_pixel.iter_mut().for_each(|tap| tap.pixel -= first);
            classes.entry(of_pixel).or_default().push((target, first));
        }
        classes.into_iter().map(|(taps, pixels)| Self { taps, pixels }).collect()
    }
}

/// Where the rows of a product are, for a block of samples: a row for each pixel of some
/// classes.
///
/// A buffer that is filled for one product after another.
#[derive(Clone, Debug, Default)]
pub(in crate::model) struct Places {
    /// The first value that a row reads.
    pub(super) from: Vec<u32>,
    /// The row of the target.
    pub(super) to: Vec<u32>,
    /// The rows of each class.
    pub(super) classes: Vec<Range<usize>>,
    /// See [`multiply`](super::product::multiply).
    pub(super) section: Section,
    /// See [`outer`](super::outer::outer).
    pub(super) sums: Vec<(Range<usize>, usize)>,
}

impl Places {
    /// Fills in the rows of `classes` for `samples`, one class after the other. A sample has
    /// `source.0` values, `source.1` per pixel, and `targets` pixels of the target.
    // Apart: within a pass, the loop would make the compiler load the kernels' constants again.
    #[inline(never)]
    pub(in crate::model) fn fill(
        &mut self,
        classes: &[Class],
        samples: Range<usize>,
        source: (usize, usize),
        targets: usize,
    ) {
        let most = samples.end.saturating_mul(source.0.max(targets));
        assert!(u32::try_from(most).is_ok(), "a block of {} samples is too large", samples.end);
        self.from.clear();
        self.to.clear();
        self.classes.clear();
        for class in classes {
            let begin = self.from.len();
            let from = |sample: usize, pixel: u32| sample * source.0 + pixel as usize * source.1;
            let to = |sample: usize, target: u32| sample * targets + target as usize;
            // The inner loop is the longer one.
            if let [(target, pixel)] = class.pixels[..] {
                self.from.extend(samples.clone().map(|sample| from(sample, pixel) as u32));
                self.to.extend(samples.clone().map(|sample| to(sample, target) as u32));
            } else {
                for sample in samples.clone() {
                    let pixels = || class.pixels.iter();
                    self.from.extend(pixels().map(|&(_, pixel)| from(sample, pixel) as u32));
                    self.to.extend(pixels().map(|&(target, _)| to(sample, target) as u32));
                }
            }
            self.classes.push(begin..self.from.len());
        }
    }
}
