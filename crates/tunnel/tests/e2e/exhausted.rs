//! The descriptor table is full. Existing streams continue, and new visitors wait or get an error.
//! Links and commands work meanwhile, and no loop spins.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use proto::Kind;
use proto::control::{ControlMessage, Register, ServiceSpec, ServiceTerms};
use proto::greeting::Name;
use testkit::stage::Daemon;

use crate::floods::really;
use crate::harness::{
    LONG, Origin, Over, SOON, Scheme, Setup, connect, run, try_connect, tunnel, wait,
};
use crate::peer::log_in;

/// Descriptors of the daemon that runs out of them. Of so many, 32 are kept from visitors, and the
/// threads of two workers, listeners and log take about 25.
const LIMIT: u64 = 128;

/// The words that start a daemon with this limit of open files.
fn limited(limit: u64) -> Vec<OsString> {
    let script = format!("ulimit -n {limit} && exec \"$@\"");
    ["sh".into(), "-c".into(), script.into(), "sh".into()].to_vec()
}

/// Visitors that say something at once; whoever is not accepted yet waits in the kernel's queue,
/// and some are reset as soon as they are there.
fn crowd(port: u16, count: usize) -> Vec<TcpStream> {
    let visitor = |_| {
        let mut visitor = try_connect(port).ok()?;
        visitor.write_all(b"?").ok()?;
        visitor.set_nonblocking(true).unwrap();
        Some(visitor)
    };
    (0..count).filter_map(visitor).collect()
}

/// How a visitor stands.
enum Fate {
    Waits,
    Served,
    Reset,
}

fn fate(mut visitor: &TcpStream) -> Fate {
    match visitor.read(&mut [0]) {
        Ok(1) => Fate::Served,
        Ok(_) => panic!("a clean end where an answer or a reset was due"),
        Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => Fate::Waits,
        Err(_) => Fate::Reset,
    }
}

/// Takes those out of the crowd that were served; nobody is reset.
fn take_served(crowd: &mut Vec<TcpStream>) -> Vec<TcpStream> {
    let served = |visitor: &mut TcpStream| match fate(visitor) {
        Fate::Waits => false,
        Fate::Served => true,
        Fate::Reset => panic!("a reset where a visitor may wait"),
    };
    crowd.extract_if(.., served).collect()
}

/// The share of one core that a daemon takes over two seconds.
fn share(daemon: &Daemon) -> f64 {
    // The kernel counts processor time in ticks of 10 ms, so a share needs seconds of real time.
    let (before, start) = (daemon.cpu(), Instant::now());
    std::thread::sleep(Duration::from_secs(2));
    (daemon.cpu() - before).as_secs_f64() / start.elapsed().as_secs_f64()
}

/// Waits until the number of open descriptors stays.
fn settle(daemon: &Daemon) -> u64 {
    wait("the descriptors settle", LONG, || {
        let before = daemon.descriptors();
        // Longer than the pauses between two attempts of a daemon.
        std::thread::sleep(Duration::from_millis(500));
        (daemon.descriptors() == before).then_some(before)
    })
}

#[test]
fn visitors_who_take_all_descriptors_leave_some_to_links_and_commands() {
    for &scheme in Scheme::ALL {
        let origin = Origin::echo();
        let mut setup = Setup::new(scheme).service("echo", origin.port());
        setup.server_starter = limited(LIMIT);
        let token = run(&mut tunnel(&["generate", "token"])).stdout;
        let token = String::from_utf8(token).unwrap();
        setup.server_lines = format!("  - {{ name: other, token: \"{}\" }}\n", token.trim());
        let mut running = setup.start();
        running.server.wait_one_line(&["room for about 96 visitors"], SOON);
        let port = running.public("echo");
        running.wait_echo(port);

        let mut waiting = crowd(port, 300);
        assert_eq!(waiting.len(), 300, "the queue has room for all");
        let open = settle(&running.server);
        let served = take_served(&mut waiting);
        println!("{scheme:?}: {open} descriptors, {} of 300 visitors served", served.len());
        assert!(served.len() > 40, "{} visitors served", served.len());
        assert!(open < LIMIT - 8, "{open} descriptors open");
        let busy = share(&running.server);
        println!("{scheme:?}: {:.1} % of a core while exhausted", busy * 100.0);
        // Ten looks a second and listener are nothing; a loop that spins takes all it can get.
        assert!(busy < 0.3, "{busy}");
        // Those who are inside go on, commands are answered, links come and go.
        let mut inside = &served[0];
        inside.set_nonblocking(false).unwrap();
        inside.write_all(b"!").unwrap();
        inside.read_exact(&mut [0]).unwrap();
        inside.set_nonblocking(true).unwrap();
        let status = running.status("server").unwrap();
        assert_eq!(status["descriptors"]["limit"], LIMIT, "{status}");
        // The only client that publishes leaves a small part to another client that comes.
        assert!(status["descriptors"]["room"].as_u64().unwrap() <= 4, "{status}");
        let home = std::fs::read_to_string(running.file("client.yaml")).unwrap();
        let home = home.split("token: \"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        let other = running.start_another_client(|text| {
            let text = text.replace("name: home", "name: other").replace(&home, token.trim());
            text.split("services:").next().unwrap().to_owned()
        });
        let start = Instant::now();
        other.wait_line(&["connected to"], SOON);
        println!("{scheme:?}: another client logged in after {:?}", start.elapsed());
        running.server.wait_line(&["visitors wait", "LimitNOFILE"], SOON);
        let lines = running.server.log().matches("visitors wait").count();
        assert!(lines <= 2 * 4, "{lines} lines about one shortage");

        // Whoever leaves makes room for the next, until nobody waits.
        let mut inside = served;
        while !waiting.is_empty() {
            drop(std::mem::take(&mut inside));
            inside = wait("the next visitors are served", SOON, || {
                let next = take_served(&mut waiting);
                (!next.is_empty()).then_some(next)
            });
        }
        drop(inside);
        running.wait_echo(port);
        assert!(running.client().is_running());
    }
}

#[test]
fn a_client_without_descriptors_for_targets_refuses_visitors_and_keeps_its_links() {
    for &scheme in Scheme::ALL {
        let origin = Origin::echo();
        let mut setup = Setup::new(scheme).wired().service("echo", origin.port());
        setup.client_starter = limited(LIMIT);
        let mut running = setup.start();
        let port = running.public("echo");
        running.wait_echo(port);

        let mut all = crowd(port, 300);
        let mut inside = Vec::new();
        wait("every visitor is served or refused", LONG, || {
            for visitor in std::mem::take(&mut all) {
                match fate(&visitor) {
                    Fate::Waits => all.push(visitor),
                    Fate::Served => inside.push(visitor),
                    Fate::Reset => {}
                }
            }
            all.is_empty().then_some(())
        });
        let open = running.client().descriptors();
        println!("{scheme:?}: {open} descriptors, {} of 300 visitors served", inside.len());
        assert!(inside.len() > 40 && open < LIMIT - 8, "{} with {open}", inside.len());
        running.client().wait_line(&["no descriptor is left", "LimitNOFILE"], SOON);
        let lines = running.client().log().matches("no descriptor is left").count();
        assert!(lines <= 2 * 4, "{lines} lines about one shortage");
        assert!(share(running.client()) < 0.3);

        // The link gets its next connection although visitors hold all that they may have.
        let kills = running.wire().kills();
        running.wire().kill();
        wait("the carrier is killed", SOON, || (running.wire().kills() > kills).then_some(()));
        let mut one = &inside[0];
        one.set_nonblocking(false).unwrap();
        one.write_all(b"!").unwrap();
        one.read_exact(&mut [0]).unwrap();
        assert!(running.status("client").is_some());

        drop(inside);
        running.wait_echo(port);
        assert_eq!(running.client().log().matches("resumed over").count(), 1);
    }
}

#[test]
fn strangers_who_take_all_descriptors_give_way_to_who_can_log_in() {
    // Those of QUIC share a socket and take none.
    for scheme in Scheme::over(Over::Tcp) {
        let origin = Origin::echo();
        let mut setup = Setup::new(scheme).service("echo", origin.port());
        setup.server_starter = limited(LIMIT);
        let mut running = setup.start_server();
        let door = running.server_port();
        let strangers: Vec<_> = (0..400).map(|_| connect(door)).collect();
        let open = settle(&running.server);
        println!("{scheme:?}: {open} descriptors");
        // An eighth is left; the accept loops of two workers may each be one ahead.
        assert!(open <= LIMIT - LIMIT / 8 + 2, "{open} descriptors");
        let busy = share(&running.server);
        println!("{scheme:?}: {:.1} % of a core with 400 strangers", busy * 100.0);
        assert!(busy < 0.3, "{busy}");
        let start = Instant::now();
        running.start_client();
        running.client().wait_line(&["service echo is published at tcp://"], SOON);
        println!("{scheme:?}: logged in after {:?}", start.elapsed());
        // Before the strangers' time was up, which would be too easy.
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
        let log = running.server.log();
        assert!(!log.contains("Too many open files"), "{log}");
        running.wait_echo(running.public("echo"));
        drop(strangers);
    }
}

/// The start of a connection that never logs in.
fn half_said(scheme: Scheme) -> &'static [u8] {
    if scheme.tls {
        // The head of a record of 16 KiB, and of a ClientHello of that size.
        &[22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc, 3, 3]
    } else if scheme.http {
        b"GET /tunnel HTTP/1.1\r\nHost: x\r\n"
    } else {
        b"TNL1"
    }
}

#[test]
fn strangers_beyond_a_part_of_the_memory_budget_give_way_the_oldest_first() {
    for &scheme in Scheme::ALL.iter().filter(|scheme| scheme.over == Over::Tcp) {
        let echo = Origin::echo();
        let mut setup = Setup::new(scheme).service("echo", echo.port());
        // A quarter for strangers of 32 KiB, on two workers.
        setup.server_lines = "workers: 2\nmemory_budget: 16MiB\n".to_owned() + &setup.server_lines;
        let mut running = setup.start_server();
        let door = running.server_port();
        let strangers: Vec<_> = (0..600)
            .map(|_| {
                let mut stranger = connect(door);
                stranger.write_all(half_said(scheme)).unwrap();
                stranger.set_nonblocking(true).unwrap();
                stranger
            })
            .collect();
        // A server of tcp:// and ws:// speaks first, or not at all.
        let is_open = |mut stranger: &TcpStream| {
            let mut said = [0; 256];
            loop {
                match stranger.read(&mut said) {
                    Ok(0) => return false,
                    Ok(_) => {}
                    Err(e) => return e.kind() == std::io::ErrorKind::WouldBlock,
                }
            }
        };
        let stay = wait("the strangers give way", SOON, || {
            let open = strangers.iter().filter(|stranger| is_open(stranger)).count();
            (open <= 128).then_some(open)
        });
        assert!(stay >= 64, "{scheme:?}: {stay} stay");
        assert!(is_open(&strangers[599]), "{scheme:?}: the newest stays");
        running.start_client();
        running.wait_echo(running.public("echo"));
    }
}

#[test]
fn a_client_that_publishes_all_ports_leaves_descriptors_to_visitors_and_log_ins() {
    for &scheme in Scheme::ALL {
        let echo = Origin::echo();
        let token = String::from_utf8(run(&mut tunnel(&["generate", "token"])).stdout).unwrap();
        let token = token.trim().to_owned();
        let mut setup = Setup::new(scheme).service("echo", echo.port());
        setup.server_starter = limited(256);
        setup.server_lines =
            format!("  - {{ name: greedy, token: \"{token}\", allow: {{ tcp: 40000-59999 }} }}\n");
        let running = setup.start();
        let service = |n| ServiceSpec {
            name: Name::new(&format!("s{n}")).unwrap(),
            public: vec!["tcp://:0".to_owned()],
            terms: ServiceTerms::default(),
        };
        let register = ControlMessage::Register(Register {
            generation: 1,
            services: (0..500).map(service).collect(),
            leaving: false,
            standby: false,
        });
        really(async {
            let mut peer = log_in(&running, "greedy", &token).await;
            peer.tell(&register).await;
            // The answer comes after all ports.
            peer.expect_kind(Kind::Control).await;
            running.server.wait_line(&["not published", "LimitNOFILE"], SOON);
            // A command, a visitor, and another log-in.
            running.status("server").unwrap();
            running.wait_echo(running.public("echo"));
            log_in(&running, "greedy", &token).await;
        });
        let published = running.server.log().matches("published at").count();
        println!("{scheme:?}: {published} ports");
        // Half of the 224 descriptors that visitors may have, and a descriptor per worker.
        assert!((10..=1 + 112).contains(&published), "{published} ports");
    }
}
