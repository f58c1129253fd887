//! Invalid files and the exact lines printed. `wrong.txt` holds blocks: a file after `===`, the
//! output after `---`.

use config::{
    ClientFlags, ProxyFlags, Role, ServerFlags, Sources, Text, load_client, load_proxy, load_server,
};

fn said(text: &str) -> String {
    let sources = Sources { env: &|_| None, read: &|_| Err("no such file".into()) };
    let client = text.contains("servers:") || Role::of(text) == Some(Role::Client);
    let proxy = text.starts_with("proxies:");
    let name = match (proxy, client) {
        (true, _) => "proxy.yaml",
        (false, true) => "client.yaml",
        (false, false) => "server.yaml",
    };
    let file = Some(Text { name, text });
    let problems = if proxy {
        load_proxy(file, &ProxyFlags::default(), &sources).map_or_else(|p| p, |l| l.warnings)
    } else if client {
        load_client(file, &ClientFlags::default(), &sources).map_or_else(|p| p, |l| l.warnings)
    } else {
        load_server(file, &ServerFlags::default(), &sources).map_or_else(|p| p, |l| l.warnings)
    };
    problems.iter().map(|p| format!("{p}\n")).collect()
}

#[test]
fn wrong_files_say_exactly_this() {
    let table = include_str!("wrong.txt");
    let (mut fresh, mut count) = (String::new(), 0);
    for block in table.split("===\n").skip(1) {
        let (text, _) = block.split_once("---\n").unwrap();
        fresh.push_str(&format!("===\n{text}---\n{}", said(text)));
        count += 1;
    }
    assert!(count >= 30);
    assert!(fresh == table, "{fresh}");
}

#[test]
fn aliases_and_nesting_are_bounded() {
    let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for i in 1..10 {
        let refs = vec![format!("*a{}", i - 1); 10].join(",");
        bomb.push_str(&format!("a{i}: &a{i} [{refs}]\n"));
    }
    assert!(said(&bomb).contains("too many values"));
    assert!(said(&"- ".repeat(100)).contains("nested too deeply"));
    let chain: String = (1..5000).map(|i| format!("b{i}: &b{i} [*b{}]\n", i - 1)).collect();
    assert!(said(&format!("b0: &b0 [x]\n{chain}")).contains("nested too deeply"));
    assert!(said(&"#".repeat(config::FILE_MAX + 1)).contains("larger than 1 MiB"));
}

#[test]
fn flags_add_to_the_lists_of_the_file_unless_they_are_alone() {
    let sources = Sources { env: &|_| None, read: &|_| Err("no such file".into()) };
    let text = "servers: tls://a\nname: a\ntoken: q7Xb2LmZ0aKc9RtYv4WnPs\nid_prefix: a\n\
                services: [{name: ssh, public: 22, target: 22}, '80=8080', 3000]\n\
                forwards: [{listen: 5203, target: 5201}]\n";
    let shown = |publish: &[&str], forward: &[&str], only| {
        let [publish, forward] =
            [publish, forward].map(|list| list.iter().map(ToString::to_string));
        let (publish, forward) = (publish.collect(), forward.collect());
        let flags = ClientFlags { publish, forward, only, ..ClientFlags::default() };
        let file = Some(Text { name: "c.yaml", text });
        let lines = load_client(file, &flags, &sources).unwrap().config.summary();
        let short = |line: &String| {
            line.strip_suffix(" (dialled by the server)")
                .unwrap_or(line)
                .replace("127.0.0.1", "")
                .replace("localhost", "")
        };
        lines.iter().skip(1).map(short).collect::<Vec<_>>()
    };
    let ssh = "service a-ssh: tcp://:22 -> tcp://:22";
    let any = "service a-tcp-3000: tcp://:0 -> tcp://:3000";
    let web = "service a-tcp-80: tcp://:80 -> tcp://:8080";
    let forward = "forward tcp://:5203 -> tcp://:5201";
    assert_eq!(shown(&[], &[], false), [ssh, web, any, forward]);
    let (other, far) =
        ("service a-tcp-80: tcp://:80 -> tcp://:81", "forward tcp://:1 -> tcp://b:2");
    let instead = format!("{other} (in the place of a-tcp-80 (tcp://:80 -> tcp://:8080))");
    assert_eq!(shown(&["80=81"], &["1=b:2"], false), [ssh, any, &instead, forward, far]);
    let moved = "service a-tcp-3000: tcp://:3000 -> tcp://:3000 (in the place of a-tcp-3000 \
                 (tcp://:0 -> tcp://:3000))";
    let turned = "forward tcp://:5203 -> tcp://b:2 (dialled by the server) \
                  (in the place of tcp://:5203 -> tcp://:5201)";
    assert_eq!(shown(&["3000=3000"], &["5203=b:2"], false), [ssh, web, moved, turned]);
    assert_eq!(shown(&["80=81"], &[], true), [other]);
    assert_eq!(shown(&[], &[], true), [""; 0]);
}

#[test]
fn a_flag_wins_over_the_file_and_its_problems_carry_its_name() {
    let sources = Sources { env: &|_| None, read: &|_| Err("no such file".into()) };
    let text = "servers: tls://a\nname: a\ntoken_file: t\ntls: {ca: x}\nservices: []\n";
    let mut flags = ClientFlags {
        server: vec!["tls://b:1".into()],
        token: Some(config::Secret::new("q7Xb2LmZ0aKc9RtYv4WnPs")),
        publish: vec!["tcp://:10022=tcp://127.0.0.1:22".into()],
        ..ClientFlags::default()
    };
    let file = Some(Text { name: "c.yaml", text });
    let config = load_client(file, &flags, &sources).unwrap().config;
    assert_eq!(
        config.summary(),
        ["client a to tls://b:1", "service tcp-10022: tcp://:10022 -> tcp://127.0.0.1:22"]
    );
    assert!(!format!("{config:?}").contains("q7Xb"));
    flags.publish = vec!["80=x:y".into(), "tcp://:10022".into()];
    let said: Vec<String> =
        load_client(file, &flags, &sources).unwrap_err().iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "--publish: services[0].target: `y` is not a port (hint: a port is a number from 1 to 65535)",
            "--publish: services[1].target: `tcp://:10022` has no host (hint: for example tcp://127.0.0.1:22)",
        ]
    );
}

#[test]
fn bytes_that_are_not_utf_8_are_told_with_their_place() {
    let said = |bytes: &[u8]| config::text_of("a.yaml", bytes.to_vec()).map_err(|p| p.to_string());
    assert_eq!(said("name: ä\n".as_bytes()).as_deref(), Ok("name: ä\n"));
    // Windows-1252.
    let text = said(b"servers: tls://a\n# \xc3\xa4\nname: B\xe4r\n").unwrap_err();
    let hint = "(hint: save the file as UTF-8 in the editor)";
    assert_eq!(text, format!("a.yaml:3:8: the byte 0xe4 is not UTF-8 {hint}"));
    let text = said(b"\xff\xfen\0a\0").unwrap_err();
    assert_eq!(text, format!("a.yaml:1:1: the file is UTF-16 {hint}"));
    assert!(said(b"name: \xc3").unwrap_err().starts_with("a.yaml:1:7: the byte 0xc3 "));
}
