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
