//! Drawing of lines with confidence bands or error bars.

use plotters::prelude::*;

use super::canvas::{self, Area, Drawn, SIZE, SMALL};
use super::frame::{self, Frame};
use super::scale::Scale;
use super::style;
use super::{Chart, Mark, Series};

/// Up to this many points, each has a marker and an error bar.
const FEW: usize = 15;
/// Number of markers on a longer line.
const MARKERS: usize = 6;

pub(super) fn draw(chart: &Chart, area: &Area<'_>) -> Drawn {
    let marks = || chart.series.iter().flat_map(|series| &series.marks);
    let few = chart.series.iter().all(|series| series.marks.len() <= FEW);
    let mut x = if chart.x_names.is_empty() {
        let scale =
            Scale::new(marks().map(|mark| mark.x), chart.x.log, if few { 0.03 } else { 0.0 });
        if few { scale.at(marks().map(|mark| mark.x)) } else { scale }
    } else {
        Scale::named(&chart.x_names)
    };
    let drawn = marks().filter(|mark| x.place(mark.x).is_some());
    let is_never = drawn.clone().any(|mark| mark.y == f64::INFINITY);
    let heights = drawn.flat_map(|mark| [mark.y, mark.low, mark.high]);
    let y = Scale::heights(heights, chart.y.log);

    let top = canvas::title(area, &chart.title)?;
    let names = names(chart);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let top = style::legend(
        area,
        &chart.legend,
        &names,
        top,
        |series, (left, upper), (right, lower)| {
            let y = (upper + lower) / 2;
            if !few && has_interval(&chart.series[series]) {
                let band = [(left, upper), (right, upper), (right, lower), (left, lower)];
                area.draw(&Polygon::new(band.to_vec(), style::colour(series).mix(BAND).filled()))?;
            }
            style::line(area, series, &[(left, y), (right, y)])?;
            style::marker(area, series, ((left + right) / 2, y))
        },
    )?;

    let mut number = frame::widest_number(area, &y)?;
    if is_never {
        number = number.max(canvas::width(area, canvas::NEVER, SMALL)?);
    }
    let framed = |x: &Scale| -> Drawn<Frame> {
        let last = x.ticks.last().map_or_else(String::new, |tick| x.label(*tick));
        let right = SIZE.0 - 24 - (canvas::width(area, &last, SMALL)? / 2).max(16);
        Ok(Frame::new(top + SMALL / 3, (number, SMALL), right))
    };
    let mut frame = framed(&x)?;
    while !frame.fits_x(area, &x)?
        && let Some(sparser) = x.sparser()
    {
        x = sparser;
        frame = framed(&x)?;
    }
    frame.numbers_x(area, &x)?;
    let (below, never) = if is_never { frame.with_row(area)? } else { (frame, frame.top) };
    below.numbers_y(area, &y)?;
    frame.axes(area)?;
    frame.labels(area, &frame::label(&chart.x), &frame::label(&chart.y))?;
    let plot = Plot { area, frame: below, x, y, never };
    // Bands first, so that they lie below all lines.
    for (number, series) in chart.series.iter().enumerate() {
        plot.intervals(number, series)?;
    }
    for (number, series) in chart.series.iter().enumerate() {
        plot.line(number, series, chart.series.len())?;
    }
    Ok(())
}

/// Returns the names for the legend: a line that lies on an earlier one says so, since it hides
/// that one.
fn names(chart: &Chart) -> Vec<String> {
    let name = |(number, series): (usize, &Series)| {
        let earlier = chart.series.iter().take(number);
        let same = earlier.into_iter().find(|earlier| coincide(earlier, series));
        match same {
            Some(Series { name, .. }) => format!("{} (the same line as {name})", series.name),
            None => series.name.clone(),
        }
    };
    chart.series.iter().enumerate().map(name).collect()
}

/// True if two lines go through the same points.
fn coincide(one: &Series, other: &Series) -> bool {
    let points = |series: &Series| -> Vec<(f64, f64)> {
        let finite = series.marks.iter().filter(|mark| mark.x.is_finite() && mark.y.is_finite());
        finite.map(|mark| (mark.x, mark.y)).collect()
    };
    let (one, other) = (points(one), points(other));
    let is_near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(b.abs());
    !one.is_empty()
        && one.len() == other.len()
        && one.iter().zip(&other).all(|(a, b)| is_near(a.0, b.0) && is_near(a.1, b.1))
}

/// Opacity of a band.
const BAND: f64 = 0.22;

fn has_interval(series: &Series) -> bool {
    series.marks.iter().any(|mark| mark.high > mark.low)
}

struct Plot<'a, 'b> {
    area: &'a Area<'b>,
    frame: Frame,
    x: Scale,
    y: Scale,
    /// The height of marks that were never reached.
    never: i32,
}

impl Plot<'_, '_> {
    fn at(&self, mark: &Mark) -> Option<(i32, i32)> {
        Some((self.frame.x(self.x.share(mark.x)?), self.frame.y(self.y.share(mark.y)?)))
    }

    /// Returns the ends of a mark's interval on the canvas.
    fn ends(&self, mark: &Mark) -> (i32, i32) {
        let end = |value: f64| {
            let place = self.y.end(value);
            self.frame.y((place - self.y.low) / (self.y.high - self.y.low))
        };
        (end(mark.low.min(mark.y)), end(mark.high.max(mark.y)))
    }

    /// Returns the contiguous parts of a series that can be drawn.
    fn parts<'m>(&self, series: &'m Series) -> Vec<Vec<(&'m Mark, (i32, i32))>> {
        let placed = series.marks.iter().map(|mark| Some((mark, self.at(mark)?)));
        let placed: Vec<_> = placed.collect();
        let parts = placed.split(Option::is_none).filter(|part| !part.is_empty());
        parts.map(|part| part.iter().filter_map(|mark| *mark).collect()).collect()
    }

    fn intervals(&self, number: usize, series: &Series) -> Drawn {
        for part in self.parts(series) {
            if series.marks.len() <= FEW || part.len() == 1 {
                for (mark, (x, _)) in part.iter().filter(|(mark, _)| mark.high > mark.low) {
                    style::interval(self.area, *x, self.ends(mark), style::colour(number))?;
                }
            } else if has_interval(series) {
                let upper = part.iter().map(|(mark, (x, _))| (*x, self.ends(mark).1));
                let lower = part.iter().rev().map(|(mark, (x, _))| (*x, self.ends(mark).0));
                let band: Vec<_> = upper.chain(lower).collect();
                self.area.draw(&Polygon::new(band, style::colour(number).mix(BAND).filled()))?;
            }
        }
        Ok(())
    }

    fn line(&self, number: usize, series: &Series, of: usize) -> Drawn {
        for mark in series.marks.iter().filter(|mark| mark.y == f64::INFINITY) {
            // Side by side, since the lines have these marks at the same place.
            let offset = |number: usize| style::MARKER * (2 * number as i32 + 1 - of as i32);
            if let Some(share) = self.x.share(mark.x) {
                let ends =
                    (self.frame.left - offset(0), self.frame.right - offset(of.saturating_sub(1)));
                let middle = self.frame.x(share).min(ends.1).max(ends.0);
                style::marker(self.area, number, (middle + offset(number), self.never))?;
            }
        }
        let every = if series.marks.len() <= FEW { 1 } else { series.marks.len() / MARKERS };
        // Offset the markers, so that different series' markers do not coincide.
        let first = every * number / of.max(1) + every / (2 * of.max(1));
        let mut seen = 0;
        for part in self.parts(series) {
            let points: Vec<_> = part.iter().map(|(_, at)| *at).collect();
            if points.len() > 1 {
                style::line(self.area, number, &points)?;
            }
            for at in &points {
                if seen % every == first % every || points.len() == 1 {
                    style::marker(self.area, number, *at)?;
                }
                seen += 1;
            }
        }
        Ok(())
    }
}
