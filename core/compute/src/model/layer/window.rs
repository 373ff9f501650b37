//! The geometry of a window that moves over a picture.

use core::ops::Range;

use crate::examples::Picture;

/// A window of a convolution or pooling layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::model) struct Window {
    /// Rows and columns.
    pub(in crate::model) size: (u32, u32),
    /// Pixels from one place to the next, in both directions.
    pub(in crate::model) stride: u32,
    /// Rows above and below the picture, and columns at its sides, that the window may reach.
    pub(in crate::model) padding: u32,
}

impl Window {
    /// A square window.
    pub(in crate::model) const fn square(size: u32, stride: u32, padding: u32) -> Self {
        Self { size: (size, size), stride, padding }
    }

    /// The picture of the window's places in `input`, with as many channels; `None` if the window
    /// does not fit.
    pub(in crate::model) fn places(&self, input: Picture) -> Option<Picture> {
        let Self { size, stride, padding } = *self;
        let places = |length: u32, size: u32| {
            let room = length.checked_add(padding.checked_mul(2)?)?.checked_sub(size)?;
            (size > padding && stride > 0).then(|| room / stride + 1)
        };
        let (height, width) = (places(input.height, size.0)?, places(input.width, size.1)?);
        Some(Picture { height, width, ..input })
    }

    /// The rows of the window at `place`, or its columns, that lie in a picture of that `length`;
    /// with the first row or column of the picture under them.
    fn covered(&self, place: u32, length: u32, size: u32) -> (Range<u32>, u32) {
        let begin = place * self.stride;
        let first = self.padding.saturating_sub(begin);
        let last = (length + self.padding - begin).min(size);
        (first..last, begin + first - self.padding)
    }

    /// Calls `tap` with the number of each tap of the window at the pixel `place` of `places` that
    /// lies in the picture, and the pixel under it. Both ascend.
    #[inline(always)]
    pub(in crate::model) fn taps(
        &self,
        input: Picture,
        places: Picture,
        place: u32,
        mut tap: impl FnMut(u32, u32),
    ) {
        let (rows, top) = self.covered(place / places.width, input.height, self.size.0);
        let (columns, left) = self.covered(place % places.width, input.width, self.size.1);
        for (y, row) in rows.zip(top..) {
            for (x, column) in columns.clone().zip(left..) {
                tap(y * self.size.1 + x, row * input.width + column);
            }
        }
    }

    /// The number of taps.
    pub(in crate::model) const fn len(&self) -> u64 {
        self.size.0 as u64 * self.size.1 as u64
    }
}
