//! A drawn picture as PDF: the same shapes as its SVG, and texts that remain texts, in the embedded
//! built-in font.

use std::collections::BTreeMap;

use pdf_writer::types::{CidFontType, FontFlags, SystemInfo, UnicodeCmap};
use pdf_writer::{Buf, Content, Filter, Finish, Name, Pdf, Rect, Ref, Str, TextStr};
use tiny_skia::{Path, PathSegment};
use ttf_parser::Face;

use super::shapes::{Form, Glyph, Shape};

/// Compression level of the streams, from 0 to 10.
const LEVEL: u8 = 9;
const FONT: Name<'_> = Name(b"F");
/// The name of the built-in font; six letters say that it is a subset.
const BASE_FONT: Name<'_> = Name(b"SUBSET+DejaVuSans");
const SYSTEM: SystemInfo<'_> =
    SystemInfo { registry: Str(b"Adobe"), ordering: Str(b"Identity"), supplement: 0 };

const CATALOG: Ref = Ref::new(1);
const PAGES: Ref = Ref::new(2);
const PAGE: Ref = Ref::new(3);
const CONTENT: Ref = Ref::new(4);
const TYPE0: Ref = Ref::new(5);
const CID_FONT: Ref = Ref::new(6);
const DESCRIPTOR: Ref = Ref::new(7);
const FONT_FILE: Ref = Ref::new(8);
const UNICODE: Ref = Ref::new(9);
const ABOUT: Ref = Ref::new(10);
/// The first of the graphics states, one for each opacity.
const STATES: i32 = 11;

/// Writes shapes on a page of this width and height in fine units, each of which is `unit` points
/// wide; `face` and `font` are the built-in font and its file.
pub(super) fn write(
    shapes: &[Shape],
    size: (i32, i32),
    unit: f32,
    title: &str,
    (face, font): (&Face<'_>, &[u8]),
) -> Vec<u8> {
    let mut page =
        Page { content: Content::new(), glyphs: BTreeMap::new(), opacities: BTreeMap::new() };
    let size = (size.0 as f32 * unit, size.1 as f32 * unit);
    // PDF counts upwards from the lower edge.
    page.content.transform([unit, 0.0, 0.0, -unit, 0.0, size.1]);
    for shape in shapes {
        page.draw(shape);
    }
    let Page { content, glyphs, opacities, .. } = page;

    let mut pdf = Pdf::new();
    pdf.catalog(CATALOG).pages(PAGES);
    pdf.pages(PAGES).kids([PAGE]).count(1);
    let mut written = pdf.page(PAGE);
    written.media_box(Rect::new(0.0, 0.0, size.0, size.1)).parent(PAGES).contents(CONTENT);
    let mut resources = written.resources();
    resources.fonts().pair(FONT, TYPE0);
    let mut states = resources.ext_g_states();
    for place in opacities.values() {
        states.pair(Name(state(*place).as_bytes()), Ref::new(STATES + place));
    }
    states.finish();
    resources.finish();
    written.finish();
    for (opacity, place) in &opacities {
        let opacity = f32::from(*opacity) / 255.0;
        let mut state = pdf.ext_graphics(Ref::new(STATES + place));
        state.non_stroking_alpha(opacity).stroking_alpha(opacity);
    }
    stream(&mut pdf, CONTENT, &content.finish());
    write_font(&mut pdf, face, font, &glyphs);
    pdf.document_info(ABOUT).title(TextStr(title)).creator(TextStr("pstrain"));
    pdf.finish()
}

fn state(place: i32) -> String {
    format!("G{place}")
}

fn stream(pdf: &mut Pdf, id: Ref, bytes: &[u8]) {
    let packed = miniz_oxide::deflate::compress_to_vec_zlib(bytes, LEVEL);
    pdf.stream(id, &packed).filter(Filter::FlateDecode);
}

/// Embeds the font, with the widths and the characters of the glyphs that occur.
fn write_font(pdf: &mut Pdf, face: &Face<'_>, file: &[u8], glyphs: &BTreeMap<u16, char>) {
    let mut font = pdf.type0_font(TYPE0);
    font.base_font(BASE_FONT).encoding_predefined(Name(b"Identity-H"));
    font.descendant_font(CID_FONT).to_unicode(UNICODE);
    font.finish();
    let thousandths = |units: f32| 1000.0 * units / f32::from(face.units_per_em());
    let mut font = pdf.cid_font(CID_FONT);
    font.subtype(CidFontType::Type2).base_font(BASE_FONT).system_info(SYSTEM);
    font.font_descriptor(DESCRIPTOR)
        .default_width(0.0)
        .cid_to_gid_map_predefined(Name(b"Identity"));
    let mut widths = font.widths();
    for glyph in glyphs.keys() {
        let advance = face.glyph_hor_advance(ttf_parser::GlyphId(*glyph)).unwrap_or(0);
        widths.consecutive(*glyph, [thousandths(f32::from(advance))]);
    }
    widths.finish();
    font.finish();
    let bounds = face.global_bounding_box();
    let [left, low, right, high] = [bounds.x_min, bounds.y_min, bounds.x_max, bounds.y_max]
        .map(|units| thousandths(f32::from(units)));
    let ascent = thousandths(f32::from(face.ascender()));
    pdf.font_descriptor(DESCRIPTOR)
        .name(BASE_FONT)
        .flags(FontFlags::SYMBOLIC)
        .bbox(Rect::new(left, low, right, high))
        .italic_angle(0.0)
        .ascent(ascent)
        .descent(thousandths(f32::from(face.descender())))
        .cap_height(face.capital_height().map_or(ascent, |units| thousandths(f32::from(units))))
        .stem_v(80.0)
        .font_file2(FONT_FILE);
    let packed = miniz_oxide::deflate::compress_to_vec_zlib(file, LEVEL);
    let length = i32::try_from(file.len()).unwrap_or(i32::MAX);
    pdf.stream(FONT_FILE, &packed).filter(Filter::FlateDecode).pair(Name(b"Length1"), length);
    let mut unicode = UnicodeCmap::new(Name(b"Unicode"), SYSTEM);
    for (glyph, shows) in glyphs {
        unicode.pair(*glyph, *shows);
    }
    let unicode: Buf = unicode.finish();
    stream(pdf, UNICODE, unicode.as_slice());
}

/// The page while it is drawn.
struct Page {
    content: Content,
    /// The character of each glyph that occurs.
    glyphs: BTreeMap<u16, char>,
    /// The graphics state of each opacity, which counts in 255ths.
    opacities: BTreeMap<u8, i32>,
}

impl Page {
    fn draw(&mut self, Shape { colour, opacity, form }: &Shape) {
        let [red, green, blue] = colour.map(|part| f32::from(part) / 255.0);
        self.content.save_state();
        self.opacity(*opacity);
        match form {
            Form::Fill(path) => {
                self.content.set_fill_rgb(red, green, blue);
                self.outline(path);
                self.content.fill_nonzero();
            }
            Form::Stroke(path, width) => {
                self.content.set_stroke_rgb(red, green, blue).set_line_width(*width);
                self.outline(path);
                self.content.stroke();
            }
            Form::Text(glyphs) => {
                self.content.set_fill_rgb(red, green, blue).begin_text().set_font(FONT, 1.0);
                for Glyph { id, shows, place } in glyphs {
                    self.glyphs.entry(id.0).or_insert(*shows);
                    let matrix = [place.sx, place.ky, place.kx, place.sy, place.tx, place.ty];
                    self.content.set_text_matrix(matrix).show(Str(&id.0.to_be_bytes()));
                }
                self.content.end_text();
            }
        }
        self.content.restore_state();
    }

    fn opacity(&mut self, opacity: f32) {
        let next = self.opacities.len() as i32;
        let place = *self.opacities.entry((opacity * 255.0).round() as u8).or_insert(next);
        self.content.set_parameters(Name(state(place).as_bytes()));
    }

    fn outline(&mut self, path: &Path) {
        let mut at = (0.0, 0.0);
        for segment in path.segments() {
            match segment {
                PathSegment::MoveTo(to) => self.content.move_to(to.x, to.y),
                PathSegment::LineTo(to) => self.content.line_to(to.x, to.y),
                PathSegment::QuadTo(by, to) => {
                    let third = |from: f32, by: f32| from + 2.0 / 3.0 * (by - from);
                    self.content.cubic_to(
                        third(at.0, by.x),
                        third(at.1, by.y),
                        third(to.x, by.x),
                        third(to.y, by.y),
                        to.x,
                        to.y,
                    )
                }
                PathSegment::CubicTo(a, b, to) => {
                    self.content.cubic_to(a.x, a.y, b.x, b.y, to.x, to.y)
                }
                PathSegment::Close => self.content.close_path(),
            };
            if let PathSegment::MoveTo(to)
            | PathSegment::LineTo(to)
            | PathSegment::QuadTo(_, to)
            | PathSegment::CubicTo(_, _, to) = segment
            {
                at = (to.x, to.y);
            }
        }
    }
}
