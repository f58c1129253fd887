use proptest::prelude::*;

use super::*;
use crate::decode::found::{defaults, servers_from};
use crate::mistakes::parse;
use crate::section::Section;
use crate::{ServersFrom, Trust};

const PIN: &str = "sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

/// The environment of the tests.
fn env(name: &str) -> Option<String> {
    match name {
        "SECRET" => Some("hidden".to_owned()),
        "https_proxy" => Some("http://proxy.example:3128".to_owned()),
        "no_proxy" => Some("direct.example".to_owned()),
        _ => None,
    }
}

/// Decodes a part of a client's file, and returns the problems where there are any.
fn of_file<T>(text: &str, decode: impl FnOnce(&Section<'_>) -> T) -> Result<T, String> {
    let read = |path: &Path| match path.to_str() {
        Some("token") => Ok("eyJh.e30.x-_/+=\n".to_owned()),
        Some(_) | None => Err("no such file".to_owned()),
    };
    let sources = Sources { env: &env, read: &read };
    let cx = Cx::new("client.yaml", &sources);
    let node = parse("client.yaml", text).unwrap();
    let value = decode(&Section::quiet(&cx, Item { node, path: String::new() }).unwrap());
    let problems = cx.problems.borrow();
    if problems.is_empty() { Ok(value) } else { Err(said(&problems)) }
}

fn said(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn top(text: &str, has_token: bool) -> PathDefaults {
    of_file(text, |s| defaults(s, has_token)).unwrap()
}

/// What an answer says: `name=url url` for each server.
fn shown(found: &FoundServers) -> Vec<String> {
    let urls = |paths: &[crate::Path]| {
        paths.iter().map(|path| path.endpoint.to_string()).collect::<Vec<_>>().join(" ")
    };
    found.servers.iter().map(|server| format!("{}={}", server.name, urls(&server.paths))).collect()
}

fn read_with(text: &str, defaults: &PathDefaults) -> Result<Loaded<FoundServers>, String> {
    servers_of_answer(Text { name: "the answer", text }, defaults).map_err(|why| said(&why))
}

fn read(text: &str) -> Result<FoundServers, String> {
    read_with(text, &PathDefaults::default()).map(|loaded| loaded.config)
}

#[test]
fn an_answer_has_servers_with_paths_in_its_order_and_a_time() {
    let text = format!(
        "{{\"servers\": [\n\t{{\"name\": \"fra\", \"paths\": [\"tls://fra.example.com:7000\", {{\"url\": \
         \"quic://fra.example.com\", \"sni\": \"f.example.com\", \"tls\": {{\"pin\": \"{PIN}\"}}}}]}},\n\
         \t\"wss://ams.example.com/t\",\n\t{{\"name\": \"waw\", \"paths\": \"kcp://waw.example.com:1\"}}\n\
         ], \"every\": \"90s\"}}"
    );
    let found = read(&text).unwrap();
    assert_eq!(
        shown(&found),
        [
            "fra=tls://fra.example.com:7000 quic://fra.example.com:7000",
            "ams.example.com=wss://ams.example.com:443/t",
            "waw=kcp://waw.example.com:1"
        ]
    );
    let quic = &found.servers[0].paths[1];
    assert_eq!(quic.sni.as_deref(), Some("f.example.com"));
    assert_eq!(quic.trust, Trust::Pins(vec![PIN.to_owned()]));
    assert_eq!(found.every.unwrap().to_string(), "90s");
    assert_eq!(read("{\"servers\": \"tls://a\", \"every\": null}").unwrap().every, None);
}

#[test]
fn the_settings_at_the_top_of_the_file_apply_to_paths_without_their_own() {
    let file = format!("tls: {{ pin: '{PIN}' }}\nheaders: {{ X-A: '1' }}\nname: a\n");
    let top = top(&file, true);
    let text = "{\"servers\": [{\"name\": \"a\", \"paths\": [\"wss://a.example\", {\"url\": \
                \"wss://direct.example\", \"tls\": {\"min_version\": \"1.2\"}, \"headers\": {}}]}]}";
    let loaded = read_with(text, &top).unwrap();
    let [first, second] = &loaded.config.servers[0].paths[..] else { panic!("two paths") };
    assert_eq!(first.trust, Trust::Pins(vec![PIN.to_owned()]));
    assert_eq!(first.headers[0].name, "X-A");
    assert_eq!(first.proxy.as_ref().unwrap().host.to_string(), "proxy.example");
    assert_eq!((&second.trust, second.headers.len()), (&Trust::System, 0));
    assert_eq!(second.proxy, None, "as no_proxy of the environment says");
    let top = self::top("proxy: socks5://10.0.0.1:1080\n", true);
    let of = |path: &str| {
        let text = format!("{{\"servers\": [{{\"name\": \"a\", \"paths\": [{path}]}}]}}");
        read_with(&text, &top).map(|loaded| loaded.config.servers[0].paths[0].proxy.clone())
    };
    assert_eq!(of("\"tls://a\"").unwrap().unwrap().host.to_string(), "10.0.0.1");
    assert_eq!(of("{\"url\": \"tls://a\", \"proxy\": \"none\"}").unwrap(), None);
    assert!(of("\"quic://a\"").unwrap_err().contains("which the proxy"));
}

#[test]
fn without_a_token_each_path_has_to_log_in_by_certificate() {
    let top = top("tls: { cert: c.pem, key: k.pem }\n", false);
    assert!(read_with("{\"servers\": [\"tls://a\"]}", &top).is_ok());
    let error = read_with("{\"servers\": [\"tls://a\", \"wss://b\"]}", &top).unwrap_err();
    assert!(error.starts_with("the answer: servers[1]: the client has no token"), "{error}");
    let own = "{\"servers\": [{\"name\": \"a\", \"paths\": {\"url\": \"tls://a\", \"tls\": {}}}]}";
    let error = read_with(own, &top).unwrap_err();
    assert!(error.starts_with("the answer: servers[0].paths"), "{error}");
}

#[test]
fn what_is_wrong_in_an_answer_is_named_by_its_key_path() {
    let many = |item: &str, count| vec![item; count].join(",");
    let names: Vec<_> = (0..65).map(|n| format!("\"tls://s{n}\"")).collect();
    for (text, wanted) in [
        ("", "the answer: not JSON: EOF"),
        ("<html>", "the answer: not JSON: expected value at line 1"),
        ("servers: [tls://a]", "not JSON"),
        ("[]", "expected a map of keys, found a list"),
        ("\"tls://a\"", "expected a map of keys"),
        ("null", "expected a map of keys"),
        ("{}", "servers: missing"),
        ("{\"servers\": null}", "servers: missing"),
        ("{\"servers\": []}", "servers: there is no server in it"),
        ("{\"servers\": [\"tls://a\"], \"token\": \"x\"}", "token: unknown key"),
        ("{\"servers\": [\"tls://a\"], \"servers\": []}", "servers: the key is given twice"),
        (
            "{\"servers\": [\"tls://a\"], \"every\": \"1s\"}",
            "every: `1s` is out of range (hint: 10s to 1d)",
        ),
        ("{\"servers\": [\"tls://a\"], \"every\": 60}", "every: `60`"),
        ("{\"servers\": [\"tls://a\", \"ftp://b\"]}", "servers[1]: "),
        ("{\"servers\": [7]}", "servers[0]: `7` is not a host"),
        (
            "{\"servers\": [{\"name\": \"a\", \"paths\": {\"url\": \"tls://a\", \"via\": \"nyc\"}}, \
             \"tls://b\"]}",
            "servers[0].paths.via: unknown server `nyc` (hint: known here: b)",
        ),
        ("{\"servers\": [[\"tls://a\"]]}", "servers[0]: expected a map of keys, found a list"),
        ("{\"servers\": [{\"paths\": [\"tls://a\"]}]}", "servers[0].name: missing"),
        (
            "{\"servers\": [{\"name\": \"a b\", \"paths\": \"tls://a\"}]}",
            "servers[0].name: `a b` is not a name",
        ),
        ("{\"servers\": [{\"name\": \"a\"}]}", "servers[0].paths: missing"),
        ("{\"servers\": [{\"name\": \"a\", \"paths\": []}]}", "servers[0].paths: missing"),
        (
            "{\"servers\": [{\"name\": \"a\", \"paths\": [\"tls://a\", {}]}]}",
            "servers[0].paths[1].url: missing",
        ),
        (
            "{\"servers\": [{\"name\": \"a\", \"paths\": [\"tls://a:0\"]}]}",
            "servers[0].paths[0]: port 0",
        ),
        (
            "{\"servers\": [{\"name\": \"a\", \"paths\": \"tls://a\"}, {\"name\": \"a\", \"paths\": \"tls://b\"}]}",
            "servers[1]: two servers have the name `a`",
        ),
        (
            "{\"servers\": [\"tls://a:1\", \"quic://a:1\"]}",
            "servers[1]: two servers have the name `a-1`",
        ),
        (
            &format!("{{\"servers\": [{}]}}", names.join(",")),
            "servers: 65 servers (hint: at most 64)",
        ),
        (
            &format!(
                "{{\"servers\": [{{\"name\": \"a\", \"paths\": [{}]}}]}}",
                many("\"tls://a\"", 17)
            ),
            "servers[0].paths: 17 paths to a server (hint: at most 16)",
        ),
        (
            &format!("{{\"servers\": [\"{}\"]}}", "a".repeat(FOUND_MAX)),
            "the answer: more than 256 KiB",
        ),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.contains(wanted), "{text}: {error}");
        assert!(error.starts_with("the answer: "), "{error}");
    }
    // All problems of an answer at once, and no line of a text that has no lines.
    let error = read("{\"servers\": [\"a b\", \"ftp://b\"], \"c\": 1}").unwrap_err();
    assert_eq!(error.lines().count(), 3, "{error}");
    let most: Vec<_> = names.into_iter().take(64).collect();
    assert_eq!(read(&format!("{{\"servers\": [{}]}}", most.join(","))).unwrap().servers.len(), 64);
}

#[test]
fn an_answer_names_no_file_of_this_machine_and_reads_no_variable() {
    let of = |path: &str| {
        read(&format!(
            "{{\"servers\": [{{\"name\": \"a\", \"paths\": [{{\"url\": \"tls://a\", {path}}}]}}]}}"
        ))
    };
    for (tls, key) in [
        ("{\"ca\": \"/etc/passwd\"}", "ca"),
        ("{\"cert\": \"c\", \"key\": \"k\"}", "cert"),
        ("{\"cert\": \"c\", \"key\": \"k\"}", "key"),
    ] {
        let error = of(&format!("\"tls\": {tls}")).unwrap_err();
        let wanted =
            format!("servers[0].paths[0].tls.{key}: an answer names no file of this machine");
        assert!(error.contains(&wanted), "{error}");
    }
    for wrong in ["\"token_file\": \"/etc/passwd\"", "\"token\": \"x\"", "\"run\": \"id\""] {
        assert!(of(wrong).unwrap_err().contains("unknown key"), "{wrong}");
    }
    for (text, key) in [
        ("{\"servers\": [\"tls://${SECRET}\"]}", "servers[0]"),
        ("{\"servers\": [\"tls://$${SECRET}\"]}", "servers[0]"),
        ("{\"servers\": [{\"name\": \"${SECRET}\", \"paths\": \"tls://a\"}]}", "servers[0].name"),
        (
            "{\"servers\": [{\"name\": \"a\", \"paths\": {\"url\": \"wss://a\", \"headers\": {\"X\": \"${SECRET}\"}}}]}",
            "servers[0].paths.headers.X",
        ),
        ("{\"every\": \"${https_proxy}\", \"servers\": []}", "every"),
    ] {
        let error = read_with(text, &top("", true)).unwrap_err();
        let wanted = format!("the answer: {key}: an answer has no variables of the environment");
        assert!(error.starts_with(&wanted) && !error.contains("hidden"), "{error}");
    }
}

#[test]
fn the_same_host_with_several_ports_is_several_servers() {
    let found = read(
        "{\"servers\": [\"tls://a.example:1\", \"tls://a.example:2\", \"tls://b\", \
                      \"tls://[2001:db8::1]:7000\", {\"name\": \"b\", \"paths\": \"tls://c\"}]}",
    );
    let names: Vec<_> = found.unwrap().servers.into_iter().map(|server| server.name).collect();
    assert_eq!(names, ["a.example-1", "a.example-2", "b-7000", "2001-db8--1", "b"]);
    let long = format!("{}.{}.example", "a".repeat(60), "b".repeat(60));
    let text = format!("{{\"servers\": [\"tls://{long}:1\", \"tls://{long}:22\"]}}");
    for (server, port) in read(&text).unwrap().servers.iter().zip(["-1", "-22"]) {
        assert!(server.name.len() == 64 && server.name.ends_with(port), "{}", server.name);
    }
}

#[test]
fn the_records_of_a_service_are_servers_by_the_protocol_of_its_name() {
    let of = |name: &str, places: &[(&str, u16)]| {
        let places: Vec<_> =
            places.iter().map(|(host, port)| ((*host).to_owned(), *port)).collect();
        servers_of_records(&name.parse().unwrap(), &places, &PathDefaults::default())
    };
    let places = [("fra.example.com", 7000), ("ams.example.com", 443), ("fra.example.com", 7000)];
    let found = of("_tunnel._tcp.example.com", &places).unwrap();
    assert_eq!(
        shown(&found.config),
        ["fra.example.com=tls://fra.example.com:7000", "ams.example.com=tls://ams.example.com:443"]
    );
    assert_eq!((found.config.every, found.warnings.len()), (None, 0));
    let found = of("_tunnel._udp.example.com", &[("a.b", 1), ("a.b", 2), ("2001:db8::1", 3)]);
    let urls = ["a.b-1=quic://a.b:1", "a.b-2=quic://a.b:2", "2001-db8--1=quic://[2001:db8::1]:3"];
    assert_eq!(shown(&found.unwrap().config), urls);
    // A record that cannot be dialled takes nothing from the others.
    let found =
        of("_tunnel._tcp.example.com", &[("a.b", 0), ("a_b!", 1), ("ok.example", 7)]).unwrap();
    assert_eq!(shown(&found.config), ["ok.example=tls://ok.example:7"]);
    assert!(said(&found.warnings).contains("port 0 cannot be dialled"), "{:?}", found.warnings);
    let error = of("_tunnel._tcp.example.com", &[("a.b", 0)]).unwrap_err();
    assert!(said(&error).contains("no record names a server"), "{error:?}");
    let many: Vec<_> = (1..100).map(|port| ("a.b", port)).collect();
    assert_eq!(of("_tunnel._tcp.example.com", &many).unwrap().config.servers.len(), 64);
}

fn api(text: &str) -> Result<ServersFrom, String> {
    let text = format!("servers_from: {text}\n");
    let read =
        of_file(&text, |s| servers_from(s.cx, s.key("servers_from").unwrap(), &defaults(s, true)));
    read.map(Option::unwrap)
}

#[test]
fn an_api_is_a_url_or_a_map_with_tls_fields_and_a_token() {
    let short = api("https://fleet.example.com/servers?zone=eu&token=abc").unwrap();
    assert_eq!(short.every.to_string(), "5m");
    assert_eq!(short.path.endpoint.path.as_deref(), Some("/servers?zone=eu&token=abc"));
    let url = short.url();
    assert!(
        url.starts_with("https://fleet.example.com:443/servers?") && !url.contains("abc"),
        "{url}"
    );
    assert_eq!(short.path.proxy.unwrap().host.to_string(), "proxy.example");
    let long = api(&format!(
        "{{ url: 'https://direct.example', every: 10s, token: 'eyJh.e30.x-_/+=', tls: {{ pin: '{PIN}' }}, \
         headers: {{ X-Key: k }} }}"
    ));
    let long = long.unwrap();
    assert_eq!(long.token.as_ref().unwrap().secret.reveal(), "eyJh.e30.x-_/+=");
    assert_eq!(long.path.trust, Trust::Pins(vec![PIN.to_owned()]));
    assert_eq!((long.path.headers.len(), long.path.proxy), (1, None));
    let by_file = api("{ url: 'https://direct.example', every: 1d, token_file: token }").unwrap();
    assert_eq!(by_file.token.unwrap().secret.reveal(), "eyJh.e30.x-_/+=");
    assert!(api("http://127.0.0.1:8080/servers").is_ok());
    assert!(api("'http://[::1]:8080/servers'").is_ok());
}

#[test]
fn an_api_without_tls_or_with_a_password_in_its_url_is_refused() {
    for (text, wanted) in [
        ("http://fleet.example.com/", "no TLS on the way to who names servers"),
        ("ftp://fleet.example.com/", "not a URL of http:// or https://"),
        ("https://user:pass@fleet.example.com/", "a password in a URL gets into logs"),
        ("https://fleet.example.com:0/", "port 0"),
        ("{ every: 10s }", "servers_from.url: missing"),
        ("{ url: 'https://a', every: 9s }", "servers_from.every: `9s` is out of range"),
        ("{ url: 'https://a', every: 2d }", "servers_from.every: `2d` is out of range"),
        ("{ url: 'https://a', token: 'a b' }", "servers_from.token: the token cannot be sent"),
        ("{ url: 'https://a', token: a, token_file: b }", "token and token_file together"),
        (
            "{ url: 'https://a', token: a, headers: { authorization: b } }",
            "`Authorization` and a token",
        ),
        ("{ url: 'https://a', token: [a, b] }", "2 tokens, exactly one wanted"),
        ("{ url: 'https://a', name: b }", "unknown key"),
        ("[https://a]", "expected a map of keys, found a list"),
    ] {
        let error = api(text).unwrap_err();
        assert!(error.contains(wanted) && !error.contains("pass@"), "{text}: {error}");
    }
}

proptest! {
    /// The text of another machine causes no panic, and what is read is within bounds.
    #[test]
    fn changed_answers_are_read_or_refused(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<char>()), 0..6),
    ) {
        let text = format!(
            "{{\"servers\": [\"tls://a\", {{\"name\": \"b\", \"paths\": [{{\"url\": \"wss://b/t\", \"tls\": \
             {{\"pin\": \"{PIN}\"}}, \"headers\": {{\"X\": \"1\"}}, \"proxy\": \"none\"}}]}}], \"every\": \"60s\"}}"
        );
        let mut letters: Vec<char> = text.chars().collect();
        for (at, letter) in changes {
            let at = at.index(letters.len());
            letters[at] = letter;
        }
        let text: String = letters.into_iter().collect();
        match read(&text) {
            Ok(found) => prop_assert!((1..=64).contains(&found.servers.len())),
            Err(error) => prop_assert!(error.starts_with("the answer: ")),
        }
    }
}
