//! What private services and their visits cost the server: 1,000 services of 10 clients, and 200
//! visits by 20 clients, each of which becomes direct.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use testkit::stage::{Daemon, Running};

use crate::harness::{LONG, Origin, Scheme, Setup, connect, free_port, run, tunnel, wait};
use crate::private::echoes;

const HOMES: usize = 10;
const SERVICES: usize = 100;
const LAPTOPS: usize = 20;
const VISITS: usize = 10;

/// The time of each measurement: while the links become direct, and while they are idle.
const WINDOW: Duration = Duration::from_secs(60);

/// The most of its time that a worker of the server spends.
const SHARE: f64 = 0.01;

/// The time until all links are direct: 30 processes share a few cores.
const DIRECT: Duration = Duration::from_secs(300);

const TOKEN: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";

/// Starts a client with the file of the stage under another name, and these lines.
fn start(running: &Running, name: &str, lines: &str) -> Daemon {
    let text = fs::read_to_string(running.file("client.yaml")).unwrap();
    let text = text.split("services:").next().unwrap();
    let token = text.lines().find(|line| line.starts_with("token:")).unwrap();
    let text = text.replace(token, &format!("token: {TOKEN}"));
    let text = text.replace("name: home", &format!("name: {name}"));
    let text = text.replace("/client.sock", &format!("/{name}.sock"));
    let text = text.replace("/client-state", &format!("/{name}-state"));
    let file = running.file(&format!("{name}.yaml"));
    fs::write(&file, format!("{text}connections: 1\nworkers: 1\n{lines}")).unwrap();
    Daemon::start(name, running.dir(), tunnel(&["client", "--config"]).arg(&file))
}

/// The processor time of each worker so far.
fn workers(server: u32) -> Vec<Duration> {
    let tasks = fs::read_dir(format!("/proc/{server}/task")).unwrap();
    let mut found: Vec<_> = tasks
        .filter_map(|task| {
            let task = task.unwrap().path();
            let name = fs::read_to_string(task.join("comm")).ok()?;
            name.starts_with("tunnel-w").then(|| (name, ran(&task)))
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, ran)| ran).collect()
}

/// The processor time of a thread (Linux: Documentation/scheduler/sched-stats).
fn ran(task: &Path) -> Duration {
    let text = fs::read_to_string(task.join("schedstat")).unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// The share of each worker since `before`.
fn shares(server: u32, (before, begin): &(Vec<Duration>, Instant)) -> Vec<f64> {
    let span = begin.elapsed().as_secs_f64();
    let now = workers(server);
    now.iter().zip(before).map(|(now, before)| (*now - *before).as_secs_f64() / span).collect()
}

/// The links of a client that are direct.
fn direct(running: &Running, name: &str) -> usize {
    let socket = running.file(&format!("{name}.sock"));
    let output = run(tunnel(&["status", "--json", "--control"]).arg(socket));
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let sessions = status["sessions"].as_array().unwrap().iter();
    let links = sessions.filter_map(|session| session["links"].as_array()).flatten();
    links.filter(|link| link["path"]["state"] == "direct").count()
}

#[test]
fn a_thousand_private_services_and_200_visits_take_one_percent_of_no_worker() {
    let echo = Origin::echo();
    let mut setup = Setup::new(Scheme::TLS);
    let names = |what: &str, count| (0..count).map(|n| format!("{what}{n}")).collect::<Vec<_>>();
    let (homes, laptops) = (names("home", HOMES), names("laptop", LAPTOPS));
    for name in homes.iter().chain(&laptops) {
        let line = format!("  - {{ name: {name}, token: {TOKEN}, allow: {{ visit: \"*/*\" }} }}\n");
        setup.server_lines.push_str(&line);
    }
    setup.server_lines.push_str("workers: 2\n");
    let running = setup.start_server();
    let service = |n: usize| {
        format!(
            "  - {{ name: s{n}, public: private, target: {}, visitors: [{{ name: \"laptop*\", \
             token: {TOKEN} }}] }}\n",
            echo.port()
        )
    };
    let services: String = (0..SERVICES).map(service).collect();
    let start_home = |name: &String| start(&running, name, &format!("services:\n{services}"));
    let mut daemons: Vec<_> = homes.iter().map(start_home).collect();
    let mut ports = Vec::new();
    for (nth, name) in laptops.iter().enumerate() {
        let mut lines = String::from("forwards:\n");
        for visit in 0..VISITS {
            let (port, of) = (free_port(), nth * VISITS + visit);
            let (home, service) = (of % HOMES, of / HOMES);
            lines += &format!(
                "  - {{ listen: {port}, target: \"service://home{home}/s{service}\", token: {TOKEN} }}\n"
            );
            ports.push(port);
        }
        daemons.push(start(&running, name, &lines));
    }
    for daemon in &daemons {
        daemon.wait_line(&["is connected to"], LONG);
    }
    let server = running.server.id();
    let begin = (workers(server), Instant::now());
    let mut visitors: Vec<_> = ports
        .iter()
        .map(|port| {
            let mut visitor = connect(*port);
            assert!(echoes(&mut visitor));
            visitor
        })
        .collect();
    let served = begin.1.elapsed();
    let count = || laptops.iter().map(|name| direct(&running, name)).sum::<usize>();
    wait("all links are direct", DIRECT, || {
        sleep(Duration::from_secs(1));
        (count() == LAPTOPS * VISITS).then_some(())
    });
    let met = begin.1.elapsed();
    sleep(WINDOW.saturating_sub(begin.1.elapsed()));
    let busy = shares(server, &begin);
    let begin = (workers(server), Instant::now());
    sleep(WINDOW);
    let idle = shares(server, &begin);
    assert!(visitors.iter_mut().all(echoes), "the visits are still there");
    let shown = |shares: &[f64]| {
        let shown = shares.iter().map(|share| format!("{:.3} %", share * 100.0));
        shown.collect::<Vec<_>>().join(", ")
    };
    println!(
        "{} visits served within {:.1} s, direct within {:.1} s; each worker of the server: {} of \
         that minute, {} of an idle minute",
        LAPTOPS * VISITS,
        served.as_secs_f64(),
        met.as_secs_f64(),
        shown(&busy),
        shown(&idle)
    );
    assert!(idle.iter().chain(&busy).all(|share| *share <= SHARE), "{busy:?} {idle:?}");
}
