//! The status as readable text.

mod away;
mod cluster;
mod daemons;
mod measured;
mod services;
mod streams;

use std::collections::{BTreeSet, HashMap};

use super::{
    Carrier, Certificate, ClientHeld, FormerProcess, Link, PathState, PeerPath, Service, Session,
    Status, SupervisedState,
};
use away::away_table;
use cluster::cluster_table;
pub use cluster::render_cluster;
use daemons::daemons_table;
use services::{defaults_table, forwards_table, proxies_table, services_table};
pub use streams::{render_left, render_streams};

use crate::Role;
use crate::term::{self, Column, Drawn, Screen, Sheet, Table, bytes, duration, natural};

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
            let proxies = status.proxies.iter();
            let proxies = proxies.map(|own| (key("", own), (own.bytes_in, own.bytes_out)));
            status.sessions.iter().flat_map(of).chain(proxies).collect()
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

/// The status as readable text: a header and tables per session. With `rates` the tables also show
/// the present rates.
pub fn render(status: &Status, rates: Option<&Rates>, screen: Screen) -> Drawn {
    let mut sheet = Sheet::new(screen);
    all(&mut sheet, status, rates);
    sheet.finish()
}

/// The reasons for the choice of servers and paths as readable text: each session with its state,
/// and the round trip and the path of each link.
pub fn render_why(status: &Status, screen: Screen) -> Drawn {
    let mut sheet = Sheet::new(screen);
    if let Some(network) = &status.network {
        sheet.line(format_args!("network: {}", measured::network(network)));
    }
    for session in &status.sessions {
        let Session { peer, state, standby, why, links, paths, .. } = session;
        let role = if *standby { ", stands by" } else { "" };
        let because = if why.is_empty() { String::new() } else { format!(": {why}") };
        sheet.state(format_args!("{peer}: "), (state.tone(), state), format!("{role}{because}"));
        sheet.indented(|sheet| {
            for link in links {
                for carrier in &link.carriers {
                    let Carrier { transport, peer, via, rtt_micros, standby, .. } = carrier;
                    let via = via.as_ref().map(|via| format!(" via {via}")).unwrap_or_default();
                    let rtt = rtt_micros.map(|micros| {
                        format!(", round trip {}.{} ms", micros / 1_000, micros % 1_000 / 100)
                    });
                    let role = if *standby { ", stands by" } else { "" };
                    let rtt = rtt.unwrap_or_default();
                    sheet.line(format_args!(
                        "link {}: {transport} to {peer}{via}{rtt}{role}",
                        link.serial
                    ));
                }
            }
            for path in paths {
                sheet.line(format_args!("{}", measured::path(path)));
            }
        });
    }
    sheet.finish()
}

fn all(sheet: &mut Sheet, status: &Status, rates: Option<&Rates>) {
    head(sheet, status);
    daemons_table(sheet, &status.daemons);
    if let Some(cluster) = &status.cluster {
        sheet.gap();
        cluster_table(sheet, cluster);
    }
    defaults_table(sheet, &status.default_targets);
    proxies_table(sheet, &status.proxies, rates);
    certificates_table(sheet, &status.certificates);
    away_table(sheet, &status.names_away, status.names_away_total);
    let mut holds: Vec<_> = status.holds.iter().collect();
    holds.sort_by(|a, b| natural(&a.client, &b.client));
    for ClientHeld { client, hold } in holds {
        sheet.gap();
        sheet.line(format_args!("client {client} is on hold {hold}"));
    }
    // A client has its current session first.
    let mut sessions: Vec<_> = status.sessions.iter().collect();
    if status.role == Role::Server {
        sessions.sort_by(|a, b| natural(&a.peer, &b.peer));
    }
    for session in sessions {
        sheet.gap();
        let Session { peer, state, standby, .. } = session;
        let stands_by = if *standby { ", stands by" } else { "" };
        sheet.state(format_args!("{peer}: "), (state.tone(), state), stands_by);
        tables(sheet, session, rates);
    }
}

/// The line about a drain that ends in this number of seconds.
fn stopping(sheet: &mut Sheet, seconds: u64) {
    let left = duration(seconds);
    sheet.line(format_args!(
        "stopping: new visitors are refused, and open streams are reset in {left}"
    ));
}

/// The lines about the whole process.
fn head(sheet: &mut Sheet, status: &Status) {
    // Tasks, log-ins and changes of the network are for monitoring programs.
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
        default_targets: _,
        proxies,
        certificates: _,
        names_away: _,
        names_away_total: _,
        holds: _,
        cluster: _,
        servers: _,
        network: _,
        tasks: _,
        logins: _,
        peers: _,
        log_lines_left_out,
        request_log_lines_lost,
        memory,
        descriptors,
        udp: _,
        sessions,
        daemons,
        former,
        network_changes: _,
    } = status;
    let name = if name.is_empty() { String::new() } else { format!(" {name}") };
    let uptime = duration(*uptime_seconds);
    sheet.state(
        format_args!("tunnel {role}{name} {version}, "),
        (state.tone(), state),
        format_args!(", up {uptime}, process {pid}"),
    );
    if let Some(seconds) = drain_seconds {
        stopping(sheet, *seconds);
    }
    for FormerProcess { pid, version, seconds, streams: _, waits_for, ending } in former {
        let ends = if *ending { ", and ends within drain_timeout" } else { "" };
        sheet.line(format_args!(
            "former process {pid} ({version}), replaced {} ago, waits for {waits_for}{ends}",
            duration(*seconds)
        ));
    }
    if let Some(why) = reload_error {
        sheet.line(format_args!("not reloaded, running as before: {why}"));
    }
    for address in listen {
        sheet.line(format_args!("listening on {address}"));
    }
    for pin in pins {
        sheet.line(match role {
            Role::Server => format!("pin of the server {pin}"),
            Role::Client | Role::Proxy | Role::Run => format!("trusts a server with the pin {pin}"),
        });
    }
    for address in doors {
        sheet.line(format_args!("listening for visitors of names on {address}"));
    }
    if *role == Role::Run {
        let running = daemons.iter().filter(|one| one.state == SupervisedState::Running).count();
        let all = term::count(u64::try_from(daemons.len()).unwrap_or(u64::MAX), "daemon");
        sheet.line(format_args!("{running} of {all} running"));
        return;
    }
    let count = |n: usize, word| term::count(u64::try_from(n).unwrap_or(u64::MAX), word);
    let [used, budget] = [memory.used_bytes, memory.budget_bytes].map(bytes);
    let carried = match role {
        Role::Server | Role::Client => {
            let links = sessions.iter().map(|session| session.links.len()).sum();
            format!("{}, {}", count(sessions.len(), "session"), count(links, "link"))
        }
        Role::Proxy | Role::Run => {
            term::count(proxies.iter().map(|own| own.streams).sum(), "connection")
        }
    };
    sheet.line(format_args!("{carried}, {used} of {budget} memory budget in use"));
    if memory.refused > 0 {
        let refused = memory.refused;
        sheet.line(format_args!(
            "{refused} visitors and requests refused: the memory budget had too little left"
        ));
    }
    if let (Some(room), Some(limit)) = (descriptors.room, descriptors.limit) {
        let visitors = term::count(room, "more visitor");
        sheet.line(format_args!("room for {visitors}, limit of open files {limit}"));
    }
    if *log_lines_left_out > 0 {
        let lines = term::count(*log_lines_left_out, "log line");
        sheet.line(format_args!("{lines} left out: peers caused too many"));
    }
    if *request_log_lines_lost > 0 {
        let lines = term::count(*request_log_lines_lost, "line");
        sheet.line(format_args!("{lines} of the log of requests lost: its file took none"));
    }
}

/// The certificates, with the reasons of failures below the table: a long cell would widen it.
fn certificates_table(sheet: &mut Sheet, certificates: &[Certificate]) {
    if certificates.is_empty() {
        return;
    }
    // A server with files alone has neither a challenge nor a renewal.
    let has_orders = certificates.iter().any(|it| it.challenge.is_some() || it.renews_at.is_some());
    let mut columns = vec![
        Column::new("certificate").text(),
        Column::new("source").worth(50),
        Column::new("expires"),
    ];
    if has_orders {
        columns.extend([Column::new("renewed").worth(40), Column::new("challenge").worth(20)]);
    }
    let mut table = Table::new(columns);
    let mut certificates: Vec<_> = certificates.iter().collect();
    certificates.sort_by(|a, b| natural(&a.host, &b.host));
    for certificate in &certificates {
        let Certificate { host, source, expires_seconds, challenge, renews_seconds, .. } =
            certificate;
        let none = || "-".to_owned();
        let mut row = vec![host.clone(), source.clone(), expires_seconds.map_or_else(none, expiry)];
        if has_orders {
            let left = |left: u64| i64::try_from(left).unwrap_or(i64::MAX);
            row.push(renews_seconds.map_or_else(none, |seconds| expiry(left(seconds))));
            row.push(challenge.clone().unwrap_or_else(none));
        }
        table.row(row);
    }
    sheet.gap();
    sheet.indented(|sheet| {
        sheet.table(&table);
        for Certificate { host, source, error, retry_seconds, .. } in certificates {
            let Some(error) = error else { continue };
            let what = if source == "none" { "has no certificate" } else { "is not renewed" };
            let next = retry_seconds
                .map_or_else(String::new, |left| format!(" (next attempt in {})", duration(left)));
            sheet.line(format_args!("{host} {what}: {error}{next}"));
        }
    });
}

/// When a certificate expires, in days if at least one day remains or has passed.
fn expiry(seconds: i64) -> String {
    const DAY: u64 = 86_400;
    let span = match seconds.unsigned_abs() {
        less @ 0..DAY => duration(less),
        more => term::count(more / DAY, "day"),
    };
    if seconds < 0 { format!("{span} ago") } else { format!("in {span}") }
}

/// The links, services and forwards of a session.
pub(crate) fn tables(sheet: &mut Sheet, session: &Session, rates: Option<&Rates>) {
    sheet.indented(|sheet| {
        links_table(sheet, &session.links);
        services_table(sheet, session, rates);
        forwards_table(sheet, session, rates);
    });
}

/// The path of a link with another client, in words.
fn path_of(path: &PeerPath) -> String {
    let PeerPath { state, since_seconds, pair, rtt_micros } = path;
    let (way, why) = match state.state() {
        PathState::Relayed => ("relayed", Some(state.to_string())),
        PathState::Direct => ("direct", pair.clone()),
        PathState::Unknown => ("unknown", None),
    };
    let mut text = format!("{way} for {}", duration(*since_seconds));
    // The text of a relayed path without a reason is the word itself.
    if let Some(why) = why.filter(|why| *why != way) {
        text.push_str(&format!(": {why}"));
    }
    if let Some(rtt) = rtt_micros {
        text.push_str(&format!(", round trip {}", millis(*rtt)));
    }
    text
}

fn links_table(sheet: &mut Sheet, links: &[Link]) {
    // Most tunnels carry no UDP.
    let has_flows = links.iter().any(|link| link.flows > 0);
    // Only KCP distinguishes losses, retransmissions and recovered packets.
    let has_repairs = links.iter().flat_map(|link| &link.carriers).any(|c| c.kcp.is_some());
    let mut columns = vec![
        Column::new("link"),
        Column::new("worker").worth(10),
        Column::new("state").state(),
        Column::new("streams").worth(60),
    ];
    columns.extend(has_flows.then_some(Column::new("flows").worth(50)));
    columns.extend([
        Column::new("carrier").worth(70),
        Column::new("peer").address().worth(80),
        Column::new("rtt").worth(65),
        Column::new("loss").worth(40),
        Column::new("queue").worth(30),
    ]);
    if has_repairs {
        columns.extend([Column::new("resent").worth(20), Column::new("recovered").worth(20)]);
    }
    let mut table = Table::new(columns);
    let mut links: Vec<_> = links.iter().collect();
    links.sort_by_key(|link| link.serial);
    for link in &links {
        let own = [link.serial.to_string(), link.worker.to_string(), link.state.to_string()];
        let mut own: Vec<String> = own.into_iter().chain([link.streams.to_string()]).collect();
        own.extend(has_flows.then(|| link.flows.to_string()));
        if link.carriers.is_empty() {
            // A row ends with the columns of the table.
            let all = own.iter().cloned().chain(["-"; 7].map(str::to_owned));
            table.row_of(link.state.tone(), all);
        }
        for carrier in &link.carriers {
            let rtt = carrier.rtt_micros.map_or_else(|| "-".to_owned(), millis);
            let ready = if carrier.standby { ", ready" } else { "" };
            let via = carrier.via.as_ref().map(|via| format!(" via {via}")).unwrap_or_default();
            let row = [
                format!("#{} over {}{via}{ready}", carrier.number, carrier.transport),
                carrier.peer.clone(),
            ];
            let queue = carrier.tcp.and_then(|tcp| tcp.queue_bytes);
            let loss = share(carrier.sent().and_then(|sent| sent.loss()));
            let path = [rtt, loss, queue.map_or_else(|| "-".to_owned(), bytes)];
            let repairs = has_repairs.then(|| repairs_of(carrier)).into_iter().flatten();
            let all = own.iter().cloned().chain(row).chain(path).chain(repairs);
            table.row_of(link.state.tone(), all);
        }
    }
    sheet.table(&table);
    for link in &links {
        if let Some(path) = &link.path {
            sheet.state(
                format_args!("path of link {}: ", link.serial),
                (path.state.tone(), path_of(path)),
                "",
            );
        }
    }
    let ciphers = ciphers(&links);
    if !ciphers.is_empty() {
        sheet.line(format_args!("cipher: {}", ciphers.join(", ")));
    }
}

/// The cipher suites of the carriers with the libraries that compute them: nearly always all
/// carriers have the same suite, so a column would only widen the table.
fn ciphers(links: &[&Link]) -> Vec<String> {
    let carriers = links.iter().flat_map(|link| &link.carriers);
    let name = |carrier: &Carrier| {
        let Carrier { cipher: Some(cipher), backend: Some(backend), .. } = carrier else {
            return None;
        };
        Some(format!("{cipher} by {backend}"))
    };
    let all: BTreeSet<_> = carriers.filter_map(name).collect();
    all.into_iter().collect()
}

/// The share of retransmitted packets, and the number of packets that were recovered by parity.
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

fn dash(text: &str) -> String {
    if text.is_empty() { "-" } else { text }.to_owned()
}

fn millis(micros: u64) -> String {
    format!("{}.{} ms", micros / 1000, micros % 1000 / 100)
}

#[cfg(test)]
mod tests {
    use super::super::{
        LinkState, NameAway, Quic, Sent, ServiceState, StreamKind, Streams, Tcp, Told, sample,
        sample_kcp,
    };
    use super::*;
    use crate::hold::Held;

    fn render(status: &Status, rates: Option<&Rates>) -> String {
        super::render(status, rates, Screen::PLAIN).to_string()
    }

    fn drawn(draw: impl FnOnce(&mut Sheet)) -> String {
        let mut sheet = Sheet::new(Screen::PLAIN);
        draw(&mut sheet);
        sheet.finish().to_string()
    }

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
        // `new` stands before `ssh`.
        assert!(lines[1].ends_with("0 B      0 B"), "{text}");
        assert!(lines[2].ends_with("4.0 MiB  3.0 GiB  2.0 MiB  0 B"), "{text}");
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
    fn a_status_fits_narrow_terminals_with_any_names() {
        let mut status = sample();
        status.sessions[0].links[0].flows = 3;
        let services = &mut status.sessions[0].services;
        services.push(super::super::sample_flows());
        services.push(Service {
            name: "日本語のとても長い名前のウェブサイト".into(),
            address: "https://a-name-of-many-labels.of.a.long.example.com".into(),
            target: "unix:///run/a-folder/with/a/long/path/to/web.sock".into(),
            state: Told::because(
                ServiceState::Refused,
                "the host belongs to another client of this server",
            ),
            refused: (0..9).map(|n| (format!("reason_{n}"), n)).collect(),
            kept: true,
            ..Service::default()
        });
        status.names_away = vec![NameAway {
            address: format!("https://{}.example.com", "ab".repeat(40)),
            client: "長い名前".repeat(9),
            seconds: 5,
        }];
        let rates = Rates::default();
        for columns in [40, 80, 120] {
            let text = super::render(&status, Some(&rates), Screen::narrow(columns)).to_string();
            for line in text.lines() {
                // An address in a sentence stays whole.
                let is_word = !line.trim().contains(' ');
                let wide = unicode_width::UnicodeWidthStr::width(line);
                assert!(wide <= columns || is_word, "{columns}: {line}\n{text}");
            }
            for shown in ["service", "address", "state", "ssh", "refused", "up"] {
                assert!(text.contains(shown), "{columns}: {text}");
            }
            assert!(text.contains("--wide"), "{text}");
        }
        let text = super::render(&sample(), None, Screen::narrow(80)).to_string();
        let expected = "
home: up
  link  state    streams  carrier      peer             rtt      loss
  7     up       1        #2 over tls  192.0.2.7:40000  12.3 ms  1.25 %
  8     stalled  0        -            -                -        -
  cipher: TLS_AES_128_GCM_SHA256 by ring
  service  address              target  state  streams  total  in       out
  ssh      tcp://0.0.0.0:10022  -       up     1        20     1.5 KiB  3.0 GiB
columns are left out or cut: --wide shows all
";
        assert!(text.ends_with(expected), "{text}");
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
  service  address              target  state  streams  total  in       out      flows  flows total  datagrams in  out
  dns      udp://0.0.0.0:5353   -       up     0        0      3.9 KiB  8.7 KiB  3      40           100           99
  ssh      tcp://0.0.0.0:10022  -       up     1        20     1.5 KiB  3.0 GiB  0      0            0             0
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
        let text = render_streams(&Streams { total: 2, list }, Screen::PLAIN).to_string();
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
        let carrier = |cipher: &'static str| Carrier {
            cipher: Some(cipher.into()),
            backend: Some("aws-lc".into()),
            ..Carrier::default()
        };
        let more = ["TLS_CHACHA20_POLY1305_SHA256"; 2].map(carrier);
        links[0].carriers.extend(more);
        let expected = ["TLS_AES_128_GCM_SHA256 by ring", "TLS_CHACHA20_POLY1305_SHA256 by aws-lc"];
        assert_eq!(ciphers(&links.iter().collect::<Vec<_>>()), expected);
        links[0].carriers = vec![Carrier { transport: "tcp".into(), ..Carrier::default() }];
        assert!(ciphers(&links.iter().collect::<Vec<_>>()).is_empty());
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
    fn a_link_with_another_client_says_by_which_path_it_goes_and_why_not_directly() {
        let relay = |standby| Carrier {
            number: 1,
            transport: "relay".into(),
            peer: "0.0.0.0:0".into(),
            standby,
            ..Carrier::default()
        };
        let direct = Carrier { number: 2, transport: "direct".into(), ..relay(false) };
        let why = "UDP does not pass on the other side";
        let path = |state: Told<PathState>| PeerPath { state, ..PeerPath::default() };
        let through = PeerPath {
            since_seconds: 90,
            pair: Some("reflexive 192.0.2.1:5 - host 198.51.100.2:6".into()),
            rtt_micros: Some(1_500),
            ..path(PathState::Direct.into())
        };
        let of = |serial, path, carriers| Link {
            serial,
            path: Some(path),
            carriers,
            state: LinkState::Up.into(),
            ..Link::default()
        };
        let links = [
            of(3, through, vec![direct, relay(true)]),
            of(4, path(Told::because(PathState::Relayed, why)), vec![relay(false)]),
            of(5, path(PathState::Relayed.into()), vec![relay(false)]),
        ];
        let mut sheet = Sheet::new(Screen::PLAIN);
        links_table(&mut sheet, &links);
        let text = sheet.finish().to_string();
        let lines: Vec<_> = text.lines().map(str::trim_end).collect();
        assert!(lines[2].contains("#1 over relay, ready"), "{text}");
        assert_eq!(
            lines[5..],
            [
                "path of link 3: direct for 1m30s: reflexive 192.0.2.1:5 - host 198.51.100.2:6, \
                 round trip 1.5 ms",
                "path of link 4: relayed for 0s: UDP does not pass on the other side",
                "path of link 5: relayed for 0s",
            ],
            "{text}"
        );
    }

    #[test]
    fn kcp_has_columns_of_its_repairs_where_there_is_a_carrier() {
        let mut links = sample().sessions.remove(0).links;
        links[1].carriers = vec![sample_kcp()];
        links.push(Link { serial: 9, state: LinkState::Stalled.into(), ..Link::default() });
        let expected = "\
link  worker  state    streams  carrier      peer             rtt      loss    queue     resent  recovered
7     1       up       1        #2 over tls  192.0.2.7:40000  12.3 ms  1.25 %  20.0 KiB  -       -
8     0       stalled  0        #1 over kcp  192.0.2.7:40001  97.6 ms  5.00 %  -         0.30 %  940
9     0       stalled  0        -            -                -        -       -         -       -
cipher: TLS_AES_128_GCM_SHA256 by ring
";
        assert_eq!(drawn(|sheet| links_table(sheet, &links)), expected);
    }

    #[test]
    fn a_reason_does_not_widen_the_table() {
        let service = |name: &str, state: Told<ServiceState>| Service {
            name: name.into(),
            state,
            ..Service::default()
        };
        let why = "tcp://:22: port 22 is not among the ports that this client may publish";
        let refused = |why: &str| Told::because(ServiceState::Refused, why);
        let some = Service { address: "http://d".into(), ..service("d", refused("no right")) };
        let services = vec![
            service("a", refused(why)),
            service("b", ServiceState::Waiting.into()),
            service("c", ServiceState::Superseded.into()),
            some,
            service("e", Told::because(ServiceState::Waiting, "tcp://:23 waits")),
        ];
        let session = Session { services, ..Session::default() };
        let expected = "\
service  address   target  state       streams  total  in   out
a        -         -       refused     0        0      0 B  0 B
b        -         -       waiting     0        0      0 B  0 B
c        -         -       superseded  0        0      0 B  0 B
d        http://d  -       refused     0        0      0 B  0 B
e        -         -       waiting     0        0      0 B  0 B
a is not published: tcp://:22: port 22 is not among the ports that this client may publish
d is not published at http://d: no right
e is not published: tcp://:23 waits
";
        assert_eq!(drawn(|sheet| services_table(sheet, &session, None)), expected);
    }
}
