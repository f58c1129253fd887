//! Rates of bytes at a client of a server, at a service and at a forward, and their change while
//! streams live.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use testkit::stage::Running;

use crate::harness::{
    Origin, SOON, Scheme, Setup, connect, free_port, run, tunnel, wait_listening,
};
use crate::reload::outcome;

/// The rate in these tests. A machine that moves fewer bytes passes them as well.
const RATE: u64 = 1 << 20;

/// An origin that sends without end to those who send a byte, and reads all.
fn endless() -> Origin {
    Origin::start(|stream| {
        let mut reading = stream.try_clone().unwrap();
        let mut first = [0];
        if reading.read(&mut first).unwrap_or(0) == 0 {
            return;
        }
        if first == *b"r" {
            let mut all = vec![0; 64 << 10];
            while reading.read(&mut all).is_ok_and(|n| n > 0) {}
            return;
        }
        while (&stream).write_all(&[7; 64 << 10]).is_ok() {}
    })
}

/// The bytes that arrive in 2 s, after a second in which what the system keeps is read.
fn arrives(mut stream: &TcpStream) -> u64 {
    let (mut all, mut bytes) = (vec![0; 256 << 10], 0);
    let begin = Instant::now();
    loop {
        let n = stream.read(&mut all).unwrap() as u64;
        let at = begin.elapsed();
        if at > Duration::from_secs(3) {
            return bytes;
        }
        if at > Duration::from_secs(1) {
            bytes += n;
        }
    }
}

fn download(port: u16) -> TcpStream {
    let mut stream = connect(port);
    stream.write_all(b"d").unwrap();
    stream
}

/// Whether so many bytes in 2 s are within the rate: 5 %, and what a read has before its time.
fn is_within(bytes: u64) -> bool {
    bytes <= 2 * RATE + RATE / 10 + (256 << 10)
}

fn limit(running: &Running, args: &[&str]) {
    let mut command = tunnel(&["clients", "limit", "home"]);
    command.args(args).arg("--control").arg(running.file("server.sock"));
    let output = run(&mut command);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn a_rate_by_command_holds_at_once_for_a_stream_that_lives() {
    let origin = endless();
    let setup = Setup::new(Scheme::TLS).service("down", origin.port());
    let running = setup.start();
    let stream = download(running.public("down"));
    assert!(!is_within(arrives(&stream)), "the machine moves more than the rate");
    limit(&running, &["--down", "1MiB/s"]);
    let slow = arrives(&stream);
    assert!(is_within(slow), "{slow}");
    // Another stream shares the rate, and the other direction has none.
    let other = download(running.public("down"));
    let second = std::thread::spawn(move || arrives(&other));
    let both = arrives(&stream) + second.join().unwrap();
    assert!(is_within(both), "{both}");
    limit(&running, &["--down", "none"]);
    assert!(!is_within(arrives(&stream)));
}

#[test]
fn services_and_forwards_have_rates_of_their_own_and_a_reload_changes_them() {
    let origin = endless();
    let [slow, fast, forward] = [(); 3].map(|()| free_port());
    let mut setup = Setup::new(Scheme::TLS);
    setup.allow = vec![slow, fast];
    setup.more_targets.push(format!("127.0.0.1:{}", origin.port()));
    let target = format!("target: \"tcp://127.0.0.1:{}\"", origin.port());
    write!(
        setup.client_lines,
        "services:\n\
         \x20 - {{ name: slow, {target}, public: {slow}, limits: {{ down: 1MiB/s }} }}\n\
         \x20 - {{ name: fast, {target}, public: {fast} }}\n\
         forwards:\n\
         \x20 - {{ listen: {forward}, {target}, limits: {{ stream: {{ down: 1MiB/s }} }} }}\n"
    )
    .unwrap();
    let running = setup.start();
    [slow, fast, forward].into_iter().for_each(|port| wait_listening(port, SOON));
    let (of_slow, of_fast) = (download(slow), download(fast));
    let waiting = std::thread::spawn(move || (arrives(&of_slow), of_slow));
    assert!(!is_within(arrives(&of_fast)), "it does not wait for the slow one");
    let (bytes, of_slow) = waiting.join().unwrap();
    assert!(is_within(bytes), "{bytes}");
    let bytes = arrives(&download(forward));
    assert!(is_within(bytes), "{bytes}");
    drop(of_fast);
    running.edit_client(|text| {
        text.replace("public: ", "public:  ").replace(", limits: { down: 1MiB/s }", "")
    });
    let (code, said, complaint) = outcome(running.reload("client"));
    assert_eq!((code, complaint.as_str()), (Some(0), ""), "{said}");
    assert!(!is_within(arrives(&of_slow)), "the stream that lives has no rate any more");
}
