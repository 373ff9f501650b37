//! A curve over time, with labelled axes.

use std::collections::VecDeque;
use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{HorizontalAlignment, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::Line;
use ratatui::widgets::{Axis, Block, Chart, Dataset, GraphType};

use crate::figures::elapsed;

/// A curve and the words around it.
pub(super) struct Curve<'a> {
    /// The quantity, and where it was measured.
    pub(super) name: String,
    /// Uptime of the server in seconds, and the value.
    pub(super) points: &'a VecDeque<(f64, f64)>,
    /// Formats a value with its unit.
    pub(super) show: &'a dyn Fn(f64) -> String,
}

/// Returns bounds that have a length.
fn bounds(values: impl Iterator<Item = f64> + Clone) -> [f64; 2] {
    let low = values.clone().fold(f64::INFINITY, f64::min);
    let high = values.fold(f64::NEG_INFINITY, f64::max);
    match low < high {
        true => [low, high],
        false => [low - 0.01 * low.abs() - 1e-6, high + 0.01 * high.abs() + 1e-6],
    }
}

/// Draws the curve with its last value in its title, from its lowest to its highest value.
pub(super) fn draw(curve: &Curve<'_>, frame: &mut Frame<'_>, place: Rect) {
    let Curve { name, points, show } = curve;
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let Some((_, last)) = points.back() else {
        frame.render_widget(
            Block::new().title(Line::styled(format!("{name}: none yet"), bold)),
            place,
        );
        return;
    };
    let title = Line::styled(format!("{name}: {}", show(*last)), bold);
    let (x, y) = (bounds(points.iter().map(|point| point.0)), bounds(points.iter().map(|p| p.1)));
    let time = |seconds: f64| elapsed(Duration::from_secs_f64(seconds.max(0.0).round()));
    let data: Vec<(f64, f64)> = points.iter().copied().collect();
    let kind = if data.len() > 1 { GraphType::Line } else { GraphType::Scatter };
    let line = Dataset::default()
        .marker(Marker::Braille)
        .graph_type(kind)
        .style(Style::new().fg(Color::Cyan))
        .data(&data);
    let grey = Style::new().add_modifier(Modifier::DIM);
    let y_middle = (y[0] + y[1]) / 2.0;
    let labels: Vec<String> = match place.height {
        // The middle needs a line of its own.
        0..8 => vec![show(y[0]), show(y[1])],
        _ => vec![show(y[0]), show(y_middle), show(y[1])],
    };
    let chart = Chart::new(vec![line])
        .block(Block::new().title(title))
        .legend_position(None)
        .x_axis(
            Axis::default()
                .bounds(x)
                .labels([format!("up for {}", time(x[0])), time(x[1])])
                .labels_alignment(HorizontalAlignment::Right)
                .style(grey),
        )
        .y_axis(Axis::default().bounds(y).labels(labels).style(grey));
    frame.render_widget(chart, place);
}
