//! A readable text about what a former process waits for.

use std::collections::BTreeMap;

use ops::status::Stream;
use ops::{Serving, term};

use crate::upgrade::Listed;

/// The largest number of streams that are examined. More streams have more services than fit into a
/// line.
const SEEN: usize = 1_000;

/// The largest number of services in a line.
const NAMED: usize = 3;

/// The number of streams, and what the process waits for. `older`: its former processes.
pub(super) async fn of(role: &dyn Serving, older: &[Listed]) -> (u64, String) {
    let streams = match role.traffic() {
        Some(traffic) => traffic.streams(None, SEEN).await,
        None => ops::status::Streams::default(),
    };
    let text = match (streams.total, older) {
        (0, []) => "links that have not moved to the next process yet".to_owned(),
        (0, [newest, ..]) => format!("process {}", newest.process.pid),
        (total, _) => in_words(total, &streams.list),
    };
    (streams.total, text)
}

fn in_words(total: u64, list: &[Stream]) -> String {
    let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for Stream { service, peer, .. } in list {
        *counts.entry((service, peer)).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let waits = counts.iter().take(NAMED).map(|((service, peer), count)| match (*service, *peer) {
        ("", "") => format!("{count} without a name"),
        ("", peer) => format!("{count} of {peer}"),
        (service, "") => format!("{count} of {service}"),
        (service, peer) => format!("{count} of {service} ({peer})"),
    });
    let waits: Vec<String> = waits.collect();
    let more = if counts.len() > NAMED { ", and others" } else { "" };
    format!("{}: {}{more}", term::count(total, "stream"), waits.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_services_with_the_most_streams_are_named() {
        let stream = |service: &str, peer: &str| {
            let (service, peer) = (service.to_owned(), peer.to_owned());
            Stream { service, peer, ..Stream::default() }
        };
        let mut list = vec![stream("ssh", "home"); 2];
        assert_eq!(in_words(2, &list), "2 streams: 2 of ssh (home)");
        list.extend([stream("web", ""), stream("", "home"), stream("dns", "office")]);
        let text = in_words(5, &list);
        assert!(text.starts_with("5 streams: 2 of ssh (home), ") && text.ends_with(", and others"));
    }
}
