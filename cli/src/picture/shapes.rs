//! The shapes of a picture, as its SVG has them: what PNG and PDF are made of.

use anyhow::Context as _;
use roxmltree::Node;
use tiny_skia::{Path, PathBuilder, Rect, Transform};
use ttf_parser::{Face, GlyphId};

/// One shape, in fine units from the upper left corner.
pub(super) struct Shape {
    /// Red, green and blue.
    pub(super) colour: [u8; 3],
    /// From 0, invisible, to 1.
    pub(super) opacity: f32,
    pub(super) form: Form,
}

/// The area that a shape covers.
pub(super) enum Form {
    /// The inside of a path.
    Fill(Path),
    /// A line of this width along a path.
    Stroke(Path, f32),
    /// A line of text.
    Text(Vec<Glyph>),
}

/// A glyph of the built-in font.
pub(super) struct Glyph {
    pub(super) id: GlyphId,
    /// The character that it shows.
    pub(super) shows: char,
    /// From ems of the font, with y upwards, to the picture.
    pub(super) place: Transform,
}

/// Reads the shapes of an SVG document of [`super::canvas::draw`], in the order of drawing.
pub(super) fn of(svg: &str, face: &Face<'_>) -> anyhow::Result<Vec<Shape>> {
    let document = roxmltree::Document::parse(svg).context("the picture is no SVG")?;
    let elements = document.root_element().children().filter(Node::is_element);
    Ok(elements.filter_map(|element| shape(element, face)).collect())
}

/// Returns the shape of an element; None if it shows nothing.
fn shape(element: Node<'_, '_>, face: &Face<'_>) -> Option<Shape> {
    let number = |name| element.attribute(name).and_then(|value| value.parse::<f32>().ok());
    let [fill, stroke] = ["fill", "stroke"].map(|name| colour(element.attribute(name)));
    let path = match element.tag_name().name() {
        "rect" => {
            let (x, y) = (number("x")?, number("y")?);
            let corners = Rect::from_ltrb(x, y, x + number("width")?, y + number("height")?)?;
            PathBuilder::from_rect(corners)
        }
        "circle" => PathBuilder::from_circle(number("cx")?, number("cy")?, number("r")?)?,
        "line" => path([(number("x1")?, number("y1")?), (number("x2")?, number("y2")?)], false)?,
        name @ ("polyline" | "polygon") => {
            let points = element.attribute("points")?.split_whitespace();
            let points = points.filter_map(|point| {
                let (x, y) = point.split_once(',')?;
                Some((x.parse().ok()?, y.parse().ok()?))
            });
            path(points, name == "polygon")?
        }
        "text" => {
            let form = Form::Text(line(element, face)?);
            return Some(Shape { colour: fill?, opacity: number("opacity")?, form });
        }
        // The title, which viewers show.
        _ => return None,
    };
    let (colour, form) = match (fill, stroke) {
        (Some(colour), _) => (colour, Form::Fill(path)),
        (None, stroke) => (stroke?, Form::Stroke(path, number("stroke-width").unwrap_or(1.0))),
    };
    Some(Shape { colour, opacity: number("opacity")?, form })
}

/// Reads `#RRGGBB`; None for `none`.
fn colour(value: Option<&str>) -> Option<[u8; 3]> {
    let value = u32::from_str_radix(value?.strip_prefix('#')?, 16).ok()?;
    let [_, red, green, blue] = value.to_be_bytes();
    Some([red, green, blue])
}

fn path(points: impl IntoIterator<Item = (f32, f32)>, is_closed: bool) -> Option<Path> {
    let mut path = PathBuilder::new();
    for (x, y) in points {
        match path.is_empty() {
            true => path.move_to(x, y),
            false => path.line_to(x, y),
        }
    }
    if is_closed {
        path.close();
    }
    path.finish()
}

/// Places the glyphs of a text. The built-in font has no kerning.
fn line(element: Node<'_, '_>, face: &Face<'_>) -> Option<Vec<Glyph>> {
    let number = |name| element.attribute(name)?.parse::<f32>().ok();
    let (x, y, size) = (number("x")?, number("y")?, number("font-size")?);
    let em = f32::from(face.units_per_em());
    let glyph = |shows| {
        let id = face.glyph_index(shows).unwrap_or_default();
        (id, shows, f32::from(face.glyph_hor_advance(id).unwrap_or(0)) / em)
    };
    let glyphs: Vec<_> = element.text()?.trim().chars().map(glyph).collect();
    let width: f32 = glyphs.iter().map(|(_, _, advance)| advance).sum();
    let start = match element.attribute("text-anchor")? {
        "middle" => -width / 2.0,
        "end" => -width,
        _ => 0.0,
    };
    // An `ex` is half an em.
    let below = match element.attribute("dy")?.trim_end_matches(char::is_alphabetic) {
        "0.76" => 0.76,
        "0.5" => 0.25,
        _ => -0.25,
    };
    let turned = match element.attribute("transform") {
        Some(_) => Transform::from_rotate_at(270.0, x, y),
        None => Transform::identity(),
    };
    let mut pen = start;
    let place = glyphs.into_iter().map(|(id, shows, advance)| {
        let (left, baseline) = (x + size * pen, y + size * below);
        pen += advance;
        let place = turned.pre_concat(Transform::from_row(size, 0.0, 0.0, -size, left, baseline));
        Glyph { id, shows, place }
    });
    Some(place.collect())
}
