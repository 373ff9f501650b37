//! Images as rows of pixels: shared by the formats of images.

/// The pixels of a picture that is stored channel by channel, pixel by pixel.
pub(super) fn interleave(channels: usize, stored: &[f32], pixels: &mut Vec<f32>) {
    let length = stored.len() / channels;
    pixels.clear();
    pixels.extend((0..stored.len()).map(|at| stored[at % channels * length + at / channels]));
}

/// Maps pixels from 0 to 255 to numbers from -1 to 1.
pub(super) fn scale(pixels: &mut [f32]) {
    for pixel in pixels {
        *pixel = *pixel / 127.5 - 1.0;
    }
}
