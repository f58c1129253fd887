//! The programs of the manual (`docs/webrtc/`) reach a private service: Python with aiortc, and a
//! page in Chromium. `cargo xtask test webrtc-interop` installs both and names them.

use std::ffi::OsString;
use std::io::Write as _;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread;

use super::stage;
use crate::harness::{Browser, LONG, Origin};
use crate::private::{LAPTOP, VISIT};

const PAGE: &str = include_str!("../../../docs/webrtc/visit.html");

/// Bytes in each direction.
const BYTES: usize = 5 << 20;

fn named(variable: &str) -> OsString {
    let program = std::env::var_os(variable);
    program.unwrap_or_else(|| panic!("{variable} is not set: cargo xtask test webrtc-interop"))
}

#[test]
fn the_program_in_python_visits() {
    let origin = Origin::echo();
    let (_stage, port) = stage("home/echo", origin.port());
    let url = format!("http://127.0.0.1:{port}/webrtc");
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/webrtc/visit.py");
    let visit = |secret: &str| {
        let mut command = Command::new(named("WEBRTC_PEER_PYTHON"));
        command.args([file, &url, "laptop", LAPTOP, "home/echo", secret]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let sent: Vec<u8> = (0..BYTES).map(|at| ((at * at) >> 8) as u8).collect();
    let mut program = visit(VISIT);
    let mut input = program.stdin.take().unwrap();
    let copy = sent.clone();
    let writer = thread::spawn(move || input.write_all(&copy).unwrap());
    let output = program.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout == sent, "{} bytes came back", output.stdout.len());

    let output = visit(LAPTOP).wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && errors.contains("403: client home refuses the proof"),
        "{errors}"
    );
}

/// What the page does in the test: it sends bytes, compares what comes back, and says so.
const TEST: &str = r#"
<script type="module">
try {
  const { channel } = await visit(VISIT);
  const sent = new Uint8Array(BYTES).map((_, at) => at * at >> 8), back = [];
  const ended = new Promise((done, fail) => {
    channel.onmessage = ({ data }) => data.byteLength ? back.push(data) : done();
    channel.onclose = fail;
  });
  channel.bufferedAmountLowThreshold = 1 << 18;
  for (let at = 0; at < sent.length; at += 16384) {
    if (channel.bufferedAmount > 1 << 20)
      await new Promise((done) => { channel.onbufferedamountlow = done; });
    channel.send(sent.subarray(at, at + 16384));
  }
  channel.send(new ArrayBuffer(0));
  await ended;
  const all = new Uint8Array(await new Blob(back).arrayBuffer());
  const same = all.length === sent.length && all.every((byte, at) => byte === sent[at]);
  await fetch(`/said/${same ? "ok" : "other"}`);
} catch (error) { await fetch(`/said/${encodeURIComponent(error)}`); }
</script>
"#;

/// Serves the page until it has said something.
fn said(listener: &TcpListener, page: &str) -> String {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut head = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(&stream), &mut head).unwrap();
        let path = head.split(' ').nth(1).unwrap_or_default();
        let body = if path == "/" { page } else { "" };
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(answer.as_bytes()).unwrap();
        if let Some(said) = path.strip_prefix("/said/") {
            return said.to_owned();
        }
    }
    unreachable!("a listener has no end")
}

#[test]
fn the_page_visits_in_a_browser() {
    let origin = Origin::echo();
    let (stage, port) = stage("home/echo", origin.port());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let visit = serde_json::json!({
        "url": format!("http://127.0.0.1:{port}/webrtc"),
        "name": "laptop", "token": LAPTOP, "client": "home", "service": "echo", "secret": VISIT,
    });
    let test = TEST.replace("VISIT", &visit.to_string()).replace("BYTES", &BYTES.to_string());
    let page = format!("{PAGE}{test}");
    let mut browser = Command::new(named("WEBRTC_PEER_CHROMIUM"));
    // Without the second option it names no address, and neither does the other end then.
    browser.args([
        "--no-sandbox",
        "--disable-features=WebRtcHideLocalIpsWithMdns",
        "--disable-gpu",
        "--remote-debugging-port=0",
    ]);
    browser.arg(format!("--user-data-dir={}", stage.running.file("browser").display()));
    browser.arg(format!("http://{}/", listener.local_addr().unwrap()));
    let _browser = Browser::start(&mut browser);
    let (tell, verdicts) = std::sync::mpsc::channel();
    thread::spawn(move || tell.send(said(&listener, &page)));
    assert_eq!(verdicts.recv_timeout(LONG).expect("a verdict in time"), "ok");
}
