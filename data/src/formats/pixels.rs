//! Images as rows of pixels: shared by the formats of images.

/// Maps pixels from 0 to 255 to numbers from -1 to 1.
pub(super) fn numbers(pixels: &[u8], numbers: &mut [f32]) {
    for (number, &pixel) in numbers.iter_mut().zip(pixels) {
        *number = f32::from(pixel) / 127.5 - 1.0;
    }
}
