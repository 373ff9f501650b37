//! The canvas: its size, its font, texts on it, and the SVG, PNG and PDF formats.
//!
//! Drawing uses fine units, [`UNITS`] to a pixel of SVG, because the backend supports integers
//! only.

use std::borrow::Cow;
use std::io;
use std::sync::OnceLock;

use anyhow::{Context as _, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::register_font;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use ttf_parser::Face;

use super::{pdf, png, shapes};

/// The area that is drawn on.
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// The result of drawing.
pub(super) type Drawn<T = ()> = Result<T, DrawingAreaErrorKind<io::Error>>;

/// Width and height in fine units, and in pixels of the PNG.
pub(super) const SIZE: (i32, i32) = (1920, 1280);
/// Fine units per pixel of SVG: at a width of 480 pixels, texts are as large as the text of a
/// paper.
const UNITS: i32 = 4;
/// Text size of titles, in fine units.
pub(super) const TITLE: i32 = 66;
/// Text size of axis labels.
pub(super) const LABEL: i32 = 60;
/// Text size of ticks, legends and cells.
pub(super) const SMALL: i32 = 56;
/// The smallest text size.
pub(super) const SMALLEST: i32 = 40;

/// The word for what was never reached.
pub(super) const NEVER: &str = "never";

/// The first font is built in (and common on other systems), the second is the one that it was
/// modelled on.
const FAMILY: &str = "DejaVu Sans, Verdana, sans-serif";
static FONT: &[u8] = include_bytes!("../../assets/dejavu-sans-subset.ttf");

/// Draws on a white canvas; returns the SVG document.
pub(super) fn draw(
    title: &str,
    content: impl FnOnce(&Area<'_>) -> Drawn,
) -> anyhow::Result<String> {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    let known = *REGISTERED.get_or_init(|| register_font(FAMILY, FontStyle::Normal, FONT).is_ok());
    if !known {
        return Err(anyhow!("the built-in font cannot be read"));
    }
    let (width, height) = SIZE;
    let mut svg = String::new();
    {
        let area =
            SVGBackend::with_string(&mut svg, (width as u32, height as u32)).into_drawing_area();
        area.fill(&WHITE)
            .and_then(|()| content(&area))
            .and_then(|()| area.present())
            .with_context(|| format!("the picture `{title}` cannot be drawn"))?;
    }
    let shown = format!("width=\"{}\" height=\"{}\" role=\"img\"", width / UNITS, height / UNITS);
    let mut svg = svg.replacen(&format!("width=\"{width}\" height=\"{height}\""), &shown, 1);
    if let Some(end) = svg.find('>').filter(|_| !title.is_empty()) {
        svg.insert_str(end + 1, &maud::html! { title { (title) } }.into_string());
    }
    // Remove invisible characters, most of which XML forbids.
    svg.retain(|c| c == '\n' || !(c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}')));
    Ok(svg)
}

/// Points of PDF in a pixel of SVG.
const POINT: f32 = 0.75;

fn face() -> anyhow::Result<Face<'static>> {
    Face::parse(FONT, 0).context("the built-in font cannot be read")
}

/// Converts an SVG document of [`draw`] to PDF.
pub(super) fn to_pdf(svg: &str, title: &str) -> anyhow::Result<Vec<u8>> {
    let face = face()?;
    let unit = POINT / UNITS as f32;
    Ok(pdf::write(&shapes::of(svg, &face)?, SIZE, unit, title, (&face, FONT)))
}

/// Renders an SVG document of [`draw`] as PNG.
pub(super) fn rasterise(svg: &str) -> anyhow::Result<Vec<u8>> {
    let face = face()?;
    png::write(&shapes::of(svg, &face)?, SIZE, &face)
}

/// Returns the style of a text.
pub(super) fn style(size: i32, colour: RGBColor) -> TextStyle<'static> {
    // The backend writes text smaller than requested, by this factor.
    let mut style = TextStyle::from((FAMILY, 1.24 * f64::from(size)).into_font());
    style.color = colour.to_backend_color();
    style
}

/// Returns the width of a text.
pub(super) fn width(area: &Area<'_>, text: &str, size: i32) -> Drawn<i32> {
    // Measured at the font's own line height, 1.164 em, while the backend writes at 1.24 em.
    let measured = f64::from(area.estimate_text_size(text, &style(size, BLACK))?.0);
    Ok((measured * 1.164 / 1.24).ceil() as i32)
}

/// Returns the text, or the longest prefix that fits, with an ellipsis.
pub(super) fn shortened<'a>(
    area: &Area<'_>,
    text: &'a str,
    size: i32,
    room: i32,
) -> Drawn<Cow<'a, str>> {
    if width(area, text, size)? <= room {
        return Ok(text.into());
    }
    let mut kept = text.to_owned();
    while kept.pop().is_some() && width(area, &format!("{kept}…"), size)? > room {}
    Ok(format!("{}…", kept.trim_end()).into())
}

/// Returns the size at which all texts are at most `room` wide, between [`SMALLEST`] and `size`.
pub(super) fn fitting<'a>(
    area: &Area<'_>,
    texts: impl IntoIterator<Item = &'a str>,
    size: i32,
    room: i32,
) -> Drawn<i32> {
    let mut widest = 1;
    for text in texts {
        widest = widest.max(width(area, text, size)?);
    }
    let fits = f64::from(size) * f64::from(room) / f64::from(widest);
    Ok((fits as i32).clamp(SMALLEST, size))
}

/// The position of a text relative to its anchor point.
#[derive(Clone, Copy, Debug)]
pub(super) enum Anchor {
    /// Centred on it.
    Around,
    /// Below it, centred.
    Below,
    /// Right of it.
    Right,
    /// Left of it.
    Left,
    /// Centred on it, rotated to read upwards.
    Upwards,
    /// Below it, rotated to read upwards towards it.
    Hanging,
}

/// Writes one line of text.
pub(super) fn write(
    area: &Area<'_>,
    text: &str,
    at: (i32, i32),
    stands: Anchor,
    style: &TextStyle<'_>,
) -> Drawn {
    let (horizontal, vertical) = match stands {
        Anchor::Around | Anchor::Upwards => (HPos::Center, VPos::Center),
        Anchor::Below => (HPos::Center, VPos::Top),
        Anchor::Right => (HPos::Left, VPos::Center),
        Anchor::Left | Anchor::Hanging => (HPos::Right, VPos::Center),
    };
    let mut style = style.pos(Pos::new(horizontal, vertical));
    if matches!(stands, Anchor::Upwards | Anchor::Hanging) {
        style = style.transform(FontTransform::Rotate270);
    }
    // The backend centres on letters without ascenders; digits and capitals are taller.
    let lower = match vertical {
        VPos::Center => (0.08 * style.font.get_size() / 1.24).round() as i32,
        _ => 0,
    };
    let at = match stands {
        Anchor::Upwards | Anchor::Hanging => (at.0 + lower, at.1),
        _ => (at.0, at.1 + lower),
    };
    area.draw(&Text::new(text.to_owned(), at, style))
}

/// Writes the title; returns the top of the space below it.
pub(super) fn title(area: &Area<'_>, text: &str) -> Drawn<i32> {
    if text.is_empty() {
        return Ok(30);
    }
    let size = fitting(area, [text], TITLE, SIZE.0 - 80)?;
    let text = shortened(area, text, size, SIZE.0 - 80)?;
    write(area, &text, (SIZE.0 / 2, 28), Anchor::Below, &style(size, BLACK))?;
    Ok(28 + TITLE + 34)
}

/// Returns a label with its unit.
pub(super) fn labelled(label: &str, unit: &str) -> String {
    if unit.is_empty() { label.into() } else { format!("{label} ({unit})") }
}
