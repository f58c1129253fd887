//! iperf3 over UDP: its control connection and its datagrams use one port number.

use std::process::Command;

use super::{services, start};
use crate::harness::{Iperf3, Scheme, Setup, free_port, program, run, side_by_side};

#[test]
fn iperf3_sends_datagrams_both_ways() {
    side_by_side(&[Scheme::TLS, Scheme::QUIC, Scheme::KCP], |scheme| {
        let (mut setup, port) = (Setup::new(scheme), free_port());
        let iperf = Iperf3::start(setup.dir());
        setup.more_rights.push(format!("udp: [\"{port}\"]"));
        setup.allow.push(port);
        let public = format!("[\"tcp://:{port}\", \"udp://:{port}\"]");
        let target = format!("udp://127.0.0.1:{}", iperf.port);
        services(&mut setup, &[("iperf", &public, &target, "")]);
        let _running = start(setup, 1);
        for reverse in [false, true] {
            iperf.wait_idle();
            let mut command = Command::new(program("iperf3"));
            command.args(["-c", "127.0.0.1", "-p", &port.to_string(), "-u", "-J", "-t", "2"]);
            command.args(["-b", "20M", "-l", "1200"]);
            let output = run(command.args(reverse.then_some("-R")));
            let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            assert!(output.status.success(), "{report}");
            let sum = &report["end"]["sum"];
            let (packets, lost) = (sum["packets"].as_u64(), sum["lost_packets"].as_u64());
            println!("{scheme:?}, reverse {reverse}: {packets:?} packets, {lost:?} lost");
            // A busy machine may lose some; 20 Mbit/s in 2 s are 4,166 packets.
            assert!(packets.unwrap() > 1_000 && lost.unwrap() < packets.unwrap() / 2, "{sum}");
        }
    });
}
