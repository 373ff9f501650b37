//! Images as rows of pixels: shared by the formats of images.

/// Maps pixels from 0 to 255 to numbers from -1 to 1.
pub(super) fn scale(pixels: &mut [f32]) {
    for pixel in pixels {
        *pixel = *pixel / 127.5 - 1.0;
    }
}
