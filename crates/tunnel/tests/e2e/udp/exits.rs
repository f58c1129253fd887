//! The client as an exit: SOCKS5 and HTTP proxies behind the client, and files of a directory.

use std::fs;
use std::process::{Command, Output};

use super::status::{command, text};
use super::{services, start};
use crate::harness::{
    Nginx, SOON, Scheme, Setup, binary, free_port, program, run, side_by_side, tunnel, wait,
};

fn curl(args: &[&str]) -> Output {
    let mut curl = Command::new(program("curl"));
    curl.args(["--silent", "--show-error", "--max-time", "60", "--path-as-is"]);
    run(curl.args(args))
}

/// The status and the body.
fn answer(args: &[&str]) -> (String, String) {
    let output = curl(&[&["--write-out", "\n%{http_code}"], args].concat());
    assert!(output.status.success(), "{args:?}: {output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, code) = text.rsplit_once('\n').unwrap();
    (code.to_owned(), body.to_owned())
}

#[test]
fn visitors_leave_through_the_client_with_a_password_and_reach_what_is_named() {
    side_by_side(&[Scheme::TLS, Scheme::QUIC, Scheme::KCP], |scheme| {
        let mut setup = Setup::new(scheme);
        let nginx = Nginx::start(setup.dir(), "");
        let ports = [free_port(), free_port(), free_port()];
        setup.allow.extend(ports);
        let public = ports.map(|port| format!("\"tcp://:{port}\""));
        let auth = ", basic_auth: [\"ann:secret\"]";
        let named = format!("{auth}, allow: [\"127.0.0.1:{}\"]", nginx.port);
        services(
            &mut setup,
            &[
                ("exit", &public[0], "socks5", &named),
                ("web-exit", &public[1], "http-proxy", &named),
                // Loopback is not named.
                ("closed", &public[2], "socks5", auth),
            ],
        );
        let mut running = start(setup, 3);
        let url = format!("http://127.0.0.1:{}/small", nginx.port);
        let socks = |user: &str, port: u16| format!("socks5h://{user}@127.0.0.1:{port}");
        assert_eq!(answer(&["--proxy", &socks("ann:secret", ports[0]), &url]).0, "200");
        let proxy = format!("http://ann:secret@127.0.0.1:{}", ports[1]);
        assert_eq!(answer(&["--proxytunnel", "--proxy", &proxy, &url]).0, "200");
        let denied = curl(&["--proxy", &socks("ann:secret", ports[2]), &url]);
        assert!(String::from_utf8_lossy(&denied.stderr).contains("(2)"), "{denied:?}");
        wait("the log names the right", SOON, || {
            running.client().log().contains("service closed leads no visitor to").then_some(())
        });
        for user in ["ann:wrong", "x:y"] {
            let refused = curl(&["--proxy", &socks(user, ports[0]), &url]);
            assert_eq!(refused.status.code(), Some(97), "{refused:?}");
        }
    });
}

#[test]
fn an_exit_that_everybody_may_use_is_refused_by_the_configuration() {
    let setup = Setup::new(Scheme::TLS);
    let file = setup.dir().join("open.yaml");
    let text = "servers: [\"tls://127.0.0.1:7000\"]\nname: home\ntoken: \
                \"zPROpTXppOuW5regiGHyhMC_egObJbmV6OFinPjCHzA\"\nservices:\n  - { name: exit, target: \
                socks5, public: \"tcp://:10080\" }\n";
    fs::write(&file, text).unwrap();
    assert!(binary().exists());
    let refused = run(tunnel(&["check", "--config"]).arg(&file));
    let error = String::from_utf8_lossy(&refused.stderr).into_owned()
        + &String::from_utf8_lossy(&refused.stdout);
    assert!(!refused.status.success(), "{error}");
    assert!(error.contains("basic_auth") && error.contains("allow_from"), "{error}");
}

#[test]
fn files_are_served_with_index_ranges_and_nothing_outside() {
    let (mut setup, port) = (Setup::new(Scheme::TLS), free_port());
    setup.allow.push(port);
    let root = setup.dir().join("site");
    fs::create_dir_all(root.join("deep")).unwrap();
    fs::write(root.join("index.html"), "<h1>home</h1>").unwrap();
    fs::write(root.join("data.txt"), "0123456789").unwrap();
    fs::write(root.join(".secret"), "hidden").unwrap();
    fs::write(setup.dir().join("outside.txt"), "outside").unwrap();
    std::os::unix::fs::symlink("../outside.txt", root.join("link.txt")).unwrap();
    let target = format!("file://{}", root.display());
    services(&mut setup, &[("files", &format!("\"tcp://:{port}\""), &target, "")]);
    let _running = start(setup, 1);
    let url = |path: &str| format!("http://127.0.0.1:{port}{path}");
    let code = |path: &str| answer(&[&url(path)]).0;
    assert_eq!(answer(&[&url("/")]), ("200".to_owned(), "<h1>home</h1>".to_owned()));
    assert_eq!(answer(&[&url("/data.txt")]).1, "0123456789");
    let part = answer(&["--range", "2-5", &url("/data.txt")]);
    assert_eq!(part, ("206".to_owned(), "2345".to_owned()));
    assert_eq!(answer(&["--head", &url("/data.txt")]).0, "200");
    for path in
        ["/.secret", "/link.txt", "/../outside.txt", "/%2e%2e/outside.txt", "/deep/", "/nothing"]
    {
        assert!(["404", "403", "400"].contains(&code(path).as_str()), "{path}: {}", code(path));
    }
    assert_eq!(answer(&["--request", "DELETE", &url("/data.txt")]).0, "405");
}

#[test]
fn a_directory_that_comes_later_is_served_from_then_on_and_the_status_says_that_it_is_absent() {
    let (mut setup, port) = (Setup::new(Scheme::TLS), free_port());
    setup.allow.push(port);
    let root = setup.dir().join("later");
    let target = format!("file://{}", root.display());
    services(&mut setup, &[("files", &format!("\"tcp://:{port}\""), &target, "")]);
    let running = start(setup, 1);
    let url = format!("http://127.0.0.1:{port}/");
    assert!(!curl(&[&url]).status.success());
    let status = || text(&command(&running, "client", &["status"]));
    let before = status();
    assert!(before.contains("it cannot be reached: No such file or directory"), "{before}");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("index.html"), "here").unwrap();
    assert_eq!(answer(&[&url]), ("200".to_owned(), "here".to_owned()));
    let after = status();
    assert!(!after.contains("it cannot be reached"), "{after}");
}
