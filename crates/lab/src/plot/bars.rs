//! Horizontal bars as a piece of SVG for an HTML page: names on the left, values on the right, and
//! the range of the rounds as a line over each bar's end. Colours are CSS variables of the page
//! (`--ink`, `--grid`, `--bar`, `--ours`), so that the page can be dark or light.

use std::fmt::Write as _;

use super::draw::escaped;
use super::scale::Scale;

const WIDTH: f64 = 560.0;
const HEAD: f64 = 30.0;
/// The height of one bar, including the gap to the next.
const ROW: f64 = 22.0;
const BAR: f64 = 14.0;
/// The space for the axis below the bars.
const FOOT: f64 = 24.0;
/// The space for names on the left, and for values on the right.
const NAMES: f64 = 130.0;
const VALUES: f64 = 70.0;

/// One chart of bars.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bars {
    /// The heading, with the unit.
    pub(crate) title: String,
    /// The bars from top to bottom.
    pub(crate) bars: Vec<Bar>,
}

/// One bar. A value that is not finite draws nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) value: f64,
    /// The least and the greatest value.
    pub(crate) range: (f64, f64),
    /// The text beside the bar's end.
    pub(crate) label: String,
    /// Draws the bar in the colour of the page's subject.
    pub(crate) ours: bool,
}

/// An `<svg>` element.
// Writing into a string cannot fail; that is what the results below are dropped for.
pub(crate) fn bars(chart: &Bars) -> String {
    let height = HEAD + ROW * chart.bars.len() as f64 + FOOT;
    let ends = chart.bars.iter().flat_map(|bar| [bar.value, bar.range.1]);
    let scale = Scale::up_to(ends.filter(|end| end.is_finite()).fold(0.0, f64::max));
    let place = |value: f64| NAMES + scale.place(value) * (WIDTH - NAMES - VALUES);
    let bottom = height - FOOT;
    let title = escaped(&chart.title);
    let mut text = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\n\
         <text x=\"0\" y=\"16\" class=\"title\">{title}</text>\n"
    );
    for mark in scale.marks() {
        let x = place(mark);
        let _ = writeln!(
            text,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{HEAD}\" y2=\"{bottom}\" stroke=\"var(--grid)\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" class=\"mark\">{}</text>",
            bottom + 16.0,
            scale.label(mark)
        );
    }
    for (index, bar) in chart.bars.iter().enumerate() {
        let top = HEAD + ROW * index as f64 + (ROW - BAR) / 2.0;
        let (middle, base) = (top + BAR / 2.0, top + BAR - 2.5);
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{base:.1}\" text-anchor=\"end\">{}</text>",
            NAMES - 8.0,
            escaped(&bar.name)
        );
        let (least, most) = bar.range;
        if !(bar.value.is_finite() && least.is_finite() && most.is_finite()) {
            continue;
        }
        let colour = if bar.ours { "--ours" } else { "--bar" };
        let (width, least, most) = (place(bar.value) - NAMES, place(least), place(most));
        let _ = writeln!(
            text,
            "<rect x=\"{NAMES}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{BAR}\" \
             fill=\"var({colour})\"/>\
             <path d=\"M{least:.1} {middle:.1}H{most:.1}\" stroke=\"var(--ink)\" \
             stroke-width=\"1.5\"/>\
             <text x=\"{:.1}\" y=\"{base:.1}\">{}</text>",
            place(bar.value).max(most) + 6.0,
            escaped(&bar.label)
        );
    }
    text.push_str("</svg>\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_values_and_words_are_escaped() {
        let bar = |name: &str, value: f64, ours| Bar {
            name: name.to_owned(),
            value,
            range: (value / 2.0, value),
            label: format!("<{value}>"),
            ours,
        };
        let chart = Bars {
            title: "a & \"b\"".to_owned(),
            bars: vec![
                bar("direct", 10.0, false),
                bar("x<y", 5.0, true),
                bar("no", f64::NAN, true),
            ],
        };
        let drawn = bars(&chart);
        // The width between names and values is 360.
        assert!(drawn.contains("width=\"360.0\" height=\"14\" fill=\"var(--bar)\""), "{drawn}");
        assert!(drawn.contains("width=\"180.0\" height=\"14\" fill=\"var(--ours)\""), "{drawn}");
        assert!(drawn.contains("M220.0 63.0H310.0"), "the second bar's range: {drawn}");
        assert!(drawn.contains("x&lt;y") && drawn.contains("&lt;5&gt;"), "{drawn}");
        assert!(drawn.contains("a &amp; &quot;b&quot;") && !drawn.contains("NaN"), "{drawn}");
        assert_eq!(drawn.matches("<rect").count(), 2);
    }
}
