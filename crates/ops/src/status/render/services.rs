//! The services, forwards, default targets and entries of a proxy in a status.

use std::collections::BTreeMap;

use super::super::{Service, ServiceState, Session, State as _, TargetState, Told};
use super::{Rates, bytes, dash, duration, key};
use crate::term::{Column, Sheet, Table, natural};

/// The default targets of doors.
pub(super) fn defaults_table(sheet: &mut Sheet, defaults: &[Service]) {
    if defaults.is_empty() {
        return;
    }
    let own = [Column::new("default of").address()];
    let mut table = Table::new([&own[..], &LEADS, &COUNTS].concat());
    let defaults = sorted(defaults);
    for default in &defaults {
        table.row_of(default.state.tone(), cells("", default, false, None));
    }
    sheet.gap();
    sheet.indented(|sheet| {
        sheet.table(&table);
        refusals(sheet, &defaults);
    });
}

/// The target of a service, a forward or a default, and whether it is healthy.
const LEADS: [Column; 2] =
    [Column::new("target").address().worth(55), Column::new("state").state()];

/// The columns that services and forwards share.
const COUNTS: [Column; 4] = [
    Column::new("streams").worth(70),
    Column::new("total").worth(20),
    Column::new("in").worth(50),
    Column::new("out").worth(50),
];

/// The additional columns for services and forwards that carry UDP.
const FLOWS: [Column; 4] = [
    Column::new("flows").worth(60),
    Column::new("flows total").worth(10),
    Column::new("datagrams in").worth(15),
    Column::new("out").worth(15),
];

/// The additional columns for known rates.
const RATES: [Column; 2] = [Column::new("in/s").worth(65), Column::new("out/s").worth(65)];

/// The entries of a proxy.
pub(super) fn proxies_table(sheet: &mut Sheet, proxies: &[Service], rates: Option<&Rates>) {
    if proxies.is_empty() {
        return;
    }
    let proxies: Vec<_> = proxies.iter().collect();
    let has_flows = carry_flows(&proxies);
    let own = [Column::new("proxy").text(), Column::new("address").address()];
    let all = [&own[..], &LEADS, &COUNTS, flows(has_flows), moving(rates)];
    let mut table = Table::new(all.concat());
    for proxy in &proxies {
        let all = [proxy.name.clone()].into_iter().chain(cells("", proxy, has_flows, rates));
        table.row_of(proxy.state.tone(), all);
    }
    sheet.gap();
    sheet.indented(|sheet| {
        sheet.table(&table);
        refusals(sheet, &proxies);
        drops(sheet, &proxies);
        downs(sheet, &proxies);
        targets(sheet, &proxies);
    });
}

pub(super) fn services_table(sheet: &mut Sheet, session: &Session, rates: Option<&Rates>) {
    let services = sorted(&session.services);
    let has_flows = carry_flows(&services);
    let own = [Column::new("service").text(), Column::new("address").address()];
    let all = [&own[..], &LEADS, &COUNTS, flows(has_flows), moving(rates)];
    let mut table = Table::new(all.concat());
    for service in &services {
        let cells = cells(&session.peer, service, has_flows, rates);
        let all = [dash(&service.name)].into_iter().chain(cells);
        table.row_of(service.state.tone(), all);
    }
    sheet.table(&table);
    requests(sheet, &services);
    refusals(sheet, &services);
    drops(sheet, &services);
    downs(sheet, &services);
    targets(sheet, &services);
    let unpublished = services.iter().filter(|Service { state, .. }| {
        *state == ServiceState::Refused || *state == ServiceState::Waiting && state.has_reason()
    });
    for Service { name, address, state, .. } in unpublished {
        let at = if address.is_empty() { String::new() } else { format!(" at {address}") };
        sheet.line(format_args!("{name} is not published{at}: {state}"));
    }
    kept(sheet, services.iter().map(|service| (&service.name, service.kept)));
    shadows(sheet, services.iter().map(|service| (&service.name, &service.shadows)));
}

/// The table of forwards. It has no names, because the name of a forward repeats address and
/// target.
pub(super) fn forwards_table(sheet: &mut Sheet, session: &Session, rates: Option<&Rates>) {
    let forwards = sorted(&session.forwards);
    let has_flows = carry_flows(&forwards);
    let own = [Column::new("forward").address()];
    let all = [&own[..], &LEADS, &COUNTS, flows(has_flows), moving(rates)];
    let mut table = Table::new(all.concat());
    for forward in &forwards {
        let cells = cells(&session.peer, forward, has_flows, rates);
        table.row_of(forward.state.tone(), cells);
    }
    sheet.table(&table);
    refusals(sheet, &forwards);
    drops(sheet, &forwards);
    downs(sheet, &forwards);
    kept(sheet, forwards.iter().map(|forward| (&forward.address, forward.kept)));
    shadows(sheet, forwards.iter().map(|forward| (&forward.address, &forward.shadows)));
}

/// The lines about entries that shadow configured entries.
fn shadows<'a>(sheet: &mut Sheet, entries: impl Iterator<Item = (&'a String, &'a Vec<String>)>) {
    for (name, behind) in entries {
        for entry in behind {
            sheet.line(format_args!("{name} has the place of {entry}"));
        }
    }
}

/// The services ordered by name, and by address where the names are equal.
fn sorted(services: &[Service]) -> Vec<&Service> {
    let mut sorted: Vec<_> = services.iter().collect();
    sorted.sort_by(|a, b| natural(&a.name, &b.name).then_with(|| natural(&a.address, &b.address)));
    sorted
}

/// The line about entries that commands added.
fn kept<'a>(sheet: &mut Sheet, entries: impl Iterator<Item = (&'a String, bool)>) {
    let names: Vec<_> = entries.filter(|(_, kept)| *kept).map(|(name, _)| name.as_str()).collect();
    if !names.is_empty() {
        sheet.line(format_args!("added at run time: {}", names.join(", ")));
    }
}

/// The numbers of HTTP requests by status, one line per service.
fn requests(sheet: &mut Sheet, services: &[&Service]) {
    static NONE: BTreeMap<String, u64> = BTreeMap::new();
    by_reason(sheet, "requests of", services, |service| match &service.requests {
        Some(requests) => &requests.statuses,
        None => &NONE,
    });
}

/// The numbers of refusals by reason, one line per service.
fn refusals(sheet: &mut Sheet, services: &[&Service]) {
    by_reason(sheet, "refused by", services, |service| &service.refused);
}

/// The numbers of dropped datagrams by reason, one line per service.
fn drops(sheet: &mut Sheet, services: &[&Service]) {
    by_reason(sheet, "datagrams dropped by", services, |service| &service.dropped);
}

fn by_reason(
    sheet: &mut Sheet,
    what: &str,
    services: &[&Service],
    of: impl Fn(&Service) -> &BTreeMap<String, u64>,
) {
    for service in services {
        let reasons: Vec<_> =
            of(service).iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        if !reasons.is_empty() {
            sheet.line(format_args!("{what} {}: {}", shown(service), reasons.join(", ")));
        }
    }
}

/// The name of a service, or its address.
fn shown(service: &Service) -> &str {
    if service.name.is_empty() { &service.address } else { &service.name }
}

/// Whether one of the services carries UDP, or carried it.
fn carry_flows(services: &[&Service]) -> bool {
    services.iter().any(|service| service.carries_flows())
}

const fn flows(has_flows: bool) -> &'static [Column] {
    if has_flows { &FLOWS } else { &[] }
}

const fn moving(rates: Option<&Rates>) -> &'static [Column] {
    if rates.is_some() { &RATES } else { &[] }
}

fn cells(peer: &str, service: &Service, has_flows: bool, rates: Option<&Rates>) -> Vec<String> {
    let mut cells = vec![
        dash(&service.address),
        match service.targets.len() {
            0 | 1 => dash(&service.target),
            several => format!("{several} targets"),
        },
        brief(&service.state),
        service.streams.to_string(),
        service.streams_total.to_string(),
        bytes(service.bytes_in),
        bytes(service.bytes_out),
    ];
    if has_flows {
        let counts = [service.flows, service.flows_total];
        let datagrams = [service.datagrams_in, service.datagrams_out];
        cells.extend(counts.into_iter().chain(datagrams).map(|count| count.to_string()));
    }
    if let Some(Rates(known)) = rates {
        let (inwards, outwards) = known.get(&key(peer, service)).copied().unwrap_or_default();
        cells.extend([bytes(inwards), bytes(outwards)]);
    }
    cells
}

/// The state of a service as a word. A long cell would widen the whole table. The reason of a
/// refusal gets a line of its own below the table.
fn brief(reported: &Told<ServiceState>) -> String {
    let state = reported.state();
    if state == ServiceState::Waiting {
        "waiting".to_owned()
    } else if state == ServiceState::Unknown {
        reported.to_string()
    } else {
        state.text().to_owned()
    }
}

/// The table of the targets of services with several targets.
fn targets(sheet: &mut Sheet, services: &[&Service]) {
    let several: Vec<_> = services.iter().filter(|service| !service.targets.is_empty()).collect();
    if several.is_empty() {
        return;
    }
    let mut table = Table::new(TARGETS.to_vec());
    for service in several {
        for target in &service.targets {
            let state = match &target.down {
                Some(down) if target.state == TargetState::Down => {
                    format!("{} for {}", target.state, duration(down.seconds))
                }
                Some(_) | None => target.state.to_string(),
            };
            let counts = [target.weight.into(), target.visitors, target.visitors_total];
            let [weight, visitors, total] = counts.map(|count: u64| count.to_string());
            let own = [shown(service).to_owned(), target.target.clone(), weight, state];
            table.row_of(target.state.tone(), own.into_iter().chain([visitors, total]));
        }
    }
    sheet.table(&table);
}

/// The distribution of visitors over the targets of a service.
const TARGETS: [Column; 6] = [
    Column::new("targets of").text(),
    Column::new("target").address(),
    Column::new("weight").worth(30),
    Column::new("state").state(),
    Column::new("visitors").worth(70),
    Column::new("total").worth(20),
];

/// The lines about unhealthy targets.
fn downs(sheet: &mut Sheet, services: &[&Service]) {
    for service in services {
        let Some(down) = &service.down else { continue };
        let (name, since) = (shown(service), duration(down.seconds));
        sheet.line(format_args!("the target of {name} is down for {since}: {}", down.reason));
    }
}
