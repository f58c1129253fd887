//! Idle connections of `tunnel proxy`, which come to rest after half a minute: whatever happens to
//! them then, happens as if they were awake.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use testkit::stage::Daemon;

use crate::harness::{Origin, SOON, connect, free_port, run, tunnel, wait};
use crate::upgrade::{Ended, no_former, upgraded};

/// The idle connections of the test.
const HELD: usize = 24;

/// By then connections are at rest; a reserve for a busy machine.
const AT_REST: Duration = Duration::from_secs(90);

fn ask(socket: &Path, words: &[&str]) -> Value {
    let output = run(tunnel(words).args(["--json", "--control"]).arg(socket));
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn tasks(socket: &Path) -> u64 {
    ask(socket, &["status"])["tasks"].as_u64().unwrap()
}

fn echo(mut visitor: &TcpStream, text: &[u8]) {
    visitor.write_all(text).unwrap();
    let mut back = vec![0; text.len()];
    visitor.read_exact(&mut back).unwrap();
    assert_eq!(back, text);
}

#[test]
fn connections_at_rest_pass_bytes_ends_resets_and_upgrades() {
    let (dir, port) = (tempfile::tempdir().unwrap(), free_port());
    // An echo that has a last word.
    let origin = Origin::start(|mut stream: TcpStream| {
        drop(std::io::copy(&mut &stream, &mut &stream));
        drop(stream.write_all(b"end"));
    });
    let (socket, file) = (dir.path().join("proxy.sock"), dir.path().join("proxy.yaml"));
    let text = format!(
        "control: {}\nproxies:\n  - {{ listen: \"tcp://127.0.0.1:{port}\", target: \
         \"tcp://127.0.0.1:{}\" }}\n",
        socket.display(),
        origin.port()
    );
    fs::write(&file, text).unwrap();
    let mut command = tunnel(&["proxy", "--config"]);
    let proxy = Daemon::start("proxy", dir.path(), command.arg(&file).env("HOME", dir.path()));
    wait("the proxy", SOON, || TcpStream::connect(("127.0.0.1", port)).ok());
    let _ended = Ended(socket.clone());
    let mut held: Vec<_> = (0..HELD).map(|_| connect(port)).collect();
    held.iter().for_each(|visitor| echo(visitor, b"awake"));
    let awake = tasks(&socket);
    // Each has had two tasks.
    let fewer = u64::try_from(HELD).unwrap() * 2 - 8;
    wait("connections at rest", AT_REST, || (tasks(&socket) + fewer < awake).then_some(()));

    let listed = ask(&socket, &["streams"]);
    assert_eq!(listed["total"], HELD, "{listed}");
    assert_eq!(
        (&listed["list"][0]["bytes_in"], &listed["list"][0]["bytes_out"]),
        (&5.into(), &5.into())
    );
    echo(&held[0], b"bytes wake a connection");

    let mut half = held.pop().unwrap();
    half.shutdown(Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    half.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"end");

    let own = held[1].local_addr().unwrap().to_string();
    let one = listed["list"].as_array().unwrap().iter().find(|one| one["socket"] == own).unwrap();
    let killed =
        run(tunnel(&["streams", "--kill", one["id"].as_str().unwrap(), "--control"]).arg(&socket));
    assert!(killed.status.success(), "{killed:?}");
    assert!((&held[1]).read(&mut [0]).is_err(), "it is reset");
    held.remove(1);

    let reset = held.pop().unwrap();
    rustix::net::sockopt::set_socket_linger(&reset, Some(Duration::ZERO)).unwrap();
    drop(reset);
    let left = held.len();
    wait("three have ended", SOON, || (ask(&socket, &["streams"])["total"] == left).then_some(()));

    // The former process goes on with the connections at rest, and ends with the last of them.
    let (former, _) = upgraded(&socket);
    assert_eq!(former, proxy.id());
    echo(&connect(port), b"the new process serves");
    held.iter().for_each(|visitor| echo(visitor, b"and the former one as well"));
    drop(held);
    no_former(&socket);
}
