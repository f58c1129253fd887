//! A proxy under load: origins that die, and reloads.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::{Balancer, entry};
use crate::harness::{LONG, Nginx, free_port, program, wait};

/// nginx as one of several origins, at this port.
fn nginx(dir: &Path, port: u16) -> Nginx {
    fs::create_dir_all(dir).unwrap();
    let conf = format!(
        "worker_processes 1; error_log stderr crit; events {{ worker_connections 1000; }}\n\
         http {{ access_log off; keepalive_requests 100000000;\n\
         server {{ listen 127.0.0.1:{port}; location / {{ return 200 hello; }} }} }}\n"
    );
    Nginx::start_with(dir, &conf, port)
}

fn wrk(port: u16) -> Child {
    let mut wrk = Command::new(program("wrk"));
    // Longer than any machine needs for the rest; it is told when to stop.
    wrk.args(["-t1", "-c20", "-d110s", "--timeout", "60s"]);
    wrk.arg(format!("http://127.0.0.1:{port}/")).stdout(Stdio::piped()).spawn().unwrap()
}

/// Ends the load, and returns its report without a failed answer.
fn report(mut wrk: Child) -> String {
    assert!(wrk.try_wait().unwrap().is_none(), "all of it was under load");
    kill_process(Pid::from_child(&wrk), Signal::INT).unwrap();
    let report = String::from_utf8(wrk.wait_with_output().unwrap().stdout).unwrap();
    assert!(report.contains("Requests/sec") && !report.contains("Non-2xx"), "{report}");
    report
}

/// A number of the report behind this word.
fn number(report: &str, word: &str) -> u64 {
    let Some((_, rest)) = report.split_once(word) else { return 0 };
    rest.trim_start().split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
}

fn visitors(proxy: &Balancer, target: usize) -> u64 {
    proxy.entry(0)["targets"][target]["visitors"].as_u64().unwrap()
}

#[test]
fn an_origin_that_dies_and_returns_under_load_costs_the_requests_in_flight_there() {
    let dir = tempfile::tempdir().unwrap();
    let [port, a, b] = [(); 3].map(|()| free_port());
    let first = nginx(&dir.path().join("a"), a);
    let _second = nginx(&dir.path().join("b"), b);
    let keys = ", health: { interval: 1s, timeout: 1s }";
    let proxy = Balancer::start(port, &[entry(port, &[a, b], keys)]);
    let wrk = wrk(port);
    let is = |n: usize, state: &str| {
        wait(&format!("target {n} is {state}"), LONG, || {
            (proxy.entry(0)["targets"][n]["state"] == state).then_some(())
        });
    };
    wait("both serve", LONG, || (visitors(&proxy, 0) > 5 && visitors(&proxy, 1) > 5).then_some(()));
    drop(first);
    is(0, "down");
    wait("the other serves all", LONG, || (visitors(&proxy, 1) >= 20).then_some(()));
    let _first = nginx(&dir.path().join("a"), a);
    is(0, "returning");
    let report = report(wrk);
    assert_eq!(number(&report, "errors: connect"), 0, "{report}");
    assert!(number(&report, ", read") <= 20, "{report}");
    assert_eq!(number(&report, "timeout"), 0, "{report}");
}

#[test]
fn twenty_reloads_under_load_cost_no_request() {
    let dir = tempfile::tempdir().unwrap();
    let [port, a, b] = [(); 3].map(|()| free_port());
    let _first = nginx(&dir.path().join("a"), a);
    let _second = nginx(&dir.path().join("b"), b);
    let both = entry(port, &[a, b], "");
    let proxy = Balancer::start(port, std::slice::from_ref(&both));
    let wrk = wrk(port);
    wait("both serve", LONG, || (visitors(&proxy, 0) > 5 && visitors(&proxy, 1) > 5).then_some(()));
    for n in 0..10 {
        proxy.reload(&[entry(port, &[b], &format!(", limits: {{ connections: {} }}", 100 + n))]);
        proxy.reload(std::slice::from_ref(&both));
    }
    let report = report(wrk);
    assert!(!report.contains("Socket errors"), "{report}");
}
