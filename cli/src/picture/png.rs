//! A drawn picture as PNG: the shapes of its SVG, rasterised.

use anyhow::Context as _;
use tiny_skia::{Color, FillRule, Paint, Path, PathBuilder, Pixmap, Shader, Stroke, Transform};
use ttf_parser::{Face, OutlineBuilder};

use super::shapes::{Form, Glyph, Shape};

/// Renders shapes on a white page of this width and height in fine units, one pixel each.
pub(super) fn write(
    shapes: &[Shape],
    size: (i32, i32),
    face: &Face<'_>,
) -> anyhow::Result<Vec<u8>> {
    let mut pixels = Pixmap::new(size.0 as u32, size.1 as u32)
        .context("there is no memory for the picture's pixels")?;
    pixels.fill(Color::WHITE);
    for Shape { colour: [red, green, blue], opacity, form } in shapes {
        let mut paint = Paint::default();
        let mut colour = Color::from_rgba8(*red, *green, *blue, u8::MAX);
        colour.apply_opacity(*opacity);
        paint.shader = Shader::SolidColor(colour);
        let mut fill = |path: &Path, place| {
            pixels.fill_path(path, &paint, FillRule::Winding, place, None);
        };
        match form {
            Form::Fill(path) => fill(path, Transform::identity()),
            Form::Stroke(path, width) => {
                let stroke = Stroke { width: *width, ..Stroke::default() };
                pixels.stroke_path(path, &paint, &stroke, Transform::identity(), None);
            }
            Form::Text(glyphs) => {
                for glyph in glyphs {
                    if let Some(path) = outline(glyph, face) {
                        let ems = 1.0 / f32::from(face.units_per_em());
                        fill(&path, glyph.place.pre_scale(ems, ems));
                    }
                }
            }
        }
    }
    pixels.encode_png().context("the picture cannot be written as PNG")
}

/// Returns the outline of a glyph in the units of its font; None if it is blank.
fn outline(glyph: &Glyph, face: &Face<'_>) -> Option<Path> {
    let mut outline = Outline(PathBuilder::new());
    face.outline_glyph(glyph.id, &mut outline)?;
    outline.0.finish()
}

struct Outline(PathBuilder);

impl OutlineBuilder for Outline {
    fn move_to(&mut self, x: f32, y: f32) {
        self.0.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.0.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.0.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.0.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.0.close();
    }
}
