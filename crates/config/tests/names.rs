//! Services by host name in files, flags and kept lists, and the doors of a server.

use config::{
    Change, ClientConfig, ClientFlags, NameKind, Problem, Public, ServerConfig, ServerFlags,
    Sources, Text, TlsVersion, load_client, load_kept, load_server,
};
use proto::TargetProtocol::{H2c, Http, Https};

const TOKEN: &str = "q7Xb2LmZ0aKc9RtYv4WnPs";

fn with_sources<T>(f: impl FnOnce(&Sources<'_>) -> T) -> T {
    let env = |name: &str| match name {
        "PASSWORD" => Some("Very:Secret/Text".to_owned()),
        "EMPTY" => Some(String::new()),
        _ => None,
    };
    f(&Sources { env: &env, read: &|_| Err("no such file".to_owned()) })
}

fn client(text: &str, publish: &[&str]) -> Result<ClientConfig, Vec<Problem>> {
    let text = format!("servers: tls://a\ntoken: {TOKEN}\n{text}");
    let file = Some(Text { name: "client.yaml", text: &text });
    let publish = publish.iter().map(ToString::to_string).collect();
    let flags = ClientFlags { publish, ..ClientFlags::default() };
    with_sources(|s| load_client(file, &flags, s)).map(|l| l.config)
}

fn server(text: &str) -> Result<ServerConfig, Vec<Problem>> {
    let file = Some(Text { name: "server.yaml", text });
    with_sources(|s| load_server(file, &ServerFlags::default(), s)).map(|l| l.config)
}

#[test]
fn services_by_name_have_short_forms_in_files_and_flags() {
    let text = "name: home\nservices:\n\
                - http://App.example.com.=http://127.0.0.1:3000\n\
                - https://app.example.com=3000\n\
                - tls://*.vpn.example.com=192.168.1.5:443\n\
                - { name: all, public: 'http://*', target: 'http://[::1]' }\n\
                - { public: ['http://a.example', 'tcp://:0'], target: 1 }\n\
                - { public: ['http://b.example', 'tls://c.example'], target: unix:///run/b }\n";
    let config = client(text, &["http://d.example=3000", "http://app.example.com=9"]).unwrap();
    assert_eq!(
        config.summary()[1..],
        [
            "service https-app.example.com: https://app.example.com -> tcp://localhost:3000",
            "service tls-any.vpn.example.com: tls://*.vpn.example.com -> tcp://192.168.1.5:443",
            "service all: http://* -> tcp://[::1]:80",
            "service tcp-1: http://a.example, tcp://:0 -> tcp://localhost:1",
            "service http-b.example: http://b.example, tls://c.example -> unix:///run/b",
            "service http-d.example: http://d.example -> tcp://localhost:3000",
            "service http-app.example.com: http://app.example.com -> tcp://localhost:9 \
             (in the place of http-app.example.com (http://app.example.com -> \
             tcp://127.0.0.1:3000))",
        ]
    );
    let name = Public::Name { kind: NameKind::Tls, host: "*.vpn.example.com".into() };
    assert_eq!(config.services[1].public, [name]);
}

#[test]
fn a_client_has_its_own_label_in_the_place_of_the_name() {
    let text = "services: ['http://{name}.example.com=1', 'tls://{name}=2']\n";
    let shown = |text: &str| client(text, &[]).unwrap().summary().split_off(1);
    assert_eq!(
        shown(&format!("name: My_Home.1\n{text}")),
        [
            "service http-name.example.com: http://my-home-1.example.com -> tcp://localhost:1",
            "service tls-name: tls://my-home-1 -> tcp://localhost:2",
        ]
    );
    let config = client(&format!("name: home\nid_prefix: web\n{text}"), &[]).unwrap();
    assert_eq!(
        config.summary()[1],
        "service web-http-name.example.com: http://web-home.example.com -> tcp://localhost:1"
    );
    // A service of a command is expanded as well, and takes the place of the same name.
    let kept = |text| {
        let kept = Text { name: "kept", text };
        with_sources(|s| load_kept(kept, Some("web"), s)).unwrap().config
    };
    let mut with = config.clone();
    with.keep(&kept("services: ['http://{name}.example.com=9', 'https://{name}.a.example=8']"))
        .unwrap();
    assert_eq!(
        with.summary()[1..],
        [
            "service web-tls-name: tls://web-home -> tcp://localhost:2",
            "service web-http-name.example.com: http://web-home.example.com -> tcp://localhost:9 \
             (added at run time; in the place of web-http-name.example.com \
             (http://web-home.example.com -> tcp://localhost:1))",
            "service web-https-name.a.example: https://web-home.a.example -> tcp://localhost:8 \
             (added at run time)",
        ]
    );
    let mut twice = config.clone();
    let kept = kept("services: ['http://{name}.b.example=9', 'http://web-home.b.example=8']");
    let why = twice.keep(&kept).unwrap_err().to_string();
    assert!(why.contains("http://web-home.b.example is published twice"), "{why}");
    assert_eq!(twice, config, "nothing has changed");
}

#[test]
fn the_options_of_a_service_by_name_are_decoded_and_no_secret_is_shown() {
    let text = "name: home\nservices:\n\
                - public: http://app.example.com\n  target: 1\n  path: /api/\n  forwarded: true\n\
                \x20 basic_auth: ['ann:${PASSWORD}', 'bob:x:']\n  host_rewrite: localhost:3000\n\
                \x20 headers: { set: { X-Key: '${PASSWORD}', X-Empty: '' }, remove: Cookie }\n\
                \x20 response_headers: { remove: [Server, X-Powered-By] }\n\
                - { public: 'http://b.example', target: 1, pass_through: true, path: null }\n\
                - { public: 'http://app.example.com', target: 1, name: rest, path: / }\n";
    let config = client(text, &[]).unwrap();
    let http = config.terms_of(&config.services[0]).http;
    assert_eq!(http.basic_auth, ["ann:Very:Secret/Text", "bob:x:"]);
    assert_eq!((http.path.as_deref(), http.forwarded), (Some("/api"), true));
    assert_eq!(http.host_rewrite.as_deref(), Some("localhost:3000"));
    let set = [("X-Key", "Very:Secret/Text"), ("X-Empty", "")];
    assert_eq!(http.request.set, set.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(http.request.remove, ["Cookie"]);
    assert_eq!(http.response.remove, ["Server", "X-Powered-By"]);
    assert!(config.terms_of(&config.services[1]).http.pass_through);
    let shown = format!("{:?}{}", config.services, config.summary().join("\n"));
    assert!(!shown.contains("Secret"), "{shown}");
    assert_eq!(
        config.summary()[1],
        "service http-app.example.com: http://app.example.com -> tcp://localhost:1, path /api, \
         Host localhost:3000, basic_auth, headers, response_headers, forwarded"
    );
    assert!(config.summary()[2].ends_with(", pass_through"));
    for bad in [
        "basic_auth: \"${PASSWORD}\\n\"",
        "basic_auth: ['x', 'Secret']",
        // A variable that is empty opens the service to whoever knows the user.
        "basic_auth: \"ann:${EMPTY}\"",
        "headers: { set: { X-A: \"${PASSWORD}\\n\" } }",
    ] {
        let text = format!("name: a\nservices: [{{ public: 'http://a.b', target: 1, {bad} }}]\n");
        let problems = client(&text, &[]);
        let said =
            problems.map_or_else(|p| p.iter().map(ToString::to_string).collect(), |_| vec![]);
        assert!(!said.is_empty(), "{bad}");
        assert!(said.iter().all(|line| !line.contains("Secret")), "{said:?}");
    }
}

/// The services of a client whose file has this list, or the complaints about it.
fn services(list: &str) -> Result<Vec<proto::HttpOptions>, String> {
    match client(&format!("name: a\nservices: [{list}]\n"), &[]) {
        Ok(config) => {
            Ok(config.services.iter().map(|service| config.terms_of(service).http).collect())
        }
        Err(problems) => {
            Err(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
        }
    }
}

#[test]
fn a_service_redirects_strips_its_path_and_says_hsts() {
    let list = "{ public: 'https://a.example', target: 1, path: /api, strip_prefix: true, \
                hsts: 180d, redirect: false, basic_auth: 'u:p', preflight: pass }, \
                { public: 'http://b.example', target: 1, path: /x/, strip_prefix: /y/, hsts: 0 }, \
                { public: ['http://c.example', 'https://c.example'], \
                redirect: 'https://www.c.example{uri}' }, \
                { public: 'https://d.example', target: 1, redirect: true, strip_prefix: false }";
    let http = services(list).unwrap();
    let [a, b, c, d] = &http[..] else { panic!("{http:?}") };
    assert_eq!((a.strip_prefix.as_deref(), a.hsts), (Some("/"), Some(15_552_000)));
    assert!(a.no_https_redirect && a.preflight_pass);
    assert_eq!((b.path.as_deref(), b.strip_prefix.as_deref()), (Some("/x"), Some("/y")));
    assert_eq!(b.hsts, Some(0));
    let to = c.redirect.as_ref().map(proto::Redirect::as_str);
    assert_eq!(to, Some("https://www.c.example{uri}"));
    assert!(!c.no_https_redirect && !d.no_https_redirect && d.strip_prefix.is_none());
    // The target of an `https://` name is told about its visitors.
    assert!(a.forwarded && !b.forwarded && !c.forwarded && d.forwarded);
    assert_eq!((&*a.ports, &*b.ports, &*c.ports), (&[1][..], &[1][..], &[][..]));
    let off = "{ public: 'https://d.example', target: 1, forwarded: false }";
    assert!(services(off).unwrap()[0].is_default());
    let config = client(&format!("name: a\nservices: [{list}]\n"), &[]).unwrap();
    let summary = config.summary();
    assert!(summary[1].contains(", path /api as /, hsts 180d, basic_auth, preflight pass"));
    assert!(summary[3].contains("https://c.example -> https://www.c.example{uri}"), "{summary:?}");
}

#[test]
fn options_about_redirects_that_could_not_work_are_refused() {
    let at = |keys: &str| services(&format!("{{ public: 'https://a.example', {keys} }}"));
    for (keys, wanted) in [
        ("redirect: 'https://{uri}'", "a redirect leads to an http:// or https:// URL"),
        ("redirect: /new", "a redirect leads to an http:// or https:// URL"),
        ("redirect: 'https://b.example', target: 1", "has no target"),
        ("redirect: 'https://b.example', host_rewrite: x", "the service redirects alone"),
        ("redirect: 'https://b.example', health: {}", "the service redirects alone"),
        ("target: 1, strip_prefix: true", "strip_prefix without `path`"),
        ("target: 1, path: /a, strip_prefix: b", "is no path of requests"),
        ("target: 1, preflight: pass", "no effect without `basic_auth`"),
        ("target: 1, basic_auth: 'u:p', preflight: deny", "no way to treat preflights"),
        ("target: 1, hsts: forever", "is not a duration"),
        ("target: 1, hsts: 500ms", "`500ms` is no max-age (hint: whole seconds; 0 makes"),
        ("redirect: true", "missing"),
    ] {
        let said = at(keys).unwrap_err();
        assert!(said.contains(wanted), "{keys}: {said}");
    }
    let at_port = services("{ public: 80, redirect: 'https://b.example' }").unwrap_err();
    assert!(at_port.contains("`redirect` has no effect at tcp://:80"), "{at_port}");
}

#[test]
fn redirects_that_never_end_are_refused() {
    let one = |public: &str, to: &str| format!("{{ public: '{public}', redirect: '{to}' }}");
    for list in [
        one("https://a.example", "https://a.example{uri}"),
        one("https://a.example", "https://A.example.:443/x"),
        // The server sends http:// to the https:// name.
        one("https://a.example", "http://a.example{uri}"),
        one("https://a.example", "https://{host}/x{uri}"),
        one("http://a.example', 'https://a.example", "https://a.example{uri}"),
        format!("{}, {}", one("http://a.b", "http://b.b{path}"), one("http://b.b", "http://a.b/")),
        "{ public: 'https://a.example', path: /old, redirect: 'https://a.example/old/new' }".into(),
    ] {
        let list = list.replace(
            "public: 'http://a.example', 'https://a.example'",
            "public: ['http://a.example', 'https://a.example']",
        );
        let said = services(&list).unwrap_err();
        assert!(said.contains("are redirected for ever"), "{list}: {said}");
    }
    for list in [
        one("https://a.example", "https://www.a.example{uri}"),
        one("https://a.example", "https://a.example:8443{uri}"),
        one("http://a.example", "https://a.example{uri}"),
        one("https://*.a.example", "https://www.a.example{uri}"),
        format!("{}, {}", one("http://a.b", "http://b.b"), one("http://b.b", "http://c.b/")),
        "{ public: 'https://a.example', path: /old, redirect: 'https://a.example/new{uri}' }"
            .into(),
        "{ public: 'https://a.example', redirect: 'http://a.example{uri}' }, \
         { public: 'http://a.example', target: 1 }"
            .into(),
    ] {
        assert!(services(&list).is_ok(), "{list}: {:?}", services(&list));
    }
}

#[test]
fn a_target_over_tls_or_http2_has_its_protocol_and_its_verification() {
    let pin = "sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    let text = format!(
        "name: home\nservices:\n\
         - https://a.example=https://10.0.0.5:8006\n\
         - {{ public: https://b.example, target: https://nas.lan, target_tls: {{ pin: '{pin}' }} }}\n\
         - {{ public: http://c.example, target: 'https://[fd00::5]', target_tls: {{ ca: a.pem, \
         server_name: nas.lan }} }}\n\
         - {{ public: http://d.example, target: https://d.lan, target_tls: {{ insecure: true }} }}\n\
         - {{ public: http://e.example, target: h2c://e.lan }}\n\
         - {{ public: 8443, target: https://f.lan, name: port }}\n"
    );
    let config = client(&text, &[]).unwrap();
    let summary = config.summary();
    for (line, end) in summary[1..].iter().zip([
        "-> https://10.0.0.5:8006",
        "-> https://nas.lan:443, target pin sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        "-> https://[fd00::5]:443, target ca a.pem, target name nas.lan",
        "-> https://d.lan:443, target not verified",
        "-> h2c://e.lan:80",
        "-> https://f.lan:443",
    ]) {
        assert!(line.ends_with(end), "{line}: {end}");
    }
    let protocols: Vec<_> =
        config.services.iter().map(|service| config.terms_of(service).http.target).collect();
    // At a port the bytes of the visitors go to the target as they are.
    assert_eq!(protocols, [Https, Https, Https, Https, H2c, Http]);
}

#[test]
fn names_and_options_of_all_services_are_bounded() {
    let text = |services: usize| {
        let value = "x".repeat(1000);
        let service = |n| {
            format!(
                "- {{ public: 'http://h{n}.example', target: 1, headers: {{ set: {{ A: {value} }} }} }}\n"
            )
        };
        format!("name: a\nservices:\n{}", (0..services).map(service).collect::<String>())
    };
    assert!(client(&text(200), &[]).is_ok());
    let problems = client(&text(300), &[]).unwrap_err();
    assert!(problems[0].to_string().contains("host names and options of HTTP"), "{problems:?}");
}

const DOORS: &str = "listen:\n\
    - mux://0.0.0.0:443/tunnel\n\
    - { url: 'mux://[::1]:8443', default: 22, silence: 1s }\n\
    http: { listen: ['0.0.0.0:80', '[::1]:80'], domain: Example.com., route_header: X-Route }\n\
    tls_routes:\n  listen: 0.0.0.0:8444\n  certificates: { cert: a.crt, key: a.key }\n  \
    min_version: 1.3\n  acme: { accept_terms: true, email: [a@b.example], ca: ca.crt }\n";

#[test]
fn a_server_has_doors_for_visitors_of_names() {
    let config = server(DOORS).unwrap();
    let [one, two] = &config.listen[..] else { panic!("{config:?}") };
    let mux = one.mux.as_ref().unwrap();
    assert_eq!((mux.default.as_ref(), mux.silence.to_string().as_str()), (None, "3s"));
    assert_eq!((one.endpoint.port, one.endpoint.path.as_deref()), (443, Some("/tunnel")));
    assert_eq!(two.mux.as_ref().unwrap().silence.to_string(), "1s");
    assert_eq!(config.http.domain.as_deref(), Some("example.com"));
    assert_eq!(config.tls_routes.min_version, TlsVersion::V13);
    assert_eq!(
        config.summary()[..9],
        [
            "listen mux://0.0.0.0:443/tunnel",
            "listen mux://[::1]:8443 (everything else goes to tcp://localhost:22)",
            "visitors of http:// names at 0.0.0.0:80",
            "visitors of http:// names at [::1]:80",
            "each client may publish a name of its own below example.com",
            "the field X-Route of a request names the service",
            "visitors of tls:// and https:// names at 0.0.0.0:8444",
            "certificate for https:// names a.crt",
            "certificates for other https:// names from \
             https://acme-v02.api.letsencrypt.org/directory",
        ]
    );
    let plain = server("listen: [tls://0.0.0.0, quic://0.0.0.0]\n").unwrap();
    assert!(plain.http.listen.is_empty() && plain.listen.iter().all(|at| at.mux.is_none()));
}

#[test]
fn ports_of_doors_need_a_restart_and_the_rest_does_not() {
    let old = server(DOORS).unwrap();
    let new = DOORS
        .replace("'0.0.0.0:80'", "'0.0.0.0:81'")
        .replace("8444", "8445")
        .replace("X-Route", "X-Way")
        .replace("1.3", "1.2")
        .replace("silence: 1s", "silence: 2s")
        .replace("route_header:", "redirect: false, route_header:");
    let new = server(&new).unwrap();
    let changed: Vec<_> = old.differs(&new).into_iter().map(|c| (c.key, c.change)).collect();
    assert_eq!(
        changed,
        [
            ("listen", Change::Restart),
            ("http.listen", Change::Restart),
            ("http.route_header", Change::Live),
            ("http.redirect", Change::Live),
            ("tls_routes.listen", Change::Restart),
            ("tls_routes.min_version", Change::Live),
        ]
    );
    let others = DOORS
        .replace("Example.com.", "example.org")
        .replace("cert: a.crt", "cert: b.crt")
        .replace("a@b.example", "c@b.example")
        .replace("route_header: X-Route", "pages: { not_found: lost.html }");
    let changed = old.differs(&server(&others).unwrap());
    let changed: Vec<_> = changed.into_iter().map(|c| (c.key, c.change)).collect();
    assert_eq!(
        changed,
        [
            ("http.domain", Change::Live),
            ("http.route_header", Change::Live),
            ("http.pages", Change::Live),
            ("tls_routes.certificates", Change::Live),
            ("tls_routes.acme", Change::Live),
        ]
    );
    let in_force = new.reloaded(&old);
    assert_eq!(in_force.http.listen, old.http.listen);
    assert_eq!(in_force.tls_routes.listen, old.tls_routes.listen);
    assert_eq!(in_force.http.route_header.as_deref(), Some("X-Way"));
}

const TERMS: &str = "accept_terms: true";

#[test]
fn several_accounts_have_names_and_what_proves_them() {
    let text = |acme: &str| {
        format!("{{listen: ['tls://[::]'], tls_routes: {{listen: '[::]:443', acme: {acme}}}}}")
    };
    let read = |acme: &str| server(&text(acme)).map(|config| config.tls_routes.acme);
    let one = read(&format!("{{ {TERMS} }}")).unwrap();
    assert_eq!((one.len(), one[0].names.len(), &one[0].dns, &one[0].eab), (1, 0, &None, &None));
    let two = read(&format!(
        "[ {{ {TERMS}, names: [App.Example.com, '*.bücher.example'], account: work, \
             dns: {{ exec: hook, wait: 90s, timeout: 5s, resolvers: [192.0.2.53, '[::1]:5353'] }} }}, \
           {{ {TERMS} }} ]"
    ))
    .unwrap();
    let [first, second] = &two[..] else { panic!("{two:?}") };
    assert_eq!(first.names, ["app.example.com", "*.xn--bcher-kva.example"]);
    assert_eq!((first.account.as_deref(), second.account.as_deref()), (Some("work"), None));
    let dns = first.dns.as_ref().unwrap();
    assert_eq!(
        (dns.wait.unwrap().to_string(), dns.timeout.to_string()),
        ("90s".into(), "5s".into())
    );
    assert_eq!(dns.resolvers, ["192.0.2.53:53".parse().unwrap(), "[::1]:5353".parse().unwrap()]);
    for (acme, key, why) in [
        (
            format!("[{{ {TERMS}, names: a.b }}, {{ {TERMS}, names: c.d }}]"),
            "acme[1]",
            "another account",
        ),
        (
            format!("[{{ {TERMS} }}, {{ {TERMS}, account: x }}]"),
            "acme[1]",
            "acme[0] orders every name",
        ),
        (format!("{{ {TERMS}, names: 10.0.0.1 }}"), "acme.names", "is not a host name"),
        (format!("{{ {TERMS}, names: [] }}"), "acme.names", "an empty list"),
        (format!("{{ {TERMS}, dns: {{ wait: auto }} }}"), "acme.dns.exec", "missing"),
        (
            format!("{{ {TERMS}, dns: {{ exec: x, wait: 2h }} }}"),
            "acme.dns.wait",
            "more than an order",
        ),
        (
            format!("{{ {TERMS}, dns: {{ exec: x, resolvers: ns1 }} }}"),
            "acme.dns.resolvers",
            "is not the address",
        ),
        (format!("{{ {TERMS}, dns: {{ exec: x }}, on_demand: true }}"), "acme.on_demand", "dns-01"),
        (format!("{{ {TERMS}, eab: {{ kid: k }} }}"), "acme.eab.hmac_file", "missing"),
        (
            format!("{{ {TERMS}, eab: {{ kid: k, hmac_file: f }} }}"),
            "acme.eab.hmac_file",
            "cannot read",
        ),
    ] {
        let problems = read(&acme).unwrap_err();
        let said = problems[0].to_string();
        assert!(said.contains(key) && said.contains(why), "{acme}: {said}");
    }
}
