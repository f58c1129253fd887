//! A client that has to go through an outgoing proxy: tinyproxy (CONNECT) and microsocks (SOCKS 5),
//! both with user and password, from the file and from the environment.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use testkit::stage::Daemon;

use crate::harness::{Origin, Over, SOON, Scheme, Setup, free_port, program, wait_listening};

/// A proxy that wants `me` and `sesame`.
fn start(scheme: &str, dir: &Path) -> (u16, Daemon) {
    let port = free_port();
    let mut command = if scheme == "socks5" {
        let mut command = Command::new(program("microsocks"));
        command.args(["-i", "127.0.0.1", "-p", &port.to_string(), "-u", "me", "-P", "sesame"]);
        command
    } else {
        let file = dir.join("tinyproxy.conf");
        let text = format!("Port {port}\nListen 127.0.0.1\nTimeout 60\nBasicAuth me sesame\n");
        fs::write(&file, text).unwrap();
        let mut command = Command::new(program("tinyproxy"));
        command.arg("-d").arg("-c").arg(file);
        command
    };
    let proxy = Daemon::start(scheme, dir, &mut command);
    wait_listening(port, SOON);
    (port, proxy)
}

#[test]
fn every_transport_of_tcp_goes_through_every_proxy() {
    for proxy_scheme in ["http", "socks5"] {
        for scheme in Scheme::over(Over::Tcp) {
            let mut setup = Setup::new(scheme);
            let (port, proxy) = start(proxy_scheme, setup.dir());
            let url = format!("{proxy_scheme}://me:sesame@127.0.0.1:{port}");
            setup.client_lines.push_str(&format!("proxy: \"{url}\"\n"));
            let origin = Origin::echo();
            let mut running = setup.service("echo", origin.port()).start();
            running.wait_echo(running.public("echo"));
            assert!(!running.client().log().contains("sesame"));
            // It is really in between: without it nothing goes on.
            drop(proxy);
            running.client().wait_line(&["carrier lost"], SOON);
        }
    }
}

/// What the proxies say while nobody listens behind them is the weather: pauses stay short.
#[test]
fn a_server_that_was_away_is_found_again_behind_every_proxy() {
    for proxy_scheme in ["http", "socks5"] {
        let mut setup = Setup::new(Scheme::TLS);
        let (port, _proxy) = start(proxy_scheme, setup.dir());
        let url = format!("{proxy_scheme}://me:sesame@127.0.0.1:{port}");
        setup.client_lines.push_str(&format!("proxy: \"{url}\"\n"));
        let origin = Origin::echo();
        let mut running = setup.service("echo", origin.port()).start();
        running.wait_echo(running.public("echo"));
        running.server.kill();
        let line = running.client().wait_line(&["the proxy does not reach"], SOON);
        // As a matter of settings the pauses would be 3.2 s by now, and 30 s in the end.
        thread::sleep(Duration::from_secs(4));
        running.start_server_again();
        let start = Instant::now();
        running.wait_echo(running.public("echo"));
        println!("{proxy_scheme}: back after {:?}; {line}", start.elapsed());
    }
}

#[test]
fn a_wrong_password_for_the_proxy_is_told_and_not_repeated() {
    for (proxy_scheme, wanted) in [
        ("http", "the proxy refuses the user or the password"),
        ("socks5", "the proxy refused user and password"),
    ] {
        let mut setup = Setup::new(Scheme::WSS);
        let (port, _proxy) = start(proxy_scheme, setup.dir());
        let lines = format!("proxy: \"{proxy_scheme}://me:mellon@127.0.0.1:{port}\"\n");
        setup.client_lines.push_str(&lines);
        let mut running = setup.start_server();
        running.start_client();
        running.client().wait_line(&[wanted], SOON);
        assert!(!running.client().log().contains("mellon"));
    }
}

#[test]
fn the_environment_names_a_proxy_that_the_file_can_do_without() {
    for (lines, is_through) in [("", true), ("proxy: none\n", false)] {
        let mut setup = Setup::new(Scheme::TLS);
        let (port, _proxy) = start("http", setup.dir());
        // Loopback goes without a proxy; another name of it does not, and no proxy resolves this
        // one.
        let server = format!("tls://nowhere.invalid:{}", setup.server_port());
        setup.server_url = Some(server);
        setup.client_lines.push_str(lines);
        let url = format!("http://me:sesame@127.0.0.1:{port}");
        setup.client_env.push(("HTTPS_PROXY", url.into()));
        let mut running = setup.start_server();
        running.start_client();
        let wanted = if is_through { "the proxy" } else { "nowhere.invalid" };
        let line = running.client().wait_line(&["nowhere.invalid", wanted], SOON);
        assert_eq!(line.contains("the proxy"), is_through, "{line}");
    }
}
