//! A browser loads a page with a WebSocket through the doors.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

use super::origin::Web;
use super::{Doors, certificate};
use crate::harness::{LONG, Scheme, program};

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
        browser.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Its helpers are ended with it.
        let mut process = browser.process_group(0).spawn().unwrap();
        web.process.wait_line(&["heard", "/done/hello"], LONG);
        kill_process_group(Pid::from_child(&process), Signal::KILL).unwrap();
        process.wait().unwrap();
    }
}
