//! Pictures for papers and reports: lines with confidence bands, bars, heat maps.
//!
//! A [`Picture`] is plain data, independent of experiments. It is drawn once, as SVG. PNG and
//! PDF are that SVG with the built-in font, so all look the same and none needs a system font.
//! Series differ in colour (Okabe and Ito's palette), dash and marker; heat maps use viridis, whose
//! lightness increases evenly. Both remain readable with colour blindness and in greyscale print.

mod bars;
mod canvas;
mod chart;
mod frame;
mod heat_map;
mod pdf;
mod png;
mod scale;
mod shapes;
mod style;
#[cfg(test)]
mod tests;

/// One picture.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Picture {
    /// Lines.
    Chart(Chart),
    /// Bars.
    Bars(Bars),
    /// A grid of colours.
    HeatMap(HeatMap),
}

impl Picture {
    /// Returns the picture as an SVG document whose texts remain text.
    ///
    /// # Errors
    ///
    /// If the built-in font cannot be read.
    pub(crate) fn svg(&self) -> anyhow::Result<String> {
        match self {
            Self::Chart(chart) => canvas::draw(&chart.title, |area| chart::draw(chart, area)),
            Self::Bars(bars) => canvas::draw(&bars.title, |area| bars::draw(bars, area)),
            Self::HeatMap(map) => canvas::draw(&map.title, |area| heat_map::draw(map, area)),
        }
    }

    /// Returns the picture as a PNG file, 1920 x 1280 pixels: at least 300 dots per inch at half a
    /// page's width.
    ///
    /// # Errors
    ///
    /// As [`Self::svg`].
    pub(crate) fn png(&self) -> anyhow::Result<Vec<u8>> {
        canvas::rasterise(&self.svg()?)
    }

    /// Returns the picture as a PDF file of one page, for papers.
    ///
    /// # Errors
    ///
    /// As [`Self::svg`].
    pub(crate) fn pdf(&self) -> anyhow::Result<Vec<u8>> {
        let title = match self {
            Self::Chart(chart) => &chart.title,
            Self::Bars(bars) => &bars.title,
            Self::HeatMap(map) => &map.title,
        };
        canvas::to_pdf(&self.svg()?, title)
    }
}

/// A numeric axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Axis {
    /// The quantity along the axis.
    pub(crate) label: String,
    /// Its unit; empty if it has none.
    pub(crate) unit: String,
    /// True for a logarithmic axis, which omits values that are not positive.
    pub(crate) log: bool,
}

/// An axis of names.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Names {
    /// The quantity or kind that the names belong to.
    pub(crate) label: String,
    /// The unit, if the names are numbers; empty if there is none.
    pub(crate) unit: String,
    /// The names, in order.
    pub(crate) names: Vec<String>,
}

/// A point with its interval; without an interval, `low` and `high` are `y`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mark {
    /// The horizontal position.
    pub(crate) x: f64,
    /// The value; infinity if it was never reached, which is marked above the line. The line is
    /// interrupted where `x` or `y` is not finite.
    pub(crate) y: f64,
    /// The lower end of the interval.
    pub(crate) low: f64,
    /// The upper end of the interval.
    pub(crate) high: f64,
}

impl Mark {
    /// A value without an interval.
    #[cfg(test)]
    pub(crate) fn at(x: f64, y: f64) -> Self {
        Self { x, y, low: y, high: y }
    }
}

/// One line of a chart.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Series {
    /// Its name in the legend.
    pub(crate) name: String,
    /// Its points, in the order of the line.
    pub(crate) marks: Vec<Mark>,
}

/// A chart of lines. Intervals are drawn as bands, or as error bars if a line has few points.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Chart {
    /// The title above the picture; may be empty.
    pub(crate) title: String,
    /// The horizontal axis.
    pub(crate) x: Axis,
    /// Names at the positions 0, 1, 2 and so on of the horizontal axis; empty if it is numeric.
    pub(crate) x_names: Vec<String>,
    /// The vertical axis.
    pub(crate) y: Axis,
    /// The heading of the legend: the quantity whose values the names of the lines are; may be
    /// empty.
    pub(crate) legend: String,
    /// The lines. The legend is omitted if there is only one.
    pub(crate) series: Vec<Series>,
}

/// A bar with its interval; without an interval, `low` and `high` are `value`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bar {
    /// The height; infinity if it was never reached, which is written in place of the bar.
    pub(crate) value: f64,
    /// The lower end of the interval.
    pub(crate) low: f64,
    /// The upper end of the interval.
    pub(crate) high: f64,
}

/// Bars of one series, across the groups.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BarSeries {
    /// Their name in the legend.
    pub(crate) name: String,
    /// One bar for each group; None if its value is unknown.
    pub(crate) bars: Vec<Option<Bar>>,
}

/// Groups of bars, side by side. A logarithmic axis has no zero that a bar could begin at: it has
/// points instead.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Bars {
    /// The title above the picture; may be empty.
    pub(crate) title: String,
    /// The groups, from left to right.
    pub(crate) x: Names,
    /// The axis of the heights.
    pub(crate) y: Axis,
    /// The value at which bars begin; if None, zero, unless the axis is logarithmic.
    pub(crate) from: Option<f64>,
    /// The heading of the legend: the quantity whose values the names of the series are; may be
    /// empty.
    pub(crate) legend: String,
    /// The series of bars. The legend is omitted if there is only one.
    pub(crate) series: Vec<BarSeries>,
}

/// A grid of numbers, shown as colours.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct HeatMap {
    /// The title above the picture; may be empty.
    pub(crate) title: String,
    /// The columns, from left to right.
    pub(crate) x: Names,
    /// The rows, from bottom to top.
    pub(crate) y: Names,
    /// The quantity that the colours show.
    pub(crate) value: Axis,
    /// Values that the colour scale must include, so that several maps share one scale.
    pub(crate) span: Option<(f64, f64)>,
    /// `values[row][column]`; infinity was never reached and is shown as such. None, or another
    /// number that is not finite, is shown as a dash.
    pub(crate) values: Vec<Vec<Option<f64>>>,
}
