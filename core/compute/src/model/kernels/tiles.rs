//! How a table is gone through in tiles whose values stay in registers.

use crate::simd::Simd;

/// A tile has at most so many strips.
pub(super) const MOST_STRIPS: usize = 3;

/// Something done for each of a number of rows and strips of columns.
pub(super) trait Tiles {
    /// What comes before the tiles of `G` strips from `strip` on.
    fn begin<const G: usize>(&mut self, strip: usize);
    /// Does it for `R` rows from `row` on, in `G` strips from `strip` on.
    fn tile<const R: usize, const G: usize>(&mut self, row: usize, strip: usize);
}

/// Goes through `rows` rows and `strips` strips, in tiles as large as fit the registers. What
/// registers there are is asked as a constant: tiles that do not fit are not even compiled.
#[inline(always)]
pub(super) fn cover<S: Simd>(rows: usize, strips: usize, tiles: &mut impl Tiles) {
    let mut strip = 0;
    while strip < strips {
        let left = strips - strip;
        strip += if const { S::REGISTERS < 16 } {
            // A sum alone waits for the one before: several rows run side by side.
            column::<4, 1>(rows, strip, tiles)
        } else if const { S::REGISTERS < 32 } {
            match left {
                1 => column::<8, 1>(rows, strip, tiles),
                2 | 4 => column::<4, 2>(rows, strip, tiles),
                _ => column::<4, 3>(rows, strip, tiles),
            }
        } else {
            match left {
                1 => column::<8, 1>(rows, strip, tiles),
                2 | 4 => column::<8, 2>(rows, strip, tiles),
                _ => column::<8, 3>(rows, strip, tiles),
            }
        };
    }
}

/// All rows of `G` strips, `R` at once: four or eight.
#[inline(always)]
fn column<const R: usize, const G: usize>(
    rows: usize,
    strip: usize,
    tiles: &mut impl Tiles,
) -> usize {
    tiles.begin::<G>(strip);
    let whole = rows - rows % R;
    let mut row = 0;
    while row < whole {
        tiles.tile::<R, G>(row, strip);
        row += R;
    }
    if const { R > 4 } && rows - row >= 4 {
        match rows - row {
            4 => tiles.tile::<4, G>(row, strip),
            5 => tiles.tile::<5, G>(row, strip),
            6 => tiles.tile::<6, G>(row, strip),
            _ => tiles.tile::<7, G>(row, strip),
        }
    } else {
        match rows - row {
            0 => (),
            1 => tiles.tile::<1, G>(row, strip),
            2 => tiles.tile::<2, G>(row, strip),
            _ => tiles.tile::<3, G>(row, strip),
        }
    }
    G
}
