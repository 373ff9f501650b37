//! The appearance of series: colours, dashes, markers, and the legend.

use plotters::element::DashedPathElement;
use plotters::prelude::*;

use super::canvas::{self, Anchor, Area, Drawn, SIZE, SMALL};

/// Okabe and Ito's palette, the pale yellow last; ordered so that neighbours differ in grey, too.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
    RGBColor(204, 121, 167),
    RGBColor(240, 228, 66),
];

/// Lengths of dash and gap; None is a solid line. Eight series differ in colour and marker; series
/// `n` and `n + 8` share these and differ in dash.
const DASHES: [Option<(i32, i32)>; 4] = [None, Some((44, 20)), Some((10, 16)), Some((90, 24))];

/// The width of a line.
pub(super) const STROKE: u32 = 7;
/// Half the size of a marker.
pub(super) const MARKER: i32 = 17;

/// Returns the colour of a series.
pub(super) fn colour(series: usize) -> RGBColor {
    COLOURS[series % COLOURS.len()]
}

/// Draws a line through points, in the dash of its series.
pub(super) fn line(area: &Area<'_>, series: usize, points: &[(i32, i32)]) -> Drawn {
    let style = colour(series).stroke_width(STROKE);
    // A second round through the eight colours shifts the dashes.
    let kind = (series + series / COLOURS.len()) % DASHES.len();
    match DASHES[kind] {
        None => area.draw(&PathElement::new(points.to_vec(), style)),
        Some((dash, gap)) => {
            area.draw(&DashedPathElement::new(points.iter().copied(), dash, gap, style))
        }
    }
}

/// Draws the marker of a series; from the ninth series on, with a hole.
pub(super) fn marker(area: &Area<'_>, series: usize, at: (i32, i32)) -> Drawn {
    shape(area, series, at)?;
    if series < COLOURS.len() {
        return Ok(());
    }
    area.draw(&Circle::new(at, MARKER * 2 / 5, WHITE.filled()))
}

fn shape(area: &Area<'_>, series: usize, (x, y): (i32, i32)) -> Drawn {
    let colour = colour(series);
    let shape = |corners: &[(i32, i32)]| -> Drawn {
        let corners = corners.iter().map(|(dx, dy)| (x + dx * MARKER / 10, y + dy * MARKER / 10));
        area.draw(&Polygon::new(corners.collect::<Vec<_>>(), colour.filled()))
    };
    let strokes = |ends: [[(i32, i32); 2]; 2]| -> Drawn {
        for stroke in ends {
            let ends = stroke.map(|(dx, dy)| (x + dx * MARKER / 10, y + dy * MARKER / 10));
            area.draw(&PathElement::new(ends.to_vec(), colour.stroke_width(STROKE)))?;
        }
        Ok(())
    };
    match series % 8 {
        0 => area.draw(&Circle::new((x, y), MARKER, colour.filled())),
        1 => shape(&[(-9, -9), (9, -9), (9, 9), (-9, 9)]),
        2 => shape(&[(0, -12), (11, 8), (-11, 8)]),
        3 => shape(&[(0, -13), (13, 0), (0, 13), (-13, 0)]),
        4 => shape(&[(0, 12), (11, -8), (-11, -8)]),
        5 => strokes([[(-10, -10), (10, 10)], [(-10, 10), (10, -10)]]),
        6 => strokes([[(-13, 0), (13, 0)], [(0, -13), (0, 13)]]),
        _ => area.draw(&Circle::new((x, y), MARKER, colour.stroke_width(STROKE))),
    }
}

/// Draws the vertical stroke of an interval, with a cap at each end.
pub(super) fn interval(
    area: &Area<'_>,
    x: i32,
    (low, high): (i32, i32),
    colour: RGBColor,
) -> Drawn {
    let cap = MARKER * 2 / 3;
    for stroke in [
        [(x, low), (x, high)],
        [(x - cap, low), (x + cap, low)],
        [(x - cap, high), (x + cap, high)],
    ] {
        area.draw(&PathElement::new(stroke.to_vec(), colour.stroke_width(4)))?;
    }
    Ok(())
}

/// Writes the legend in rows below `top`, after its heading; returns the top of the space below it.
/// `sample` draws the sample of a series into a rectangle. Draws nothing for fewer than two series.
pub(super) fn legend(
    area: &Area<'_>,
    heading: &str,
    names: &[&str],
    top: i32,
    sample: impl Fn(usize, (i32, i32), (i32, i32)) -> Drawn,
) -> Drawn<i32> {
    const SAMPLE: i32 = 130;
    const ROW: i32 = SMALL + 16;
    const ROOM: i32 = SIZE.0 - 120;
    const NAME: i32 = ROOM - SAMPLE - 70;
    if names.len() < 2 {
        return Ok(top);
    }
    let size = canvas::fitting(area, names.iter().copied(), SMALL, NAME)?;
    let mut rows: Vec<Vec<(Option<usize>, i32)>> = vec![Vec::new()];
    let mut used = 0;
    let heading = if heading.is_empty() { String::new() } else { format!("{heading}:") };
    let headed = (!heading.is_empty()).then_some(None);
    for item in headed.into_iter().chain((0..names.len()).map(Some)) {
        let width = match item {
            Some(series) => SAMPLE + 20 + canvas::width(area, names[series], size)?.min(NAME) + 50,
            None => canvas::width(area, &heading, size)?.min(ROOM) + 50,
        };
        if used + width > ROOM && used > 0 {
            rows.push(Vec::new());
            used = 0;
        }
        used += width;
        if let Some(row) = rows.last_mut() {
            row.push((item, width));
        }
    }
    for (number, row) in rows.iter().enumerate() {
        let y = top + number as i32 * ROW + ROW / 2;
        let mut x = (SIZE.0 - row.iter().map(|(_, width)| width).sum::<i32>() + 50) / 2;
        for (item, width) in row {
            let style = canvas::style(size, BLACK);
            if let Some(series) = item {
                sample(*series, (x, y - ROW * 3 / 10), (x + SAMPLE, y + ROW * 3 / 10))?;
                let name = canvas::shortened(area, names[*series], size, NAME)?;
                canvas::write(area, &name, (x + SAMPLE + 20, y), Anchor::Right, &style)?;
            } else {
                let heading = canvas::shortened(area, &heading, size, ROOM)?;
                canvas::write(area, &heading, (x, y), Anchor::Right, &style)?;
            }
            x += width;
        }
    }
    Ok(top + rows.len() as i32 * ROW + 14)
}
