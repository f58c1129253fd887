//! Valid files and flags, and the resulting values: expansion, precedence, ranges, flags without a
//! file.

use config::{
    Change, ClientConfig, ClientFlags, Congestion, Kcp, KcpCongestion, KcpFec, KcpPreset, Local,
    Problem, Quic, Rate, Secret, ServerConfig, ServerFlags, Size, Sources, Span, Text, TlsVersion,
    Trust, load_client, load_kept, load_server,
};

const OLD: &str = "q7Xb2LmZ0aKc9RtYv4WnPs";
const NEW: &str = "Zr5Tn8Qw1Ey6Ui3Op0Asdf";
const PIN: &str = "sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

fn with_sources<T>(f: impl FnOnce(&Sources<'_>) -> T) -> T {
    let env = |name: &str| match name {
        "HOST" => Some("example.com".to_owned()),
        "TOKEN" => Some(OLD.to_owned()),
        "SECRET" => Some("Very:Secret/Text".to_owned()),
        "EMPTY" => Some(String::new()),
        "SERVICE" => Some("udp://:5353=udp://127.0.0.1:53".to_owned()),
        "TARGET" => Some("udp://127.0.0.1:54".to_owned()),
        "FORWARD" => Some("socks5://1080".to_owned()),
        "DOLLAR" => Some("7=unix:///run/${HOST}.sock".to_owned()),
        _ => None,
    };
    let read = |path: &std::path::Path| match path.to_str() {
        Some("old.token") => Ok(format!("\n {OLD}\n")),
        Some("new.token") => Ok(format!("{NEW}\r\n")),
        _ => Err("no such file".to_owned()),
    };
    f(&Sources { env: &env, read: &read })
}

fn client(text: &str) -> Result<ClientConfig, Vec<Problem>> {
    let file = Some(Text { name: "client.yaml", text });
    with_sources(|s| load_client(file, &ClientFlags::default(), s)).map(|l| l.config)
}

fn server(text: &str, flags: &ServerFlags) -> Result<ServerConfig, Vec<Problem>> {
    let file = Some(Text { name: "server.yaml", text });
    with_sources(|s| load_server(file, flags, s)).map(|l| l.config)
}

#[test]
fn variables_expand_anywhere_in_a_value_and_a_doubled_dollar_does_not() {
    let text = "servers: 'tls://${HOST}:7${EMPTY}000'\nname: a\ntoken: ${TOKEN}\n\
                tls: {ca: '$${HOST}/${HOST}$$x'}\nservices: []\n";
    let config = client(text).unwrap();
    assert_eq!(config.servers[0].paths[0].endpoint.to_string(), "tls://example.com:7000");
    assert_eq!(config.servers[0].paths[0].trust, Trust::Ca("${HOST}/example.com$$x".into()));
    let token = config.token.unwrap();
    assert_eq!(token.secret.reveal(), OLD);
    assert_eq!(token.file, None);
}

#[test]
fn an_entry_that_is_a_variable_is_expanded_before_it_is_divided() {
    let text = |lists: &str| format!("servers: a.example\nname: a\ntoken: {OLD}\n{lists}\n");
    let config = client(&text(
        "services: ['${SERVICE}', '${TARGET}', '${DOLLAR}']\nforwards: ['${FORWARD}']",
    ));
    let config = config.unwrap();
    let shown: Vec<_> = config
        .services
        .iter()
        .map(|service| format!("{} {} {}", service.name, service.public[0], service.target))
        .collect();
    assert_eq!(
        shown,
        [
            "udp-5353 udp://:5353 udp://127.0.0.1:53",
            "udp-54 udp://:0 udp://127.0.0.1:54",
            "tcp-7 tcp://:7 unix:///run/${HOST}.sock",
        ]
    );
    assert_eq!(config.forwards[0].listen.to_string(), "socks5://127.0.0.1:1080");

    // A wrong value is not shown, and a variable that is not set is told once.
    let found = client(&text("services: ['${SECRET}', '${GONE}']\nforwards: ['${SECRET}']"));
    let found: Vec<_> = found.unwrap_err().iter().map(ToString::to_string).collect();
    assert!(found.iter().all(|line| !line.contains("Secret/Text")), "{found:?}");
    assert_eq!(found.iter().filter(|line| line.contains("GONE is not set")).count(), 1);
    assert_eq!(found.iter().filter(|line| line.contains("services[1]")).count(), 1);
}

#[test]
fn a_problem_quotes_the_variable_and_not_what_it_stands_for() {
    for value in ["${SECRET}", "x`${SECRET}", "tcp://${SECRET}", "tls://${SECRET}"] {
        let text = format!(
            "listen: '{value}'\npublic_bind: '{value}'\nkeepalive: '{value}'\nwindow: {{max: '{value}'}}\n\
             clients: [{{name: '{value}', token: '{value}', allow: {{tcp: '{value}', forward: '{value}'}}}}]\n"
        );
        let found = server(&text, &ServerFlags::default()).unwrap_err();
        assert!(found.len() >= 7, "all but a token that happens to be strong");
        for problem in found {
            let said = problem.to_string().to_lowercase();
            assert!(!said.contains("secret/") && !said.contains("very"), "{said}");
        }
    }
}

#[test]
fn two_tokens_are_valid_while_one_is_replaced() {
    for tokens in [format!("token: [{OLD}, {NEW}]"), "token_file: [old.token, new.token]".into()] {
        let text = format!("listen: tls://[::]\nclients: [{{name: a, {tokens}}}]\n");
        let config = server(&text, &ServerFlags::default()).unwrap();
        let revealed: Vec<&str> =
            config.clients[0].tokens.iter().map(|t| t.secret.reveal()).collect();
        assert_eq!(revealed, [OLD, NEW]);
        let shown = format!("{config:?} {:?}", config.summary());
        assert!(!shown.contains(OLD) && !shown.contains(NEW));
    }
}

#[test]
fn the_token_that_only_reads_is_another_one_also_where_one_of_them_is_hashed() {
    let hash = proto::greeting::Token::new(OLD).unwrap().stored().text();
    let read = |token: &str, read: &str| {
        let text = format!("listen: tls://[::]\nadmin: {{ token: '{token}', {read} }}\n");
        server(&text, &ServerFlags::default())
    };
    for same in [format!("read_token: '{OLD}'"), "read_token_file: old.token".to_owned()] {
        for token in [OLD, hash.as_str()] {
            let problems = read(token, &same).unwrap_err();
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].message.contains("the same token as `admin.token`"));
        }
    }
    let admin = read(&hash, "read_token_file: new.token").unwrap().common.admin.unwrap();
    let token = admin.read_token.unwrap();
    assert_eq!((token.secret.reveal(), token.file), (NEW, Some("new.token".into())));
    assert_eq!(read(OLD, "").unwrap().common.admin.unwrap().read_token, None);
}

#[test]
fn a_path_has_tls_and_sni_of_its_own_or_those_of_the_top() {
    let text = format!(
        "servers:\n- tls://a\n- {{url: tls://b:1, sni: Front.Example.com}}\n- {{url: tls://c, tls: {{}}}}\n\
         - {{url: tls://d, tls: {{ca: d.crt, cert: x.crt, key: x.key}}}}\n\
         name: a\ntoken: {OLD}\ntls: {{pin: ['{PIN}'], cert: top.crt, key: top.key}}\nservices: []\n"
    );
    let paths = client(&text).unwrap().servers.remove(0).paths;
    let row = |i: usize| {
        let p = &paths[i];
        let cert = p.identity.as_ref().map(|pair| pair.cert.to_str().unwrap());
        (p.endpoint.to_string(), p.trust.clone(), cert, p.sni.as_deref())
    };
    let pins = Trust::Pins(vec![PIN.into()]);
    assert_eq!(row(0), ("tls://a:7000".into(), pins.clone(), Some("top.crt"), None));
    assert_eq!(row(1), ("tls://b:1".into(), pins, Some("top.crt"), Some("front.example.com")));
    assert_eq!(row(2), ("tls://c:7000".into(), Trust::System, None, None));
    assert_eq!(row(3), ("tls://d:7000".into(), Trust::Ca("d.crt".into()), Some("x.crt"), None));
}

#[test]
fn tls_1_2_is_for_a_proxy_in_front_of_a_web_socket_alone() {
    let read = |servers: &str, top: &str| {
        let text = format!("servers: {servers}\nname: a\ntoken: {OLD}\n{top}\nservices: []\n");
        let file = Some(Text { name: "client.yaml", text: &text });
        let sources = Sources { env: &|_| None, read: &|_| Err("no file".into()) };
        load_client(file, &ClientFlags::default(), &sources)
    };
    let oldest = |servers: &str, top: &str| {
        let loaded = read(servers, top).unwrap();
        let warnings: Vec<_> = loaded.warnings.iter().map(ToString::to_string).collect();
        let paths = loaded.config.servers.into_iter().flat_map(|server| server.paths);
        (paths.map(|path| path.min_version).collect::<Vec<_>>(), warnings)
    };
    let old = "{ min_version: '1.2' }";
    assert_eq!(oldest("wss://a/t", ""), (vec![TlsVersion::V13], vec![]));
    for (servers, top) in [
        ("[wss://a/t, tls://a]".to_owned(), format!("tls: {old}")),
        (format!("[{{ url: wss://a/t, tls: {old} }}, tls://a]"), String::new()),
    ] {
        let (paths, warnings) = oldest(&servers, &top);
        assert_eq!(paths, [TlsVersion::V12, TlsVersion::V13]);
        assert!(warnings[0].contains("TLS 1.2 is accepted"), "{warnings:?}");
    }
    for (servers, top) in [
        ("[tls://a, quic://a]".to_owned(), format!("tls: {old}")),
        (format!("[{{ url: quic://a, tls: {old} }}, wss://a/t]"), String::new()),
        ("wss://a/t".to_owned(), "tls: { min_version: '1.1' }".to_owned()),
    ] {
        let problems = read(&servers, &top).unwrap_err();
        assert!(problems[0].to_string().contains("min_version"), "{problems:?}");
    }
}

#[test]
fn a_quic_path_goes_past_proxies_of_the_environment_and_has_no_headers() {
    let env = |name: &str| (name == "https_proxy").then(|| "http://p.example:3128".to_owned());
    let text = format!(
        "servers: [tls://a, {{url: quic://b, sni: Front.Example.com}}]\nname: a\ntoken: {OLD}\n\
         tls: {{ca: c}}\nheaders: {{X-A: 1}}\nservices: []\n"
    );
    let file = Some(Text { name: "client.yaml", text: &text });
    let sources = Sources { env: &env, read: &|_| Err("no file".into()) };
    let loaded = load_client(file, &ClientFlags::default(), &sources).unwrap();
    assert_eq!(loaded.warnings, []);
    let [over_tls, over_quic] = &loaded.config.servers[0].paths[..] else { panic!("two paths") };
    assert!(over_tls.proxy.is_some() && over_quic.proxy.is_none());
    assert!(over_quic.headers.is_empty());
    assert_eq!(over_quic.trust, Trust::Ca("c".into()));
    assert_eq!(over_quic.sni.as_deref(), Some("front.example.com"));
    let through = "client a to tls://a:7000 through http://p.example:3128";
    assert_eq!(loaded.config.summary(), [through, "client a to quic://b:7000"]);
}

#[test]
fn a_broadcast_address_is_a_target_of_datagrams_and_needs_a_key() {
    let read = |body: &str| {
        let text = format!("servers: tls://a\nname: a\ntoken: {OLD}\n{body}\n");
        let file = Some(Text { name: "client.yaml", text: &text });
        let sources = Sources { env: &|_| None, read: &|_| Err(String::new()) };
        load_client(file, &ClientFlags::default(), &sources)
    };
    let service = |rest: &str| read(&format!("services: [{{ name: wol, {rest} }}]"));
    let permitted = service("public: udp://:9, target: 'udp://255.255.255.255:9', broadcast: true");
    let permitted = permitted.unwrap().config;
    assert!(permitted.services[0].broadcast);
    assert!(permitted.summary().iter().any(|line| line.ends_with(", broadcast")));
    let private = "public: private, visitors: [b], target: 'udp://255.255.255.255:9'";
    assert!(service(&format!("{private}, broadcast: true")).unwrap().config.services[0].broadcast);
    for (rest, wanted) in [
        ("public: udp://:9, target: 'udp://255.255.255.255:9'", "`broadcast: true`"),
        (private, "`broadcast: true`"),
        ("public: tcp://:9, target: 'tcp://255.255.255.255:9'", "no connection leads to"),
        ("public: tcp://:9, target: '255.255.255.255:9', broadcast: true", "has no effect"),
        ("public: [tcp://:9, udp://:9], target: '224.0.0.1:9'", "no connection leads to"),
        ("public: http://a.b, target: 'https://255.255.255.255'", "no connection leads to"),
        ("public: udp://:9, target: 'udp://10.0.0.1:9', broadcast: 1", "broadcast"),
    ] {
        let problems = service(rest).expect_err(rest);
        let said = problems.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert!(said.len() == 1 && said[0].contains(wanted), "{rest}: {said:?}");
    }
    let group = service("public: udp://:9, target: 'udp://[ff02::fb%eth0]:5353'").unwrap();
    assert!(group.warnings[0].to_string().contains("answers are dropped"), "{group:?}");
    let group = service("public: udp://:9, target: 'udp://239.1.1.1:9', broadcast: true").unwrap();
    assert_eq!(group.warnings, []);
    for (listen, target) in [("udp", "255.255.255.255"), ("tcp", "255.255.255.255")] {
        let forward =
            format!("{{ listen: '{listen}://127.0.0.1:9', target: '{listen}://{target}:9' }}");
        let problems = read(&format!("forwards: [{forward}]")).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
    }
}

#[test]
fn quic_sends_by_bbr_and_finds_the_size_of_packets_unless_told_otherwise() {
    let read = |text: &str| {
        let text = format!("listen: quic://[::]\nclients: []\n{text}\n");
        server(&text, &ServerFlags::default()).unwrap().common.quic
    };
    let quic = |congestion, mtu, receive, send| Quic {
        congestion,
        mtu,
        receive_buffer: Size::from_bytes(receive),
        send_buffer: Size::from_bytes(send),
    };
    let usual = quic(Congestion::Bbr, 16336, 4 << 20, 4 << 20);
    for none in ["", "quic:", "quic: {}", "quic: {mtu: 16336}"] {
        assert_eq!(read(none), usual, "{none}");
    }
    let all = "quic: {congestion: cubic, mtu: 1200, receive_buffer: 64KiB, send_buffer: 64MiB}";
    assert_eq!(read(all), quic(Congestion::Cubic, 1200, 64 << 10, 64 << 20));
    assert_eq!(read("quic: {mtu: 65527}").mtu, 65_527);
}

#[test]
fn a_key_of_kcp_replaces_the_value_of_the_preset() {
    let read = |text: &str| {
        let text = format!("listen: tls://[::]\nclients: []\n{text}\n");
        server(&text, &ServerFlags::default()).unwrap().common.kcp
    };
    let auto = read("");
    assert_eq!((auto.preset, auto.congestion), (KcpPreset::Auto, KcpCongestion::Bbr));
    for same in ["kcp:", "kcp: {}", "kcp: {preset: auto}", "kcp: {congestion: bbr, fec: auto}"] {
        assert_eq!(read(same), auto, "{same}");
    }
    let normal = read("kcp: {preset: normal}");
    let own = "kcp: {preset: normal, rate: 50MiB/s, fec: off, receive_window: 65535, ack_delay: 0}";
    let expected = Kcp {
        congestion: KcpCongestion::Fixed(Rate::from_bytes(50 << 20)),
        fec: KcpFec::Off,
        receive_window: 65_535,
        ack_delay: Span::from_millis(0),
        ..normal
    };
    assert_eq!(read(own), expected);
    let most = read("kcp: {fec: 64/48, mtu: 1200, receive_buffer: 64KiB, send_buffer: 64MiB}");
    assert_eq!(most.fec, KcpFec::Fixed { data: 64, parity: 48 });
    assert_eq!((most.mtu, most.receive_buffer), (1200, Size::from_bytes(64 << 10)));
    assert_eq!(most.send_buffer, Size::from_bytes(64 << 20));
}

#[test]
fn a_range_becomes_a_service_for_each_port() {
    let text = format!(
        "servers: tls://a\nname: a\ntoken: {OLD}\nservices:\n\
         - {{name: game, target: 'tcp://b:20000-20002', public: 'tcp://127.0.0.1:10000-10002'}}\n\
         - {{target: 'tcp://c:80', public: ['tcp://:1-2', 'tcp://192.0.2.1:2-3']}}\n\
         - {{target: 'tcp://d:22', public: 'tcp://:22'}}\n\
         - {{name: any, target: 'tcp://d:22', public: ['tcp://:0', 'tcp://:0']}}\n"
    );
    let config = client(&text).unwrap();
    assert_eq!(
        config.summary()[1..],
        [
            "service game-10000: tcp://127.0.0.1:10000 -> tcp://b:20000",
            "service game-10001: tcp://127.0.0.1:10001 -> tcp://b:20001",
            "service game-10002: tcp://127.0.0.1:10002 -> tcp://b:20002",
            "service tcp-1: tcp://:1 -> tcp://c:80",
            "service tcp-2: tcp://:2, tcp://192.0.2.1:2 -> tcp://c:80",
            "service tcp-3: tcp://192.0.2.1:3 -> tcp://c:80",
            "service tcp-22: tcp://:22 -> tcp://d:22",
            "service any: tcp://:0, tcp://:0 -> tcp://d:22",
        ]
    );
}

#[test]
fn unix_sockets_are_targets_and_listeners() {
    let text = format!(
        "servers: tls://a\nname: a\ntoken: {OLD}\nservices:\n\
         - {{name: app, target: 'unix:///run/app.sock', public: 'tcp://:1-2'}}\n\
         forwards:\n\
         - {{listen: 'unix:///run/db.sock', target: 'tcp://db:5432', mode: 0660}}\n\
         - {{listen: 'unix://@db', target: 'unix:///run/postgresql/.s.PGSQL.5432'}}\n"
    );
    let config = client(&text).unwrap();
    assert_eq!(
        config.summary()[1..],
        [
            "service app-1: tcp://:1 -> unix:///run/app.sock",
            "service app-2: tcp://:2 -> unix:///run/app.sock",
            "forward unix:///run/db.sock -> tcp://db:5432 (dialled by the server)",
            "forward unix://@db -> unix:///run/postgresql/.s.PGSQL.5432 (dialled by the server)",
        ]
    );
    let modes = config.forwards.iter().map(|forward| match forward.listen {
        Local::Unix { mode, .. } => mode,
        Local::Tcp(_) | Local::Udp(_) | Local::Socks5(_) | Local::HttpProxy(_) => {
            panic!("not a Unix socket")
        }
    });
    assert_eq!(modes.collect::<Vec<_>>(), [0o660, 0o600]);
}

#[test]
fn a_client_tests_its_speed_unless_that_is_forbidden() {
    for (allow, allowed, shown) in [
        ("{}", true, "client a: may publish nothing; may reach nothing"),
        ("{speedtest: true}", true, "client a: may publish nothing; may reach nothing"),
        (
            "{http: a.b, pass_through: true}",
            true,
            "client a: may publish http://a.b (also with pass_through); may reach nothing",
        ),
        (
            "{speedtest: false}",
            false,
            "client a: may publish nothing; may reach nothing; no speed tests",
        ),
    ] {
        let text =
            format!("listen: tls://[::]\nclients: [{{name: a, token: {OLD}, allow: {allow}}}]\n");
        let config = server(&text, &ServerFlags::default()).unwrap();
        assert_eq!(config.clients[0].rights.speedtest, allowed, "{allow}");
        assert_eq!(config.summary().last().map(String::as_str), Some(shown));
    }
}

#[test]
fn any_client_has_the_rights_that_are_given_and_none_without() {
    let read = |text: &str| {
        let text = format!("listen: tls://[::]\n{text}\n");
        server(&text, &ServerFlags::default()).unwrap()
    };
    for off in ["clients: []", "allow_any_client: false", "allow_any_client:"] {
        assert_eq!(read(off).any_client, None, "{off}");
    }
    let shown = |text| read(text).summary().pop();
    let nothing = "any other client: may publish nothing; may reach nothing";
    assert_eq!(shown("allow_any_client: true").as_deref(), Some(nothing));
    assert_eq!(shown("allow_any_client: {}").as_deref(), Some(nothing));
    let some = "allow_any_client: { allow: { tcp: 1-9 }, limits: { ports: 2 } }";
    let said = "any other client: may publish 1-9; may reach nothing";
    assert_eq!(shown(some).as_deref(), Some(said));
    assert_eq!(read(some).any_client.unwrap().ports, 2);
    let hosts = "allow_any_client: { allow: { tcp: 80, http: a.example, tls: '*.b.example' } }";
    let said = "any other client: may publish 80, http://a.example, tls://*.b.example; may reach \
                nothing";
    assert_eq!(shown(hosts).as_deref(), Some(said));
    let most = |text: &str| read(text).any_client.unwrap().ports;
    assert_eq!(most("allow_any_client: { allow: { tcp: 1-9999 } }"), config::GUEST_PORTS);
    assert_eq!(most("allow_any_client: { limits: { ports: unlimited } }"), u32::MAX);
}

#[test]
fn many_aliases_of_a_range_end_early() {
    let text = format!(
        "servers: tls://a\nname: a\ntoken: {OLD}\nservices:\n\
         - &s {{target: 'tcp://b:1', public: 'tcp://:1-1000'}}\n{}",
        "- *s\n".repeat(30_000)
    );
    let found = client(&text).unwrap_err();
    assert!(found.len() <= 100, "{}", found.len());
    let names: String = (0..5000)
        .map(|i| format!("- {{name: n{i}, target: 'tcp://b:1', public: 'tcp://:0'}}\n"))
        .collect();
    let text = format!("servers: tls://a\nname: a\ntoken: {OLD}\nservices:\n{names}");
    let found = client(&text).unwrap_err();
    assert_eq!((found.len(), found[0].message.as_str()), (1, "more than 4096 services"));
    let ranges: Vec<String> = (0..66).map(|i| format!("'tcp://10.0.0.{i}:1-1000'")).collect();
    let text = format!(
        "servers: tls://a\nname: a\ntoken: {OLD}\nservices:\n- {{target: 'tcp://b:1', public: [{}]}}\n",
        ranges.join(", ")
    );
    let found = client(&text).unwrap_err();
    assert_eq!((found.len(), found[0].message.as_str()), (1, "more than 65536 public addresses"));
}

#[test]
fn server_flags_alone_are_a_configuration_with_one_client() {
    let flags = ServerFlags {
        listen: vec!["tls://[::]:7000".into(), "tcp://127.0.0.1:7002".into()],
        token: Some(Secret::new(OLD)),
        allow_tcp: vec!["10000-10100".into(), "127.0.0.1:22".into()],
        allow_forward: vec!["127.0.0.1:5201".into()],
        cert: Some("s.crt".into()),
        key: Some("s.key".into()),
        workers: Some("3".into()),
        control: Some("/run/x.sock".into()),
        log_level: Some("debug".into()),
        ..ServerFlags::default()
    };
    let config = with_sources(|s| load_server(None, &flags, s)).unwrap().config;
    assert_eq!(
        config.summary(),
        [
            "listen tls://[::]:7000",
            "listen tcp://127.0.0.1:7002",
            "certificate s.crt",
            "client home: may publish 10000-10100, 127.0.0.1:22; may reach 127.0.0.1/32:5201",
        ]
    );
    assert_eq!(config.clients[0].tokens[0].secret.reveal(), OLD);
    assert_eq!(config.common.workers.map(usize::from), Some(3));
    assert_eq!(config.common.control, Some("/run/x.sock".into()));
    assert_eq!(config.common.log_level.name(), "debug");
}

#[test]
fn server_flags_replace_their_keys_and_leave_the_others() {
    let text = "listen: tls://[::]:1\nclients: [{name: old, token_file: old.token}]\n\
                tls: {client_ca: ca.crt, cert: old.crt, key: old.key}\nlog: {level: warn, format: json}\n\
                keepalive: 7s\n";
    let flags = ServerFlags {
        name: Some("fresh".into()),
        token_file: Some("new.token".into()),
        cert: Some("new.crt".into()),
        log_level: Some("trace".into()),
        ..ServerFlags::default()
    };
    let config = server(text, &flags).unwrap();
    assert_eq!(
        config.summary(),
        [
            "listen tls://[::]:1",
            "certificate new.crt",
            "clients show a certificate of ca.crt",
            "client fresh: may publish nothing; may reach nothing",
        ]
    );
    assert_eq!(config.clients[0].tokens[0].secret.reveal(), NEW);
    assert_eq!(config.common.keepalive.to_string(), "7s");
    assert_eq!(config.common.log_format, config::LogFormat::Json);
    let wrong = ServerFlags { allow_tcp: vec!["x".into()], ..flags };
    let said: Vec<String> =
        server(text, &wrong).unwrap_err().iter().map(ToString::to_string).collect();
    let port = "`x` is not a port (hint: a port is a number from 1 to 65535)";
    assert_eq!(said, [format!("--allow-tcp: clients[0].allow.tcp[0]: {port}")]);
}

#[test]
fn a_service_has_its_own_lists_of_visitors_or_those_of_the_top() {
    let text = format!(
        "servers: tls://a\nname: a\ntoken: {OLD}\nallow_from: [10.0.0.0/8, '2001:db8::/32']\n\
         deny_from: 10.0.0.66\nservices:\n\
         - {{name: top, target: 'tcp://b:1', public: 'tcp://:1'}}\n\
         - {{name: own, target: 'tcp://b:1', public: 'tcp://:2-3', allow_from: '::ffff:192.0.2.9/120',\
         \x20  proxy_protocol: v2}}\n\
         - {{name: open, target: 'tcp://b:1', public: 'tcp://:4', allow_from: [0.0.0.0/0, '::/0'],\
         \x20  deny_from: [], proxy_protocol: v1}}\n"
    );
    let config = client(&text).unwrap();
    let top = "allow_from [10.0.0.0/8, 2001:db8::/32], deny_from [10.0.0.66]";
    let own = "allow_from [192.0.2.0/24], deny_from [10.0.0.66], PROXY protocol v2";
    let open = "allow_from [0.0.0.0/0, ::/0], PROXY protocol v1";
    assert_eq!(
        config.summary()[1..],
        [
            format!("service top: tcp://:1 -> tcp://b:1, {top}"),
            format!("service own-2: tcp://:2 -> tcp://b:1, {own}"),
            format!("service own-3: tcp://:3 -> tcp://b:1, {own}"),
            format!("service open: tcp://:4 -> tcp://b:1, {open}"),
        ]
    );
    let may = |n: usize, ip: &str| {
        config.terms_of(&config.services[n]).visitors.permit(ip.parse().unwrap())
    };
    assert!(may(0, "10.1.1.1") && !may(0, "10.0.0.66") && !may(0, "192.0.2.1"));
    assert!(may(1, "192.0.2.1") && !may(1, "10.1.1.1"));
    assert!(may(3, "10.0.0.66") && may(3, "::1"));
    // A service that the running client got by a command has the lists of the top as well.
    let sources = Sources { env: &|_| None, read: &|_| Err(String::new()) };
    let kept =
        Text { name: "kept", text: "services: ['9=9', {public: 8, target: 8, deny_from: []}]" };
    let kept = load_kept(kept, None, &sources).unwrap().config;
    let mut with = config.clone();
    with.keep(&kept).unwrap();
    let [.., nine, eight] = with.services.as_slice() else { panic!("{with:?}") };
    assert_eq!(with.terms_of(nine).visitors, config.terms_of(&config.services[0]).visitors);
    assert!(with.terms_of(eight).visitors.permit([10, 0, 0, 66].into()));

    let other = client(&text.replace("10.0.0.66", "10.0.0.67")).unwrap();
    let changed = config.differs(&other);
    assert!(
        changed.len() == 1 && changed[0].key == "deny_from" && changed[0].change == Change::Live,
        "{changed:?}"
    );
}

#[test]
fn lists_of_visitors_are_bounded_one_by_one_and_all_together() {
    let text = |networks: usize, ports: &str| {
        format!(
            "servers: tls://a\nname: a\ntoken: {OLD}\nallow_from: [{}]\nservices:\n\
             - {{target: 'tcp://b:1', public: 'tcp://:{ports}'}}\n",
            vec!["10.0.0.0/8"; networks].join(", ")
        )
    };
    assert!(client(&text(256, "1-100")).is_ok());
    let config = client(&text(9, "1")).unwrap();
    assert!(config.summary()[1].ends_with(" and 1 more]"), "{:?}", config.summary());
    for (networks, ports, why) in
        [(257, "1", "more than 256 networks"), (256, "1-200", "networks in `allow_from`")]
    {
        let problems = client(&text(networks, ports)).unwrap_err();
        assert!(problems[0].to_string().contains(why), "{problems:?}");
    }
}

#[test]
fn peers_are_told_all_kinds_of_addresses_unless_some_are_named() {
    let of = |more: &str| {
        let p2p = client(&format!("servers: a\nname: b\ntoken: {OLD}\n{more}")).unwrap().p2p;
        [p2p.host, p2p.mapped, p2p.reflexive]
    };
    assert_eq!(of(""), [true; 3]);
    assert_eq!(of("p2p: { ports: 4000 }"), [true; 3]);
    assert_eq!(of("p2p: { candidates: [host, reflexive] }"), [true, false, true]);
    assert_eq!(of("p2p: { candidates: mapped }"), [false, true, false]);
}

#[test]
fn a_default_gives_way_to_the_key_that_the_file_has() {
    let sources = Sources { env: &|_| None, read: &|_| Err(String::new()) };
    let text = "servers: tls://a\nname: a\ntoken: q7Xb2LmZ0aKc9RtYv4WnPs\nretry: { max: 50ms }\n\
                window: { max: 64KiB }\n\
                services: [{ public: 1, target: 1, health: { interval: 1s } }]\n";
    let file = Some(Text { name: "c.yaml", text });
    let config = load_client(file, &ClientFlags::default(), &sources).unwrap().config;
    assert_eq!(config.retry_min, config.retry_max);
    assert_eq!(config.common.window_initial, config.common.window_max);
    let health = config.services[0].health.as_ref().unwrap();
    assert_eq!((health.timeout, health.interval.to_string()), (health.interval, "1s".to_owned()));
}
