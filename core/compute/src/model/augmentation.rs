//! Random changes of pictures while a network is trained.

use alloc::vec::Vec;

use super::draws::Draws;
use crate::examples::{Picture, Records};

/// Moves pictures and mirrors them (He et al., CVPR 2016, section 4.2): a change that most classes
/// of pictures do not depend on.
#[derive(Debug)]
pub(super) struct Augmentation {
    pub(super) size: Picture,
    /// A picture moves by at most so many pixels in each direction; zeros follow it. The same as a
    /// random crop of the picture with so many zeros around it.
    pub(super) crop: u32,
    /// True if every second picture is mirrored left to right.
    pub(super) flip: bool,
}

impl Augmentation {
    /// Changes each sample of a block.
    pub(super) fn apply(&self, samples: &mut Records, draws: Draws<'_>) {
        let draws = draws.of_layer(usize::MAX);
        let mut before = Vec::new();
        for (sample, values) in samples.dense_mut().enumerate() {
            let mut random = draws.of(sample);
            let mut shift = || random.below(2 * u64::from(self.crop) + 1) as i64;
            let shifts = [shift(), shift()].map(|shift| shift - i64::from(self.crop));
            let is_mirrored = self.flip && random.below(2) == 1;
            before.clear();
            before.extend_from_slice(values);
            self.place(&before, values, (shifts, is_mirrored));
        }
    }

    /// Writes a picture that is moved down and to the right, then mirrored.
    fn place(&self, from: &[f32], to: &mut [f32], ([down, right], is_mirrored): ([i64; 2], bool)) {
        let Picture { height, width, channels } = self.size;
        let channels = channels as usize;
        let mut pixels = to.chunks_exact_mut(channels);
        for row in 0..i64::from(height) {
            for column in 0..i64::from(width) {
                let Some(pixel) = pixels.next() else { return };
                let column = if is_mirrored { i64::from(width) - 1 - column } else { column };
                let (row, column) = (row - down, column - right);
                let is_inside =
                    (0..height.into()).contains(&row) && (0..width.into()).contains(&column);
                match is_inside {
                    true => {
                        let place = (row * i64::from(width) + column) as usize * channels;
                        pixel.copy_from_slice(&from[place..place + channels]);
                    }
                    false => pixel.fill(0.0),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn pictures_move_over_zeros_and_are_mirrored() {
        let size = Picture { height: 2, width: 3, channels: 2 };
        let from: Vec<f32> = (1..=12_u8).map(f32::from).collect();
        let placed = |change| {
            let mut to = vec![f32::NAN; 12];
            Augmentation { size, crop: 2, flip: true }.place(&from, &mut to, change);
            to
        };
        assert_eq!(placed(([0, 0], false)), from);
        let mirrored = [5, 6, 3, 4, 1, 2, 11, 12, 9, 10, 7, 8_u8].map(f32::from);
        assert_eq!(placed(([0, 0], true)), mirrored);
        let moved = [0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4_u8].map(f32::from);
        assert_eq!(placed(([1, 1], false)), moved);
        let moved = [9, 10, 11, 12, 0, 0, 0, 0, 0, 0, 0, 0_u8].map(f32::from);
        assert_eq!(placed(([-1, -1], false)), moved);
    }
}
