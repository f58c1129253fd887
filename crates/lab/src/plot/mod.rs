//! Plots as SVG: lines over a common axis, as many charts below each other as one likes, in a file of
//! their own (`svg`), or bars for an HTML page (`bars`). Small on purpose; what a chart says is decided
//! by its caller.
//!
//! ```text
//! let chart = Chart { title, x: "seconds".into(), y: "MiB".into(), lines: vec![Line { name, points }] };
//! fs::write("soak.svg", plot::svg("20 minutes of churn", &[chart]))?;
//! ```

mod bars;
mod draw;
mod scale;

pub(crate) use bars::{Bar, Bars, bars};
pub(crate) use draw::{escaped, svg};

/// One chart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chart {
    /// Above it.
    pub(crate) title: String,
    /// What is counted to the right.
    pub(crate) x: String,
    /// What is counted upwards. The axis starts at 0.
    pub(crate) y: String,
    /// In the order of their colours.
    pub(crate) lines: Vec<Line>,
}

/// One line of a chart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    /// In the legend.
    pub(crate) name: String,
    /// In the order of x. What is not finite is left out.
    pub(crate) points: Vec<(f64, f64)>,
}
