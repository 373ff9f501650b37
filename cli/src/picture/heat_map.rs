//! Drawing of a grid of colours with the number in each cell, and of the colour bar.

use plotters::prelude::*;

use super::HeatMap;
use super::canvas::{self, Anchor, Area, Drawn, LABEL, NEVER, SIZE, SMALL, SMALLEST};
use super::frame::{self, Frame, Written};
use super::scale::{self, Scale};

/// The width of the colour bar, and its distance from the map.
const BAR: (i32, i32) = (60, 60);
const STEPS: i32 = 64;
const UNKNOWN: RGBColor = RGBColor(235, 235, 235);

pub(super) fn draw(map: &HeatMap, area: &Area<'_>) -> Drawn {
    let cells = map.values.iter().flatten().filter_map(|value| *value);
    let span = map.span.into_iter().flat_map(|(low, high)| [low, high]);
    let colours = Scale::new(cells.chain(span), map.value.log, 0.0);
    let top = canvas::title(area, &map.title)? + SMALL / 3;

    let texts = || map.y.names.iter().map(String::as_str);
    let size = canvas::fitting(area, texts(), SMALL, SIZE.0 / 4)?;
    let left = frame::widest(area, texts(), size)?.min(SIZE.0 / 4);
    let beside = BAR.0 + BAR.1 + 28 + frame::widest_number(area, &colours)? + 30 + LABEL + 24;
    let right = SIZE.0 - beside;
    let guess = Frame::new(top, (left, SMALL), right);
    let written = Written::new(area, &map.x, right - guess.left)?;
    let frame = Frame::new(top, (left, written.height), right);

    fill(map, area, &frame, &colours)?;
    frame.axes(area)?;
    frame.names_x(area, &map.x, written)?;
    frame.names_y(area, &map.y, size)?;
    let along = |names: &super::Names| canvas::labelled(&names.label, &names.unit);
    frame.labels(area, &along(&map.x), &along(&map.y))?;
    colour_bar(map, area, &frame, &colours)
}

fn fill(map: &HeatMap, area: &Area<'_>, frame: &Frame, colours: &Scale) -> Drawn {
    let (rows, columns) = (map.y.names.len(), map.x.names.len());
    let share = |number: usize, of: usize| number as f64 / of.max(1) as f64;
    let number = Numbers::of(map);
    let room = (frame.x(share(1, columns)) - frame.left, frame.bottom - frame.y(share(1, rows)));
    let texts: Vec<String> = map
        .values
        .iter()
        .flatten()
        .flatten()
        .filter(|value| value.is_finite())
        .map(|value| number.text(*value))
        .collect();
    let size = canvas::fitting(area, texts.iter().map(String::as_str), SMALL, room.0 - 20)?;
    let size = size.min(room.1 - 8);
    let fits = size >= SMALLEST / 2
        && frame::widest(area, texts.iter().map(String::as_str), size)? < room.0;
    for row in 0..rows {
        for column in 0..columns {
            let value = map.values.get(row).and_then(|row| *row.get(column)?);
            let corners = [
                (frame.x(share(column, columns)), frame.y(share(row + 1, rows))),
                (frame.x(share(column + 1, columns)), frame.y(share(row, rows))),
            ];
            let Some((value, share)) = value.and_then(|v| Some((v, colours.share(v)?))) else {
                area.draw(&Rectangle::new(corners, UNKNOWN.filled()))?;
                let text = if value == Some(f64::INFINITY) { NEVER } else { "–" };
                let size = canvas::fitting(area, [text], SMALL, room.0 - 12)?.min(room.1 - 8);
                let style = canvas::style(size.max(SMALLEST / 2), BLACK);
                canvas::write(area, text, middle(corners), Anchor::Around, &style)?;
                continue;
            };
            let colour = ViridisRGB.get_color(share);
            area.draw(&Rectangle::new(corners, colour.filled()))?;
            if fits {
                let style = canvas::style(size, readable_on(colour));
                canvas::write(area, &number.text(value), middle(corners), Anchor::Around, &style)?;
            }
        }
    }
    Ok(())
}

fn middle([from, to]: [(i32, i32); 2]) -> (i32, i32) {
    ((from.0 + to.0) / 2, (from.1 + to.1) / 2)
}

fn colour_bar(map: &HeatMap, area: &Area<'_>, frame: &Frame, colours: &Scale) -> Drawn {
    let left = frame.right + BAR.1;
    let bar = Frame { left, right: left + BAR.0, ..*frame };
    for step in 0..STEPS {
        let share = |step: i32| f64::from(step) / f64::from(STEPS);
        let colour = ViridisRGB.get_color(f64::from(step) / f64::from(STEPS - 1));
        let corners = [(bar.left, bar.y(share(step + 1))), (bar.right, bar.y(share(step)))];
        area.draw(&Rectangle::new(corners, colour.filled()))?;
    }
    let style = canvas::style(SMALL, BLACK);
    for tick in &colours.ticks {
        let y = bar.y((tick - colours.low) / (colours.high - colours.low));
        let stroke = vec![(bar.right, y), (bar.right + 12, y)];
        area.draw(&PathElement::new(stroke, BLACK.stroke_width(4)))?;
        canvas::write(area, &colours.label(*tick), (bar.right + 26, y), Anchor::Right, &style)?;
    }
    let label = frame::label(&map.value);
    let size = canvas::fitting(area, [label.as_str()], LABEL, frame.bottom - frame.top)?;
    let at = (SIZE.0 - 24 - LABEL / 2, bar.y(0.5));
    canvas::write(area, &label, at, Anchor::Upwards, &canvas::style(size, BLACK))
}

/// The format of the numbers of one map: all with the same decimals, as in a table, and with enough
/// of them that different colours have different numbers.
enum Numbers {
    Fixed(usize),
    Significant,
}

impl Numbers {
    fn of(map: &HeatMap) -> Self {
        let values = || map.values.iter().flatten().flatten().filter(|value| value.is_finite());
        let largest = values().fold(0.0_f64, |largest, value| largest.max(value.abs()));
        let least = values().fold(f64::INFINITY, |least, value| least.min(*value));
        let most = values().fold(f64::NEG_INFINITY, |most, value| most.max(*value));
        let apart = (1.0 - (most - least).log10().floor()).clamp(0.0, 4.0) as usize;
        match largest {
            _ if map.value.log => Self::Significant,
            0.1..1.0 => Self::Fixed(apart.max(2)),
            1.0..10.0 => Self::Fixed(2),
            10.0..100.0 => Self::Fixed(1),
            100.0..1e5 => Self::Fixed(0),
            _ => Self::Significant,
        }
    }

    fn text(&self, value: f64) -> String {
        match self {
            Self::Fixed(decimals) => scale::fixed(value, *decimals),
            Self::Significant => scale::significant(value, 3),
        }
    }
}

/// Returns black or white, whichever contrasts more with a colour.
fn readable_on(RGBColor(red, green, blue): RGBColor) -> RGBColor {
    let light = 0.299 * f64::from(red) + 0.587 * f64::from(green) + 0.114 * f64::from(blue);
    if light > 120.0 { BLACK } else { WHITE }
}
