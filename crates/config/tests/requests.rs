//! The log of requests of a server.

use config::{
    ClientFlags, RequestFormat, RequestLog, ServerFlags, Sources, Text, load_client, load_server,
};

const SERVER: &str = "listen: tls://[::]\nclients: [{name: a, token_file: t}]\n";
const CLIENT: &str = "servers: tls://a\nname: a\ntoken_file: t\n";

fn sources<'a>() -> Sources<'a> {
    let read = &|_: &std::path::Path| Ok("q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi".to_owned());
    Sources { env: &|_| None, read }
}

fn requests(log: &str) -> Result<Option<RequestLog>, String> {
    let text = format!("{SERVER}log: {{ {log} }}\n");
    let text = Some(Text { name: "server.yaml", text: &text });
    let loaded = load_server(text, &ServerFlags::default(), &sources());
    loaded.map(|loaded| loaded.config.common.log_requests).map_err(|why| format!("{why:?}"))
}

#[test]
fn a_path_is_the_short_form_of_a_map() {
    let short = requests("requests: /r, rotate: { size: 64KiB, keep: 2 }").unwrap().unwrap();
    let long = requests("requests: { file: /r }, rotate: { size: 64KiB, keep: 2 }").unwrap();
    assert_eq!(Some(&short), long.as_ref());
    assert_eq!((short.file.path.to_str(), short.file.keep), (Some("/r"), 2));
    assert_eq!((short.format, short.query, short.user), (RequestFormat::Combined, false, false));
    let all = requests("requests: { file: /r, format: json, query: true, user: true }");
    let all = all.unwrap().unwrap();
    assert_eq!((all.format, all.query, all.user), (RequestFormat::Json, true, true));
    assert_eq!(requests("level: info"), Ok(None));
}

#[test]
fn what_is_no_file_or_the_file_of_another_log_is_refused() {
    for (log, why) in [
        ("requests: true", "`true` is no file"),
        ("requests: { format: json }", "log.requests.file"),
        ("requests: { file: /r, format: common }", "unknown format `common`"),
        ("requests: { file: /r, colour: red }", "log.requests.colour"),
        ("requests: [/r]", "log.requests"),
        ("file: /r, requests: /r", "the same file as `log.file`"),
        ("access: /r, requests: { file: /r }", "the same file as `log.access`"),
    ] {
        let error = requests(log).unwrap_err();
        assert!(error.contains(why), "{log}: {error}");
    }
}

#[test]
fn a_client_knows_no_requests() {
    let text = format!("{CLIENT}log: {{ requests: /r }}\n");
    let text = Some(Text { name: "client.yaml", text: &text });
    let loaded = load_client(text, &ClientFlags::default(), &sources());
    let error = format!("{:?}", loaded.map(|_| ()).unwrap_err());
    assert!(error.contains("\"log.requests\", message: \"unknown key\""), "{error}");
}
