//! The dissector of Wireshark (`crates/proto/wireshark/`) reads a recorded conversation over each
//! transport, with the key log of the client.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;

use testkit::wire::Recorder;

use crate::harness::{Origin, SOON, Scheme, Setup, connect, program, run, tunnel};

/// What a stream of the recording carries.
const MARKER: &[u8] = b"seen through the tunnel";

const FIELDS: [&str; 8] = [
    "tunnel.hello.name",
    "tunnel.greeting",
    "tunnel.open.target",
    "tunnel.service",
    "tunnel.address",
    "tunnel.kind",
    "tunnel.payload",
    "tunnel.malformed",
];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The program with the dissector, for a recording. `home` has no settings of a user.
fn tshark(recording: &Path, keys: Option<&Path>, home: &Path) -> Command {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../proto/wireshark/tunnel.lua");
    let mut tshark = Command::new(program("tshark"));
    tshark.env("HOME", home).env_remove("SSLKEYLOGFILE");
    tshark.arg("-r").arg(recording).args(["-X", &format!("lua_script:{script}")]);
    if let Some(keys) = keys {
        let (tls, own) = ("tls.keylog_file", "tunnel_kcp.keylog");
        for preference in [tls, own] {
            tshark.args(["-o", &format!("{preference}:{}", keys.display())]);
        }
    }
    tshark
}

/// The values of each of [`FIELDS`] in a recording, of all packets.
fn values(
    recording: &Path,
    keys: Option<&Path>,
    home: &Path,
) -> BTreeMap<&'static str, Vec<String>> {
    let mut tshark = tshark(recording, keys, home);
    // A second pass dissects each packet again, as the window of Wireshark does.
    tshark.args(["-2", "-T", "fields", "-E", "occurrence=a", "-E", "aggregator=|"]);
    tshark.args(FIELDS.iter().flat_map(|field| ["-e", field]));
    let output = run(&mut tshark);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("Lua"), "{said}");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut values: BTreeMap<_, Vec<_>> = FIELDS.map(|field| (field, Vec::new())).into();
    for line in text.lines() {
        for (field, all) in FIELDS.iter().zip(line.split('\t')) {
            let all = all.split('|').filter(|value| !value.is_empty()).map(str::to_owned);
            values.entry(field).or_default().extend(all);
        }
    }
    values
}

/// Records a conversation over a transport and returns what the dissector finds.
fn is_read(scheme: Scheme) {
    let (echo, dir) = (Origin::echo(), tempfile::tempdir().unwrap());
    let (keys, recording) = (dir.path().join("keys"), dir.path().join("recording.pcap"));
    let mut setup = Setup::new(scheme).service("echo", echo.port()).forward(echo.port());
    let is_udp = matches!(scheme.name, "quic" | "kcp");
    let recorder = if is_udp {
        Recorder::of_udp(setup.server_port())
    } else {
        Recorder::of_tcp(setup.server_port())
    };
    let path = &setup.server_path;
    setup.server_url = Some(format!("{}://127.0.0.1:{}{path}", scheme.name, recorder.port()));
    setup.client_lines.push_str("connections: 1\n");
    setup.client_env.push(("SSLKEYLOGFILE", keys.clone().into()));
    let mut running = setup.start();
    let (public, local) = (running.public("echo"), running.local());
    // Wireshark reads a frame over QUIC only where each packet goes on where the last one ended.
    // The scheduler sets how often that is so: 1 in 30 to 1 in 5 of the bytes were seen.
    let (visits, least) = if scheme.name == "quic" { (6, 10_000) } else { (1, 290_000) };
    for port in [public, local].into_iter().cycle().take(2 * visits) {
        let mut visitor = connect(port);
        visitor.write_all(MARKER).unwrap();
        let mut back = [0; MARKER.len()];
        visitor.read_exact(&mut back).unwrap();
        assert_eq!(back, MARKER);
        // A frame that is longer than a packet, a record and a message.
        visitor.write_all(&vec![7; 150_000]).unwrap();
        visitor.read_exact(&mut vec![0; 150_000]).unwrap();
        visitor.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(visitor.read(&mut [0]).unwrap(), 0);
    }
    if scheme.tls {
        running.client().wait_line(&["WARN", "SSLKEYLOGFILE is set"], SOON);
        let mode = fs::metadata(&keys).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "the secrets are their owner's alone");
    } else {
        assert!(!keys.exists(), "{}: a key log without TLS", scheme.name);
    }
    recorder.write(&recording).unwrap();
    let keys = keys.exists().then_some(&*keys);
    let read = values(&recording, keys, dir.path());
    let has = |field: &str, wanted: &[&str]| {
        let found = &read[field];
        for wanted in wanted {
            let is_there = found.iter().any(|value| value == wanted);
            assert!(is_there, "{}: {field} has no `{wanted}`: {found:?}", scheme.name);
        }
    };
    has("tunnel.hello.name", &["home"]);
    // Hello, Proof, Accept, Signature. Wireshark drops the first message of a WebSocket, the Nonce,
    // where it comes with the answer of HTTP.
    has("tunnel.greeting", &["2", "3", "4", "5"]);
    if !scheme.http {
        has("tunnel.greeting", &["1"]);
    }
    has("tunnel.open.target", &["echo", &format!("tcp://127.0.0.1:{}", echo.port())]);
    has("tunnel.service", &["echo"]);
    has("tunnel.address", &[&format!("tcp://:{public}")]);
    // OPEN, DATA, FIN, CREDIT, CONTROL.
    has("tunnel.kind", &["1", "2", "3", "6", "12"]);
    let (marker, payloads) = (hex(MARKER), &read["tunnel.payload"]);
    assert!(
        payloads.iter().any(|payload| payload.contains(&marker)),
        "{}: no payload",
        scheme.name
    );
    let sevens: usize = payloads.iter().map(|payload| payload.matches("0707").count()).sum();
    assert!(sevens > least, "{}: {sevens} of the long frames", scheme.name);
    assert_eq!(read["tunnel.malformed"], [""; 0], "{}", scheme.name);
    if keys.is_some() {
        // Without the secrets nothing of the protocol is read.
        let found = values(&recording, None, dir.path());
        assert_eq!(found["tunnel.kind"], [""; 0], "{}", scheme.name);
    }
}

#[test]
fn a_recording_of_tcp_is_read() {
    is_read(Scheme::TCP);
}

#[test]
fn a_recording_of_tls_is_read() {
    is_read(Scheme::TLS);
}

#[test]
fn a_recording_of_ws_is_read() {
    is_read(Scheme::WS);
}

#[test]
fn a_recording_of_wss_is_read() {
    is_read(Scheme::WSS);
}

#[test]
fn a_recording_of_quic_is_read() {
    is_read(Scheme::QUIC);
}

#[test]
fn a_recording_of_kcp_is_read() {
    is_read(Scheme::KCP);
}

/// A capture that goes on while a connection begins, whose secrets are in the file only then.
#[test]
fn secrets_that_come_later_are_found_by_a_dissector_that_runs() {
    let (echo, dir) = (Origin::echo(), tempfile::tempdir().unwrap());
    let (keys, recording) = (dir.path().join("keys"), dir.path().join("recording.pcap"));
    let mut setup = Setup::new(Scheme::KCP).service("echo", echo.port());
    let recorder = Recorder::of_udp(setup.server_port());
    setup.server_url = Some(format!("kcp://127.0.0.1:{}", recorder.port()));
    setup.client_lines.push_str("connections: 1\n");
    setup.client_env.push(("SSLKEYLOGFILE", keys.clone().into()));
    let running = setup.start();
    let visit = |bytes: &[u8]| {
        let mut visitor = connect(running.public("echo"));
        visitor.write_all(bytes).unwrap();
        visitor.read_exact(&mut vec![0; bytes.len()]).unwrap();
    };
    let recorded = || {
        recorder.write(&recording).unwrap();
        fs::read(&recording).unwrap()
    };
    running.wait_echo(running.public("echo"));
    visit(&[7; 150_000]);
    let first = recorded();

    let mut tshark = tshark(Path::new("-"), Some(&keys), dir.path());
    tshark.args(["-l", "-T", "fields", "-e", "tunnel.payload"]);
    tshark.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut tshark = tshark.spawn().unwrap();
    let mut input = tshark.stdin.take().unwrap();
    let mut lines = BufReader::new(tshark.stdout.take().unwrap()).lines().map(Result::unwrap);
    let (begin, end) = channel::<Vec<u8>>();
    // The program reads while its output is read. The channel's end is the end of the recording.
    let feeding = thread::spawn(move || {
        end.into_iter().for_each(|bytes| input.write_all(&bytes).unwrap());
    });
    begin.send(first.clone()).unwrap();
    lines.find(|line| line.contains("0707")).expect("the first connection is read");

    let client = running.file("client.sock");
    let output = run(tunnel(&["reconnect", "--control"]).arg(client));
    assert!(output.status.success(), "{output:?}");
    running.wait_echo(running.public("echo"));
    visit(MARKER);
    begin.send(recorded().split_off(first.len())).unwrap();
    drop(begin);
    let marker = hex(MARKER);
    let found = lines.filter(|line| line.contains(&marker)).count();
    feeding.join().unwrap();
    assert!(tshark.wait().unwrap().success());
    assert!(found > 0, "the second connection is not read");
}

#[test]
fn without_the_variable_no_secret_is_written() {
    let echo = Origin::echo();
    let mut running = Setup::new(Scheme::TLS).service("echo", echo.port()).start();
    running.wait_echo(running.public("echo"));
    for log in [running.client().log(), running.server.log()] {
        assert!(!log.contains("SSLKEYLOGFILE"), "{log}");
    }
}
