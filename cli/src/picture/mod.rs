//! Pictures for papers and reports: lines with confidence bands, bars, heat maps.
//!
//! A [`Picture`] is plain data that knows nothing of experiments. It is drawn once, as SVG; the PNG
//! is that SVG rendered with the font that is built in, so both look the same and neither needs a
//! font of the system. Series differ in colour (Okabe and Ito's palette), dash and marker, heat
//! maps use viridis, which grows evenly from dark to light: both survive colour blindness and grey
//! paper.

mod bars;
mod canvas;
mod chart;
mod frame;
mod heat_map;
mod scale;
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
    /// The picture as an SVG document whose texts stay texts.
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

    /// The picture as a PNG file, 1920 x 1280 pixels: 300 dots per inch at half a page's width and
    /// more.
    ///
    /// # Errors
    ///
    /// As [`Self::svg`].
    pub(crate) fn png(&self) -> anyhow::Result<Vec<u8>> {
        canvas::rasterise(&self.svg()?)
    }
}

/// An axis for numbers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Axis {
    /// What is drawn along it.
    pub(crate) label: String,
    /// Its unit; empty if it has none.
    pub(crate) unit: String,
    /// Logarithmic: what is not positive is left out.
    pub(crate) log: bool,
}

/// An axis for names.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Names {
    /// What the names are of.
    pub(crate) label: String,
    /// The unit, if the names are numbers; empty if there is none.
    pub(crate) unit: String,
    /// The names, in order.
    pub(crate) names: Vec<String>,
}

/// A value with its interval; without one, `low` and `high` are `y`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mark {
    /// Where.
    pub(crate) x: f64,
    /// The value. A line is interrupted where `x` or `y` is not finite.
    pub(crate) y: f64,
    /// The lower end of the interval.
    pub(crate) low: f64,
    /// Its upper end.
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
    /// What the legend calls it.
    pub(crate) name: String,
    /// Its points, in the order of the line.
    pub(crate) marks: Vec<Mark>,
}

/// Lines. Intervals are drawn as bands, or as error bars where a line has few points.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Chart {
    /// Above the picture; may be empty.
    pub(crate) title: String,
    /// From left to right.
    pub(crate) x: Axis,
    /// What stands at 0, 1, 2 and so on of that axis; none if it is one of numbers.
    pub(crate) x_names: Vec<String>,
    /// From bottom to top.
    pub(crate) y: Axis,
    /// What the names of the lines are values of; may be empty.
    pub(crate) legend: String,
    /// The lines. The legend is left out if there is only one.
    pub(crate) series: Vec<Series>,
}

/// The height of one bar with its interval; without one, `low` and `high` are `value`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bar {
    /// The height.
    pub(crate) value: f64,
    /// The lower end of the interval.
    pub(crate) low: f64,
    /// Its upper end.
    pub(crate) high: f64,
}

/// Bars that belong together across the groups.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BarSeries {
    /// What the legend calls them.
    pub(crate) name: String,
    /// One for each group; none where nothing is known.
    pub(crate) bars: Vec<Option<Bar>>,
}

/// Groups of bars, side by side.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Bars {
    /// Above the picture; may be empty.
    pub(crate) title: String,
    /// The groups, from left to right.
    pub(crate) x: Names,
    /// The height.
    pub(crate) y: Axis,
    /// Where the height begins: at zero if nothing is said, unless it is logarithmic.
    pub(crate) from: Option<f64>,
    /// What the names of the series are values of; may be empty.
    pub(crate) legend: String,
    /// The bars. The legend is left out if there is only one series.
    pub(crate) series: Vec<BarSeries>,
}

/// A grid of numbers and their colours.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct HeatMap {
    /// Above the picture; may be empty.
    pub(crate) title: String,
    /// The columns, from left to right.
    pub(crate) x: Names,
    /// The rows, from bottom to top.
    pub(crate) y: Names,
    /// What the colours mean.
    pub(crate) value: Axis,
    /// Values that the colours span too, so that several maps have the same.
    pub(crate) span: Option<(f64, f64)>,
    /// `values[row][column]`; none, or a number that is not finite, is a cell with a dash.
    pub(crate) values: Vec<Vec<Option<f64>>>,
}
