//! The sheet: its size, its font, texts on it, and the two formats it is written in.
//!
//! Drawing happens in fine units, [`UNITS`] to a pixel of SVG: the backend knows whole numbers
//! only.

use std::borrow::Cow;
use std::io;
use std::sync::{Arc, OnceLock};

use anyhow::{Context as _, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::register_font;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use resvg::{tiny_skia, usvg};

/// What is drawn on.
pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// Whether it could be drawn.
pub(super) type Drawn<T = ()> = Result<T, DrawingAreaErrorKind<io::Error>>;

/// Width and height in fine units, and in pixels of the PNG.
pub(super) const SIZE: (i32, i32) = (1920, 1280);
/// Fine units to a pixel of SVG: at 480 pixels the texts are as large as a paper's own.
const UNITS: i32 = 4;
/// Text sizes in fine units.
pub(super) const TITLE: i32 = 66;
/// The axes' labels.
pub(super) const LABEL: i32 = 60;
/// Ticks, legends and cells.
pub(super) const SMALL: i32 = 56;
/// Nothing is written smaller than this.
pub(super) const SMALLEST: i32 = 40;

/// The first is built in (and near everywhere), the second is what it was drawn after.
const FAMILY: &str = "DejaVu Sans, Verdana, sans-serif";
static FONT: &[u8] = include_bytes!("../../assets/dejavu-sans-subset.ttf");

/// Draws on a white sheet and gives the SVG document.
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
    // Not allowed in XML, and nothing that could be seen.
    svg.retain(|c| c == '\n' || !(c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}')));
    Ok(svg)
}

/// Renders an SVG document of [`draw`] as PNG.
pub(super) fn rasterise(svg: &str) -> anyhow::Result<Vec<u8>> {
    static FONTS: OnceLock<Arc<usvg::fontdb::Database>> = OnceLock::new();
    let fontdb = FONTS.get_or_init(|| {
        let mut fonts = usvg::fontdb::Database::new();
        fonts.load_font_data(FONT.to_vec());
        Arc::new(fonts)
    });
    let options = usvg::Options { fontdb: Arc::clone(fontdb), ..usvg::Options::default() };
    let tree = usvg::Tree::from_str(svg, &options).context("the picture cannot be rendered")?;
    let mut pixels = tiny_skia::Pixmap::new(SIZE.0 as u32, SIZE.1 as u32)
        .context("there is no memory for the picture's pixels")?;
    let scale = tiny_skia::Transform::from_scale(UNITS as f32, UNITS as f32);
    resvg::render(&tree, scale, &mut pixels.as_mut());
    pixels.encode_png().context("the picture cannot be written as PNG")
}

/// A text's style.
pub(super) fn style(size: i32, colour: RGBColor) -> TextStyle<'static> {
    // The backend writes texts smaller than they are asked for by this factor.
    let mut style = TextStyle::from((FAMILY, 1.24 * f64::from(size)).into_font());
    style.color = colour.to_backend_color();
    style
}

/// How wide a text is.
pub(super) fn width(area: &Area<'_>, text: &str, size: i32) -> Drawn<i32> {
    // Measured at the font's own line height, 1.164 em, while the backend writes at 1.24 em.
    let measured = f64::from(area.estimate_text_size(text, &style(size, BLACK))?.0);
    Ok((measured * 1.164 / 1.24).ceil() as i32)
}

/// The text, or as much of its beginning as fits, with an ellipsis.
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

/// The size at which all texts are at most that wide, between `size` and [`SMALLEST`].
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

/// Where a text stands relative to its point.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stands {
    /// In the middle of it.
    Around,
    /// Below and in the middle.
    Below,
    /// Right of it.
    Right,
    /// Left of it.
    Left,
    /// Around it, read upwards.
    Upwards,
    /// Below it, read upwards towards it.
    Hanging,
}

/// Writes one line of text.
pub(super) fn write(
    area: &Area<'_>,
    text: &str,
    at: (i32, i32),
    stands: Stands,
    style: &TextStyle<'_>,
) -> Drawn {
    let (horizontal, vertical) = match stands {
        Stands::Around | Stands::Upwards => (HPos::Center, VPos::Center),
        Stands::Below => (HPos::Center, VPos::Top),
        Stands::Right => (HPos::Left, VPos::Center),
        Stands::Left | Stands::Hanging => (HPos::Right, VPos::Center),
    };
    let mut style = style.pos(Pos::new(horizontal, vertical));
    if matches!(stands, Stands::Upwards | Stands::Hanging) {
        style = style.transform(FontTransform::Rotate270);
    }
    // The backend centres the letters without ascenders; digits and capitals reach higher.
    let lower = match vertical {
        VPos::Center => (0.08 * style.font.get_size() / 1.24).round() as i32,
        _ => 0,
    };
    let at = match stands {
        Stands::Upwards | Stands::Hanging => (at.0 + lower, at.1),
        _ => (at.0, at.1 + lower),
    };
    area.draw(&Text::new(text.to_owned(), at, style))
}

/// Writes the title and says where the room under it begins.
pub(super) fn title(area: &Area<'_>, text: &str) -> Drawn<i32> {
    if text.is_empty() {
        return Ok(30);
    }
    let size = fitting(area, [text], TITLE, SIZE.0 - 80)?;
    let text = shortened(area, text, size, SIZE.0 - 80)?;
    write(area, &text, (SIZE.0 / 2, 28), Stands::Below, &style(size, BLACK))?;
    Ok(28 + TITLE + 34)
}

/// A label with its unit.
pub(super) fn labelled(label: &str, unit: &str) -> String {
    if unit.is_empty() { label.into() } else { format!("{label} ({unit})") }
}
