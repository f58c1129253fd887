//! A browser loads a page with a WebSocket through the doors.

use std::process::Command;

use super::origin::Web;
use super::{Doors, certificate};
use crate::harness::{Browser, LONG, Scheme, program};

#[test]
fn a_browser_loads_a_page_with_a_web_socket_over_http_and_https() {
    let keys = ", certificates: [{ cert: one.crt, key: one.key }]";
    let doors = Doors::with(Scheme::TLS, "", keys);
    let (http, tls, dir) = (doors.http, doors.tls, doors.setup.dir().to_owned());
    certificate(&dir, "one", "DNS:app.example.com");
    let (plain, secure) = (Web::start(&dir, "plain"), Web::start(&dir, "secure"));
    let _running = doors.start(&[
        ("http://app.example.com", plain.port, ""),
        ("https://app.example.com", secure.port, ""),
    ]);
    for (scheme, port, web) in [("http", http, &plain), ("https", tls, &secure)] {
        let profile = dir.join(format!("profile-{scheme}"));
        let mut browser = Command::new(program("chromium-headless-shell"));
        browser.args(["--no-sandbox", "--disable-gpu", "--ignore-certificate-errors"]);
        browser.args(["--no-proxy-server", "--host-resolver-rules=MAP app.example.com 127.0.0.1"]);
        browser.arg(format!("--user-data-dir={}", profile.display()));
        // The page is kept open until the browser is ended.
        browser.args(["--remote-debugging-port=0"]);
        browser.arg(format!("{scheme}://app.example.com:{port}/page"));
        let _browser = Browser::start(&mut browser);
        web.process.wait_line(&["heard", "/done/hello"], LONG);
    }
}
