//! The names of disconnected clients as readable text.

use super::super::NameAway;
use crate::term::{Column, Sheet, Table, duration, natural};

/// The largest number of names of disconnected clients in the text.
const AWAY_SHOWN: usize = 20;

/// The names of disconnected clients.
pub(super) fn away_table(sheet: &mut Sheet, names: &[NameAway], total: u64) {
    if names.is_empty() {
        return;
    }
    let mut table = Table::new(vec![
        Column::new("name").address(),
        Column::new("client").text().worth(50),
        Column::new("away for"),
    ]);
    let mut names: Vec<_> = names.iter().collect();
    names.sort_by(|a, b| natural(&a.address, &b.address));
    names.truncate(AWAY_SHOWN);
    let shown = u64::try_from(names.len()).unwrap_or(u64::MAX);
    for NameAway { address, client, seconds } in names {
        table.row([address.clone(), client.clone(), duration(*seconds)]);
    }
    sheet.gap();
    sheet.indented(|sheet| {
        sheet.table(&table);
        match total.saturating_sub(shown) {
            0 => {}
            more => sheet.line(format_args!("and {more} more")),
        }
    });
}
