//! Plots as SVG: `svg` makes a file with any number of line charts below each other, over a common
//! axis; `bars` makes bars for an HTML page. The module is small on purpose; the caller decides the
//! contents of a chart.
//!
//! ```text
//! let lines = vec![Line { name, points }];
//! let chart = Chart { title, x: "seconds".into(), y: "MiB".into(), lines };
//! fs::write("soak.svg", plot::svg("20 minutes of churn", &[chart]))?;
//! ```

mod bars;
mod draw;
mod scale;

pub(crate) use bars::{Bar, Bars, bars};
pub(crate) use draw::{escaped, svg};

/// One chart of lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chart {
    /// The title above the chart.
    pub(crate) title: String,
    /// The label of the horizontal axis.
    pub(crate) x: String,
    /// The label of the vertical axis. The axis starts at 0.
    pub(crate) y: String,
    /// The lines, in the order of their colours.
    pub(crate) lines: Vec<Line>,
}

/// One line of a chart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    /// The name in the legend.
    pub(crate) name: String,
    /// The points in the order of x. Values that are not finite are left out.
    pub(crate) points: Vec<(f64, f64)>,
}
