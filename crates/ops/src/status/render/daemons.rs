//! The daemons of `tunnel run`.

use super::{all, duration};
use crate::status::{State as _, Supervised};
use crate::term::{Column, Sheet, Table, natural};

/// The daemons of `tunnel run`, with the reasons of failures below the table, and then the status
/// of each daemon that has answered.
pub(super) fn daemons_table(sheet: &mut Sheet, daemons: &[Supervised]) {
    if daemons.is_empty() {
        return;
    }
    let mut table = Table::new(vec![
        Column::new("daemon").text(),
        Column::new("role").worth(60),
        Column::new("state"),
        Column::new("process").worth(30),
        Column::new("up").worth(40),
        Column::new("restarts").worth(50),
    ]);
    let mut daemons: Vec<_> = daemons.iter().collect();
    daemons.sort_by(|a, b| natural(&a.name, &b.name));
    let none = || "-".to_owned();
    for daemon in &daemons {
        table.row([
            daemon.name.clone(),
            daemon.role.map_or_else(none, |role| role.to_string()),
            daemon.state.state().text().to_owned(),
            daemon.pid.map_or_else(none, |pid| pid.to_string()),
            daemon.uptime_seconds.map_or_else(none, duration),
            daemon.restarts.to_string(),
        ]);
    }
    sheet.gap();
    sheet.indented(|sheet| {
        sheet.table(&table);
        for daemon in &daemons {
            let why = daemon.state.to_string();
            if why != daemon.state.state().text() {
                let Supervised { name, state, .. } = daemon;
                sheet.state(format_args!("{name}: "), (state.tone(), state), "");
            }
        }
    });
    for status in daemons.iter().filter_map(|daemon| daemon.status.as_deref()) {
        sheet.gap();
        all(sheet, status, None);
    }
}
