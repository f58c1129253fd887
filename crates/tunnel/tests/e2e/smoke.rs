//! The minimum that a binary must do. `cargo xtask test static` runs these cases with the released
//! binary, which has another C library, allocator and link than the binary of the other cases.

use std::fs::{self, File};
use std::net::Shutdown;
use std::process::Command;
use std::thread;

use crate::harness::{Nginx, Origin, Scheme, Setup, bytes, connect, program, run, tunnel};

const LENGTH: u64 = 50_000_000;

#[test]
fn tls_carries_a_file_and_bytes_both_ways() {
    carry(Scheme::TLS);
}

#[test]
fn quic_carries_a_file_and_bytes_both_ways() {
    carry(Scheme::QUIC);
}

#[test]
fn kcp_carries_a_file_and_bytes_both_ways() {
    carry(Scheme::KCP);
}

/// A service of a program nobody here wrote, a forward, both directions at once, and the status.
fn carry(scheme: Scheme) {
    let setup = Setup::new(scheme);
    let nginx = Nginx::start(setup.dir(), "");
    bytes::send(File::create(setup.dir().join("www/file")).unwrap(), LENGTH);
    let both_ways = Origin::start(|stream| {
        thread::scope(|scope| {
            scope.spawn(|| bytes::expect(&stream, LENGTH));
            bytes::send(&stream, LENGTH);
            stream.shutdown(Shutdown::Write).unwrap();
        });
    });
    let running = setup.service("web", nginx.port).forward(both_ways.port()).start();

    let copy = running.file("copy");
    let url = format!("http://127.0.0.1:{}/file", running.public("web"));
    let mut curl = Command::new(program("curl"));
    curl.args(["--silent", "--show-error", "--fail", "--max-time", "60", "--output"]).arg(&copy);
    let output = run(curl.arg(url));
    assert!(output.status.success(), "{output:?}");
    bytes::expect(File::open(&copy).unwrap(), LENGTH);
    assert_eq!(fs::metadata(&copy).unwrap().len(), LENGTH);

    let visitor = connect(running.local());
    thread::scope(|scope| {
        scope.spawn(|| {
            bytes::send(&visitor, LENGTH);
            visitor.shutdown(Shutdown::Write).unwrap();
        });
        bytes::expect(&visitor, LENGTH);
        bytes::expect_end(&visitor);
    });

    let file = running.file("client.yaml").display().to_string();
    let output = run(&mut tunnel(&["status", "--config", &file]));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains(scheme.name), "{output:?}");
}
