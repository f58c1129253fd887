//! Host names of targets, including names for which no name server answers and names that a hostile
//! client chooses.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use proto::ResetCode;

use crate::floods::really;
use crate::harness::{Origin, SOON, Scheme, Setup, connect, run, tunnel, wait};
use crate::peer::{log_in, open, open_frame};

/// A name server for one daemon. It answers for `good.test`, and is silent about all other names.
struct NameServer {
    /// The words that start a daemon with this name server.
    starter: Vec<std::ffi::OsString>,
    /// The first labels of all names that it was asked about.
    heard: Arc<Mutex<BTreeSet<String>>>,
}

/// Starts a name server at this address; tests run side by side, so each has an address of its own.
/// `None`: this user may not bind the port, or may not mount.
fn name_server(dir: &Path, address: &str) -> Option<NameServer> {
    match try_name_server(dir, address) {
        Ok(server) => Some(server),
        Err(reason) => {
            assert!(std::env::var_os("CI").is_none(), "{reason}");
            println!("not shown here: {reason}");
            None
        }
    }
}

fn try_name_server(dir: &Path, address: &str) -> Result<NameServer, String> {
    let socket = UdpSocket::bind((address, 53)).map_err(|e| format!("{address}:53: {e}"))?;
    let file = dir.join("resolv.conf");
    // A resolver that is patient, as most are.
    fs::write(&file, format!("nameserver {address}\noptions timeout:20 attempts:2\n")).unwrap();
    let script = "mount --bind \"$1\" /etc/resolv.conf && shift && exec \"$@\"";
    let words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"];
    let mut starter: Vec<std::ffi::OsString> = words.map(Into::into).to_vec();
    starter.push(file.into());
    let trial = run(Command::new(&starter[0]).args(&starter[1..]).arg("true"));
    if !trial.status.success() {
        return Err(String::from_utf8_lossy(&trial.stderr).into_owned());
    }
    let heard = Arc::<Mutex<BTreeSet<String>>>::default();
    let notes = Arc::clone(&heard);
    std::thread::spawn(move || {
        let mut query = [0; 512];
        while let Ok((size, from)) = socket.recv_from(&mut query) {
            let label = query.get(13..13 + usize::from(query[12])).unwrap_or_default();
            notes.lock().unwrap().insert(String::from_utf8_lossy(label).into_owned());
            if let Some(answer) = answer(&query[..size]) {
                // Whoever asked may have gone.
                drop(socket.send_to(&answer, from));
            }
        }
    });
    Ok(NameServer { starter, heard })
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
    let Some(names) = name_server(setup.dir(), "127.0.53.53") else { return };
    setup.client_starter = names.starter;
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

/// A stage with a hostile client `wide`, which has this right.
fn hostile(scheme: Scheme, right: &str, origin: &Origin) -> (Setup, String) {
    let token = String::from_utf8(run(&mut tunnel(&["generate", "token"])).stdout).unwrap();
    let token = token.trim().to_owned();
    let mut setup = Setup::new(scheme).forward(origin.port());
    setup.server_lines =
        format!("  - {{ name: wide, token: \"{token}\", allow: {{ forward: [{right}] }} }}\n");
    (setup, token)
}

/// OPENs of streams to different names.
fn opens(count: u32) -> Bytes {
    let target = |n| open(1, &format!("tcp://n{n}.flood.test:80"));
    (0..count).flat_map(|n| open_frame(n, &target(n))).collect()
}

#[test]
fn a_name_that_no_right_covers_is_refused_without_a_question_to_the_name_server() {
    for (number, &scheme) in Scheme::ALL.iter().enumerate() {
        let origin = Origin::echo();
        let (mut setup, token) = hostile(scheme, "\"127.0.0.1:81\", \"good.test:80\"", &origin);
        let address = format!("127.0.53.{}", 60 + number);
        let Some(names) = name_server(setup.dir(), &address) else { return };
        setup.server_starter = names.starter;
        let running = setup.start();
        really(async {
            let mut peer = log_in(&running, "wide", &token).await;
            peer.write(opens(5_000), true).await.unwrap();
            peer.expect_resets(5_000).await;
            assert!(peer.resets.iter().all(|(_, code)| *code == ResetCode::Denied.raw()));
        });
        running.server.wait_line(&["wide", "flood.test:80", "is not allowed"], SOON);
        assert_eq!(*names.heard.lock().unwrap(), BTreeSet::new(), "{scheme:?}");
    }
}

#[test]
fn a_client_whose_names_hang_delays_no_lookup_of_another_client() {
    let origin = Origin::echo();
    let (mut setup, token) = hostile(Scheme::TLS, "\"0.0.0.0/0:*\"", &origin);
    let Some(names) = name_server(setup.dir(), "127.0.53.54") else { return };
    setup.server_starter = names.starter;
    let mut running = setup.start_server();
    running.edit_client(|text| {
        let target = format!("127.0.0.1:{}\" }}", origin.port());
        text.replace(&target, &format!("good.test:{}\" }}", origin.port()))
    });
    running.start_client();
    running.wait_ready();
    running.wait_echo(running.local());
    really(async {
        let mut peer = log_in(&running, "wide", &token).await;
        // More names than may wait, and far more than may be under way.
        peer.write(opens(5_000), true).await.unwrap();
        // The first lookups have begun; the other names wait for their turn.
        wait("lookups of the flood", SOON, || {
            let heard = names.heard.lock().unwrap();
            heard.iter().any(|label| label.starts_with('n')).then_some(())
        });
        let start = Instant::now();
        running.wait_echo(running.local());
        println!("an echo by a name in {:?} beside 5,000 names that hang", start.elapsed());
        // The first two lookups of the flood hang for 40 s.
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    });
    let heard = names.heard.lock().unwrap().clone();
    let flood = heard.iter().filter(|label| label.starts_with('n')).count();
    assert!(heard.contains("good") && (1..=8).contains(&flood), "{heard:?}");
}
