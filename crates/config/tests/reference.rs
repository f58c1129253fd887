//! Checks that REFERENCE.md has the defaults of a minimal file.

use std::collections::BTreeMap;
use std::time::Duration;

use config::{
    Change, ClientFlags, Common, KcpPreset, LogFormat, ProxyFlags, ServerFlags, Size, Sources,
    Span, Text, load_client, load_proxy, load_server,
};
use proto::{Compress, Priority, Sticky};

const SERVER: &str = "listen: tls://[::]\nclients: [{name: a, token_file: t}]\n";
const CLIENT: &str = "servers: tls://a\nname: a\ntoken_file: t\n\
                      services: [{target: 'tcp://b:1', public: 'tcp://:10022', health: {}}]\n";

const PROXY: &str =
    "proxies: [{ listen: 'tcp://127.0.0.1:5201', target: 'tcp://b:1', health: {} }]\n";

/// The required keys of a node of a cluster.
const NODE: &str = "peers: { listen: 'quic://127.0.0.1:7100', ca: a, cert: c, key: k }, \
    directory: { etcd: 'http://[::1]:1' }";

struct Row {
    kind: &'static str,
    default: &'static str,
    unit: &'static str,
    change: &'static str,
}

fn rows() -> BTreeMap<&'static str, Row> {
    let lines = include_str!("../REFERENCE.md").lines().filter(|l| l.starts_with("| `"));
    let row = |line: &'static str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, key, kind, default, unit, change, _] = cells[..] else { panic!("{line}") };
        (key.trim_matches('`'), Row { kind, default, unit, change })
    };
    lines.map(row).collect()
}

/// The values of the maps `auth` and `cluster` that have the required keys alone.
fn of_maps(sources: &Sources<'_>) -> [(&'static str, String); 5] {
    let text = format!(
        "{SERVER}cluster: {{ name: c, {NODE} }}\nauth: {{ http: {{ url: 'https://a' }} }}\n"
    );
    let text = Some(Text { name: "minimal.yaml", text: &text });
    let loaded = load_server(text, &ServerFlags::default(), sources).expect("minimal");
    let auth = loaded.config.auth.expect("somebody");
    let cluster = loaded.config.cluster.expect("a node");
    let [etcd] = &cluster.directory.members[..] else { panic!("one member") };
    [
        ("server: auth.http.timeout", auth.timeout.to_string()),
        ("server: auth.http.cache", auth.cache.to_string()),
        ("server: cluster.ports_max", cluster.ports_max.to_string()),
        ("server: cluster.rebalance", cluster.rebalance.to_string()),
        ("server: cluster.directory.tls.min_version", etcd.min_version.to_string()),
    ]
}

/// The values of a minimal file, by the keys of REFERENCE.md.
fn defaults() -> BTreeMap<String, String> {
    let read = |_: &std::path::Path| Ok("q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi".to_owned());
    let sources = Sources { env: &|_| None, read: &read };
    let file = |text| Some(Text { name: "minimal.yaml", text });
    let server = load_server(file(SERVER), &ServerFlags::default(), &sources);
    let client = load_client(file(CLIENT), &ClientFlags::default(), &sources);
    let (server, client) = (server.expect("minimal").config, client.expect("minimal").config);
    let proxy = load_proxy(file(PROXY), &ProxyFlags::default(), &sources).expect("minimal").config;
    let mut found = BTreeMap::new();
    let mut put = |key: String, value: String| {
        if let Some(before) = found.insert(key.clone(), value.clone()) {
            assert_eq!(before, value, "{key} is the same for both roles");
        }
    };
    for (role, c) in [("server", &server.common), ("client", &client.common)] {
        let Common { keepalive, resume_timeout, drain_timeout, .. } = c;
        put(format!("{role}: keepalive"), keepalive.to_string());
        put(format!("{role}: resume_timeout"), resume_timeout.to_string());
        put(format!("{role}: drain_timeout"), drain_timeout.to_string());
        put(format!("{role}: watch"), c.watch.to_string());
        put("both: window.initial".into(), c.window_initial.to_string());
        put("both: window.max".into(), c.window_max.to_string());
        let text = format!("{SERVER}log: {{ file: l }}\n");
        let text = Some(Text { name: "minimal.yaml", text: &text });
        let log = load_server(text, &ServerFlags::default(), &sources).expect("minimal");
        let log = log.config.common.log_file.expect("a file");
        put("both: log.rotate.size".into(), log.size.to_string());
        put("both: log.rotate.keep".into(), log.keep.to_string());
        let text = format!("{SERVER}admin: {{ token_file: t }}\n");
        let text = Some(Text { name: "minimal.yaml", text: &text });
        let admin = load_server(text, &ServerFlags::default(), &sources).expect("minimal");
        let admin = admin.config.common.admin.expect("an API");
        put("both: admin.listen".into(), admin.listen.to_string());
        let text = format!("{SERVER}otlp: {{ endpoint: 'http://a:1' }}\n");
        let text = Some(Text { name: "minimal.yaml", text: &text });
        let otlp = load_server(text, &ServerFlags::default(), &sources).expect("minimal");
        let otlp = otlp.config.common.otlp.expect("a collector");
        put("both: otlp.interval".into(), otlp.interval.to_string());
        put("both: upgrade.former_max".into(), c.upgrade.most.to_string());
        assert_eq!(c.upgrade.longest, None);
        put("both: quic.congestion".into(), c.quic.congestion.name().into());
        put("both: quic.mtu".into(), c.quic.mtu.to_string());
        put("both: quic.receive_buffer".into(), c.quic.receive_buffer.to_string());
        put("both: quic.send_buffer".into(), c.quic.send_buffer.to_string());
        put("both: kcp.preset".into(), c.kcp.preset.name().into());
        put("both: kcp.congestion".into(), c.kcp.congestion.name().into());
        assert_eq!(c.kcp.congestion.rate(), None);
        put("both: kcp.rate".into(), "none".into());
        put("both: kcp.fec".into(), c.kcp.fec.to_string());
        put("both: kcp.send_window".into(), c.kcp.send_window.to_string());
        put("both: kcp.receive_window".into(), c.kcp.receive_window.to_string());
        put("both: kcp.ack_delay".into(), c.kcp.ack_delay.to_string());
        put("both: kcp.least_timeout".into(), c.kcp.least_timeout.to_string());
        put("both: kcp.mtu".into(), c.kcp.mtu.to_string());
        put("both: kcp.receive_buffer".into(), c.kcp.receive_buffer.to_string());
        put("both: kcp.send_buffer".into(), c.kcp.send_buffer.to_string());
        put("both: log.level".into(), c.log_level.name().into());
        put(
            "both: log.format".into(),
            if c.log_format == LogFormat::Text { "text" } else { "another" }.into(),
        );
        let count =
            |n: Option<std::num::NonZeroUsize>| n.map_or_else(|| "auto".into(), |n| n.to_string());
        put(format!("{role}: workers"), count(c.workers));
        put("client: connections".into(), count(client.connections));
        put("client: homes".into(), count(client.homes));
        put("client: spread".into(), client.spread.name().into());
        put("client: choose".into(), client.choose.name().into());
        assert_eq!((&c.state_dir, &c.memory_budget, &c.control), (&None, &None, &None));
    }
    let of_proxy = &proxy.common;
    put("proxy: drain_timeout".into(), of_proxy.drain_timeout.to_string());
    put("proxy: watch".into(), of_proxy.watch.to_string());
    assert_eq!(of_proxy.workers, None);
    put("proxy: workers".into(), "auto".into());
    let text = "listen: { url: mux://a }\n\
                tls_routes: { acme: { accept_terms: true, dns: { exec: /x } } }\n";
    let doors = load_server(file(text), &ServerFlags::default(), &sources).expect("minimal").config;
    let mux = doors.listen[0].mux.as_ref().expect("a listener for several transports");
    put("server: listen[].silence".into(), mux.silence.to_string());
    let span = |time: Duration| Span::from_millis(time.as_millis() as u64).to_string();
    put("server: listen[].timeouts.dial".into(), span(mux.timeouts.dial));
    let text = format!("{CLIENT}forwards: ['5203=5201']\n");
    let text = Some(Text { name: "minimal.yaml", text: &text });
    let forward = load_client(text, &ClientFlags::default(), &sources).expect("minimal");
    let forward = forward.config.forwards[0].terms.timeouts;
    for (of, timeouts) in [("server: listen[]", mux.timeouts), ("client: forwards[]", forward)] {
        put(format!("{of}.timeouts.idle"), span(timeouts.idle));
        put(format!("{of}.timeouts.idle_up"), span(timeouts.idle_up));
        put(format!("{of}.timeouts.idle_down"), span(timeouts.idle_down));
        put(format!("{of}.timeouts.half_close"), span(timeouts.half_close));
        put(format!("{of}.timeouts.total"), span(timeouts.total));
        put(format!("{of}.timeouts.flush"), span(timeouts.flush));
    }
    let [entry] = &proxy.proxies[..] else { panic!("one entry") };
    let key = |key: &str| format!("proxy: proxies[].{key}");
    assert_eq!(entry.service.name, "tcp-5201");
    put(key("name"), entry.service.name.replace("5201", "PORT"));
    let terms = entry.terms();
    put(key("tcp_keepalive"), span(terms.timeouts.keepalive));
    put(key("dscp"), terms.dscp.number().to_string());
    put("server: listen[].dscp".into(), server.listen[0].dscp.number().to_string());
    put("client: servers[].dscp".into(), client.servers[0].paths[0].dial.dscp.number().to_string());
    put(key("timeouts.dial"), span(terms.timeouts.dial));
    put(key("timeouts.idle"), span(terms.timeouts.idle));
    put(key("timeouts.idle_up"), span(terms.timeouts.idle_up));
    put(key("timeouts.idle_down"), span(terms.timeouts.idle_down));
    put(key("timeouts.half_close"), span(terms.timeouts.half_close));
    put(key("timeouts.total"), span(terms.timeouts.total));
    put(key("timeouts.flush"), span(terms.timeouts.flush));
    put(key("timeouts.flow"), format!("{}s", terms.flows.answered));
    put(key("timeouts.flow_unanswered"), format!("{}s", terms.flows.unanswered));
    let health = entry.service.health.as_ref().expect("a map without keys has the defaults");
    put(key("health.interval"), health.interval.to_string());
    put(key("health.timeout"), health.timeout.to_string());
    let tls = &client.servers[0].paths[0];
    for key in ["client: tls", "client: servers[].tls", "server: auth.http.tls"] {
        put(format!("{key}.min_version"), tls.min_version.to_string());
    }
    put("server: http.remember".into(), doors.http.remember.to_string());
    put("server: http.idle".into(), doors.http.idle.to_string());
    put("server: tls_routes.min_version".into(), doors.tls_routes.min_version.to_string());
    let acme = &doors.tls_routes.acme[0];
    put("server: tls_routes.acme.directory".into(), acme.directory.clone());
    put("server: tls_routes.acme.on_demand".into(), acme.on_demand.to_string());
    let dns = acme.dns.as_ref().expect("a program");
    put("server: tls_routes.acme.dns.timeout".into(), dns.timeout.to_string());
    let wait = dns.wait.map_or_else(|| "auto".into(), |wait| wait.to_string());
    put("server: tls_routes.acme.dns.wait".into(), wait);
    of_maps(&sources).into_iter().for_each(|(key, value)| put(key.into(), value));
    put("server: public_bind".into(), format!("[{}]", server.public_bind));
    put("client: p2p.webrtc.peers".into(), client.p2p.webrtc.peers.to_string());
    put("client: p2p.webrtc.idle".into(), client.p2p.webrtc.idle.to_string());
    let text = format!("{}p2p: {{ webrtc: {{}} }}\n", SERVER.replace("tls:", "wss:"));
    let text = Some(Text { name: "minimal.yaml", text: &text });
    let webrtc = load_server(text, &ServerFlags::default(), &sources).expect("minimal");
    put("server: p2p.webrtc.path".into(), webrtc.config.webrtc.expect("offers").path);
    put("client: retry.min".into(), client.retry_min.to_string());
    put("client: retry.max".into(), client.retry_max.to_string());
    let [service] = &client.services[..] else { panic!("one service") };
    let key = |key: &str| format!("client: services[].{key}");
    put(key("name"), service.name.replace("10022", "PORT"));
    let terms = client.terms_of(service);
    assert_eq!(terms.priority, Priority::Normal);
    put(key("dscp"), terms.dscp.number().to_string());
    put(key("priority"), "normal".into());
    put(key("pass_through"), terms.http.pass_through.to_string());
    put(key("forwarded"), terms.http.forwarded.to_string());
    put(key("remember"), (!terms.ephemeral).to_string());
    assert_eq!(terms.http.compress, Compress::Off);
    put(key("compress"), "false".into());
    assert_eq!(terms.http.sticky, Sticky::Off);
    put(key("sticky"), "false".into());
    put(key("list"), service.files.list.to_string());
    put(key("requests"), service.requests.to_string());
    put(key("broadcast"), service.broadcast.to_string());
    assert!(terms.http.is_default());
    put(key("tcp_keepalive"), span(terms.timeouts.keepalive));
    put(key("timeouts.dial"), span(terms.timeouts.dial));
    let health = service.health.as_ref().expect("a map without keys has the defaults");
    put(key("health.interval"), health.interval.to_string());
    put(key("health.timeout"), health.timeout.to_string());
    put(key("timeouts.idle"), span(terms.timeouts.idle));
    put(key("timeouts.idle_up"), span(terms.timeouts.idle_up));
    put(key("timeouts.idle_down"), span(terms.timeouts.idle_down));
    put(key("timeouts.half_close"), span(terms.timeouts.half_close));
    put(key("timeouts.total"), span(terms.timeouts.total));
    put(key("timeouts.flush"), span(terms.timeouts.flush));
    put(key("timeouts.flow"), format!("{}s", terms.flows.answered));
    put(key("timeouts.flow_unanswered"), format!("{}s", terms.flows.unanswered));
    found
}

/// A value for every key that differs from the value in the minimal files.
const OTHER_SERVER: &str = "allow_from: 10.0.0.0/8\ndeny_from: 10.0.0.1\nlisten: wss://[::]:1\ntls: { cert: c, key: k }\npublic_bind: 127.0.0.1\nstun: 1\n\
    p2p: { webrtc: { path: /w } }\n\
    public_url: tls://a.b\n\
    trusted_proxies: 10.0.0.1\naccept_proxy: { tcp: 10000 }\nlimits: { streams: 1 }\nclients: [{name: b, token_file: t}]\nallow_any_client: true\n\
    auth: { http: { url: 'http://[::1]:1' } }\n\
    cluster: { name: c, node: n, zone: z, secret_file: s, peers: { listen: 'quic://127.0.0.1:7100', ca: a, cert: c, key: k }, directory: { etcd: 'http://[::1]:1' } }\n\
    http: { listen: '[::]:80', domain: a.b, route_header: X, redirect: false, pages: { not_found: p }, remember: 1d, idle: 9s, browser: true, accept_proxy: true }\n\
    tls_routes: { listen: '[::]:443', certificates: [{ cert: c, key: k }], min_version: '1.3', \
                  acme: { accept_terms: true }, accept_proxy: true }\n";
const OTHER_CLIENT: &str = "allow_from: 10.0.0.0/8\ndeny_from: 10.0.0.1\nservers: tls://b\nname: b\ntoken: Zt5RkW1xQ8bN4mVc7LpYs2HdJf9GaE3u\n\
    introduce: true\nconnections: 3\nhomes: 3\nspread: backup\nchoose: measured\nuse: failover\nretry: { min: 1s, max: 2s }\nforwards:\n\
    \x20 - { listen: 'tcp://127.0.0.1:1', target: 'tcp://b:1' }\n\
    visits: [{ service: b/c, token_file: t }]\np2p: { ports: '4000' }\ntrusted_proxies: 10.0.0.1\nlimits: { streams: 1 }\n";
const OTHER_PROXY: &str = "trusted_proxies: 10.0.0.1\n\
    proxies: [{ listen: 'tcp://127.0.0.1:1', target: 'tcp://b:2' }]\n";
const OTHER_OF_BOTH: &str = "state_dir: /s\nworkers: 3\nmemory_budget: 64MiB\n\
    window: { initial: 32KiB, max: 1MiB }\nkeepalive: 3s\nresume_timeout: 3s\ndrain_timeout: 3s\n\
    log: { level: debug, format: json, file: /l, rotate: { size: 1MiB, keep: 1 }, access: true }\ncontrol: /c\nwatch: true\n\
    upgrade: { former_max: 1, former_for: 1h }\n\
    admin: { token_file: t }\notlp: { endpoint: 'http://a:1' }\n\
    quic: { congestion: cubic, mtu: 1200, receive_buffer: 1MiB, send_buffer: 1MiB }\n\
    kcp: { preset: fast2, rate: 1MiB/s, mtu: 1200, receive_buffer: 1MiB, send_buffer: 1MiB,\
           least_timeout: 50ms }\n";

/// The effect of a change of each key, from the code. Checks also that a reload applies every
/// change that needs no restart.
fn changes(role: &str) -> BTreeMap<&'static str, Change> {
    let read = |_: &std::path::Path| Ok("q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi".to_owned());
    let sources = Sources { env: &|_| None, read: &read };
    let server = |text: &str| {
        let text = Some(Text { name: "server.yaml", text });
        load_server(text, &ServerFlags::default(), &sources).expect("good").config
    };
    let client = |text: &str| {
        let text = Some(Text { name: "client.yaml", text });
        load_client(text, &ClientFlags::default(), &sources).expect("good").config
    };
    // The requests of visitors are known to a server alone.
    let both = OTHER_OF_BOTH.replace("access: true", "access: true, requests: /r");
    let proxy = |text: &str| {
        let text = Some(Text { name: "proxy.yaml", text });
        load_proxy(text, &ProxyFlags::default(), &sources).expect("good").config
    };
    let (all, left) = if role == "proxy" {
        let of_links = ["window:", "resume_timeout:", "quic:", "kcp:", "           least"];
        let is_of_links = |line: &&str| of_links.iter().any(|key| line.starts_with(key));
        let both = OTHER_OF_BOTH.replace("keepalive: 3s\n", "");
        let both: String =
            both.lines().filter(|line| !is_of_links(line)).flat_map(|line| [line, "\n"]).collect();
        let (old, new) = (proxy(PROXY), proxy(&format!("{OTHER_PROXY}{both}")));
        let in_force = new.clone().reloaded(&old);
        assert!(old.differs(&in_force).iter().all(|left| left.change != Change::Restart));
        (old.differs(&new), in_force.differs(&new))
    } else if role == "server" {
        let (old, new) = (server(SERVER), server(&format!("{OTHER_SERVER}{both}")));
        let in_force = new.clone().reloaded(&old);
        assert!(old.differs(&in_force).iter().all(|left| left.change != Change::Restart));
        (old.differs(&new), in_force.differs(&new))
    } else {
        let (old, new) = (client(CLIENT), client(&format!("{OTHER_CLIENT}{OTHER_OF_BOTH}")));
        let in_force = new.clone().reloaded(&old);
        assert!(old.differs(&in_force).iter().all(|left| left.change != Change::Restart));
        let mut all = old.differs(&new);
        // A file has one of these keys in the place of `servers`.
        for (key, value) in [("servers_from", "https://a/s"), ("srv", "_t._tcp.a")] {
            let found = client(&CLIENT.replace("servers: tls://a", &format!("{key}: {value}")));
            all.extend(old.differs(&found).into_iter().filter(|changed| changed.key == key));
        }
        (all, in_force.differs(&new))
    };
    // Rights to ports without an address get their address from a key that needs a restart.
    let left: Vec<_> = left
        .into_iter()
        .filter(|left| !matches!(left.key, "clients" | "allow_any_client" | "accept_proxy"))
        .collect();
    let restart: Vec<_> = all.iter().copied().filter(|all| all.change == Change::Restart).collect();
    assert_eq!(left, restart, "a reload applies all the others");
    all.into_iter().map(|changed| (changed.key, changed.change)).collect()
}

#[test]
fn what_a_change_takes_is_what_the_code_says() {
    let roles = ["server", "client", "proxy"].map(|role| (role, changes(role)));
    let mut seen = BTreeMap::new();
    for (key, row) in rows() {
        let (role, key) = key.split_once(": ").unwrap();
        let is_of_links = ["window", "quic", "kcp"].iter().any(|map| key.starts_with(map));
        let is_meant = |name: &str| match role {
            "both" => name != "proxy" || !is_of_links,
            role => role == name,
        };
        for (name, changes) in roles.iter().filter(|(name, _)| is_meant(name)) {
            // In the code, the path to the server is one value with parts under several keys.
            let place = match (*name, key.split(['.', '[']).next().unwrap()) {
                ("client", "tls" | "headers" | "proxy") => "servers",
                ("client", "token_file") => "token",
                ("client", "id_prefix") => "services",
                _ => key,
            };
            let is_in = |known: &&&str| {
                place == **known
                    || place.strip_prefix(**known).is_some_and(|rest| rest.starts_with(['.', '[']))
            };
            if key == "type" {
                // A reload refuses a file of another role.
                assert_eq!(row.change, "restart", "{role}: {key}");
                continue;
            }
            let Some(known) = changes.keys().find(is_in) else {
                // A map whose parts have different effects.
                let maps = ["log", "quic", "kcp", "http", "tls_routes"];
                assert!(maps.contains(&key), "{role}: {key} is not compared");
                continue;
            };
            seen.insert((*name, *known), ());
            let exception = EXCEPTIONS.iter().find(|(exception, _)| *exception == key);
            let change = exception.map_or(changes[*known], |(_, change)| *change);
            assert_eq!(row.change, format!("{change:?}").to_lowercase(), "{role}: {key}");
        }
    }
    let known: usize = roles.iter().map(|(_, changes)| changes.len()).sum();
    assert_eq!(seen.len(), known, "each of them has a row");
}

/// Parts whose change has a greater effect than a change of their parent.
const EXCEPTIONS: &[(&str, Change)] =
    &[("clients[].token", Change::Reconnect), ("clients[].token_file", Change::Reconnect)];

#[test]
fn defaults_and_units_are_those_of_the_code() {
    let mut defaults = defaults();
    for (key, row) in rows() {
        let default = row.default.split(" (").next().unwrap().trim_matches('`');
        let unit = match row.kind.split(',').next().unwrap() {
            "duration" => "time",
            "size" => "bytes",
            "rate" => "bytes per second",
            _ if key.ends_with("limits.connections") => "connections",
            _ if key.ends_with("connections") => "links",
            _ if key.ends_with("homes") => "nodes",
            _ if key.ends_with("workers") => "threads",
            _ if key.ends_with("streams") || key.ends_with("new_per_second") => "streams",
            _ if key.ends_with("requests_per_second") => "requests",
            _ if key.ends_with(".flows") => "flows",
            _ => "",
        };
        assert_eq!(row.unit, unit, "{key}");
        assert!(["live", "reconnect", "restart"].contains(&row.change), "{key}");
        let Some(actual) = defaults.remove(key) else {
            let constant = default.parse::<Span>().is_ok() || default.parse::<Size>().is_ok();
            assert!(!constant, "{key}: {default} is not compared with the code");
            continue;
        };
        // 120s and 2m are the same.
        let same = match unit {
            "time" => default.parse::<Span>().unwrap() == actual.parse().unwrap(),
            "bytes" => default.parse::<Size>().unwrap() == actual.parse().unwrap(),
            _ => default == actual,
        };
        assert!(same, "{key}: documented {default}, in the code {actual}");
    }
    assert!(defaults.is_empty(), "not in REFERENCE.md: {defaults:?}");
}

#[test]
fn the_presets_of_kcp_are_those_of_the_table() {
    let read = |_: &std::path::Path| Ok("q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi".to_owned());
    let sources = Sources { env: &|_| None, read: &read };
    let rows = include_str!("../REFERENCE.md").lines().skip_while(|l| !l.starts_with("| preset |"));
    let rows = rows.skip(2).take_while(|l| l.starts_with('|'));
    let rows: Vec<Vec<&str>> =
        rows.map(|l| l.split('|').map(|cell| cell.trim().trim_matches('`')).collect()).collect();
    assert_eq!(rows.len(), KcpPreset::ALL.len());
    for (row, preset) in rows.iter().zip(KcpPreset::ALL) {
        let text = format!("{SERVER}kcp: {{ preset: {} }}\n", preset.name());
        let text = Some(Text { name: "preset.yaml", text: &text });
        let kcp = load_server(text, &ServerFlags::default(), &sources).expect("a preset").config;
        let kcp = kcp.common.kcp;
        assert_eq!(kcp.preset, preset);
        assert_eq!(kcp.send_window, kcp.receive_window);
        let cells = [
            preset.name().to_owned(),
            kcp.congestion.name().to_owned(),
            kcp.fec.to_string(),
            kcp.send_window.to_string(),
            kcp.ack_delay.to_string(),
            kcp.least_timeout.to_string(),
        ];
        assert_eq!(row[1..=cells.len()], cells);
    }
}

#[test]
fn the_reference_names_every_transport_with_the_form_of_its_url() {
    let text = include_str!("../REFERENCE.md");
    for scheme in config::Scheme::ALL {
        let path = if scheme.http { "/path" } else { "" };
        let form = format!("`{}://host:port{path}`", scheme.name);
        assert!(text.contains(&form), "{form}");
    }
}
