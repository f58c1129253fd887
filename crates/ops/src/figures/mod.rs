//! The figures of a status: one table, each row of which declares a figure once. The admin API
//! writes the table for Prometheus and for OTLP, and the table of metrics in the manual is made of
//! it. Names and units follow Prometheus' rules, which `promtool check metrics` verifies.
//!
//! Labels are names and addresses of services, names of clients, transports, cipher suites and
//! reasons; never visitors, links or streams. So there is one series per client and service of the
//! configuration. Services beyond [`SERVICES_MAX`] have no series and are counted instead.
//!
//! | module | content |
//! |---|---|
//! | `table` | the figures: name, kind, help, and how each is read |
//! | `by` | what figures are about: the process, sessions, carriers, services … with their labels |
//! | `value` | the values of figures |

mod by;
mod table;
mod value;

use crate::status::Status;

use by::View;
use table::ToldBy;

pub use by::{CERTIFICATES_MAX, SERVICES_MAX};
pub use table::{FIGURES, Figure};
pub use value::{Buckets, Kind, Label, Sample, Value};

/// A figure with all its series.
#[derive(Debug)]
pub struct Metric<'a> {
    /// The declaration.
    pub figure: &'static Figure,
    /// Empty if there is no event or object to report yet.
    pub samples: Vec<Sample<'a>>,
}

/// All figures of a status. `resident` is the resident memory of the process in bytes, which is no
/// part of the status.
#[must_use]
pub fn list(status: &Status, resident: Option<u64>) -> Vec<Metric<'_>> {
    let view = View::new(status, resident);
    let told = FIGURES.iter().filter(|figure| figure.told_by.is_told_by(status.role));
    let all = told.map(|figure| Metric { figure, samples: (figure.read)(&view) });
    all.filter(|metric| metric.figure.told_by != ToldBy::IfKnown || !metric.samples.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::Role;
    use crate::status::{
        Certificate, Down, ServerFigures, Service, ServiceTarget, Session, TargetState,
    };

    /// The table of all figures in the manual, as Markdown.
    fn manual() -> String {
        let mut text = String::from("| metric | kind | told by | content |\n|---|---|---|---|\n");
        for Figure { name, kind, help, labels, told_by, .. } in FIGURES {
            let labels = match labels {
                [] => String::new(),
                some => format!("{{{}}}", some.join(",")),
            };
            let by = match told_by {
                ToldBy::Always | ToldBy::IfKnown => String::from("all"),
                ToldBy::Only(role) => role.to_string(),
                ToldBy::OthersThan(role) => format!("all but {role}"),
            };
            let kind = kind.name();
            // Writing into a string cannot fail.
            let _ = writeln!(text, "| `{name}{labels}` | {kind} | {by} | {help} |");
        }
        text
    }

    /// `UPDATE=1` writes the table into the page.
    #[test]
    fn the_manual_has_the_table_of_figures() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tunnel/docs/metrics-and-api.md");
        let page = fs::read_to_string(&path).unwrap();
        let (before, rest) = page.split_once("<!-- table: figures -->\n").expect("a table");
        let (table, after) = rest.split_once("<!-- end -->").expect("its end");
        let expected = manual();
        if std::env::var_os("UPDATE").is_some() {
            let whole = [before, "<!-- table: figures -->\n", &expected, "<!-- end -->", after];
            fs::write(path, whole.concat()).unwrap();
        } else {
            assert!(table == expected, "the table should be\n{expected}");
        }
    }

    #[test]
    fn a_figure_has_one_row_and_the_kind_that_its_name_says() {
        const ROLES: [Role; 4] = [Role::Server, Role::Client, Role::Proxy, Role::Run];
        for (n, Figure { name, kind, told_by, .. }) in FIGURES.iter().enumerate() {
            let is_twin = |other: &Figure| {
                let both = |role| told_by.is_told_by(role) && other.told_by.is_told_by(role);
                other.name == *name && ROLES.into_iter().any(both)
            };
            assert!(!FIGURES[..n].iter().any(is_twin), "{name}");
            assert_eq!(*kind == Kind::Counter, name.ends_with("_total"), "{name}");
        }
    }

    #[test]
    fn series_with_equal_labels_are_added_only_where_the_figure_is_a_sum() {
        let target =
            ServiceTarget { target: "a:1".into(), visitors: 3, ..ServiceTarget::default() };
        let services =
            vec![Service { targets: vec![target.clone(), target], ..Service::default() }];
        let session = Session { peer: "home".into(), resumes: 2, ..Session::default() };
        let successor = Session { services, ..session.clone() };
        let certificate = Certificate { expires_at: Some(7), ..Certificate::default() };
        let status = Status {
            role: Role::Client,
            sessions: vec![session, successor],
            certificates: vec![certificate.clone(), certificate],
            ..Status::default()
        };
        let all = list(&status, None);
        for (name, value) in [
            ("tunnel_link_resumes_total", 4),
            ("tunnel_target_visitors", 6),
            ("tunnel_target_up", 1),
            ("tunnel_certificate_expiry_seconds", 7),
        ] {
            let metric = all.iter().find(|metric| metric.figure.name == name).unwrap();
            let values: Vec<_> = metric.samples.iter().map(|sample| &sample.value).collect();
            assert_eq!(values, [&Value::Whole(value)], "{name}");
        }
    }

    #[test]
    fn a_server_of_a_client_has_figures_and_a_private_visit_has_none() {
        let server = ServerFigures {
            rtt_micros: Some(12_000),
            takeovers: 2,
            moves: [("commanded", 3), ("failed", 1)].map(|(name, n)| (name.to_owned(), n)).into(),
        };
        let charged = Session { peer: "fra".into(), server: Some(server), ..Session::default() };
        let standby = Session {
            peer: "nyc".into(),
            standby: true,
            server: Some(ServerFigures::default()),
            ..Session::default()
        };
        let visit = Session { peer: "laptop".into(), private: true, ..Session::default() };
        let sessions = vec![charged, standby, visit];
        let status = Status { role: Role::Client, sessions, ..Status::default() };
        let all = list(&status, None);
        let of = |name: &str| {
            let metric = all.iter().find(|metric| metric.figure.name == name).unwrap();
            let shown = metric.samples.iter().map(|Sample { labels, value }| {
                let labels = labels.iter().map(|(_, label)| *label).collect::<Vec<_>>();
                format!("{}: {value:?}", labels.join(" "))
            });
            shown.collect::<Vec<_>>()
        };
        assert_eq!(of("tunnel_server_in_charge"), ["fra: Whole(1)", "nyc: Whole(0)"]);
        assert_eq!(of("tunnel_server_rtt_seconds"), ["fra: Real(0.012)"]);
        assert_eq!(of("tunnel_server_takeovers_total"), ["fra: Whole(2)", "nyc: Whole(0)"]);
        let moves = ["fra commanded: Whole(3)", "fra failed: Whole(1)"];
        assert_eq!(of("tunnel_link_moves_total"), moves);
    }

    #[test]
    fn a_drained_target_is_up_unless_it_is_down() {
        for (down, up) in [(None, 1), (Some(Down::default()), 0)] {
            let target = ServiceTarget {
                target: "a:1".into(),
                state: TargetState::Draining.into(),
                down,
                ..ServiceTarget::default()
            };
            let services = vec![Service { targets: vec![target], ..Service::default() }];
            let sessions = vec![Session { services, ..Session::default() }];
            let status = Status { role: Role::Client, sessions, ..Status::default() };
            let all = list(&status, None);
            let metric = all.iter().find(|metric| metric.figure.name == "tunnel_target_up");
            assert_eq!(metric.unwrap().samples[0].value, Value::Whole(up));
        }
    }
}
