//! Traversal of a matrix in tiles that fit the registers.

use crate::simd::Simd;

/// The largest number of strips in a tile.
pub(super) const MOST_STRIPS: usize = 3;

/// An operation on rows and strips of columns.
pub(super) trait Tiles {
    /// Prepares the tiles of `G` strips from `strip` on.
    fn begin<const G: usize>(&mut self, strip: usize);
    /// Performs the operation on `R` rows from `row` on and `G` strips from `strip` on.
    fn tile<const R: usize, const G: usize>(&mut self, row: usize, strip: usize);
}

/// Covers `rows` rows and `strips` strips with the largest tiles that fit the registers. The
/// register count is checked as a constant, so that tiles that do not fit are not even compiled.
#[inline(always)]
pub(super) fn cover<S: Simd>(rows: usize, strips: usize, tiles: &mut impl Tiles) {
    let mut strip = 0;
    while strip < strips {
        let left = strips - strip;
        strip += if const { S::REGISTERS < 16 } {
            // A single accumulator waits for its previous addition: several rows run side by side.
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

/// Covers all rows of `G` strips, `R` rows at a time (four or eight), then the rest in one tile.
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
