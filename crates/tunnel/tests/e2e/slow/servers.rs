//! One of two servers dies, falls silent or comes back under 200 visitors per second.

use std::fs;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::stage::Daemon;

use crate::harness::{LONG, connect, free_port, try_connect, tunnel, wait, wait_listening};
use crate::servers::{EACH, Stage, echo};

/// The time between two visitors.
const EVERY: Duration = Duration::from_millis(5);

/// The time of visits before a server dies, and after.
const BEFORE: Duration = Duration::from_secs(2);
const AFTER: Duration = Duration::from_secs(6);

/// A visit: its begin, its duration, and whether it was served.
#[derive(Clone, Copy, Debug)]
struct Visit {
    begin: Instant,
    took: Duration,
    is_served: bool,
}

/// Visits one after the other, each from a thread of its own, until they are finished.
struct Visits {
    is_over: Arc<AtomicBool>,
    pacer: thread::JoinHandle<()>,
    done: Arc<Mutex<Vec<Visit>>>,
}

impl Visits {
    /// `dial` is a visitor who has chosen a server.
    fn start(dial: impl Fn() -> Option<TcpStream> + Send + Sync + 'static) -> Self {
        let (is_over, done) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (ended, visits, dial) = (Arc::clone(&is_over), Arc::clone(&done), Arc::new(dial));
        let pacer = thread::spawn(move || {
            let (mut next, mut visitors) = (Instant::now(), Vec::new());
            while !ended.load(Ordering::Relaxed) {
                let (dial, visits) = (Arc::clone(&dial), Arc::clone(&visits));
                visitors.push(thread::spawn(move || {
                    let begin = Instant::now();
                    let is_served = dial().and_then(echo).is_some();
                    let visit = Visit { begin, took: begin.elapsed(), is_served };
                    let visits: &Mutex<Vec<Visit>> = &visits;
                    visits.lock().unwrap().push(visit);
                }));
                next += EVERY;
                thread::sleep(next.saturating_duration_since(Instant::now()));
            }
            visitors.into_iter().for_each(|visitor| visitor.join().unwrap());
        });
        Self { is_over, pacer, done }
    }

    fn finish(self) -> Vec<Visit> {
        self.is_over.store(true, Ordering::Relaxed);
        self.pacer.join().unwrap();
        let mut done = std::mem::take(&mut *self.done.lock().unwrap());
        done.sort_by_key(|visit| visit.begin);
        done
    }
}

fn failed(visits: &[Visit]) -> usize {
    visits.iter().filter(|visit| !visit.is_served).count()
}

/// The time from the fault until the first of the visits that were served to the last.
fn served_after(visits: &[Visit], fault: Instant) -> Duration {
    let last = visits.iter().rev().find(|visit| !visit.is_served);
    last.map_or(Duration::ZERO, |visit| visit.begin.saturating_duration_since(fault))
}

/// Visits while the first server is killed. Returns the visits, and the time
/// after which the server is dead.
fn while_killed(
    stage: &mut Stage,
    dial: impl Fn() -> Option<TcpStream> + Send + Sync + 'static,
) -> (Vec<Visit>, Instant) {
    let visits = Visits::start(dial);
    thread::sleep(BEFORE);
    stage.servers[0].daemon.kill();
    let fault = Instant::now();
    thread::sleep(AFTER);
    let visits = visits.finish();
    let longest = visits.iter().filter(|visit| visit.is_served).map(|visit| visit.took).max();
    println!(
        "{} visits, {} failed, the last of them began {:?} after the kill; the longest took {:?}",
        visits.len(),
        failed(&visits),
        served_after(&visits, fault),
        longest.unwrap_or_default()
    );
    assert!(visits.len() > 1200, "200 visits per second");
    (visits, fault)
}

#[test]
fn with_all_no_visitor_of_the_other_server_fails() {
    let mut stage = Stage::new(EACH);
    stage.start();
    stage.wait_states(["up", "up"]);
    let other = stage.servers[1].public;
    let (visits, _) = while_killed(&mut stage, move || try_connect(other).ok());
    assert_eq!(failed(&visits), 0);

    // Two A records: a program tries the next address where the first refuses.
    stage.start_server(0);
    stage.wait_states(["up", "up"]);
    let ports = [0, 1].map(|n: usize| stage.servers[n].public);
    let turn = AtomicBool::new(false);
    let (visits, fault) = while_killed(&mut stage, move || {
        let [first, second] = ports;
        let is_second = turn.fetch_xor(true, Ordering::Relaxed);
        let (first, second) = if is_second { (second, first) } else { (first, second) };
        try_connect(first).or_else(|_| try_connect(second)).ok()
    });
    // A visitor of the server that is killed meanwhile has lost its connection.
    let late = visits.iter().filter(|visit| !visit.is_served && visit.begin > fault).count();
    assert_eq!(late, 0);
    assert!(failed(&visits) <= 4, "{}", failed(&visits));
}

#[test]
fn with_all_a_proxy_leads_every_new_visitor_to_the_other_server() {
    let mut stage = Stage::new(EACH);
    stage.start();
    stage.wait_states(["up", "up"]);
    let port = free_port();
    let targets = stage.servers.iter().map(|server| format!("tcp://127.0.0.1:{}", server.public));
    let file = stage.dir.path().join("proxy.yaml");
    let targets = targets.collect::<Vec<_>>().join(", ");
    let text = format!("proxies: [{{ listen: 'tcp://127.0.0.1:{port}', target: [{targets}] }}]\n");
    fs::write(&file, text).unwrap();
    let mut command = tunnel(&["proxy", "--config"]);
    let _proxy = Daemon::start("proxy", stage.dir.path(), command.arg(&file));
    wait_listening(port, LONG);
    let (visits, fault) = while_killed(&mut stage, move || try_connect(port).ok());
    let late = visits.iter().filter(|visit| !visit.is_served && visit.begin > fault).count();
    assert_eq!(late, 0);
    assert!(failed(&visits) <= 4, "{}", failed(&visits));
}

#[test]
fn with_failover_visitors_are_served_after_a_second() {
    let mut stage = Stage::new(&format!("use: failover\n{EACH}"));
    stage.start();
    stage.wait_states(["up", "standby"]);
    let ports = [0, 1].map(|n: usize| stage.servers[n].public);
    let (visits, fault) = while_killed(&mut stage, move || {
        let [first, second] = ports;
        try_connect(first).or_else(|_| try_connect(second)).ok()
    });
    let took = served_after(&visits, fault);
    // A round trip of loopback is nothing.
    assert!(took < Duration::from_secs(1), "{took:?}");
    // And back: the first server serves again without an error for its visitors.
    stage.start_server(0);
    stage.wait_states(["standby", "up"]);
}

#[test]
fn no_new_connection_of_a_forward_fails() {
    for policy in ["all", "failover"] {
        let local = free_port();
        let forward = format!(
            "forwards: [{{ listen: 'tcp://127.0.0.1:{local}', target: 'tcp://127.0.0.1:{{o}}' }}]\n"
        );
        let mut stage = Stage::new(&format!("use: {policy}\n{EACH}{forward}"));
        stage.start();
        stage.wait_states(["up", if policy == "all" { "up" } else { "standby" }]);
        let (visits, fault) = while_killed(&mut stage, move || try_connect(local).ok());
        let late = visits.iter().filter(|visit| !visit.is_served && visit.begin > fault).count();
        assert_eq!(late, 0, "{policy}");
        // An open connection of a forward waits for the server that dials its target.
        assert!(failed(&visits) <= 4, "{policy}: {}", failed(&visits));
    }
}

/// The server's machine has stopped: its kernel accepts connections, and nobody answers.
#[test]
fn a_server_that_accepts_and_never_answers_is_replaced() {
    let local = free_port();
    let forward = format!(
        "forwards: [{{ listen: 'tcp://127.0.0.1:{local}', target: 'tcp://127.0.0.1:{{o}}' }}]\n"
    );
    let mut stage = Stage::new(&format!("use: failover\n{EACH}{forward}"));
    stage.start();
    stage.wait_states(["up", "standby"]);
    assert!(echo(connect(local)).is_some());
    stage.servers[0].daemon.signal(Signal::STOP);
    let fault = Instant::now();
    let waiting = connect(local);
    wait("the services at the other server", LONG, || stage.echoes(1).then_some(()));
    println!("services: {:?} after the server fell silent", fault.elapsed());
    assert!(fault.elapsed() < Duration::from_secs(10), "{:?}", fault.elapsed());
    assert!(echo(waiting).is_some(), "a program that has waited");
    println!("forward: {:?} after the server fell silent", fault.elapsed());
    stage.servers[0].daemon.signal(Signal::CONT);
    stage.wait_states(["standby", "up"]);
}

/// The machine of the first server stops when the services are about to return to the server. The
/// registration reaches the server later, and so does its withdrawal.
#[test]
fn a_server_that_is_late_to_take_over_again_publishes_nothing() {
    let mut stage = Stage::new(&format!("use: failover\n{EACH}"));
    stage.start();
    stage.wait_states(["up", "standby"]);
    stage.servers[0].daemon.kill();
    stage.wait_states(["down", "up"]);
    stage.wait_takeovers([0, 1]);
    stage.start_server(0);
    stage.wait_known(0, true);
    // It takes over after 30 s. Until then nothing on its idle link expects an answer.
    thread::sleep(Duration::from_secs(25));
    stage.servers[0].daemon.signal(Signal::STOP);
    stage
        .client()
        .wait_line(&["server fra does not answer; the former server keeps the services"], LONG);
    assert!(stage.echoes(1));
    stage.servers[0].daemon.signal(Signal::CONT);
    stage.servers[0].daemon.wait_line(&["service at-fra of client home is published"], LONG);
    stage.wait_known(0, true);
    wait("the port to be closed", LONG, || try_connect(stage.servers[0].public).err());
    stage.wait_states(["standby", "up"]);
    stage.wait_takeovers([0, 1]);
    assert!(stage.echoes(1));
}

#[test]
fn both_servers_are_away_and_come_back() {
    for policy in ["all", "failover", "nearest"] {
        let local = free_port();
        let forward = format!(
            "forwards: [{{ listen: 'tcp://127.0.0.1:{local}', target: 'tcp://127.0.0.1:{{o}}' }}]\n"
        );
        let mut stage = Stage::new(&format!("use: {policy}\n{EACH}{forward}"));
        stage.start();
        wait("a server", LONG, || (stage.echoes(0) || stage.echoes(1)).then_some(()));
        for last in [0, 1] {
            stage.servers.iter_mut().for_each(|server| server.daemon.kill());
            thread::sleep(Duration::from_secs(3));
            stage.start_server(last);
            let start = Instant::now();
            wait("the server that is back", LONG, || stage.echoes(last).then_some(()));
            println!("{policy}: served {:?} after the server was back", start.elapsed());
            assert!(echo(connect(local)).is_some(), "{policy}: a forward");
            stage.start_server(1 - last);
        }
    }
}
