//! Services over UDP, exits, files, and forwards that are proxies: the values that valid files and
//! flags have.

use config::{
    ClientConfig, ClientFlags, DatagramCheck, Loaded, Over, Problem, ServerConfig, ServerFlags,
    Sources, Target, Text, load_client, load_lists, load_server,
};
use proto::control::FlowTimes;

const TOP: &str = "servers: tls://a\nname: a\ntoken: q7Xb2LmZ0aKc9RtYv4WnPs\n";

fn sources<T>(f: impl FnOnce(&Sources<'_>) -> T) -> T {
    f(&Sources {
        env: &|name| (name == "PASSWORD").then(|| "hunter2".to_owned()),
        read: &|_| Err("no such file".to_owned()),
    })
}

fn loaded(text: &str, flags: &ClientFlags) -> Result<Loaded<ClientConfig>, Vec<Problem>> {
    let text = format!("{TOP}{text}\n");
    sources(|s| load_client(Some(Text { name: "client.yaml", text: &text }), flags, s))
}

fn client(text: &str) -> ClientConfig {
    loaded(text, &ClientFlags::default()).expect("a valid file").config
}

#[track_caller]
fn is(text: &str, expected: &[&str]) {
    assert_eq!(client(text).summary()[1..], *expected, "{text}");
}

fn flags(publish: &[&str], forward: &[&str]) -> ClientFlags {
    let [publish, forward] =
        [publish, forward].map(|list| list.iter().map(ToString::to_string).collect());
    ClientFlags { publish, forward, ..ClientFlags::default() }
}

#[test]
fn a_port_of_udp_leads_to_a_target_of_udp_and_both_to_one_host_and_port() {
    is(
        "services:\n\
         - { name: wg, public: 'udp://:51820', target: 'udp://127.0.0.1:51820' }\n\
         - { public: 'udp://127.0.0.1:53', target: '53' }\n\
         - { public: 'udp://:0', target: 'b:54' }\n\
         - { public: ['tcp://:55', 'udp://:55'], target: 'udp://b:1' }\n\
         - { public: ['udp://:56', 'tcp://:56'], target: 'b:1' }\n\
         - { public: ['tcp://:0', 'udp://:0'], target: 'tcp://b:57' }\n\
         - { public: ['http://app.example', 'udp://:443'], target: 'tcp://b:443' }",
        &[
            "service wg: udp://:51820 -> udp://127.0.0.1:51820",
            "service udp-53: udp://127.0.0.1:53 -> udp://localhost:53",
            "service udp-54: udp://:0 -> udp://b:54",
            "service tcp-55: tcp://:55, udp://:55 -> udp://b:1",
            "service udp-56: udp://:56, tcp://:56 -> tcp://b:1",
            "service tcp-57: tcp://:0, udp://:0 -> tcp://b:57",
            "service udp-443: http://app.example, udp://:443 -> tcp://b:443",
        ],
    );
    let both = &client("services: [{ public: ['tcp://:5', 'udp://:5'], target: 'b:1' }]").services;
    assert!(both[0].carries(Over::Tcp) && both[0].carries(Over::Udp));
    assert_eq!(both[0].target.port().map(|(host, port)| format!("{host}:{port}")).unwrap(), "b:1");
}

#[test]
fn a_range_of_both_protocols_becomes_a_service_for_each_port() {
    is(
        "services:\n\
         - { name: game, public: ['tcp://:10-11', 'udp://:10-11'], target: 'udp://b:20-21' }\n\
         - { public: ['udp://:30-31', 'udp://127.0.0.2:30-31'], target: 'b:5-6' }\n\
         - { name: one, public: 'udp://:40-41', target: 'udp://b:7' }\n\
         - { public: ['tcp://:50-51', 'udp://:51-52'], target: 'udp://b:8' }",
        &[
            "service game-10: tcp://:10, udp://:10 -> udp://b:20",
            "service game-11: tcp://:11, udp://:11 -> udp://b:21",
            "service udp-30: udp://:30, udp://127.0.0.2:30 -> udp://b:5",
            "service udp-31: udp://:31, udp://127.0.0.2:31 -> udp://b:6",
            "service one-40: udp://:40 -> udp://b:7",
            "service one-41: udp://:41 -> udp://b:7",
            "service tcp-50: tcp://:50 -> tcp://b:8",
            "service tcp-51: tcp://:51, udp://:51 -> udp://b:8",
            "service udp-52: udp://:52 -> udp://b:8",
        ],
    );
}

#[test]
fn flows_have_times_in_whole_seconds() {
    for (timeouts, unanswered, answered) in [
        ("{}", 30, 120),
        ("{ flow: 10m }", 30, 600),
        ("{ flow: 10s }", 10, 10),
        ("{ flow: 1h, flow_unanswered: 1s }", 1, 3600),
        ("{ flow_unanswered: 2m }", 120, 120),
    ] {
        let text =
            format!("services: [{{ public: 'udp://:1', target: '1', timeouts: {timeouts} }}]");
        let config = client(&text);
        let flows = config.terms_of(&config.services[0]).flows;
        assert_eq!(flows, FlowTimes { unanswered, answered }, "{timeouts}");
    }
}

#[test]
fn an_exit_has_users_and_destinations_or_visitors_by_address() {
    is(
        "services:\n\
         - { public: 'tcp://:1080', target: socks5, basic_auth: 'ann:${PASSWORD}', \
             allow: ['10.0.0.0/8:*', 'udp://*:53'] }\n\
         - { public: 'tcp://:0', target: 'http-proxy://', allow_from: 10.0.0.0/8 }\n\
         - { name: here, public: ['tcp://127.0.0.1:1', 'tcp://[::1]:1'], target: socks5 }\n\
         - 'tcp://127.0.0.2:2=socks5'",
        &[
            "service tcp-1080: tcp://:1080 -> socks5, basic_auth, \
             may reach [10.0.0.0/8:*, udp://*:53]",
            "service http-proxy: tcp://:0 -> http-proxy, allow_from [10.0.0.0/8]",
            "service here: tcp://127.0.0.1:1, tcp://[::1]:1 -> socks5",
            "service tcp-2: tcp://127.0.0.2:2 -> socks5",
        ],
    );
    let config = client(
        "services: [{ public: 'tcp://:1', target: socks5, basic_auth: ['a:${PASSWORD}', 'b:c:d'] }]",
    );
    let exit = &config.services[0].exit;
    let users: Vec<_> = exit.basic_auth.iter().map(config::Secret::reveal).collect();
    assert_eq!(users, ["a:hunter2", "b:c:d"]);
    assert_eq!(exit.allow, None);
    assert!(!format!("{config:?}").contains("hunter2"), "a log may have the configuration");
    // What the server does with requests is another thing.
    assert!(config.terms_of(&config.services[0]).http.is_default());
    client("allow_from: 10.0.0.0/8\nservices: ['1080=socks5']");
}

#[test]
fn a_short_form_of_a_command_is_no_way_to_an_exit_for_everybody() {
    let lists = |publish: &str| {
        let loaded = sources(|s| load_lists(&[publish.to_owned()], &[], None, s));
        loaded.map(|loaded| config::Kept {
            lists: loaded.config,
            without: Vec::new(),
            saved: false,
        })
    };
    let kept = lists("1080=socks5").unwrap();
    let mut open = client("services: []");
    let why = open.keep(&kept).unwrap_err();
    assert!(why.to_string().contains("everybody could use the socks5 exit"), "{why}");
    assert!(open.services.is_empty());
    client("allow_from: 10.0.0.0/8\nservices: []").keep(&kept).unwrap();
    open.keep(&lists("tcp://127.0.0.1:1080=socks5").unwrap()).unwrap();
    let own = "services: [{ name: tcp-1080, public: 1080, target: socks5, basic_auth: 'a:b' }]";
    let mut own = client(own);
    own.keep(&kept).unwrap();
    assert_eq!(own.services[0].exit.basic_auth.len(), 1, "it keeps who may use it");
}

#[test]
fn files_are_served_at_ports_and_names() {
    is(
        "services:\n\
         - { public: 'http://www.example.com', target: 'file:///srv/www/', basic_auth: 'a:b' }\n\
         - { public: ['tcp://:0'], target: 'file:///srv/my files' }",
        &[
            "service http-www.example.com: http://www.example.com -> file:///srv/www, basic_auth",
            "service files-my-files: tcp://:0 -> file:///srv/my files",
        ],
    );
}

#[test]
fn a_forward_is_of_udp_or_a_proxy_without_a_target() {
    is(
        "forwards:\n\
         - { listen: 'udp://127.0.0.1:5300', target: 'udp://9.9.9.9:53' }\n\
         - { listen: 'udp://5301', target: '9.9.9.9:53' }\n\
         - { listen: 'socks5://[::1]:1080', basic_auth: ['a:b', 'c:d'] }\n\
         - http-proxy://127.0.0.1:3128",
        &[
            "forward udp://127.0.0.1:5300 -> udp://9.9.9.9:53 (dialled by the server)",
            "forward udp://127.0.0.1:5301 -> udp://9.9.9.9:53 (dialled by the server)",
            "forward socks5://[::1]:1080 (dialled by the server), basic_auth",
            "forward http-proxy://127.0.0.1:3128 (dialled by the server)",
        ],
    );
    let proxy = &client("forwards: [socks5://1080]").forwards[0];
    assert_eq!((proxy.target.as_ref(), proxy.basic_auth.len()), (None, 0));
}

#[test]
fn the_flags_have_the_same_forms() {
    let flags = flags(
        &[
            "udp://:51820=udp://127.0.0.1:51820",
            "udp://53=53",
            "udp://127.0.0.1:54",
            "tcp://127.0.0.1:1080=socks5",
            "8080=file:///srv/www",
        ],
        &["udp://127.0.0.1:5300=udp://9.9.9.9:53", "socks5://127.0.0.1:1080", "http-proxy://3128"],
    );
    let config = loaded("", &flags).unwrap().config;
    assert_eq!(
        config.summary()[1..],
        [
            "service udp-51820: udp://:51820 -> udp://127.0.0.1:51820",
            "service udp-53: udp://:53 -> udp://localhost:53",
            "service udp-54: udp://:0 -> udp://127.0.0.1:54",
            "service tcp-1080: tcp://127.0.0.1:1080 -> socks5",
            "service tcp-8080: tcp://:8080 -> file:///srv/www",
            "forward udp://127.0.0.1:5300 -> udp://9.9.9.9:53 (dialled by the server)",
            "forward socks5://127.0.0.1:1080 (dialled by the server)",
            "forward http-proxy://127.0.0.1:3128 (dialled by the server)",
        ]
    );
    assert_eq!(config.services[3].target, Target::Socks5);
}

#[test]
fn a_proxy_beyond_loopback_without_a_password_is_a_warning() {
    for (listen, warns) in [
        ("socks5://0.0.0.0:1080", true),
        ("http-proxy://[::]:1080", true),
        ("socks5://192.168.1.5:1080", true),
        ("socks5://127.0.0.5:1080", false),
        ("http-proxy://[::ffff:127.0.0.1]:1080", false),
        ("tcp://0.0.0.0:1080=22", false),
        ("udp://0.0.0.0:1080=22", false),
    ] {
        let warnings = loaded("", &flags(&[], &[listen])).unwrap().warnings;
        assert_eq!(!warnings.is_empty(), warns, "{listen}: {warnings:?}");
        let of_command = sources(|s| load_lists(&[], &[listen.to_owned()], None, s)).unwrap();
        assert_eq!(of_command.warnings.len(), warnings.len(), "{listen}");
    }
}

#[test]
fn rights_to_udp_are_rights_of_their_own_and_count_among_the_ports() {
    let server = |allow: &str| -> ServerConfig {
        let text = format!(
            "listen: tls://[::]\nclients: [{{ name: a, token: q7Xb2LmZ0aKc9RtYv4WnPs, {allow} }}]\n"
        );
        let file = Some(Text { name: "server.yaml", text: &text });
        sources(|s| load_server(file, &ServerFlags::default(), s)).unwrap().config
    };
    let config = server("allow: { tcp: ['10-12'], udp: ['53', '127.0.0.1:60-61'] }");
    let rights = &config.clients[0].rights;
    let bind = config.public_bind;
    assert!(rights.udp.permits(bind, 53) && !rights.tcp.permits(bind, 53));
    assert!(rights.udp.permits("127.0.0.1".parse().unwrap(), 60) && !rights.udp.permits(bind, 60));
    assert!(rights.tcp.permits(bind, 10) && !rights.udp.permits(bind, 10));
    assert_eq!(rights.ports, 6);
    assert_eq!(
        config.summary().last().unwrap(),
        "client a: may publish 10-12, udp://53, udp://127.0.0.1:60-61; may reach nothing"
    );
    assert_eq!(server("allow: { udp: '1-2000' }").clients[0].rights.ports, 1024);
    assert_eq!(server("allow: { udp: '1-2000' }, limits: { ports: 5 }").clients[0].rights.ports, 5);
}

#[test]
fn a_target_of_udp_is_checked_by_a_datagram() {
    let udp = |public: &str, udp: &str| {
        let service = format!("public: {public}, target: 'b:1', health: {{ udp: {udp} }}");
        let text = format!("services: [{{ {service} }}]");
        let loaded = loaded(&text, &ClientFlags::default());
        loaded
            .map(|loaded| loaded.config.services[0].health.clone().unwrap().udp.unwrap())
            .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let own = |send: &[u8], expect: &[u8]| {
        Ok(DatagramCheck::Own { send: send.into(), expect: expect.into() })
    };
    let port = "'udp://:1'";
    assert_eq!(udp(port, "dns"), Ok(DatagramCheck::Dns));
    assert_eq!(udp("['tcp://:1', 'udp://:1']", "dns"), Ok(DatagramCheck::Dns));
    assert_eq!(udp(port, "{ send: ping, expect: po }"), own(b"ping", b"po"));
    assert_eq!(udp(port, "{ send: 'hex:00fF' }"), own(&[0, 255], b""));
    for (public, check, problem) in [
        (port, "ntp", "unknown protocol (hint: `dns`, or { send: TEXT, expect: TEXT }"),
        (port, "{ expect: a }", "udp.send: missing"),
        (port, "{ send: 'hex:0' }", "`hex:0` has no pairs of hexadecimal digits"),
        (port, "{ send: 'hex:0g' }", "has no pairs of hexadecimal digits"),
        (port, &format!("{{ send: {} }}", "x".repeat(1_201)), "1201 bytes are too many"),
        (port, "dns, path: /a", "`path` has no effect"),
        ("'tcp://:1'", "dns", "no visitor of the service comes over UDP"),
    ] {
        let problems = udp(public, check).unwrap_err();
        assert!(problems.iter().any(|found| found.contains(problem)), "{check}: {problems:?}");
    }
}
