//! The status as text for a person.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{
    Carrier, Certificate, ClientHeld, DENIED, Link, NameAway, SUPERSEDED, Service, Session, Status,
    StreamKind, Streams, TARGET_DOWN, UP, WAITING,
};
use crate::{Role, term};

/// The rates of services and forwards in bytes per second, from two statuses.
#[derive(Debug, Default)]
pub struct Rates(HashMap<[String; 3], (u64, u64)>);

impl Rates {
    /// The rates between `before` and `now`, which are `seconds` apart.
    pub fn between(before: &Status, now: &Status, seconds: f64) -> Self {
        let all = |status: &Status| -> HashMap<[String; 3], (u64, u64)> {
            let of = |session: &Session| {
                let peer = session.peer.clone();
                let both = session.services.iter().chain(&session.forwards);
                let count = |s: &Service| (key(&peer, s), (s.bytes_in, s.bytes_out));
                both.map(count).collect::<Vec<_>>()
            };
            status.sessions.iter().flat_map(of).collect()
        };
        let earlier = all(before);
        let rate = |now: u64, before: u64| {
            // A restarted process counts from zero.
            (now.saturating_sub(before) as f64 / seconds.max(0.001)) as u64
        };
        let rates = all(now).into_iter().filter_map(|(key, now)| {
            let before = earlier.get(&key)?;
            Some((key, (rate(now.0, before.0), rate(now.1, before.1))))
        });
        Self(rates.collect())
    }
}

fn key(peer: &str, service: &Service) -> [String; 3] {
    [peer.to_owned(), service.name.clone(), service.address.clone()]
}

/// The status as text for a person: a header and tables per session. With `rates` the tables also
/// show the present rates.
pub fn render(status: &Status, rates: Option<&Rates>) -> String {
    // The number of tasks is for monitoring programs.
    let Status {
        role,
        name,
        version,
        pid,
        uptime_seconds,
        state,
        drain_seconds,
        reload_error,
        listen,
        pins,
        doors,
        default_targets,
        certificates,
        names_away,
        names_away_total,
        holds,
        servers: _,
        tasks: _,
        // The log-ins are for monitoring programs as well; a person reads them in the log.
        logins: _,
        log_lines_left_out,
        request_log_lines_lost,
        memory,
        descriptors,
        udp: _,
        sessions,
    } = status;
    let name = if name.is_empty() { String::new() } else { format!(" {name}") };
    let uptime = duration(*uptime_seconds);
    let mut text = format!("tunnel {role}{name} {version}, {state}, up {uptime}, process {pid}\n");
    if let Some(seconds) = drain_seconds {
        text.push_str(&format!(
            "stopping: new visitors are refused, and open streams are reset in {}\n",
            duration(*seconds)
        ));
    }
    if let Some(why) = reload_error {
        text.push_str(&format!("not reloaded, running as before: {why}\n"));
    }
    for address in listen {
        text.push_str(&format!("listening on {address}\n"));
    }
    for pin in pins {
        text.push_str(&match role {
            Role::Server => format!("pin of the server {pin}\n"),
            Role::Client => format!("trusts a server with the pin {pin}\n"),
        });
    }
    for address in doors {
        text.push_str(&format!("listening for visitors of names on {address}\n"));
    }
    let links: usize = sessions.iter().map(|session| session.links.len()).sum();
    let count = |n: usize, word| term::count(u64::try_from(n).unwrap_or(u64::MAX), word);
    let [used, budget] = [memory.used_bytes, memory.budget_bytes].map(bytes);
    text.push_str(&format!(
        "{}, {}, {used} of {budget} memory budget in use\n",
        count(sessions.len(), "session"),
        count(links, "link")
    ));
    if memory.refused > 0 {
        let refused = memory.refused;
        text.push_str(&format!(
            "{refused} visitors and requests refused: the memory budget had too little left\n"
        ));
    }
    if let (Some(room), Some(limit)) = (descriptors.room, descriptors.limit) {
        let visitors = term::count(room, "more visitor");
        text.push_str(&format!("room for {visitors}, limit of open files {limit}\n"));
    }
    if *log_lines_left_out > 0 {
        let lines = term::count(*log_lines_left_out, "log line");
        text.push_str(&format!("{lines} left out: peers caused too many\n"));
    }
    if *request_log_lines_lost > 0 {
        let lines = term::count(*request_log_lines_lost, "line");
        text.push_str(&format!("{lines} of the log of requests lost: its file took none\n"));
    }
    text.push_str(&defaults_table(default_targets));
    text.push_str(&certificates_table(certificates));
    text.push_str(&away_table(names_away, *names_away_total));
    for ClientHeld { client, hold } in holds {
        text.push_str(&format!("\nclient {client} is on hold {hold}\n"));
    }
    for session in sessions {
        text.push_str(&format!("\n{}: {}\n", session.peer, session.state));
        text.push_str(&tables(session, rates));
    }
    text
}

/// The remaining streams of a daemon that stops, by peer and service: `3 streams are left: home web
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

/// The number of services with their peers that a line of remaining streams names.
const GROUPS_SHOWN: usize = 8;

/// The default targets of doors.
fn defaults_table(defaults: &[Service]) -> String {
    if defaults.is_empty() {
        return String::new();
    }
    let mut rows = vec![titles(&[&["default of", "target", "state"][..], &COUNTS].concat())];
    rows.extend(defaults.iter().map(|default| cells("", default, false, None)));
    format!("\n{}", indent(&(table(&rows) + &refusals(defaults))))
}

/// The certificates, with the reasons of failures below the table: a long cell would widen it.
fn certificates_table(certificates: &[Certificate]) -> String {
    // A server with files alone has neither a challenge nor a renewal.
    let has_orders = certificates.iter().any(|it| it.challenge.is_some() || it.renews_at.is_some());
    let ordered: &[&str] = if has_orders { &["renewed", "challenge"] } else { &[] };
    let mut rows = vec![titles(&[&["certificate", "source", "expires"], ordered].concat())];
    for certificate in certificates {
        let Certificate { host, source, expires_seconds, challenge, renews_seconds, .. } =
            certificate;
        let none = || "-".to_owned();
        let mut row = vec![host.clone(), source.clone(), expires_seconds.map_or_else(none, expiry)];
        if has_orders {
            let left = |left: u64| i64::try_from(left).unwrap_or(i64::MAX);
            row.push(renews_seconds.map_or_else(none, |seconds| expiry(left(seconds))));
            row.push(challenge.clone().unwrap_or_else(none));
        }
        rows.push(row);
    }
    let mut text = indent(&table(&rows));
    for Certificate { host, source, error, retry_seconds, .. } in certificates {
        let Some(error) = error else { continue };
        let what = if source == "none" { "has no certificate" } else { "is not renewed" };
        let next = retry_seconds
            .map_or_else(String::new, |left| format!(" (next attempt in {})", duration(left)));
        text.push_str(&format!("  {host} {what}: {error}{next}\n"));
    }
    if text.is_empty() { text } else { format!("\n{text}") }
}

/// The most names of clients that are away in the text.
const AWAY_SHOWN: usize = 20;

/// The names whose clients are away.
fn away_table(names: &[NameAway], total: u64) -> String {
    if names.is_empty() {
        return String::new();
    }
    let mut rows = vec![titles(&["name", "client", "away for"])];
    for NameAway { address, client, seconds } in names.iter().take(AWAY_SHOWN) {
        rows.push(vec![address.clone(), client.clone(), duration(*seconds)]);
    }
    let shown = u64::try_from(rows.len() - 1).unwrap_or(u64::MAX);
    let more = match total.saturating_sub(shown) {
        0 => String::new(),
        more => format!("  and {more} more\n"),
    };
    format!("\n{}{more}", indent(&table(&rows)))
}

/// When a certificate expires, with a unit of days where a day is left or has passed.
fn expiry(seconds: i64) -> String {
    const DAY: u64 = 86_400;
    let span = match seconds.unsigned_abs() {
        less @ 0..DAY => duration(less),
        more => term::count(more / DAY, "day"),
    };
    if seconds < 0 { format!("{span} ago") } else { format!("in {span}") }
}

/// The links, services and forwards of a session.
pub(crate) fn tables(session: &Session, rates: Option<&Rates>) -> String {
    let tables = [
        links_table(&session.links),
        services_table(session, rates),
        forwards_table(session, rates),
    ];
    tables.iter().map(|table| indent(table)).collect()
}

fn links_table(links: &[Link]) -> String {
    // Most tunnels carry no UDP.
    let has_flows = links.iter().any(|link| link.flows > 0);
    let flows: &[&str] = if has_flows { &["flows"] } else { &[] };
    // Only KCP tells losses, repetitions and repairs apart.
    let has_repairs = links.iter().flat_map(|link| &link.carriers).any(|c| c.kcp.is_some());
    let repairs: &[&str] = if has_repairs { &["resent", "recovered"] } else { &[] };
    let (own, path) =
        (["link", "worker", "state", "streams"], ["carrier", "peer", "rtt", "loss", "queue"]);
    let mut rows = vec![titles(&[&own[..], flows, &path, repairs].concat())];
    for link in links {
        let own = [link.serial.to_string(), link.worker.to_string(), link.state.clone()];
        let mut own: Vec<String> = own.into_iter().chain([link.streams.to_string()]).collect();
        own.extend(has_flows.then(|| link.flows.to_string()));
        if link.carriers.is_empty() {
            let dashes = ["-"; 7];
            let path = titles(&dashes[..path.len() + repairs.len()]);
            rows.push(own.iter().cloned().chain(path).collect());
        }
        for carrier in &link.carriers {
            let rtt = carrier.rtt_micros.map_or_else(|| "-".to_owned(), millis);
            let row =
                [format!("#{} over {}", carrier.number, carrier.transport), carrier.peer.clone()];
            let queue = carrier.tcp.and_then(|tcp| tcp.queue_bytes);
            let loss = share(carrier.sent().and_then(|sent| sent.loss()));
            let path = [rtt, loss, queue.map_or_else(|| "-".to_owned(), bytes)];
            let repairs = has_repairs.then(|| repairs_of(carrier)).into_iter().flatten();
            rows.push(own.iter().cloned().chain(row).chain(path).chain(repairs).collect());
        }
    }
    table(&rows) + &ciphers(links)
}

/// The cipher suites of the carriers with the libraries that compute them, in one line: nearly
/// always all carriers have the same one, so a column would only widen the table.
fn ciphers(links: &[Link]) -> String {
    let carriers = links.iter().flat_map(|link| &link.carriers);
    let name = |carrier: &Carrier| {
        let Carrier { cipher: Some(cipher), backend: Some(backend), .. } = carrier else {
            return None;
        };
        Some(format!("{cipher} by {backend}"))
    };
    let all: BTreeSet<_> = carriers.filter_map(name).collect();
    let all: Vec<_> = all.into_iter().collect();
    if all.is_empty() { String::new() } else { format!("cipher: {}\n", all.join(", ")) }
}

/// The share of retransmitted packets, and the number of packets that were rebuilt from parity.
fn repairs_of(carrier: &Carrier) -> [String; 2] {
    let Some(kcp) = carrier.kcp else { return ["-"; 2].map(str::to_owned) };
    let resent = share(Some((kcp.retransmitted_packets, kcp.sent_packets)));
    [resent, kcp.recovered_packets.to_string()]
}

/// The share of the first count in the second count, in percent.
fn share(counts: Option<(u64, u64)>) -> String {
    match counts {
        // A retransmitted SYN is not among the sent segments.
        Some((part, sent @ 1..)) => {
            let hundredths = part.min(sent).saturating_mul(10_000) / sent;
            format!("{}.{:02} %", hundredths / 100, hundredths % 100)
        }
        Some((_, 0)) | None => "-".to_owned(),
    }
}

/// The columns that services and forwards share.
const COUNTS: [&str; 4] = ["streams", "total", "in", "out"];

/// The columns behind them, where a service or forward of the table carries UDP.
const FLOWS: [&str; 4] = ["flows", "total", "datagrams in", "out"];

/// The columns behind them, when rates are known.
const RATES: [&str; 2] = ["in/s", "out/s"];

fn services_table(session: &Session, rates: Option<&Rates>) -> String {
    let has_flows = carry_flows(&session.services);
    let heads =
        [&["service", "address", "target", "state"][..], &COUNTS, flows(has_flows), moving(rates)];
    let mut rows = vec![titles(&heads.concat())];
    for service in &session.services {
        let cells = cells(&session.peer, service, has_flows, rates);
        rows.push([dash(&service.name)].into_iter().chain(cells).collect());
    }
    let mut text = table(&rows);
    text.push_str(&requests(&session.services));
    text.push_str(&refusals(&session.services));
    text.push_str(&drops(&session.services));
    text.push_str(&downs(&session.services));
    for Service { name, address, state, .. } in session.services.iter().filter(|s| s.is_refused()) {
        let at = if address.is_empty() { String::new() } else { format!(" at {address}") };
        text.push_str(&format!("{name} is not published{at}: {state}\n"));
    }
    text.push_str(&kept(session.services.iter().map(|service| (&service.name, service.kept))));
    text + &shadows(session.services.iter().map(|service| (&service.name, &service.shadows)))
}

/// The table of forwards. It has no names, because the name of a forward repeats address and
/// target.
fn forwards_table(session: &Session, rates: Option<&Rates>) -> String {
    let forwards = &session.forwards;
    let has_flows = carry_flows(forwards);
    let heads = [&["forward", "target", "state"][..], &COUNTS, flows(has_flows), moving(rates)];
    let mut rows = vec![titles(&heads.concat())];
    rows.extend(forwards.iter().map(|forward| cells(&session.peer, forward, has_flows, rates)));
    let kept = kept(forwards.iter().map(|forward| (&forward.address, forward.kept)));
    let shadows = shadows(forwards.iter().map(|forward| (&forward.address, &forward.shadows)));
    table(&rows) + &refusals(forwards) + &drops(forwards) + &downs(forwards) + &kept + &shadows
}

/// The lines about entries that have the place of configured entries.
fn shadows<'a>(entries: impl Iterator<Item = (&'a String, &'a Vec<String>)>) -> String {
    let lines = entries.flat_map(|(name, behind)| {
        behind.iter().map(move |entry| format!("{name} has the place of {entry}\n"))
    });
    lines.collect()
}

/// The line about entries that commands added.
fn kept<'a>(entries: impl Iterator<Item = (&'a String, bool)>) -> String {
    let names: Vec<_> = entries.filter(|(_, kept)| *kept).map(|(name, _)| name.as_str()).collect();
    if names.is_empty() {
        String::new()
    } else {
        format!("added at run time: {}\n", names.join(", "))
    }
}

/// The numbers of requests of HTTP with their statuses, a line per service.
fn requests(services: &[Service]) -> String {
    static NONE: BTreeMap<String, u64> = BTreeMap::new();
    by_reason("requests of", services, |service| match &service.requests {
        Some(requests) => &requests.statuses,
        None => &NONE,
    })
}

/// The numbers of refusals with their reasons, a line per service.
fn refusals(services: &[Service]) -> String {
    by_reason("refused by", services, |service| &service.refused)
}

/// The numbers of dropped datagrams with their reasons, a line per service.
fn drops(services: &[Service]) -> String {
    by_reason("datagrams dropped by", services, |service| &service.dropped)
}

fn by_reason(
    what: &str,
    services: &[Service],
    of: impl Fn(&Service) -> &BTreeMap<String, u64>,
) -> String {
    let line = |service: &Service| {
        let reasons: Vec<_> =
            of(service).iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        let name = if service.name.is_empty() { &service.address } else { &service.name };
        (!reasons.is_empty()).then(|| format!("{what} {name}: {}\n", reasons.join(", ")))
    };
    services.iter().filter_map(line).collect()
}

/// Whether one of the services carries UDP, or did.
fn carry_flows(services: &[Service]) -> bool {
    services.iter().any(Service::carries_flows)
}

const fn flows(has_flows: bool) -> &'static [&'static str] {
    if has_flows { &FLOWS } else { &[] }
}

/// A table of streams and flows for a person, and the number of those that it omits.
pub fn render_streams(streams: &Streams) -> String {
    let first = match streams.list.iter().any(|stream| stream.kind == StreamKind::Flow) {
        true => "stream or flow",
        false => "stream",
    };
    let mut rows = vec![titles(&[first, "peer", "service", "socket", "in", "out"])];
    for stream in &streams.list {
        rows.push(vec![
            stream.id.clone(),
            stream.peer.clone(),
            dash(&stream.service),
            dash(&stream.socket),
            bytes(stream.bytes_in),
            bytes(stream.bytes_out),
        ]);
    }
    let shown = u64::try_from(streams.list.len()).unwrap_or(u64::MAX);
    let rest = match streams.total.saturating_sub(shown) {
        0 => String::new(),
        more => format!("and {more} more: --limit, --service\n"),
    };
    let head = if streams.total == 0 { "no open streams\n" } else { "" };
    format!("{head}{}{rest}", table(&rows))
}

const fn moving(rates: Option<&Rates>) -> &'static [&'static str] {
    if rates.is_some() { &RATES } else { &[] }
}

fn cells(peer: &str, service: &Service, has_flows: bool, rates: Option<&Rates>) -> Vec<String> {
    let mut cells = vec![
        dash(&service.address),
        dash(&service.target),
        brief(&service.state).to_owned(),
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

/// The cell for a reason of a refusal, which has a line of its own below the table.
const REFUSED: &str = "refused";

/// The state of a service in a word. A long cell would widen the whole table.
fn brief(state: &str) -> &str {
    match state {
        UP | SUPERSEDED | TARGET_DOWN | DENIED => state,
        WAITING => "waiting",
        _ => REFUSED,
    }
}

/// The lines about targets that do not serve.
fn downs(services: &[Service]) -> String {
    let line = |service: &Service| {
        let down = service.down.as_ref()?;
        let name = if service.name.is_empty() { &service.address } else { &service.name };
        let since = duration(down.seconds);
        Some(format!("the target of {name} is down for {since}: {}\n", down.reason))
    };
    services.iter().filter_map(line).collect()
}

/// A table; an empty text when there are only titles.
fn table(rows: &[Vec<String>]) -> String {
    if rows.len() > 1 { term::table(rows) } else { String::new() }
}

fn titles(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn dash(text: &str) -> String {
    if text.is_empty() { "-" } else { text }.to_owned()
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

fn millis(micros: u64) -> String {
    format!("{}.{} ms", micros / 1000, micros % 1000 / 100)
}

/// A number of seconds as text: `3m20s`, with two units at most.
pub fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m{}s", seconds % 60),
        3600..86_400 => format!("{hours}h{minutes}m"),
        86_400.. => format!("{days}d{hours}h"),
    }
}

/// A number of bytes as text: `1.4 GiB`, with one decimal and units of powers of 1,024.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let power = (n.ilog2() / 10) as usize;
    let unit = 1_u64 << (10 * power);
    // In 128 bits, because a tenth of the largest unit still is a large number.
    let tenths = u128::from(n) * 10 / u128::from(unit);
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[power - 1])
}

#[cfg(test)]
mod tests {
    use super::super::{Quic, Sent, Tcp, sample, sample_kcp};
    use super::*;
    use crate::clients::Held;

    #[test]
    fn rates_are_what_moved_in_between() {
        let (before, mut now) = (sample(), sample());
        now.sessions[0].services[0].bytes_in += 4 << 20;
        let mut new = now.sessions[0].services[0].clone();
        new.name = "new".into();
        now.sessions[0].services.push(new);
        let rates = Rates::between(&before, &now, 2.0);
        let text = render(&now, Some(&rates));
        let lines: Vec<_> = text.lines().skip(11).collect();
        assert!(lines[0].ends_with("in       out      in/s     out/s"), "{text}");
        assert!(lines[1].ends_with("4.0 MiB  3.0 GiB  2.0 MiB  0 B"), "{text}");
        assert!(lines[2].ends_with("0 B      0 B"), "{text}");
        // A restarted daemon.
        let rates = Rates::between(&now, &before, 2.0);
        assert!(render(&before, Some(&rates)).contains("3.0 GiB  0 B   0 B"), "{text}");
    }

    #[test]
    fn the_table_shows_what_matters() {
        let expected = "\
tunnel server 0.1.0, running, up 1h1m, process 42
listening on tls://0.0.0.0:7000
pin of the server sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
1 session, 2 links, 1.5 KiB of 3.0 GiB memory budget in use
room for 936 more visitors, limit of open files 1024

home: up
  link  worker  state    streams  carrier      peer             rtt      loss    queue
  7     1       up       1        #2 over tls  192.0.2.7:40000  12.3 ms  1.25 %  20.0 KiB
  8     0       stalled  0        -            -                -        -       -
  cipher: TLS_AES_128_GCM_SHA256 by ring
  service  address              target  state  streams  total  in       out
  ssh      tcp://0.0.0.0:10022  -       up     1        20     1.5 KiB  3.0 GiB
";
        assert_eq!(render(&sample(), None), expected);
    }

    #[test]
    fn flows_have_columns_where_there_are_any() {
        let mut status = sample();
        status.sessions[0].links[0].flows = 3;
        status.sessions[0].services.push(super::super::sample_flows());
        let expected = "
  link  worker  state    streams  flows  carrier      peer             rtt      loss    queue
  7     1       up       1        3      #2 over tls  192.0.2.7:40000  12.3 ms  1.25 %  20.0 KiB
  8     0       stalled  0        0      -            -                -        -       -
  cipher: TLS_AES_128_GCM_SHA256 by ring
  service  address              target  state  streams  total  in       out      flows  total  datagrams in  out
  ssh      tcp://0.0.0.0:10022  -       up     1        20     1.5 KiB  3.0 GiB  0      0      0             0
  dns      udp://0.0.0.0:5353   -       up     0        0      3.9 KiB  8.7 KiB  3      40     100           99
  datagrams dropped by dns: 1 oversize, 7 queue
";
        let text = render(&status, None);
        assert!(text.ends_with(expected), "{text}");

        let stream = |id: &str, kind| super::super::Stream {
            id: id.into(),
            kind,
            ..super::super::Stream::default()
        };
        let list = vec![stream("3/17", StreamKind::Stream), stream("3/u1", StreamKind::Flow)];
        let text = render_streams(&Streams { total: 2, list });
        let expected = "\
stream or flow  peer  service  socket  in   out
3/17                  -        -       0 B  0 B
3/u1                  -        -       0 B  0 B
";
        assert_eq!(text, expected);
    }

    #[test]
    fn certificates_have_a_table_and_their_failures_a_line_each() {
        let certificate = |host: &str, source: &str, at: Option<u64>| {
            let (host, source) = (host.to_owned(), source.to_owned());
            let mut certificate = Certificate { host, source, ..Certificate::default() };
            certificate.expires(at, 1_000_000);
            certificate
        };
        let failed = Certificate {
            error: Some("the authority is down".to_owned()),
            retry_seconds: Some(200),
            ..certificate("b.example.com", "acme", Some(1_000_000 - 86_400))
        };
        let lost = Certificate {
            error: Some("no certificate is for it".to_owned()),
            ..certificate("c.example.com", "none", None)
        };
        let hour = Certificate {
            challenge: Some("dns-01".to_owned()),
            renews_at: Some(1_000_000 + 1_800),
            renews_seconds: Some(1_800),
            ..certificate("a.example.com", "acme", Some(1_000_000 + 3_600))
        };
        let wild = certificate("*.example.com", "file", Some(1_000_000 + 7 * 86_400));
        let certificates = vec![wild, hour, failed, lost];
        let text = render(&Status { certificates, ..sample() }, None);
        let expected = "

  certificate    source  expires    renewed   challenge
  *.example.com  file    in 7 days  -         -
  a.example.com  acme    in 1h0m    in 30m0s  dns-01
  b.example.com  acme    1 day ago  -         -
  c.example.com  none    -          -         -
  b.example.com is not renewed: the authority is down (next attempt in 3m20s)
  c.example.com has no certificate: no certificate is for it

home: up
";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn names_that_are_away_and_clients_on_hold_are_shown() {
        let name = |n: u64| NameAway {
            address: format!("https://n{n}.example.com"),
            client: "office".into(),
            seconds: 60 * n,
        };
        let hold = Held { seconds: 5, retry_after_seconds: 600, page: false };
        let status = Status {
            names_away: vec![name(1), name(2)],
            names_away_total: 2,
            holds: vec![ClientHeld { client: "home".into(), hold }],
            ..sample()
        };
        let expected = "
  name                    client  away for
  https://n1.example.com  office  1m0s
  https://n2.example.com  office  2m0s

client home is on hold for 5s: visitors of its names get 503 with the page for unavailable services, Retry-After 10m0s

home: up
";
        let text = render(&status, None);
        assert!(text.contains(expected), "{text}");
        let many =
            Status { names_away: (0..30).map(name).collect(), names_away_total: 70, ..status };
        let text = render(&many, None);
        assert!(text.contains("n19.example.com") && !text.contains("n20.example.com"), "{text}");
        assert!(text.contains("\n  and 50 more\n"), "{text}");
    }

    #[test]
    fn each_cipher_is_named_once() {
        let mut status = sample();
        let links = &mut status.sessions[0].links;
        let carrier = |cipher: &str| Carrier {
            cipher: Some(cipher.into()),
            backend: Some("aws-lc".into()),
            ..Carrier::default()
        };
        let more = ["TLS_CHACHA20_POLY1305_SHA256"; 2].map(carrier);
        links[0].carriers.extend(more);
        let expected =
            "cipher: TLS_AES_128_GCM_SHA256 by ring, TLS_CHACHA20_POLY1305_SHA256 by aws-lc";
        assert_eq!(ciphers(links).trim_end(), expected);
        links[0].carriers = vec![Carrier { transport: "tcp".into(), ..Carrier::default() }];
        assert_eq!(ciphers(links), "");
    }

    #[test]
    fn loss_is_told_where_it_is_known() {
        let of = |sent: Option<u64>, again: Option<u64>| {
            let (sent_segments, retransmitted_segments) = (sent, again);
            let tcp = Tcp { sent_segments, retransmitted_segments, ..Tcp::default() };
            share(Sent::from(tcp).loss())
        };
        assert_eq!(share(None), "-");
        assert_eq!(of(None, Some(1)), "-");
        assert_eq!(of(Some(0), Some(3)), "-");
        assert_eq!(of(Some(2), Some(3)), "100.00 %");
        assert_eq!(of(Some(30_000), Some(1)), "0.00 %");
        let quic = Quic { sent_packets: 200, lost_packets: 1, ..Quic::default() };
        assert_eq!(share(Sent::from(quic).loss()), "0.50 %");
    }

    #[test]
    fn kcp_has_columns_of_its_repairs_where_there_is_a_carrier() {
        let mut links = sample().sessions.remove(0).links;
        links[1].carriers = vec![sample_kcp()];
        links.push(Link { serial: 9, state: "stalled".into(), ..Link::default() });
        let expected = "\
link  worker  state    streams  carrier      peer             rtt      loss    queue     resent  recovered
7     1       up       1        #2 over tls  192.0.2.7:40000  12.3 ms  1.25 %  20.0 KiB  -       -
8     0       stalled  0        #1 over kcp  192.0.2.7:40001  97.6 ms  5.00 %  -         0.30 %  940
9     0       stalled  0        -            -                -        -       -         -       -
cipher: TLS_AES_128_GCM_SHA256 by ring
";
        assert_eq!(links_table(&links), expected);
    }

    #[test]
    fn a_reason_does_not_widen_the_table() {
        let service = |name: &str, state: &str| Service {
            name: name.into(),
            state: state.into(),
            ..Service::default()
        };
        let why = "tcp://:22: port 22 is not among the ports that this client may publish";
        let some = Service { address: "http://d".into(), ..service("d", "no right") };
        let services =
            vec![service("a", why), service("b", WAITING), service("c", SUPERSEDED), some];
        let session = Session { services, ..Session::default() };
        let expected = "\
service  address   target  state       streams  total  in   out
a        -         -       refused     0        0      0 B  0 B
b        -         -       waiting     0        0      0 B  0 B
c        -         -       superseded  0        0      0 B  0 B
d        http://d  -       refused     0        0      0 B  0 B
a is not published: tcp://:22: port 22 is not among the ports that this client may publish
d is not published at http://d: no right
";
        assert_eq!(services_table(&session, None), expected);
    }

    #[test]
    fn byte_counts_of_any_size_are_readable() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.0 KiB");
        assert_eq!(bytes((1 << 20) - 1), "1023.9 KiB");
        assert_eq!(bytes(u64::MAX), "15.9 EiB");
    }
}
