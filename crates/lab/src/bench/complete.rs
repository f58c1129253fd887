//! `--complete`: checks that a run has every figure. The values do not matter.

use anyhow::{Result, ensure};

use super::case::DIRECT;
use super::results::Results;

/// Checks a run. The error lists the missing figures and the `tunnel` systems that did not start.
pub(super) fn is_complete(results: &Results) -> Result<()> {
    let complaints = complaints(results);
    ensure!(complaints.is_empty(), "incomplete:\n  {}", complaints.join("\n  "));
    Ok(())
}

/// The figures that a short run has not measured.
fn complaints(results: &Results) -> Vec<String> {
    // A peer may be missing; a system that was just built may not.
    let is_ours = |name: &str| name.starts_with("tunnel-") || name.starts_with("glibc-");
    let ours = results.left_out.iter().filter(|(system, _)| is_ours(system));
    let mut complaints: Vec<_> = ours.map(|(system, why)| format!("{system}: {why}")).collect();
    for outcome in &results.outcomes {
        for row in &outcome.rows {
            let at = format!("{} {}", outcome.case.name, row.system);
            if let Some(error) = row.error() {
                complaints.push(format!("{at}: {error}"));
                continue;
            }
            // `direct` has no daemon that would use memory or processor time.
            let wanted = outcome
                .case
                .figures()
                .iter()
                .filter(|figure| row.system != DIRECT || figure.is_of_visitors());
            for figure in wanted.filter(|figure| row.spread(**figure).is_none()) {
                complaints.push(format!("{at}: no {}", figure.key()));
            }
            if row.system != DIRECT && outcome.of_direct(row).is_none() {
                complaints.push(format!("{at}: no ratio to {DIRECT}"));
            }
        }
    }
    if results.outcomes.is_empty() {
        complaints.push("nothing was measured".to_owned());
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::results::tests::results;

    #[test]
    fn a_short_run_complains_about_errors_and_about_figures_that_are_missing() {
        let complaints = complaints(&results());
        assert!(complaints.iter().any(|line| line.starts_with("http-100 haproxy-2hop: error")));
        assert!(complaints.contains(&"http-100 tunnel-tcp: no cpu_us_per_request".to_owned()));
        assert!(complaints.contains(&"http-100 direct: no p50_ms".to_owned()), "{complaints:?}");
        assert!(!complaints.contains(&"http-100 direct: no cpu_us_per_request".to_owned()));
        let left_out = vec![("tunnel-tls", "not built".to_owned())];
        let nothing = Results { outcomes: Vec::new(), left_out, ..results() };
        let wanted = ["tunnel-tls: not built", "nothing was measured"];
        assert_eq!(super::complaints(&nothing), wanted);
    }
}
