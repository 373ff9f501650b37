//! Traversal of a matrix in tiles that fit the registers.

use crate::simd::Simd;

/// The largest number of strips in a tile.
pub(super) const MOST_STRIPS: usize = 2;

/// An operation on rows and strips of columns.
pub(super) trait Tiles {
    /// Prepares the tiles of `G` strips from `strip` on.
    fn begin<const G: usize>(&mut self, strip: usize);
    /// Performs the operation on `R` rows from `row` on and `G` strips from `strip` on.
    fn tile<const R: usize, const G: usize>(&mut self, row: usize, strip: usize);
}

/// Covers `rows` rows and `strips` strips, one group of strips after the other: a group is prepared
/// once for all rows.
#[inline(always)]
pub(super) fn cover<S: Simd>(rows: usize, strips: usize, tiles: &mut impl Tiles) {
    let mut strip = 0;
    while strip < strips {
        let width = begin::<S>(strips - strip, strip, tiles);
        let mut row = 0;
        while row < rows {
            row += tile::<S>(rows - row, width, (row, strip), tiles);
        }
        strip += width;
    }
}

/// Prepares all groups of strips.
#[inline(always)]
pub(super) fn prepare<S: Simd>(strips: usize, tiles: &mut impl Tiles) {
    let mut strip = 0;
    while strip < strips {
        strip += begin::<S>(strips - strip, strip, tiles);
    }
}

/// Covers `rows` rows and `strips` strips, one group of rows after the other: an operation on whole
/// rows of a large matrix passes through memory once. The groups of strips are
/// [prepared](prepare).
#[inline(always)]
pub(super) fn cover_by_rows<S: Simd>(rows: usize, strips: usize, tiles: &mut impl Tiles) {
    let mut row = 0;
    while row < rows {
        let (mut strip, mut height) = (0, 0);
        while strip < strips {
            let width = width::<S>(strips - strip);
            height = tile::<S>(rows - row, width, (row, strip), tiles);
            strip += width;
        }
        row += height;
    }
}

/// The strips of the next group, of `left` strips.
#[inline(always)]
fn width<S: Simd>(left: usize) -> usize {
    if const { S::REGISTERS < 16 } { 1 } else { left.min(2) }
}

/// Prepares the next group of strips, and returns their number.
#[inline(always)]
fn begin<S: Simd>(left: usize, strip: usize, tiles: &mut impl Tiles) -> usize {
    let width = width::<S>(left);
    match width {
        2 if const { S::REGISTERS >= 16 } => tiles.begin::<2>(strip),
        _ => tiles.begin::<1>(strip),
    }
    width
}

/// Performs the operation on the next of `left` rows and returns their number. The tiles of a group
/// differ by at most one row: a low tile leaves registers idle.
///
/// Six rows of two strips are twelve accumulators, two registers of the right factor and a
/// broadcast value of the left one. Larger tiles are slower, with 32 registers as well: the
/// compiler broadcasts values in advance and keeps accumulators in memory.
#[inline(always)]
fn tile<S: Simd>(
    left: usize,
    width: usize,
    (row, strip): (usize, usize),
    tiles: &mut impl Tiles,
) -> usize {
    // A single accumulator waits for its previous addition: several rows run side by side.
    let most = if const { S::REGISTERS < 16 } { 4 } else { 6 };
    let height = left.div_ceil(left.div_ceil(most));
    match width {
        2 if const { S::REGISTERS >= 16 } => rows::<S, 2>(height, row, strip, tiles),
        _ => rows::<S, 1>(height, row, strip, tiles),
    }
    height
}

#[inline(always)]
fn rows<S: Simd, const G: usize>(height: usize, row: usize, strip: usize, tiles: &mut impl Tiles) {
    match height {
        1 => tiles.tile::<1, G>(row, strip),
        2 => tiles.tile::<2, G>(row, strip),
        3 => tiles.tile::<3, G>(row, strip),
        5 if const { S::REGISTERS >= 16 } => tiles.tile::<5, G>(row, strip),
        6 if const { S::REGISTERS >= 16 } => tiles.tile::<6, G>(row, strip),
        _ => tiles.tile::<4, G>(row, strip),
    }
}
