//! Drawing of grouped bars; of points, where the axis is logarithmic.

use plotters::prelude::*;

use super::Bars;
use super::canvas::{self, Anchor, Area, Drawn, NEVER, SIZE, SMALL, SMALLEST};
use super::frame::{self, Frame, Written};
use super::scale::Scale;
use super::style;

/// The share of a group's width that its bars fill.
const FILLED: f64 = 0.8;
const EDGE: u32 = 3;

pub(super) fn draw(bars: &Bars, area: &Area<'_>) -> Drawn {
    let known = bars.series.iter().flat_map(|series| series.bars.iter().flatten());
    let base = bars.from.or_else(|| (!bars.y.log).then_some(0.0));
    let above = |height: &f64| bars.from.is_none_or(|from| *height >= from);
    let heights = known.flat_map(|bar| [bar.value, bar.low, bar.high]).filter(above);
    let y = Scale::heights(heights.chain(base), bars.y.log);

    let top = canvas::title(area, &bars.title)?;
    let names: Vec<&str> = bars.series.iter().map(|series| series.name.as_str()).collect();
    let top = style::legend(area, &bars.legend, &names, top, |series, upper_left, lower_right| {
        let middle = ((upper_left.0 + lower_right.0) / 2, (upper_left.1 + lower_right.1) / 2);
        match bars.y.log {
            true => style::marker(area, series, middle),
            false => block(area, series, upper_left, lower_right),
        }
    })?;
    let number = frame::widest_number(area, &y)?;
    let right = SIZE.0 - 40;
    let guess = Frame::new(top, (number, SMALL), right);
    let written = Written::new(area, &bars.x, right - guess.left)?;
    let frame = Frame::new(top + SMALL / 3, (number, written.height), right);
    frame.numbers_y(area, &y)?;

    let width = FILLED / bars.series.len().max(1) as f64;
    let groups = bars.x.names.len().max(1) as f64;
    let base = match bars.from {
        Some(_) => frame.bottom,
        None => frame.y((y.end(0.0) - y.low) / (y.high - y.low)),
    };
    for (number, series) in bars.series.iter().enumerate() {
        for (group, bar) in series.bars.iter().take(bars.x.names.len()).enumerate() {
            let Some(bar) = bar else { continue };
            let left = group as f64 + (1.0 - FILLED) / 2.0 + number as f64 * width;
            let (left, right) = (frame.x(left / groups), frame.x((left + width) / groups));
            let middle = (left + right) / 2;
            let Some(share) = y.share(bar.value) else {
                if bar.value == f64::INFINITY {
                    never(area, (middle, frame.bottom), right - left)?;
                }
                continue;
            };
            let height = frame.y(share);
            let interval = |colour| match bar.high > bar.low {
                true => {
                    let end = |value: f64| frame.y((y.end(value) - y.low) / (y.high - y.low));
                    style::interval(area, middle, (end(bar.low), end(bar.high)), colour)
                }
                false => Ok(()),
            };
            if bars.y.log {
                interval(style::colour(number))?;
                style::marker(area, number, (middle, height))?;
            } else {
                block(area, number, (left, height.min(base)), (right, height.max(base)))?;
                interval(BLACK)?;
            }
        }
    }
    frame.axes(area)?;
    frame.names_x(area, &bars.x, written)?;
    frame.labels(area, &canvas::labelled(&bars.x.label, &bars.x.unit), &frame::label(&bars.y))
}

/// Says at the foot of a bar's place that its value was never reached.
fn never(area: &Area<'_>, (x, bottom): (i32, i32), width: i32) -> Drawn {
    let style = canvas::style(width.clamp(SMALLEST, SMALL), BLACK);
    let half = canvas::width(area, NEVER, width.clamp(SMALLEST, SMALL))? / 2;
    canvas::write(area, NEVER, (x, bottom - half - 16), Anchor::Upwards, &style)
}

/// Draws a filled block with an edge. Two of every three series are hatched, so that they differ in
/// greyscale print.
fn block(
    area: &Area<'_>,
    series: usize,
    (left, top): (i32, i32),
    (right, bottom): (i32, i32),
) -> Drawn {
    const HATCH: usize = 22;
    let corners = [(left, top), (right, bottom)];
    area.draw(&Rectangle::new(corners, style::colour(series).filled()))?;
    let rows = (top..bottom).rev().map(|y| [(left, y), (right, y)]);
    let columns = (left..right).map(|x| [(x, top), (x, bottom)]);
    let hatch: Vec<_> = match series % 3 {
        0 => Vec::new(),
        1 => rows.step_by(HATCH).skip(1).collect(),
        _ => columns.step_by(HATCH).skip(1).collect(),
    };
    for line in hatch {
        area.draw(&PathElement::new(line.to_vec(), WHITE.stroke_width(4)))?;
    }
    let edge = vec![(left, bottom), (left, top), (right, top), (right, bottom), (left, bottom)];
    area.draw(&PathElement::new(edge, BLACK.stroke_width(EDGE)))
}
