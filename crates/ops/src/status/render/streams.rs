//! The streams of a daemon.

use std::collections::BTreeMap;

use super::super::{StreamKind, Streams};
use super::{bytes, dash};
use crate::term::{self, Column, Drawn, Screen, Sheet, Table, natural};

/// A table of streams and flows, and the number of omitted ones.
pub fn render_streams(streams: &Streams, screen: Screen) -> Drawn {
    let first = match streams.list.iter().any(|stream| stream.kind == StreamKind::Flow) {
        true => "stream or flow",
        false => "stream",
    };
    let mut table = Table::new(vec![
        Column::new(first),
        Column::new("peer").text().worth(60),
        Column::new("service").text(),
        Column::new("socket").address().worth(70),
        Column::new("in").worth(50),
        Column::new("out").worth(50),
    ]);
    let mut list: Vec<_> = streams.list.iter().collect();
    list.sort_by(|a, b| natural(&a.id, &b.id));
    for stream in list {
        table.row([
            stream.id.clone(),
            stream.peer.clone(),
            dash(&stream.service),
            dash(&stream.socket),
            bytes(stream.bytes_in),
            bytes(stream.bytes_out),
        ]);
    }
    let mut sheet = Sheet::new(screen);
    if streams.total == 0 {
        sheet.line("no open streams");
    }
    sheet.table(&table);
    let shown = u64::try_from(streams.list.len()).unwrap_or(u64::MAX);
    match streams.total.saturating_sub(shown) {
        0 => {}
        more => sheet.line(format_args!("and {more} more: --limit, --service")),
    }
    sheet.finish()
}

/// The remaining streams of a stopping daemon, by peer and service: `3 streams are left: home web
/// 2, home ssh 1`.
pub fn render_left(streams: &Streams) -> String {
    let mut counts: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for stream in &streams.list {
        *counts.entry((&stream.peer, &stream.service)).or_default() += 1;
    }
    let mut groups: Vec<_> = counts.into_iter().collect();
    groups.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let one = |((peer, service), count): &((&str, &str), u64)| {
        let of = if service.is_empty() { "" } else { " " };
        format!("{peer}{of}{service} {count}")
    };
    let mut shown: Vec<_> = groups.iter().take(GROUPS_SHOWN).map(one).collect();
    if groups.len() > GROUPS_SHOWN {
        shown.push(format!("and {} others", groups.len() - GROUPS_SHOWN));
    }
    let are = if streams.total == 1 { "is" } else { "are" };
    let count = term::count(streams.total, "stream");
    format!("{count} {are} left: {}", shown.join(", "))
}

/// The largest number of services with their peers in a line about remaining streams.
const GROUPS_SHOWN: usize = 8;
