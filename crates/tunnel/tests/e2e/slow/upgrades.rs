//! Reliability 17 and 18 together: upgrades and reloads of both roles under real software, over
//! each transport.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::harness::{Iperf3, Nginx, Origin, Scheme, Setup, program, start_sshd};
use crate::reload::outcome;
use crate::upgrade::{Ended, no_former, upgraded};
use crate::upgrade_chain::{echoed, held};

const UPGRADES: usize = 3;

/// More upgrades than processes may share a port of UDP.
const IN_A_ROW: usize = 18;

/// The default of `upgrade.former_max`.
const FORMER: usize = 14;
const RELOADS: usize = 20;

/// How long the software runs: four times as long as upgrades and reloads take here.
const LOAD: u32 = 60;

fn spawn(name: &str, args: &[&str]) -> Child {
    let mut command = Command::new(program(name));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn three_upgrades_and_twenty_reloads_of_both_fail_nothing_over_any_transport() {
    Scheme::ALL.iter().for_each(|scheme| over(*scheme));
}

#[test]
fn upgrades_in_a_row_go_on_while_each_process_has_a_visitor() {
    for scheme in [Scheme::TLS, Scheme::QUIC, Scheme::KCP] {
        let echo = Origin::echo();
        let mut setup = Setup::new(scheme).service("a", echo.port());
        setup.server_lines.push_str("workers: 2\n");
        let running = setup.start();
        let socket = running.file("server.sock");
        let _ended = Ended(socket.clone());
        running.wait_echo(running.public("a"));
        let mut visitors = Vec::new();
        for _ in 0..IN_A_ROW {
            visitors.push(held(&running, &socket));
            upgraded(&socket);
        }
        let live = visitors.iter().rev().take_while(|visitor| echoed(visitor).is_ok()).count();
        assert!(live >= FORMER, "{scheme:?}: {live}");
        drop(visitors);
        no_former(&socket);
    }
}

fn over(scheme: Scheme) {
    let mut setup = Setup::new(scheme);
    setup.server_lines.push_str("workers: 2\n");
    let nginx = Nginx::start(setup.dir(), "");
    let iperf3 = Iperf3::start(setup.dir());
    let (sshd, _sshd, options) = start_sshd(setup.dir());
    let setup = setup.service("web", nginx.port).service("iperf", iperf3.port).service("ssh", sshd);
    let running = setup.start();
    let sockets = ["server", "client"].map(|role| running.file(&format!("{role}.sock")));
    let _ended = sockets.clone().map(Ended);
    running.wait_links(2);
    let url = format!("http://127.0.0.1:{}/small", running.public("web"));
    let [iperf, ssh] = ["iperf", "ssh"].map(|name| running.public(name).to_string());
    let [run_for, seconds] = [format!("-d{LOAD}s"), LOAD.to_string()];
    let script = format!("for n in $(seq {LOAD}); do echo $n; sleep 1; done");
    let mut ssh_args: Vec<&str> = options.iter().map(String::as_str).collect();
    ssh_args.extend(["-p", &ssh, "127.0.0.1", &script]);
    let mut load = [
        spawn("wrk", &["-t1", "-c20", &run_for, &url]),
        // A connect for each request, which an upgrade must not refuse.
        spawn("wrk", &["-t1", "-c5", &run_for, "-H", "Connection: close", &url]),
        spawn("iperf3", &["-c", "127.0.0.1", "-p", &iperf, "-t", &seconds, "-b", "50M"]),
        spawn("ssh", &ssh_args),
    ];
    for round in 0..RELOADS {
        if round % (RELOADS / UPGRADES) == 3 {
            for socket in &sockets {
                upgraded(socket);
            }
        }
        running.edit_client(|text| text + "# another file\n");
        running.edit_server(|text| text + "# another file\n");
        for role in ["client", "server"] {
            let (code, said, complaint) = outcome(running.reload(role));
            assert_eq!(code, Some(0), "{scheme:?}: {said}{complaint}");
        }
        thread::sleep(Duration::from_millis(100));
    }
    for child in &mut load {
        assert!(child.try_wait().unwrap().is_none(), "{scheme:?}: all of it was under load");
    }
    for child in load {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{scheme:?}: {said}{complaint}");
        // wrk prints these lines only when something went wrong.
        assert!(!said.contains("Socket errors") && !said.contains("Non-2xx"), "{scheme:?}: {said}");
        println!("{scheme:?}\n{said}");
    }
    sockets.iter().for_each(|socket| no_former(socket));
}
