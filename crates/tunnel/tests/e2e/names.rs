//! Host names of targets, including names for which no name server answers.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::{Origin, SOON, Scheme, Setup, connect, run, wait};

/// Where the name server of these tests is, for the client alone.
const SERVER: &str = "127.0.53.53";

/// Answers for `good.test` and is silent about everything else. `Err`: this user may not have the
/// port, or a process of its own files.
fn name_server(dir: &Path) -> Result<Vec<std::ffi::OsString>, String> {
    let socket = UdpSocket::bind((SERVER, 53)).map_err(|e| format!("{SERVER}:53: {e}"))?;
    let file = dir.join("resolv.conf");
    // A resolver that is patient, as most are.
    fs::write(&file, format!("nameserver {SERVER}\noptions timeout:20 attempts:2\n")).unwrap();
    let script = "mount --bind \"$1\" /etc/resolv.conf && shift && exec \"$@\"";
    let words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"];
    let mut starter: Vec<std::ffi::OsString> = words.map(Into::into).to_vec();
    starter.push(file.into());
    let trial = run(Command::new(&starter[0]).args(&starter[1..]).arg("true"));
    if !trial.status.success() {
        return Err(String::from_utf8_lossy(&trial.stderr).into_owned());
    }
    std::thread::spawn(move || {
        let mut query = [0; 512];
        while let Ok((size, from)) = socket.recv_from(&mut query) {
            if let Some(answer) = answer(&query[..size]) {
                // Whoever asked may have gone.
                drop(socket.send_to(&answer, from));
            }
        }
    });
    Ok(starter)
}

/// RFC 1035: the question once more, and 127.0.0.1 where it was for an A record.
fn answer(query: &[u8]) -> Option<Vec<u8>> {
    const GOOD: &[u8] = b"\x04good\x04test\x00";
    let question = query.get(12..12 + GOOD.len() + 4)?;
    let kind = question.strip_prefix(GOOD)?[..2].to_vec();
    let is_a = kind == [0, 1];
    let counts = [0x81, 0x80, 0, 1, 0, u8::from(is_a), 0, 0, 0, 0];
    let record: &[u8] = &[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1];
    let record = if is_a { record } else { &[] };
    Some([&query[..2], &counts, question, record].concat())
}

#[test]
fn a_name_that_does_not_resolve_holds_up_no_other_service() {
    let origin = Origin::echo();
    let mut setup = Setup::new(Scheme::TLS)
        .service("slow", origin.port())
        .service("good", origin.port())
        .service("plain", origin.port());
    match name_server(setup.dir()) {
        Ok(starter) => setup.client_starter = starter,
        Err(reason) => {
            assert!(std::env::var_os("CI").is_none(), "{reason}");
            println!("not shown here: {reason}");
            return;
        }
    }
    let mut running = setup.start_server();
    let named = |name: &str, host: &str| {
        let line = format!("{{ name: {name}, target: \"tcp://");
        (format!("{line}127.0.0.1:"), format!("{line}{host}:"))
    };
    for (old, new) in [named("slow", "slow.test"), named("good", "good.test")] {
        running.edit_client(|text| text.replace(&old, &new));
    }
    running.start_client();
    running.wait_ready();
    running.wait_echo(running.public("good"));

    // More than both workers have threads for names.
    let waiting: Vec<_> = (0..80).map(|_| connect(running.public("slow"))).collect();
    wait("they all wait", SOON, || {
        let status = running.status("client")?;
        let services = status["sessions"][0]["services"].as_array()?;
        let slow = services.iter().find(|service| service["name"] == "slow")?;
        (slow["streams"] == 80).then_some(())
    });
    for name in ["good", "plain"] {
        let start = Instant::now();
        let mut visitor = connect(running.public(name));
        visitor.write_all(b"?").unwrap();
        visitor.read_exact(&mut [0]).unwrap();
        let took = start.elapsed();
        println!("{name}: {took:?} beside 80 visitors of a name that hangs");
        assert!(took < Duration::from_secs(5), "{name}: {took:?}");
    }
    // Their own dial has ten seconds.
    for visitor in &waiting {
        crate::harness::bytes::expect_reset(visitor);
    }
    running.client().wait_line(&["slow.test", "did not answer in time"], SOON);
}
