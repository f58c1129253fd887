//! DNS of a real server by a real resolver: short and long answers, truncation and its way out.

use std::fs;
use std::process::Command;

use testkit::stage::{Daemon, Running};

use super::{services, start};
use crate::harness::{LONG, Scheme, Setup, free_port, program, run, side_by_side, wait};

/// dnsmasq with answers of about these numbers of bytes.
fn dnsmasq(dir: &std::path::Path) -> (u16, Daemon) {
    let port = free_port();
    let conf = format!(
        "port={port}\nlisten-address=127.0.0.1\nbind-interfaces\nno-resolv\nno-hosts\n\
         pid-file\nedns-packet-max=4096\naddress=/small.test/192.0.2.7\n\
         address=/small.test/2001:db8::7\n"
    );
    let file = dir.join("dnsmasq.conf");
    fs::write(&file, conf).unwrap();
    let mut command = Command::new(program("dnsmasq"));
    command.arg("--keep-in-foreground").arg(format!("--conf-file={}", file.display()));
    // A line of its file holds less.
    for size in SIZES {
        let strings: Vec<_> =
            (0..size / 200).map(|n| format!("\"{}\"", format!("{n:03}-").repeat(49))).collect();
        command.arg(format!("--txt-record=txt{size}.test,{}", strings.join(",")));
    }
    (port, Daemon::start("dnsmasq", dir, &mut command))
}

const SIZES: [usize; 4] = [400, 1_200, 2_000, 3_800];

fn dig(port: u16, args: &[&str]) -> String {
    let mut dig = Command::new(program("dig"));
    dig.args(["@127.0.0.1", "-p", &port.to_string(), "+time=5", "+tries=3"]);
    let output = run(dig.args(args));
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The length in `;; MSG SIZE  rcvd: 4012`.
fn length(answer: &str) -> usize {
    let (_, rest) = answer.split_once("rcvd: ").expect(answer);
    rest.lines().next().unwrap().trim().parse().unwrap()
}

fn wait_answer(port: u16) {
    wait("an answer of dnsmasq", LONG, || {
        let mut dig = Command::new(program("dig"));
        dig.args(["@127.0.0.1", "-p", &port.to_string(), "+time=1", "+tries=1", "small.test"]);
        run(&mut dig).status.success().then_some(())
    });
}

/// dnsmasq behind a service with a TCP and a UDP port of one number.
fn behind(scheme: Scheme) -> (u16, Daemon, Running) {
    behind_list(scheme, |target| format!("udp://127.0.0.1:{target}"))
}

/// As [`behind`], with the target that `target` makes of the port of dnsmasq.
fn behind_list(scheme: Scheme, target: impl Fn(u16) -> String) -> (u16, Daemon, Running) {
    let (mut setup, port) = (Setup::new(scheme), free_port());
    let (at, daemon) = dnsmasq(setup.dir());
    setup.more_rights.push(format!("udp: [\"{port}\"]"));
    setup.allow.push(port);
    let public = format!("[\"tcp://:{port}\", \"udp://:{port}\"]");
    services(&mut setup, &[("dns", &public, &target(at), "")]);
    let running = start(setup, 1);
    wait_answer(port);
    (port, daemon, running)
}

#[test]
fn dns_answers_of_40_to_4096_bytes_pass() {
    side_by_side(&[Scheme::TLS, Scheme::QUIC, Scheme::KCP], |scheme| {
        let (port, _daemon, _running) = behind(scheme);
        let small = dig(port, &["+noedns", "small.test", "A"]);
        assert!(small.contains("192.0.2.7") && length(&small) < 60, "{small}");
        assert!(dig(port, &["small.test", "AAAA"]).contains("2001:db8::7"));
        for size in SIZES {
            let name = format!("txt{size}.test");
            let large = dig(port, &["+bufsize=4096", "+ignore", &name, "TXT"]);
            assert!(large.contains("SERVER: 127.0.0.1") && large.contains("(UDP)"), "{large}");
            assert!((size * 9 / 10..=4_096).contains(&length(&large)), "{size}: {large}");
            let last = format!("{:03}-{:03}-", size / 200 - 1, size / 200 - 1);
            assert!(large.contains(&last), "{size}: {large}");
        }
        // Without EDNS a long answer is cut by the server itself, and dig asks again over TCP.
        let cut = dig(port, &["+noedns", "+ignore", "txt2000.test", "TXT"]);
        assert!(cut.contains(" tc") && length(&cut) <= 512, "{cut}");
        let again = dig(port, &["+noedns", "txt2000.test", "TXT"]);
        assert!(again.contains("(TCP)") && length(&again) > 1_800, "{again}");
        assert!(dig(port, &["unknown.test", "A"]).contains("status: "));
    });
}

#[test]
fn a_name_server_that_is_gone_costs_no_query_where_another_serves() {
    for &scheme in Scheme::ALL {
        let list = |at| format!("[\"127.0.0.1:{}\", \"127.0.0.1:{at}\"]", free_port());
        let (port, _daemon, _running) = behind_list(scheme, list);
        for _ in 0..8 {
            for over in ["+notcp", "+tcp"] {
                let answer = dig(port, &["+tries=1", over, "small.test", "A"]);
                assert!(answer.contains("192.0.2.7"), "{answer}");
            }
        }
    }
}
