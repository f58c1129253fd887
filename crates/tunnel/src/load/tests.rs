//! Tests of the loading of files and flags.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use clap::Parser;

use super::*;
use crate::cli::{Cli, Command, DaemonArgs};

fn client_args(line: &str) -> ClientArgs {
    let Command::Client(args) = Cli::parse_from(line.split_whitespace()).command else {
        panic!("not a client: {line}")
    };
    *args
}

#[test]
fn a_file_finds_its_token_beside_it_and_flags_win() {
    let dir = tempfile::tempdir().unwrap();
    let token = ops::token().unwrap();
    let token_file = dir.path().join("t");
    fs::write(&token_file, format!("{token}\n")).unwrap();
    fs::set_permissions(&token_file, fs::Permissions::from_mode(0o644)).unwrap();
    let file = dir.path().join("client.yaml");
    let text = "servers: [\"tls://a.example:7000\"]\nname: home\ntoken_file: t\n\
                tls: { ca: ca.pem }\ncontrol: c.sock\nservices:\n\
                \x20 - { name: ssh, target: \"tcp://127.0.0.1:22\", public: \"tcp://:10022\" }\n";
    fs::write(&file, text).unwrap();
    let line = format!("tunnel client --config {} --server tcp://127.0.0.1:1", file.display());
    let Loaded { config, warnings } = client(&client_args(&line), None).unwrap();
    assert_eq!(config.token.unwrap().secret.reveal(), token);
    assert_eq!(config.servers[0].paths[0].endpoint.port, 1);
    assert_eq!(config.common.control, Some(dir.path().join("c.sock")));
    assert!(warnings.iter().any(|w| w.contains("chmod 600")), "{warnings:?}");
}

#[test]
fn a_readable_file_is_warned_of_only_if_the_token_stands_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let token = ops::token().unwrap();
    let file = dir.path().join("client.yaml");
    let rest = "servers: tls://a.example:7000\nname: home\n";
    let exposed = |text: &str, flags: &str| {
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let line = format!("tunnel client --config {} {flags}", file.display());
        let Loaded { warnings, .. } = client(&client_args(&line), None).unwrap();
        warnings.iter().any(|w| w.contains("chmod 600"))
    };
    assert!(exposed(&format!("{rest}token: {token}\n"), ""));
    assert!(!exposed(rest, &format!("--token {token}")));
}

#[test]
fn each_secret_in_a_readable_file_is_warned_of() {
    let dir = tempfile::tempdir().unwrap();
    let token = ops::token().unwrap();
    fs::write(dir.path().join("a.token"), ops::token().unwrap()).unwrap();
    fs::set_permissions(dir.path().join("a.token"), fs::Permissions::from_mode(0o600)).unwrap();
    let path = dir.path().join("t.yaml");
    let warnings = |text: &str, mode| {
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let loaded = file(&path).unwrap_or_else(|why| panic!("{text}: {why}"));
        let all = match loaded {
            Either::Server(loaded) => loaded.warnings,
            Either::Client(loaded) => loaded.warnings,
            Either::Proxy(loaded) => loaded.warnings,
        };
        assert!(!all.concat().contains(&token), "{all:?}");
        all.iter().filter(|w| w.contains("t.yaml holds ") && w.contains("chmod 600")).count()
    };
    for example in testkit::secrets::examples(&token) {
        let key = (example.section, example.key);
        assert_eq!(warnings(&example.text, 0o644), 1, "{key:?}");
        assert_eq!(warnings(&example.text, 0o600), 0, "{key:?}");
    }
    let harmless = "servers: wss://a.example/t\nname: a\ntoken_file: a.token\n\
                    headers: { User-Agent: curl }\n";
    assert_eq!(warnings(harmless, 0o644), 0);
}

#[test]
fn flags_alone_are_a_whole_configuration() {
    let token = ops::token().unwrap();
    let line = format!(
        "tunnel client --server tls://a.example:7000 --name home --token {token} \
         --publish tcp://:10022=tcp://127.0.0.1:22 \
         --forward tcp://127.0.0.1:5203=tcp://127.0.0.1:5201"
    );
    let Loaded { config, warnings } = client(&client_args(&line), None).unwrap();
    assert_eq!((config.services.len(), config.forwards.len()), (1, 1));
    assert!(warnings.iter().any(|w| w.contains("/proc")), "{warnings:?}");
}

#[test]
fn a_server_without_a_file_has_one_client_with_modest_rights() {
    let dir = tempfile::tempdir().unwrap();
    let token_file = dir.path().join("home.token");
    fs::write(&token_file, ops::token().unwrap()).unwrap();
    let config = server(&ServerArgs::default(), Some(&token_file), None).unwrap().config;
    let home = &config.clients[0];
    assert_eq!((config.clients.len(), &*home.name), (1, "home"));
    assert!(home.rights.tcp.permits(config.public_bind, 10_022));
    for port in [1024, 9999, 11_000] {
        assert!(!home.rights.tcp.permits(config.public_bind, port), "{port}");
    }
    assert!(home.rights.forward.0.is_empty());
}

#[test]
fn a_private_key_that_others_may_read_is_warned_of_at_start_and_by_check() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let make = |file: &str, mode| {
        fs::create_dir(at(file)).unwrap();
        tls::self_signed(&at(file), &[]).unwrap();
        let key = at(file).join("key.pem");
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
    };
    let exposed = ["server", "hook", "one", "two", "node", "etcd"];
    exposed.into_iter().for_each(|name| make(name, 0o644));
    make("fine", 0o600);
    fs::write(at("t"), ops::token().unwrap()).unwrap();
    fs::set_permissions(at("t"), fs::Permissions::from_mode(0o600)).unwrap();
    let keys = |warnings: &[String]| -> Vec<String> {
        let text = "/key.pem holds a private key and others may read it (chmod 600)";
        let begin = dir.path().display().to_string() + "/";
        let names = warnings.iter().filter_map(|w| w.strip_suffix(text)?.strip_prefix(&begin));
        names.map(str::to_owned).collect()
    };
    let both = |file: &Path, warnings: Vec<String>| {
        let checked = match file_and_what_it_names(file).unwrap() {
            Either::Server(loaded) => loaded.warnings,
            Either::Client(loaded) => loaded.warnings,
            Either::Proxy(loaded) => loaded.warnings,
        };
        assert_eq!(keys(&checked), keys(&warnings));
        keys(&warnings)
    };

    let server_file = at("server.yaml");
    let auth = "auth: { http: { url: \"https://127.0.0.1:1/\", tls: { pin: PIN, \
                cert: hook/cert.pem, key: hook/key.pem } } }\n";
    let pin = tls::self_signed(&at("hook"), &[]).unwrap().pin().to_string();
    let auth = auth.replace("PIN", &format!("\"{pin}\""));
    let text = "listen: tls://[::]:7000\nclients: [{ name: a, token_file: t }]\n";
    let start = |name: &str, auth: &str| {
        let pair = format!("tls: {{ cert: {name}/cert.pem, key: {name}/key.pem }}\n");
        fs::write(&server_file, format!("{text}{pair}{auth}")).unwrap();
        let daemon = DaemonArgs { config: Some(server_file.clone()), ..Default::default() };
        let args = ServerArgs { daemon, ..ServerArgs::default() };
        both(&server_file, server(&args, None, None).unwrap().warnings)
    };
    assert_eq!(start("server", &auth), ["server", "hook"]);
    assert_eq!(start("fine", ""), [""; 0]);
    let cluster = "cluster: { name: c, peers: { listen: 'tls://127.0.0.1:1', ca: node/cert.pem, \
                   cert: node/cert.pem, key: node/key.pem }, directory: { etcd: \
                   'https://127.0.0.1:1', tls: { ca: etcd/cert.pem, cert: etcd/cert.pem, \
                   key: etcd/key.pem } } }\n";
    assert_eq!(start("fine", cluster), ["node", "etcd"]);

    let client_file = at("client.yaml");
    let pair = |name: &str| format!("pin: \"{pin}\", cert: {name}/cert.pem, key: {name}/key.pem");
    let text = format!(
        "servers: [{{ url: \"tls://a:1\", tls: {{ {} }} }}, tls://b:1, tls://c:1]\n\
         name: home\ntoken_file: t\ntls: {{ {} }}\n",
        pair("one"),
        pair("two")
    );
    fs::write(&client_file, text).unwrap();
    let line = format!("tunnel client --config {}", client_file.display());
    let warnings = client(&client_args(&line), None).unwrap().warnings;
    // Two paths share a key, which is reported once.
    assert_eq!(both(&client_file, warnings), ["one", "two"]);
}

#[test]
fn the_token_of_the_first_start_is_no_link() {
    let dir = tempfile::tempdir().unwrap();
    let [aim, token_file] = ["aim", "home.token"].map(|name| dir.path().join(name));
    fs::write(&aim, ops::token().unwrap()).unwrap();
    symlink(&aim, &token_file).unwrap();
    let made = server(&ServerArgs::default(), Some(&token_file), None);
    let text = made.unwrap_err().to_string();
    assert!(text.contains("home.token: this is a symbolic link"), "{text}");
    // A token file that the user names may be a link.
    let args = ServerArgs { token_file: Some(token_file), ..ServerArgs::default() };
    server(&args, None, None).unwrap();
}

#[test]
fn every_problem_is_said_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("server.yaml");
    fs::write(&path, "listen: [\"tls//x\"]\nclients: []\ntypo: 1\n").unwrap();
    let text = file(&path).unwrap_err().to_string();
    assert!(text.contains("server.yaml:1:10: listen[0]"), "{text}");
    assert!(text.contains("server.yaml:3:1: typo"), "{text}");
    fs::write(&path, "listen: [\n").unwrap();
    let said = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let WrongConfig(said) = file(&path).unwrap_err();
        assert_eq!(said.len(), 1, "{said:?}");
        said[0].split_once("server.yaml:").unwrap().1.to_owned()
    };
    for (text, start) in [
        (&b"listen: [\n"[..], "1:9: the `[` that opens here is not closed (hint: "),
        (b"workers: 1\n", "1:1: neither a server's file nor a client's file (hint: "),
        (b"", "1:1: the file has no keys (hint: "),
        (b"# only this\n", "1:1: the file has no keys (hint: "),
        (b"listen\n", "1:7: no colon behind `listen` (hint: "),
        (b"listen: a\nname: B\xe4r\n", "2:8: the byte 0xe4 is not UTF-8 (hint: "),
    ] {
        let said = said(text);
        assert!(said.starts_with(start), "{said}");
    }
    // A character that is cut where reading ends.
    fs::write(&path, "ä".repeat(config::FILE_MAX)).unwrap();
    assert!(file(&path).unwrap_err().to_string().contains("larger than 1 MiB"));
    let text = file(&dir.path().join("none")).unwrap_err().to_string();
    assert!(text.contains("none: cannot read") && text.contains("(hint: "), "{text}");
    let text = file(dir.path()).unwrap_err().to_string();
    assert!(text.contains("directory") && text.contains("(hint: "), "{text}");
}

#[test]
fn a_file_of_the_other_role_is_one_problem() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("it.yaml");
    let daemon = || DaemonArgs { config: Some(path.clone()), ..DaemonArgs::default() };
    fs::write(&path, config::sample::SERVER).unwrap();
    let args = ClientArgs { daemon: daemon(), ..ClientArgs::default() };
    let WrongConfig(said) = client(&args, None).unwrap_err();
    assert!(said[0].contains("a server's file (hint: tunnel server --config "), "{said:?}");
    assert_eq!(said.len(), 1);
    fs::write(&path, config::sample::CLIENT).unwrap();
    let args = ServerArgs { daemon: daemon(), ..ServerArgs::default() };
    let WrongConfig(said) = server(&args, None, None).unwrap_err();
    assert!(said[0].contains("a client's file (hint: tunnel client --config "), "{said:?}");
    assert_eq!(said.len(), 1);
}

#[test]
fn what_a_file_names_is_opened_and_told_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("t"), ops::token().unwrap()).unwrap();
    fs::write(dir.path().join("empty.pem"), "").unwrap();
    let path = dir.path().join("it.yaml");
    let said = |text: &str| {
        fs::write(&path, text).unwrap();
        file_and_what_it_names(&path).unwrap_err().0
    };
    let problems = said(
        "servers: [{ url: \"tls://a:1\", tls: { ca: no.pem } }, tls://b:1, tls://c:1]\n\
         name: home\ntoken_file: t\ntls: { ca: empty.pem, cert: no.crt, key: no.key }\n",
    );
    let [first, second, third, fourth] = &problems[..] else { panic!("{problems:?}") };
    assert!(first.contains("it.yaml:1:42: servers[0].tls.ca: "), "{first}");
    assert!(second.contains("it.yaml:4:12: tls.ca: "), "{second}");
    assert!(second.contains("no certificate in it"), "{second}");
    assert!(third.contains("it.yaml:4:29: tls.cert: "), "{third}");
    assert!(fourth.contains("it.yaml:4:42: tls.key: "), "{fourth}");

    for name in ["one", "two"] {
        fs::create_dir(dir.path().join(name)).unwrap();
        tls::self_signed(&dir.path().join(name), &[]).unwrap();
    }
    let server = |pair: &str| {
        format!("listen: tls://[::]:7000\ntls: {pair}\nclients: [{{ name: a, token_file: t }}]\n")
    };
    let pair = "{ cert: one/cert.pem, key: two/key.pem, client_ca: no.pem }";
    let problems = said(&server(pair));
    let [key, ca] = &problems[..] else { panic!("{problems:?}") };
    assert!(key.contains("it.yaml:2:33: tls.key: "), "{key}");
    assert!(key.contains("two/key.pem: the key does not belong to the certificate "), "{key}");
    assert!(ca.contains("tls.client_ca: ") && ca.contains("no.pem: No such file"), "{ca}");
    fs::write(&path, server("{ cert: one/cert.pem, key: one/key.pem }")).unwrap();
    file_and_what_it_names(&path).unwrap();
    let doors = "listen: mux://[::]\nhttp: { pages: { not_found: no.html } }\n\
                 tls_routes:\n  certificates: [{ cert: one/cert.pem, key: one/key.pem }, \
                 { cert: one/cert.pem, key: two/key.pem }]\n  \
                 acme: { accept_terms: true, ca: empty.pem }\n";
    let node = "listen: tls://[::]\ncluster:\n  name: c\n  \
                peers: { listen: 'tls://127.0.0.1:1', ca: no.pem, cert: one/cert.pem, \
                key: two/key.pem }\n  directory: { etcd: ['https://127.0.0.1:1', \
                'https://127.0.0.1:2'], tls: { ca: empty.pem } }\n";
    let problems = said(node);
    let [peers, key, etcd] = &problems[..] else { panic!("{problems:?}") };
    assert!(peers.contains("cluster.peers.ca: ") && peers.contains("no.pem: No such"), "{peers}");
    assert!(key.contains("cluster.peers.key: ") && key.contains("does not belong to"), "{key}");
    assert!(etcd.contains("cluster.directory.tls.ca: "), "{etcd}");
    assert!(etcd.contains("no certificate in it"), "{etcd}");
    let problems = said(doors);
    let [page, key, ca] = &problems[..] else { panic!("{problems:?}") };
    assert!(page.contains("it.yaml:2:29: http.pages.not_found: "), "{page}");
    assert!(page.contains("/no.html: No such file"), "{page}");
    assert!(key.contains("tls_routes.certificates[1].key: "), "{key}");
    assert!(ca.contains("tls_routes.acme.ca: ") && ca.contains("no certificate in it"), "{ca}");
}

#[test]
fn a_flag_that_names_a_wrong_file_is_the_place_of_the_problem() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("client.yaml");
    let token = ops::token().unwrap();
    fs::write(&file, "servers: tls://a:1\nname: a\ntls: { ca: b }\n").unwrap();
    let line = format!("tunnel client --config {} --token {token} --ca c", file.display());
    let said = client(&client_args(&line), None).unwrap_err().to_string();
    assert!(said.starts_with("--ca: ") && said.contains("/c: No such file"), "{said}");
}

#[test]
fn the_samples_are_valid() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sample.yaml");
    for sample in [config::sample::SERVER, config::sample::CLIENT] {
        fs::write(&path, sample).unwrap();
        if let Err(wrong) = file(&path) {
            // A token in a sample would be the token of every user, so the samples have none.
            assert!(wrong.0.iter().all(|p| p.contains("token")), "{wrong}");
        }
    }
}
