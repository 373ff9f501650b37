//! The rectangle that the axes span: grid, ticks, labels.

use plotters::element::DashedPathElement;
use plotters::prelude::*;

use super::canvas::{self, Anchor, Area, Drawn, LABEL, NEVER, SIZE, SMALL, SMALLEST};
use super::scale::Scale;
use super::{Axis, Names};

const GRID: RGBColor = RGBColor(217, 217, 217);
const TICK: i32 = 14;
/// Distance from a tick to its label.
const GAP: i32 = 14;
const EDGE: i32 = 24;
/// Minimal distance between two labels of the horizontal axis.
const BETWEEN: i32 = 20;

/// The rectangle, in fine units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) left: i32,
    pub(super) right: i32,
    pub(super) top: i32,
    pub(super) bottom: i32,
}

impl Frame {
    /// Creates the frame, with space for tick labels of width `labels.0` on the left and height
    /// `labels.1` below.
    pub(super) fn new(top: i32, labels: (i32, i32), right: i32) -> Self {
        Self {
            left: EDGE + LABEL + 24 + labels.0 + GAP + TICK,
            right,
            top,
            bottom: SIZE.1 - EDGE - LABEL - 24 - labels.1 - GAP - TICK,
        }
    }

    /// Converts a share of the width, from the left.
    pub(super) fn x(&self, share: f64) -> i32 {
        self.left + (share * f64::from(self.right - self.left)).round() as i32
    }

    /// Converts a share of the height, from the bottom.
    pub(super) fn y(&self, share: f64) -> i32 {
        self.bottom - (share * f64::from(self.bottom - self.top)).round() as i32
    }

    /// Draws the lines of the two axes.
    pub(super) fn axes(&self, area: &Area<'_>) -> Drawn {
        let corner = [(self.left, self.top), (self.left, self.bottom), (self.right, self.bottom)];
        area.draw(&PathElement::new(corner.to_vec(), BLACK.stroke_width(4)))
    }

    /// Separates a row for what was never reached from the top of the plot; returns the plot below
    /// it, and the height of the row's middle.
    pub(super) fn with_row(&self, area: &Area<'_>) -> Drawn<(Self, i32)> {
        const ROW: i32 = SMALL + 24;
        let below = Self { top: self.top + ROW, ..*self };
        let edge = [(self.left, below.top), (self.right, below.top)];
        area.draw(&DashedPathElement::new(edge, 12, 12, BLACK.stroke_width(3)))?;
        let middle = self.top + ROW / 2;
        self.tick_y(area, middle, NEVER, SMALL)?;
        Ok((below, middle))
    }

    /// Writes the labels of both axes.
    pub(super) fn labels(&self, area: &Area<'_>, x: &str, y: &str) -> Drawn {
        let size = canvas::fitting(area, [x], LABEL, SIZE.0 - 2 * EDGE)?;
        let style = canvas::style(size, BLACK);
        // Centred on the axis, unless a long label would extend beyond the canvas.
        let half = canvas::width(area, x, size)? / 2;
        let middle = self.x(0.5).clamp(EDGE + half, (SIZE.0 - EDGE - half).max(EDGE + half));
        canvas::write(area, x, (middle, SIZE.1 - EDGE - LABEL / 2), Anchor::Around, &style)?;
        let size = canvas::fitting(area, [y], LABEL, SIZE.1 - 2 * EDGE)?;
        let half = canvas::width(area, y, size)? / 2;
        let middle = self.y(0.5).clamp(EDGE + half, (SIZE.1 - EDGE - half).max(EDGE + half));
        let style = canvas::style(size, BLACK);
        canvas::write(area, y, (EDGE + LABEL / 2, middle), Anchor::Upwards, &style)
    }

    /// Draws grid lines and tick labels of the vertical axis.
    pub(super) fn numbers_y(&self, area: &Area<'_>, scale: &Scale) -> Drawn {
        for tick in &scale.ticks {
            let y = self.y((tick - scale.low) / (scale.high - scale.low));
            area.draw(&PathElement::new(
                vec![(self.left, y), (self.right, y)],
                GRID.stroke_width(3),
            ))?;
            self.tick_y(area, y, &scale.label(*tick), SMALL)?;
        }
        Ok(())
    }

    /// Draws grid lines and tick labels of the horizontal axis; labels that would touch are
    /// omitted.
    pub(super) fn numbers_x(&self, area: &Area<'_>, scale: &Scale) -> Drawn {
        let style = canvas::style(SMALL, BLACK);
        let mut free = i32::MIN;
        for tick in &scale.ticks {
            let x = self.x((tick - scale.low) / (scale.high - scale.low));
            area.draw(&PathElement::new(
                vec![(x, self.top), (x, self.bottom)],
                GRID.stroke_width(3),
            ))?;
            area.draw(&stroke((x, self.bottom), (x, self.bottom + TICK)))?;
            let label = scale.label(*tick);
            let half = canvas::width(area, &label, SMALL)? / 2;
            if x - half >= free {
                let at = (x, self.bottom + TICK + GAP);
                canvas::write(area, &label, at, Anchor::Below, &style)?;
                free = x + half + BETWEEN;
            }
        }
        Ok(())
    }

    /// True if all labels of the horizontal axis fit.
    pub(super) fn fits_x(&self, area: &Area<'_>, scale: &Scale) -> Drawn<bool> {
        let mut free = i32::MIN;
        for tick in &scale.ticks {
            let x = self.x((tick - scale.low) / (scale.high - scale.low));
            let half = canvas::width(area, &scale.label(*tick), SMALL)? / 2;
            if x - half < free {
                return Ok(false);
            }
            free = x + half + BETWEEN;
        }
        Ok(true)
    }

    /// Writes names along the vertical axis, each centred in its share.
    pub(super) fn names_y(&self, area: &Area<'_>, names: &Names, size: i32) -> Drawn {
        for (number, name) in names.names.iter().enumerate() {
            let name = canvas::shortened(area, name, size, SIZE.0 / 4)?;
            self.tick_y(area, self.y(middle(number, names.names.len())), &name, size)?;
        }
        Ok(())
    }

    /// Writes names along the horizontal axis, each centred in its share.
    pub(super) fn names_x(&self, area: &Area<'_>, names: &Names, written: Written) -> Drawn {
        for (number, name) in names.names.iter().enumerate() {
            let x = self.x(middle(number, names.names.len()));
            area.draw(&stroke((x, self.bottom), (x, self.bottom + TICK)))?;
            let at = (x, self.bottom + TICK + GAP);
            let name = canvas::shortened(area, name, written.size, written.room)?;
            let stands = if written.upright { Anchor::Hanging } else { Anchor::Below };
            canvas::write(area, &name, at, stands, &canvas::style(written.size, BLACK))?;
        }
        Ok(())
    }

    fn tick_y(&self, area: &Area<'_>, y: i32, label: &str, size: i32) -> Drawn {
        area.draw(&stroke((self.left - TICK, y), (self.left, y)))?;
        let at = (self.left - TICK - GAP, y);
        canvas::write(area, label, at, Anchor::Left, &canvas::style(size, BLACK))
    }
}

/// The layout of names along the horizontal axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    /// Their text size.
    pub(super) size: i32,
    /// Rotated, since they are wider than their share.
    upright: bool,
    /// The length beyond which a name is truncated.
    room: i32,
    /// The height that they take.
    pub(super) height: i32,
}

impl Written {
    /// Chooses the layout for an axis of that length.
    pub(super) fn new(area: &Area<'_>, names: &Names, length: i32) -> Drawn<Self> {
        let share = length / (names.names.len().max(1) as i32);
        let texts = || names.names.iter().map(String::as_str);
        let size = canvas::fitting(area, texts(), SMALL, share - 16)?;
        if widest(area, texts(), size)? <= share - 16 {
            return Ok(Self { size, upright: false, room: share, height: size });
        }
        let size = (share - 8).clamp(SMALLEST / 2, SMALL - 10);
        let room = SIZE.1 / 3;
        let size = canvas::fitting(area, texts(), size.max(SMALLEST), room)?.min(size);
        let height = widest(area, texts(), size)?.min(room);
        Ok(Self { size, upright: true, room, height })
    }
}

/// Returns the width of the widest text.
pub(super) fn widest<'a>(
    area: &Area<'_>,
    texts: impl IntoIterator<Item = &'a str>,
    size: i32,
) -> Drawn<i32> {
    let mut widest = 0;
    for text in texts {
        widest = widest.max(canvas::width(area, text, size)?);
    }
    Ok(widest)
}

/// Returns the width of the widest tick label of an axis.
pub(super) fn widest_number(area: &Area<'_>, scale: &Scale) -> Drawn<i32> {
    let labels: Vec<String> = scale.ticks.iter().map(|tick| scale.label(*tick)).collect();
    widest(area, labels.iter().map(String::as_str), SMALL)
}

/// Returns the label of an axis with its unit.
pub(super) fn label(axis: &Axis) -> String {
    canvas::labelled(&axis.label, &axis.unit)
}

fn middle(number: usize, of: usize) -> f64 {
    (number as f64 + 0.5) / of as f64
}

fn stroke(from: (i32, i32), to: (i32, i32)) -> PathElement<(i32, i32)> {
    PathElement::new(vec![from, to], BLACK.stroke_width(4))
}
