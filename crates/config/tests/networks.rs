//! Lists of visitors whose networks stand in files.

use std::cell::Cell;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use config::{
    Change, ClientFlags, ProxyFlags, ServerFlags, ServiceOptions, Sources, Text, load_client,
    load_proxy, load_published, load_server,
};

const OLD: &str = "q7Xb2LmZ0aKc9RtYv4WnPs";

fn list_files(path: &Path) -> Result<String, String> {
    match path.to_str() {
        Some("few.txt") => Ok("# few\n10.0.0.0/8\n192.0.2.7\n".to_owned()),
        Some("countries.csv") => Ok("network,country\n10.0.0.0/8,DE\n10.1.0.0/16,AT\n".to_owned()),
        Some("long.txt") => {
            Ok((0..3_120_u32).map(|n| format!("{}\n", Ipv4Addr::from(n * 512))).collect())
        }
        Some("hosts") => Ok("10.0.0.0/8\nroot:x:0:0\n".to_owned()),
        _ => Err("No such file or directory".to_owned()),
    }
}

#[test]
fn networks_of_a_file_stand_beside_others_and_the_file_is_watched() {
    let sources = Sources { env: &|_| None, read: &list_files };
    let load = |top: &str, own: &str| {
        let text = format!(
            "servers: tls://a\nname: a\ntoken: {OLD}\n{top}\nservices:\n\
             - {{target: 'tcp://b:1', public: 'tcp://:1', {own}}}\n"
        );
        let file = Text { name: "client.yaml", text: &text };
        load_client(Some(file), &ClientFlags::default(), &sources)
    };
    let config = load("deny_from: '@countries.csv:AT'", "allow_from: [203.0.113.9, '@few.txt']");
    let config = config.unwrap().config;
    let visitors = config.terms_of(&config.services[0]).visitors;
    for (ip, may) in
        [("203.0.113.9", true), ("10.2.0.1", true), ("10.1.0.1", false), ("192.0.2.8", false)]
    {
        assert_eq!(visitors.permit(ip.parse().unwrap()), may, "{ip}");
    }
    let mut watched = config.common.watched;
    watched.sort();
    assert_eq!(watched, ["countries.csv", "few.txt"].map(PathBuf::from));
    for (own, why) in [
        ("deny_from: '@long.txt'", "`long.txt` has 3120 networks: more than 256 networks"),
        ("deny_from: '@countries.csv'", "`countries.csv`: line 2 has a country"),
        ("deny_from: '@countries.csv:DE,FR'", "`countries.csv`: no network of the country FR"),
        ("deny_from: '@few.txt:DE'", "`few.txt`: line 2 has no country"),
        ("deny_from: '@gone.txt'", "cannot read the file gone.txt: No such file"),
        ("deny_from: '@hosts'", "`hosts`: line 2 is no address and no network"),
        ("deny_from: '@:DE'", "a file without a path"),
    ] {
        let problems = load("", own).unwrap_err();
        let text = problems[0].to_string();
        assert!(text.starts_with("client.yaml:6:") && text.contains(why), "{own}: {text}");
        assert!(text.contains("(hint: ") && !text.contains("root"), "{text}");
    }
    let problems = load("", "deny_from: '@long.txt'").unwrap_err();
    assert!(problems[0].to_string().contains("`deny_from` of the server"), "{problems:?}");
}

#[test]
fn lists_of_a_server_and_of_a_proxy_may_be_long() {
    let sources = Sources { env: &|_| None, read: &list_files };
    let text = format!(
        "listen: tcp://127.0.0.1:7000\nclients: [{{ name: a, token: {OLD} }}]\n\
         deny_from: [10.0.0.9, '@long.txt']\n"
    );
    fn file(text: &str) -> Option<Text<'_>> {
        Some(Text { name: "file", text })
    }
    let load =
        |text: &str| load_server(file(text), &ServerFlags::default(), &sources).unwrap().config;
    let config = load(&text);
    assert_eq!(config.visitors().deny_from.len(), 3_121);
    assert!(config.summary().contains(&"visitors: deny_from with 3121 networks".to_owned()));
    let changed = config.differs(&load(&text.replace("10.0.0.9", "10.0.0.8")));
    assert!(changed.len() == 1 && changed[0].key == "deny_from", "{changed:?}");
    assert_eq!(changed[0].change, Change::Live);
    let text = "proxies: [{ listen: 'tcp://:1', target: 'tcp://b:1', deny_from: '@long.txt' }]";
    let proxy = load_proxy(file(text), &ProxyFlags::default(), &sources).unwrap().config;
    assert_eq!(proxy.proxies[0].terms().visitors.deny_from.len(), 3_120);
    assert_eq!(proxy.common.watched, [PathBuf::from("long.txt")]);
}

#[test]
fn a_file_is_read_once_for_all_lists_that_name_it() {
    let read = Cell::new(0);
    let list = |path: &Path| {
        read.set(read.get() + 1);
        list_files(path)
    };
    let sources = Sources { env: &|_| None, read: &list };
    let load = |lists: [&str; 4]| {
        let entry = |(n, list): (usize, &str)| {
            format!("- {{ listen: 'tcp://:{}', target: 'tcp://b:1', deny_from: {list} }}\n", n + 1)
        };
        let text: String = lists.into_iter().enumerate().map(entry).collect();
        let file = Text { name: "file", text: &format!("proxies:\n{text}") };
        let config = load_proxy(Some(file), &ProxyFlags::default(), &sources).unwrap().config;
        let lens = config.proxies.iter().map(|proxy| proxy.terms().visitors.deny_from.len());
        lens.collect::<Vec<_>>()
    };
    let [country, long] = ["'@countries.csv:DE'", "'@long.txt'"];
    let lens = load([long, "[10.0.0.1, '@long.txt']", long, country]);
    assert_eq!((lens, read.get()), (vec![3_120, 3_121, 3_120, 1], 2));
}

#[test]
fn a_file_with_a_secret_is_read_once() {
    let read = Cell::new(0);
    let users = |_: &Path| {
        read.set(read.get() + 1);
        Ok("me:$2b$05$CCCCCCCCCCCCCCCCCCCCC.7uG0VCzI2bS7j6ymqJi9CdcdxiRTWNy\n".to_owned())
    };
    let sources = Sources { env: &|_| None, read: &users };
    // For each exit that is open to all, the entries are decoded again to find the exit's entry.
    let text = format!(
        "servers: tls://a\nname: a\ntoken: {OLD}\nservices:\n\
         - {{ name: a, target: socks5, public: 'tcp://:1' }}\n\
         - {{ name: b, target: socks5, public: 'tcp://:2' }}\n\
         - {{ name: c, target: 'http://b:1', public: 'http://c.example', basic_auth_file: u }}\n"
    );
    let file = Text { name: "client.yaml", text: &text };
    let problems = load_client(Some(file), &ClientFlags::default(), &sources).unwrap_err();
    let places: Vec<_> =
        problems.iter().map(|problem| (problem.line, &*problem.key_path)).collect();
    assert_eq!(places, [(5, "services[0].target"), (6, "services[1].target")], "{problems:?}");
    assert_eq!(read.get(), 1);
}

#[test]
fn the_value_of_a_variable_is_in_no_message() {
    let cases = [
        (OLD, "cannot read the file: No such file"),
        ("long.txt", "`@${FILE}` has 3120 networks: more than 256"),
        ("countries.csv:DE,FR", "`@${FILE}`: no network of the country FR"),
        ("hosts", "`@${FILE}`: line 2 is no address"),
    ];
    let text = format!(
        "servers: tls://a\nname: a\ntoken: {OLD}\n\
         services: [{{ target: 'tcp://b:1', public: 'tcp://:1', deny_from: '@${{FILE}}' }}]\n"
    );
    for (value, why) in cases {
        let env = |name: &str| (name == "FILE").then(|| value.to_owned());
        let sources = Sources { env: &env, read: &list_files };
        let file = Text { name: "client.yaml", text: &text };
        let problems = load_client(Some(file), &ClientFlags::default(), &sources).unwrap_err();
        let shown = problems[0].to_string();
        assert!(shown.contains(why) && !shown.contains(value), "{value}: {shown}");
    }
}

#[test]
fn a_flag_names_no_file_of_networks() {
    let options = ServiceOptions { allow_from: vec!["@few.txt".into()], ..Default::default() };
    let sources = Sources { env: &|_| None, read: &list_files };
    let publish = ["22=22".to_owned()];
    let problems = load_published((&publish, &options), &[], None, &sources).unwrap_err();
    let text = problems[0].to_string();
    assert!(text.contains("a file of networks belongs into a configuration file"), "{text}");
}
