//! `target/bench/report.html`: charts and tables of every case in one self-contained file. The
//! colours are dark or light as the reader's system is.

use std::fmt::Write as _;

use super::figure::{Figure, number};
use super::outcome::{Outcome, Row};
use super::results::Results;
use super::spread::Spread;
use super::table::{middle, range};
use crate::plot::{self, Bar, Bars, escaped};

const STYLE: &str = "
:root { color-scheme: light dark; --page: #fff; --ink: #1c1c1c; --faint: #666; --grid: #ddd;
  --bar: #9db4c8; --ours: #d55e00; --bad: #b00020; }
@media (prefers-color-scheme: dark) {
  :root { --page: #16181b; --ink: #e6e6e6; --faint: #a0a0a0; --grid: #3a3d42;
    --bar: #56718a; --ours: #e8813a; --bad: #ff7b7b; } }
body { background: var(--page); color: var(--ink); font: 15px/1.45 system-ui, sans-serif;
  max-width: 1400px; margin: 2em auto; padding: 0 1em; }
h2 { margin: 2.5em 0 .3em; font-size: 1.2em; }
p, .faint { color: var(--faint); }
table { border-collapse: collapse; margin: .8em 0; font-variant-numeric: tabular-nums;
  display: block; overflow-x: auto; }
th, td { padding: .15em .6em; text-align: right; border-bottom: 1px solid var(--grid);
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
th { font-weight: 600; } .ours td:first-child { color: var(--ours); font-weight: 600; }
.bad { color: var(--bad); text-align: left; }
.charts { display: flex; flex-wrap: wrap; gap: 1em 2em; }
.charts svg { flex: 1 1 480px; max-width: 560px; height: auto; font-size: 12px; }
svg text { fill: var(--ink); } svg .title { font-size: 14px; font-weight: 600; }
svg .mark { fill: var(--faint); font-size: 11px; }
.scroll { overflow-x: auto; }
";

/// The figures with a chart, in each case that has them. The rate is drawn as its ratio to
/// `direct`.
const DRAWN: [Figure; 6] = [
    Figure::CpuPerRequest,
    Figure::CpuPerConnection,
    Figure::CpuPerGb,
    Figure::P99,
    Figure::RssPerVisitor,
    Figure::IdleCpu,
];

// Writing into a string cannot fail, so the results below are dropped.
pub(super) fn html(results: &Results) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>tunnel bench</title>\n<style>{STYLE}</style></head>\n<body>\n\
         <h1>tunnel bench</h1>\n<p>{}<br>{} rounds of {} s, systems interleaved; medians, and the \
         range over the rounds. Ratios are taken round by round.</p>\n",
        escaped(&results.machine.to_string()),
        results.rounds,
        results.seconds
    );
    for outcome in &results.outcomes {
        let case = outcome.case;
        let _ = writeln!(page, "<h2>{}</h2>\n<p>{}</p>", case.name, escaped(case.what));
        page.push_str("<div class=\"charts\">\n");
        for chart in charts(outcome) {
            page.push_str(&plot::bars(&chart));
        }
        page.push_str("</div>\n");
        table(&mut page, outcome);
    }
    if !results.left_out.is_empty() {
        page.push_str("<h2>Left out</h2>\n<ul>\n");
        for (system, reason) in &results.left_out {
            let _ = writeln!(page, "<li>{system}: {}</li>", escaped(reason));
        }
        page.push_str("</ul>\n");
    }
    page.push_str("<h2>Versions</h2>\n<ul>\n");
    for (name, version) in &results.versions {
        let _ = writeln!(page, "<li>{name}: {}</li>", escaped(version));
    }
    page.push_str("</ul>\n</body>\n</html>\n");
    page
}

fn charts(outcome: &Outcome) -> Vec<Bars> {
    let figures = outcome.case.figures();
    let mut charts = Vec::new();
    if figures.contains(&Figure::Rate) {
        let title = format!("{}, ratio to direct", outcome.case.unit());
        charts.push(chart(outcome, title, |row| outcome.of_direct(row)));
    }
    for figure in DRAWN.into_iter().filter(|figure| figures.contains(figure)) {
        let title = figure.heading().to_owned();
        charts.push(chart(outcome, title, |row| row.spread(figure)));
    }
    charts.retain(|chart| !chart.bars.is_empty());
    charts
}

fn chart(outcome: &Outcome, title: String, of: impl Fn(&Row) -> Option<Spread>) -> Bars {
    let bar = |row: &Row| {
        let spread = of(row)?;
        Some(Bar {
            name: row.system.to_owned(),
            value: spread.median,
            range: (spread.least, spread.most),
            label: number(spread.median),
            ours: is_ours(row),
        })
    };
    Bars { title, bars: outcome.rows.iter().filter_map(bar).collect() }
}

fn table(page: &mut String, outcome: &Outcome) {
    let figures = outcome.case.figures();
    let mut columns = 1;
    page.push_str("<div class=\"scroll\"><table>\n<tr><th>system</th>");
    for figure in figures {
        let heading = if *figure == Figure::Rate { outcome.case.unit() } else { figure.heading() };
        let _ = write!(page, "<th>{heading}</th><th class=\"faint\">range</th>");
        columns += 2;
        if *figure == Figure::Rate {
            page.push_str("<th>of direct</th><th class=\"faint\">range</th>");
            columns += 2;
        }
    }
    page.push_str("</tr>\n");
    for row in &outcome.rows {
        let class = if is_ours(row) { " class=\"ours\"" } else { "" };
        let _ = write!(page, "<tr{class}><td>{}</td>", row.system);
        if let Some(error) = row.error() {
            let span = columns - 1;
            let _ = writeln!(
                page,
                "<td class=\"bad\" colspan=\"{span}\">{}</td></tr>",
                escaped(&error)
            );
            continue;
        }
        let mut cells = |spread| {
            let (middle, range) = (middle(spread), range(spread));
            let _ = write!(page, "<td>{middle}</td><td class=\"faint\">{range}</td>");
        };
        for figure in figures {
            cells(row.spread(*figure));
            if *figure == Figure::Rate {
                cells(outcome.of_direct(row));
            }
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
}

fn is_ours(row: &Row) -> bool {
    row.system.starts_with("tunnel-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::results::tests::results;

    #[test]
    fn the_page_stands_alone_and_shows_ratios_errors_and_what_was_left_out() {
        let page = html(&results());
        for outside in ["http://", "https://", "src=", "href="] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("prefers-color-scheme: dark"));
        assert!(page.contains("requests/s, ratio to direct</text>"), "{page}");
        assert!(page.contains("<tr class=\"ours\"><td>tunnel-tcp</td>"));
        assert!(page.contains("error in 1 of 3 rounds: wrk: Socket errors: read 3"));
        assert!(page.contains("<li>rathole-tcp: not installed: rathole</li>"));
        let cells = |row: &str| row.matches("<td").count() + row.matches("<th").count();
        let rows: Vec<_> = page.lines().filter(|line| line.contains("<t")).collect();
        let heads: Vec<_> = rows.iter().filter(|row| row.contains("<th>")).collect();
        let ours: Vec<_> = rows.iter().filter(|row| row.contains("\"ours\"")).collect();
        assert_eq!(cells(heads[0]), cells(ours[0]), "{} {}", heads[0], ours[0]);
    }
}
