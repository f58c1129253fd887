//! Draws charts as SVG 1.1.

use std::fmt::Write as _;

use super::scale::Scale;
use super::{Chart, Line};

const WIDTH: f64 = 860.0;
/// The height of one chart with its title and axes.
const HEIGHT: f64 = 260.0;
const HEAD: f64 = 40.0;
/// The margins around the plot area: left, right, above, below.
const MARGIN: [f64; 4] = [70.0, 20.0, 36.0, 44.0];

/// Colours that people with colour blindness can tell apart, and that differ in grey (after Okabe
/// and Ito, 2008).
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// A whole SVG file.
pub(crate) fn svg(title: &str, charts: &[Chart]) -> String {
    let height = HEAD + HEIGHT * charts.len() as f64;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    put(&mut text, (WIDTH / 2.0, 26.0), "middle", "font-size=\"16\"", title);
    for (index, chart) in charts.iter().enumerate() {
        let top = HEAD + HEIGHT * index as f64;
        let _ = writeln!(text, "<g transform=\"translate(0 {top})\">");
        draw(&mut text, chart);
        text.push_str("</g>\n");
    }
    text.push_str("</svg>\n");
    text
}

/// The plot area in the middle of a chart.
#[derive(Clone, Copy, Debug)]
struct Field {
    x: Scale,
    y: Scale,
}

impl Field {
    fn of(chart: &Chart) -> Self {
        let all = || chart.lines.iter().flat_map(visible);
        let most = |of: fn((f64, f64)) -> f64| all().map(of).fold(0.0, f64::max);
        Self { x: Scale::exactly_to(most(|point| point.0)), y: Scale::up_to(most(|point| point.1)) }
    }

    fn place(self, (x, y): (f64, f64)) -> (f64, f64) {
        let [left, right, above, below] = MARGIN;
        let (width, height) = (WIDTH - left - right, HEIGHT - above - below);
        (left + self.x.place(x) * width, above + (1.0 - self.y.place(y)) * height)
    }
}

fn visible(line: &Line) -> impl Iterator<Item = (f64, f64)> {
    line.points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite())
}

// Writing into a string cannot fail, so the results below are dropped.
fn draw(text: &mut String, chart: &Chart) {
    let field = Field::of(chart);
    let [left, right, above, below] = MARGIN;
    let (bottom, end) = (HEIGHT - below, WIDTH - right);
    put(text, (left, above - 14.0), "start", "font-size=\"14\"", &chart.title);
    for mark in field.y.marks() {
        let (_, y) = field.place((0.0, mark));
        let _ = writeln!(
            text,
            "<line x1=\"{left}\" x2=\"{end}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>"
        );
        put(text, (left - 8.0, y + 4.0), "end", "", &field.y.label(mark));
    }
    for mark in field.x.marks() {
        let (x, _) = field.place((mark, 0.0));
        put(text, (x, bottom + 16.0), "middle", "", &field.x.label(mark));
    }
    put(text, (f64::midpoint(left, end), bottom + 34.0), "middle", "", &chart.x);
    let (x, y) = (16.0, f64::midpoint(above, bottom));
    put(text, (x, y), "middle", &format!("transform=\"rotate(-90 {x} {y})\""), &chart.y);
    for (index, line) in chart.lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let points = visible(line).fold(String::new(), |mut points, point| {
            let (x, y) = field.place(point);
            let _ = write!(points, "{x:.1},{y:.1} ");
            points
        });
        let _ = writeln!(
            text,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" points=\"{}\"/>",
            points.trim_end()
        );
        let at = (end - 110.0 * (chart.lines.len() - index - 1) as f64, above - 14.0);
        put(text, at, "end", &format!("fill=\"{colour}\""), &line.name);
    }
}

/// Writes a piece of text.
fn put(text: &mut String, (x, y): (f64, f64), anchor: &str, more: &str, words: &str) {
    let words = escaped(words);
    let _ = writeln!(
        text,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" {more}>{words}</text>"
    );
}

/// Escapes text for SVG and HTML, also inside a quoted attribute.
pub(crate) fn escaped(words: &str) -> String {
    let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    words.replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_has_its_lines_in_its_field_and_its_words_escaped() {
        let line = |name: &str, points: &[(f64, f64)]| Line {
            name: name.to_owned(),
            points: points.to_vec(),
        };
        let chart = Chart {
            title: "a < b & c".to_owned(),
            x: "seconds".to_owned(),
            y: "MiB".to_owned(),
            lines: vec![
                line("server", &[(0.0, 0.0), (5.0, f64::NAN), (10.0, 8.0)]),
                line("client", &[]),
            ],
        };
        let drawn = svg("two", &[chart.clone(), chart]);
        // From the lower left to the upper right corner; values that are not finite are left out.
        assert_eq!(drawn.matches("points=\"70.0,216.0 840.0,36.0\"").count(), 2, "{drawn}");
        assert!(drawn.contains("a &lt; b &amp; c") && !drawn.contains("NaN"), "{drawn}");
        assert_eq!(drawn.matches("<g ").count(), drawn.matches("</g>").count());
    }
}
