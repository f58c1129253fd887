//! Several servers of a client, and the services and forwards that name them.

use config::{ClientConfig, ClientFlags, Policy, Sources, Text};

const TOKEN: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";
const OTHER: &str = "Zt5RkW1xQ8bN4mVc7LpYs2HdJf9GaE3uOaB0cDeFgHi";

fn load(text: &str) -> Result<ClientConfig, String> {
    let sources = Sources { env: &|_| None, read: &|_| Err("no file".into()) };
    let text = Text { name: "c.yaml", text };
    let loaded = config::load_client(Some(text), &ClientFlags::default(), &sources);
    loaded
        .map(|loaded| loaded.config)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

fn client(servers: &str, rest: &str) -> Result<ClientConfig, String> {
    load(&format!("name: home\ntoken: {TOKEN}\nservers: {servers}\n{rest}"))
}

#[test]
fn a_list_of_paths_is_one_server_and_an_entry_with_a_name_is_a_server() {
    let alone = client("[tls://a, 'quic://a:7000']", "").unwrap();
    let [server] = &alone.servers[..] else { panic!("{alone:?}") };
    assert_eq!((server.name.as_deref(), server.paths.len(), &*server.label()), (None, 2, "a"));
    assert_eq!(alone.policy, Policy::All);
    let two = client(
        "[{ name: fra, paths: [tls://a, 'quic://a'] }, { name: nyc, url: tls://b, sni: c }]",
        "use: failover",
    )
    .unwrap();
    let shown: Vec<_> = two
        .servers
        .iter()
        .map(|server| {
            let paths = server.paths.iter().map(|path| path.endpoint.to_string());
            format!("{} {}", server.label(), paths.collect::<Vec<_>>().join(" "))
        })
        .collect();
    assert_eq!(shown, ["fra tls://a:7000 quic://a:7000", "nyc tls://b:7000"]);
    assert_eq!((two.policy, two.servers[1].paths[0].sni.as_deref()), (Policy::Failover, Some("c")));
    let places: Vec<_> = two.placed_paths().map(|(places, _)| places[0].clone()).collect();
    assert_eq!(places, ["servers[0].paths[0]", "servers[0].paths[1]", "servers[1].paths[0]"]);
    let short = client("['fra=tls://a', \"nyc = wss://b/t?k=v\"]", "").unwrap();
    assert_eq!(short.servers[1].paths[0].endpoint.to_string(), "wss://b:443/t?k=v");
    assert_eq!(short.servers[1].name.as_deref(), Some("nyc"));
    let path = client("'wss://b/t?k=v'", "").unwrap();
    assert_eq!(path.servers[0].name, None);
    let hosts = client("[{ paths: tls://a.example }, { paths: tls://b.example }]", "").unwrap();
    assert_eq!(hosts.servers[0].name.as_deref(), Some("a.example"));
}

#[test]
fn a_path_leads_through_another_server_that_this_machine_dials() {
    let fra = "{ name: fra, paths: [tls://a, { url: 'tls://a', via: nyc }] }";
    let both =
        format!("[{fra}, {{ name: nyc, paths: [tls://b, {{ url: 'wss://b', via: fra }}] }}]");
    let config = client(&both, "proxy: http://p.example:3128").unwrap();
    let [direct, detour] = &config.servers[0].paths[..] else { panic!("{config:?}") };
    assert_eq!((direct.via.as_deref(), detour.via.as_deref()), (None, Some("nyc")));
    assert!(
        direct.proxy.is_some() && detour.proxy.is_none(),
        "this machine dials nyc by the proxy"
    );
    assert_eq!(config.servers[1].paths[1].via.as_deref(), Some("fra"), "each through the other");
    let lines = config.summary();
    assert!(lines.contains(&"client home to tls://a:7000 at server fra via nyc".to_owned()));
    let alone = client(&both.replace(", { url: 'tls://a', via: nyc }", ""), "").unwrap();
    assert!(config.differs(&alone).iter().any(|changed| changed.key == "servers"));
    // A server that is reached through another server alone leads to none.
    let only = client(&format!("[{fra}, {{ name: nyc, url: 'tls://b', via: fra }}]"), "");
    let wrong = "servers[0].paths[1].via: server nyc is itself reached through other servers alone";
    assert!(only.clone().unwrap_err().contains(wrong), "{only:?}");
    let fine = "[{ name: fra, url: tls://a, via: nyc }, { name: nyc, url: tls://b }]";
    assert!(client(fine, "").is_ok());
}

#[test]
fn servers_that_cannot_be_told_apart_are_refused() {
    for (servers, said) in [
        ("[tls://a, { name: b, paths: tls://b }]", "a path beside servers with names"),
        ("[{ name: a, url: tls://a }, { name: a, url: tls://b }]", "a second server named a"),
        ("[{ paths: tls://a }, { paths: quic://a }]", "a second server named a"),
        ("[{ name: a, url: tls://x }, { name: b, paths: [tls://y, tls://x] }]", "server a as well"),
        ("[{ name: a, paths: [] }]", "a server has at least one path"),
        ("[{ name: a, paths: tls://a, sni: b }]", "`sni` beside `paths`"),
        ("[{ name: a, paths: [{ name: b, url: tls://a }] }]", "unknown key"),
        ("[{ name: 'a b', paths: tls://a }]", "name"),
        ("[{ paths: 'tls://[::1]' }]", "needs one"),
        ("[{ name: a, paths: tls://a, token: short }]", "token"),
    ] {
        let told = client(servers, "").unwrap_err();
        assert!(told.contains(said), "{servers}: {told}");
    }
    let many: Vec<_> = (0..65).map(|n| format!("{{ name: s{n}, url: tls://h{n} }}")).collect();
    let told = client(&format!("[{}]", many.join(", ")), "").unwrap_err();
    assert!(told.contains("more than 64 servers"), "{told}");
}

#[test]
fn a_server_may_have_a_token_of_its_own() {
    let servers =
        format!("[{{ name: a, url: tls://a, token: {OTHER} }}, {{ name: b, url: tls://b }}]");
    let two = client(&servers, "").unwrap();
    let own = two.servers[0].token.as_ref().unwrap();
    assert_eq!((own.secret.reveal(), two.servers[1].token.is_none()), (OTHER, true));
    assert!(!format!("{two:?}").contains(OTHER), "a secret is not shown");
    let told = load(&format!("name: home\nservers: {servers}\n")).unwrap_err();
    assert!(told.contains("token"), "server b has no token: {told}");
    let both = format!(
        "[{{ name: a, url: tls://a, token: {OTHER} }}, {{ name: b, url: tls://b, token: {TOKEN} }}]"
    );
    assert!(load(&format!("name: home\nservers: {both}\n")).unwrap().token.is_none());
}

#[test]
fn services_and_forwards_name_servers_that_exist() {
    let two = "[{ name: fra, url: tls://a }, { name: nyc, url: tls://b }]";
    let good = client(
        two,
        "services: [{ name: s, public: 22, target: 22, servers: [fra] }]\n\
         forwards: [{ listen: 5203, target: 5201, server: nyc }, '5204=5201']\n",
    )
    .unwrap();
    assert_eq!(good.services[0].servers, ["fra"]);
    assert_eq!(good.forwards[0].server.as_deref(), Some("nyc"));
    assert_eq!(good.forwards[1].server, None);
    // The host is the name of a server without a name.
    client("tls://a", "services: [{ name: s, public: 22, target: 22, servers: a }]").unwrap();
    for (servers, rest, said) in [
        (
            two,
            "services: [{ name: s, public: 22, target: 22, servers: [fra, lon] }]",
            "services[0].servers: unknown server `lon`",
        ),
        (
            two,
            "forwards: ['1=2', { listen: 5203, target: 5201, server: ny }]",
            "forwards[1].server: unknown server `ny` (hint: did you mean `nyc`?)",
        ),
        (
            "tls://a",
            "services: [{ name: s, public: 22, target: 22, servers: fra }]",
            "unknown server `fra` (hint: known here: a)",
        ),
        (
            two,
            "forwards: [{ listen: 5203, target: 'service://a/b', server: fra, token: x }]",
            "server",
        ),
    ] {
        let told = client(servers, rest).unwrap_err();
        assert!(told.contains(said), "{rest}: {told}");
    }
    assert!(client(two, "use: some").unwrap_err().contains("unknown policy `some` of servers"));
}

#[test]
fn a_public_address_may_be_used_at_each_server_and_once_at_one() {
    let two = "['fra=tls://a', 'nyc=tls://b']";
    let services = |first: &str, second: &str| {
        let one = |name: &str, servers: &str| {
            format!("{{ name: {name}, public: [10022], target: 22{servers} }}")
        };
        let [first, second] = [one("first", first), one("second", second)];
        client(two, &format!("services: [{first}, {second}]"))
    };
    let both = services(", servers: fra", ", servers: nyc").unwrap();
    assert_eq!(both.services.len(), 2);
    for (first, second) in [
        (", servers: fra", ", servers: fra"),
        (", servers: fra", ", servers: [nyc, fra]"),
        (", servers: fra", ""),
        ("", ", servers: nyc"),
    ] {
        let told = services(first, second).unwrap_err();
        assert!(told.contains("services[1].public[0]: tcp://:10022 is published twice"), "{told}");
    }
    let named = |servers: [&str; 2]| {
        let one = |name: &str, servers: &str| {
            format!(
                "{{ name: {name}, public: 'http://{{name}}.example', target: 'http://a', servers: {servers} }}"
            )
        };
        client(two, &format!("services: [{}, {}]", one("a", servers[0]), one("b", servers[1])))
    };
    assert!(named(["fra", "nyc"]).is_ok());
    assert!(named(["fra", "fra"]).unwrap_err().contains("is published twice"));
}

#[test]
fn a_policy_without_a_choice_and_a_trust_that_dns_decides_are_warned_of() {
    let warnings = |text: &str| -> Vec<String> {
        let sources = Sources { env: &|_| None, read: &|_| Err("no file".into()) };
        let text = format!("name: home\ntoken: {TOKEN}\n{text}");
        let text = Some(Text { name: "c.yaml", text: &text });
        let loaded = config::load_client(text, &ClientFlags::default(), &sources).unwrap();
        loaded.warnings.iter().map(ToString::to_string).collect()
    };
    let pin = "sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    for (text, said) in [
        ("servers: tls://a\nuse: failover\n", Some("use: one server, so no other")),
        ("servers: [{ name: a, paths: [tls://a, quic://a] }]\nuse: nearest\n", Some("use: one")),
        ("servers: [tls://a, tls://b]\nuse: all\n", None),
        ("servers: ['a=tls://a', 'b=tls://b']\nuse: failover\n", None),
        ("srv: _t._tcp.a.example\nuse: failover\n", Some("srv: DNS names the servers")),
        (&format!("srv: _t._tcp.a.example\ntls: {{ pin: '{pin}' }}\n"), None),
        ("srv: _t._tcp.a.example\ntls: { ca: ca.crt }\n", None),
        ("servers_from: https://a.example/s\nuse: failover\n", None),
    ] {
        let told = warnings(text);
        match said {
            Some(said) => assert!(told.len() == 1 && told[0].contains(said), "{text}: {told:?}"),
            None => assert!(told.is_empty(), "{text}: {told:?}"),
        }
    }
}
