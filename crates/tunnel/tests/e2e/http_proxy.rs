//! `http_proxy=` with `http://` addresses: requests without CONNECT at a forward and at an exit, by
//! curl and wget.

use std::fmt::Write as _;
use std::fs;
use std::process::{Command, Output};

use testkit::stage::Running;

use crate::harness::{
    Nginx, SOON, Scheme, Setup, free_port, program, run, side_by_side, wait, wait_listening,
};

/// A target beside nginx that says which request it got.
const SHOWN: &str = "location /shown { return 200 \"$request_method $request_uri $http_host \
                     [$http_proxy_authorization$http_proxy_connection$http_via]\\n\"; }\n\
                     location /stored/ { dav_methods PUT; create_full_put_path on; }";

/// A forward and an exit that are HTTP proxies with a password.
struct Proxies {
    running: Running,
    nginx: Nginx,
    /// Of the forward, and of the exit.
    ports: [u16; 2],
    closed: u16,
}

fn proxies(scheme: Scheme) -> Proxies {
    let mut setup = Setup::new(scheme);
    let nginx = Nginx::start(setup.dir(), SHOWN);
    let [forward, exit, closed] = [free_port(), free_port(), free_port()];
    let named =
        ["127.0.0.1", "localhost"].map(|host| [nginx.port, closed].map(|p| format!("{host}:{p}")));
    let named = named.concat();
    setup.allow.push(exit);
    let list: Vec<_> = named.iter().map(|target| format!("\"{target}\"")).collect();
    setup.more_targets.extend(named);
    let (auth, list) = ("basic_auth: [\"ann:secret\"]", list.join(", "));
    writeln!(
        setup.client_lines,
        "forwards:\n  - {{ listen: \"http-proxy://127.0.0.1:{forward}\", {auth} }}\n\
         services:\n  - {{ name: exit, target: http-proxy, public: \"tcp://:{exit}\", {auth}, \
         allow: [{list}] }}"
    )
    .unwrap();
    let running = setup.start();
    wait_listening(forward, SOON);
    wait("the exit is published", SOON, || {
        running.server.log().contains("is published at").then_some(())
    });
    Proxies { running, nginx, ports: [forward, exit], closed }
}

fn curl(proxy: &str, args: &[&str]) -> Output {
    let mut curl = Command::new(program("curl"));
    curl.args(["--silent", "--show-error", "--max-time", "60", "--proxy", proxy]);
    run(curl.args(["--write-out", "%{http_code} "]).args(args))
}

/// What a program printed.
fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn curl_reaches_http_addresses_through_a_proxy_without_connect() {
    side_by_side(&[Scheme::TLS, Scheme::QUIC, Scheme::KCP, Scheme::WSS], |scheme| {
        let Proxies { running, nginx, ports, .. } = proxies(scheme);
        let url = |host: &str| format!("http://{host}:{}/shown?a", nginx.port);
        let shown = |host: &str| format!("GET /shown?a {host}:{} []\n200 ", nginx.port);
        for (nth, port) in ports.into_iter().enumerate() {
            let proxy = format!("http://ann:secret@127.0.0.1:{port}");
            // Two targets in one call: the program opens a connection for each.
            let both = curl(&proxy, &[&url("localhost"), &url("127.0.0.1")]);
            assert_eq!(said(&both), shown("localhost") + &shown("127.0.0.1"), "{scheme:?}");
            // An upload whose body waits for the target.
            let body = running.file(&format!("body-{nth}"));
            let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n >> 3) as u8).collect();
            fs::write(&body, &bytes).unwrap();
            let to = format!("http://localhost:{}/stored/{nth}", nginx.port);
            for more in [
                &["--header", "Expect: 100-continue"][..],
                &["--header", "Transfer-Encoding: chunked"],
            ] {
                let upload = [&["--upload-file", body.to_str().unwrap()], more, &[&to]].concat();
                let code = said(&curl(&proxy, &upload));
                assert!(["201 ", "204 "].contains(&&*code), "{code}");
                let copy = running.file(&format!("copy-{nth}"));
                let fetch = curl(&proxy, &["--output", copy.to_str().unwrap(), &to]);
                assert_eq!(said(&fetch), "200 ");
                assert!(fs::read(&copy).unwrap() == bytes, "the bytes differ");
            }
            let head = said(&curl(&proxy, &["--head", &to]));
            assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n200 "), "{head}");
        }
    });
}

#[test]
fn a_request_that_a_proxy_refuses_has_a_page_that_says_why() {
    let Proxies { running, nginx, ports, closed } = proxies(Scheme::TLS);
    for port in ports {
        let proxy = |user: &str| format!("http://{user}127.0.0.1:{port}");
        let ask = |user: &str, url: &str| said(&curl(&proxy(user), &[url]));
        let good = format!("http://localhost:{}/shown", nginx.port);
        for user in ["", "ann:wrong@"] {
            let page = ask(user, &good);
            assert_eq!(page, "The proxy asks for a user and a password.\n407 ");
        }
        let page = ask("ann:secret@", &format!("http://127.0.0.1:{closed}/"));
        assert_eq!(page, "The target refused the connection.\n502 ");
        let page = ask("ann:secret@", &format!("http://127.0.0.1:{}/", free_port()));
        assert_eq!(page, "The target is not allowed.\n403 ");
        // A program that sends an https:// address without CONNECT.
        let target = ["--request-target", "https://localhost/", &good];
        let page = said(&curl(&proxy("ann:secret@"), &target));
        assert!(page.contains("by CONNECT alone") && page.ends_with("400 "), "{page}");
    }
    let line = running.server.wait_line(&["is not allowed"], SOON);
    assert!(line.contains("tunnel allow"), "{line}");
}

#[test]
fn programs_take_the_proxy_from_their_environment() {
    let Proxies { running: _running, nginx, ports, .. } = proxies(Scheme::TLS);
    let url = format!("http://localhost:{}/shown", nginx.port);
    for port in ports {
        let proxy = format!("http://ann:secret@127.0.0.1:{port}");
        let curl = ["curl", "--silent", "--show-error", "--max-time", "60"];
        let wget = ["wget", "--no-config", "--quiet", "--tries=1", "--timeout=60", "-O", "-"];
        for program_of in [&curl[..], &wget] {
            let mut command = Command::new(program(program_of[0]));
            command.args(&program_of[1..]).arg(&url).env("http_proxy", &proxy).env("no_proxy", "");
            let shown = format!("GET /shown localhost:{} []\n", nginx.port);
            assert_eq!(said(&run(&mut command)), shown, "{program_of:?}");
        }
    }
}
