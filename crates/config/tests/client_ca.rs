//! Listeners beside `tls.client_ca`: whether each of them asks clients for a certificate.

use config::edit::{Action, Operation, Value, edit, show};
use config::{Change, Problem, ServerConfig, ServerFlags, Sources, Text, load_server};

fn server(text: &str, flags: &ServerFlags) -> Result<ServerConfig, Vec<Problem>> {
    let env = |name: &str| (name == "SECRET").then(|| "127.0.0.1/q7Xb2LmZ0aKc9RtYv4".to_owned());
    let sources = Sources { env: &env, read: &|_| Err("no file".to_owned()) };
    let file = Some(Text { name: "server.yaml", text });
    load_server(file, flags, &sources).map(|loaded| loaded.config)
}

fn good(text: &str) -> ServerConfig {
    server(text, &ServerFlags::default()).expect("good")
}

fn said(problems: Vec<Problem>) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

const MIXED: &str = "listen:\n  - tls://a   # asks\n\
                     \x20 - { url: \"ws://127.0.0.1:80\", client_ca: false }\n\
                     \x20 - url: quic://a\n    client_ca: false\ntls: { client_ca: ca.crt }\n";

#[test]
fn a_listener_asks_for_a_certificate_unless_its_map_says_no() {
    let config = good(MIXED);
    let asks: Vec<bool> = config.listen.iter().map(|listen| listen.client_ca).collect();
    assert_eq!(asks, [true, false, false]);
    let lines = config.summary();
    assert_eq!(lines[0], "listen tls://a:7000");
    assert_eq!(lines[1], "listen ws://127.0.0.1:80 (no client certificate, tokens alone)");
    assert_eq!(lines[2], "listen quic://a:7000 (no client certificate, tokens alone)");
    // Without an authority nobody shows a certificate, and the summary need not say so.
    let config = good("listen: { url: \"tcp://127.0.0.1\", client_ca: false }\n");
    assert_eq!(config.summary()[0], "listen tcp://127.0.0.1:7000");
}

#[test]
fn a_plain_listener_of_the_command_line_is_refused_beside_an_authority() {
    let flags = ServerFlags {
        listen: vec!["tls://a".into(), "tcp://127.0.0.1".into()],
        client_ca: Some("ca.crt".into()),
        ..ServerFlags::default()
    };
    let problems = said(server("", &flags).unwrap_err());
    let [problem] = &problems[..] else { panic!("{problems:?}") };
    assert!(problem.starts_with("--listen: listen[1]: tcp:// cannot ask"), "{problem}");
    let hint = "write { url: \"tcp://127.0.0.1:7000\", client_ca: false } in the file";
    assert!(problem.contains(hint), "{problem}");
}

#[test]
fn a_refused_listener_does_not_show_what_a_variable_stands_for() {
    let text = "listen: [tls://a, 'ws://${SECRET}']\ntls: { client_ca: ca.crt }\n";
    let problems = said(server(text, &ServerFlags::default()).unwrap_err());
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("url: \"ws://${SECRET}\""), "{problems:?}");
    assert!(!problems[0].contains("q7Xb"), "{problems:?}");
}

#[test]
fn another_answer_to_whether_it_asks_takes_a_restart() {
    let running = good(MIXED);
    let new = good(&MIXED.replace("tls://a   # asks", "{ url: tls://a, client_ca: false }"));
    let differs = running.differs(&new);
    assert_eq!(differs.len(), 1);
    assert_eq!((differs[0].key, differs[0].change), ("listen", Change::Restart));
    assert!(new.reloaded(&running).listen[0].client_ca, "in force until then");
}

#[test]
fn the_editor_shows_writes_and_removes_the_map_of_a_listener() {
    let at = |path: &str, action: Action| Operation { path: path.to_owned(), action };
    let map = Value::Map(vec![
        ("url".to_owned(), Value::Text("tcp://127.0.0.1:7002".to_owned())),
        ("client_ca".to_owned(), Value::Bool(false)),
    ]);
    let shown = show("server.yaml", MIXED).unwrap();
    let Value::Map(entries) = &shown else { panic!("{shown:?}") };
    let Value::List(listen) = &entries[0].1 else { panic!("{shown:?}") };
    let Value::Map(second) = &listen[1] else { panic!("{shown:?}") };
    assert_eq!(second[1], ("client_ca".to_owned(), Value::Bool(false)));
    let operations = [
        at("/listen/-", Action::Add(map.clone())),
        at("/listen/3", Action::Test(map)),
        at("/listen/2/client_ca", Action::Remove),
    ];
    let edited = edit("server.yaml", MIXED, &operations).unwrap();
    assert!(edited.contains("- tls://a   # asks\n"), "{edited}");
    let asks: Vec<_> = good(&edited).listen.iter().map(|listen| listen.client_ca).collect();
    assert_eq!(asks, [true, false, true, false]);
}
