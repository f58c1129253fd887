//! Listening sockets that the service manager holds: those of a socket unit, and those that it
//! keeps over the death of a process.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use rustix::process::Signal;
use testkit::stage::{Daemon, Running};

use crate::harness::{Origin, SOON, Scheme, Setup, connect, free_port, program, run, tunnel, wait};
use crate::manager::{Manager, Store, started_with};
use crate::upgrade::Ended;

/// A proxy with two listeners, and its folder.
struct Proxy {
    dir: tempfile::TempDir,
    origin: Origin,
    ports: [u16; 2],
}

impl Proxy {
    fn new() -> Self {
        let proxy = Self {
            dir: tempfile::tempdir().unwrap(),
            origin: Origin::echo(),
            ports: [free_port(), free_port()],
        };
        proxy.listen(&proxy.ports, 2);
        proxy
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes the file of the configuration, with these listeners and a Unix socket.
    fn listen(&self, ports: &[u16], workers: usize) {
        let target = format!("target: \"tcp://127.0.0.1:{}\"", self.origin.port());
        let at = |listen: String| format!("  - {{ listen: \"{listen}\", {target} }}\n");
        let ports = ports.iter().map(|port| at(format!("tcp://127.0.0.1:{port}")));
        let unix = at(format!("unix://{}", self.file("visitors.sock").display()));
        let control = self.file("proxy.sock");
        let text = format!(
            "control: {}\nworkers: {workers}\nproxies:\n{}",
            control.display(),
            ports.chain([unix]).collect::<String>()
        );
        fs::write(self.file("proxy.yaml"), text).unwrap();
    }

    /// Starts the proxy after these words. Each call needs another name.
    fn start(&self, name: &str, before: &[(String, OwnedFd)], manager: Option<&Manager>) -> Daemon {
        let sockets =
            before.iter().map(|(name, socket)| (name.clone(), socket.try_clone().unwrap()));
        let mut words = started_with(&self.file(&format!("{name}.fds")), sockets.collect());
        let wanted = tunnel(&["proxy", "--config"]);
        words.push(wanted.get_program().into());
        words.extend(wanted.get_args().map(Into::into));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg(self.file("proxy.yaml"));
        command.env_clear().env("HOME", self.dir.path()).env("NO_COLOR", "1");
        if let Some(manager) = manager {
            let (variable, value) = manager.variable();
            command.env(variable, value).env("FDSTORE", "64");
        }
        Daemon::start("proxy", self.dir.path(), &mut command)
    }

    fn names(&self) -> [String; 3] {
        let [one, two] = self.ports.map(|port| format!("tunnel-tcp-127.0.0.1_{port}"));
        [one, two, format!("tunnel-unix-{}", self.file("visitors.sock").display())]
    }
}

/// A group of one address, as one line of a socket unit makes it.
fn unit(port: u16) -> (String, OwnedFd) {
    let listener = net::listen_group(local(port), 1).unwrap().pop().unwrap();
    ("main.socket".to_owned(), listener.into())
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

fn echoes(mut stream: impl Read + Write) -> std::io::Result<()> {
    stream.write_all(b"hello")?;
    let mut read = [0; 5];
    stream.read_exact(&mut read)?;
    assert_eq!(&read, b"hello");
    Ok(())
}

fn is_refused(port: u16) -> bool {
    TcpStream::connect(local(port)).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// Connects of a port one after another, none of which may be refused.
struct Connects {
    is_over: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    thread: JoinHandle<Vec<TcpStream>>,
}

impl Connects {
    fn start(port: u16) -> Self {
        let (is_over, count) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (over, made) = (Arc::clone(&is_over), Arc::clone(&count));
        let thread = thread::spawn(move || {
            let mut waiting = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let visitor = TcpStream::connect(local(port)).expect("a connect is never refused");
                visitor.set_read_timeout(Some(SOON)).unwrap();
                // A queue is bounded (`somaxconn`): the first ones wait to be served.
                if waiting.len() < 50 {
                    waiting.push(visitor);
                }
                made.fetch_add(1, Ordering::Relaxed);
                thread::yield_now();
                if waiting.len() == 50 {
                    thread::sleep(std::time::Duration::from_millis(1));
                }
            }
            waiting
        });
        Self { is_over, count, thread }
    }

    fn go_on(&self) {
        let before = self.count.load(Ordering::Relaxed);
        wait("more connects", SOON, || {
            assert!(!self.thread.is_finished(), "a connect was refused");
            (self.count.load(Ordering::Relaxed) >= before + 20).then_some(())
        });
    }

    /// Ends, and returns the first visitors.
    fn end(self) -> Vec<TcpStream> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

#[test]
fn a_killed_proxy_refuses_no_connect_and_its_next_process_serves_who_waits() {
    let (proxy, mut store) = (Proxy::new(), Store::default());
    let manager = Manager::at(&proxy.file("notify"));
    let names = proxy.names();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut daemon = proxy.start("first", &[], Some(&manager));
    manager.wait("READY", "1");
    // The two ports have a socket for each worker.
    while store.names().len() < 5 {
        store.hear(manager.next());
    }
    let stored = store.names();
    assert!(names.iter().all(|name| stored.contains(name)), "{stored:?}");
    for round in 0..3 {
        daemon.kill();
        // Everybody who connects from now on is served by the next process.
        let visitors = proxy.ports.map(Connects::start);
        let by_file = UnixStream::connect(proxy.file("visitors.sock")).unwrap();
        visitors.iter().for_each(Connects::go_on);
        daemon = proxy.start(&format!("round-{round}"), &store.all(), Some(&manager));
        manager.wait("READY", "1");
        visitors.iter().for_each(Connects::go_on);
        for visitor in visitors.into_iter().flat_map(Connects::end) {
            echoes(visitor).expect("a visitor that waited is served");
        }
        echoes(by_file).unwrap();
        echoes(connect(proxy.ports[0])).unwrap();
        // Nothing is stored a second time, and nothing is taken back.
        assert!(manager.rest().iter().all(|said| said.field("FDNAME").is_none()));
    }
    let log = daemon.log();
    assert!(!log.contains("ERROR") && !log.contains("WARN"), "{log}");
    // A stop refuses, whatever the manager has.
    daemon.terminate();
    assert!(daemon.wait_end(SOON).success());
    manager.rest().into_iter().for_each(|said| store.hear(said));
    assert!(store.names().is_empty(), "{:?}", store.names());
}

#[test]
fn fewer_workers_after_a_crash_leave_no_visitor_in_a_queue_that_nobody_reads() {
    let (proxy, mut store) = (Proxy::new(), Store::default());
    let manager = Manager::at(&proxy.file("notify"));
    let mut daemon = proxy.start("first", &[], Some(&manager));
    while store.names().len() < 5 {
        store.hear(manager.next());
    }
    daemon.kill();
    for workers in [1, 3] {
        proxy.listen(&proxy.ports, workers);
        let mut daemon = proxy.start(&format!("{workers}"), &store.all(), Some(&manager));
        manager.wait("READY", "1");
        for _ in 0..20 {
            proxy.ports.iter().for_each(|&port| echoes(connect(port)).unwrap());
        }
        daemon.kill();
    }
}

#[test]
fn a_listener_that_a_reload_removes_stops_listening_although_it_is_stored() {
    let (proxy, mut store) = (Proxy::new(), Store::default());
    let manager = Manager::at(&proxy.file("notify"));
    let mut daemon = proxy.start("first", &[], Some(&manager));
    while store.names().len() < 5 {
        store.hear(manager.next());
    }
    let all = store.all();
    let [one, two] = proxy.ports;
    proxy.listen(&[one], 2);
    daemon.signal(Signal::HUP);
    manager.wait("FDSTOREREMOVE", "1");
    assert!(is_refused(two));
    echoes(connect(one)).unwrap();
    // The address can be used again at once.
    proxy.listen(&[one, two], 2);
    daemon.signal(Signal::HUP);
    let again = manager.wait("FDSTORE", "1");
    assert!(again.says("FDNAME", &format!("tunnel-tcp-127.0.0.1_{two}")), "{again:?}");
    echoes(connect(two)).unwrap();
    daemon.terminate();
    assert!(daemon.wait_end(SOON).success());
    assert!(is_refused(one) && is_refused(two));
    drop(all);
}

#[test]
fn server_and_client_refuse_no_connect_at_their_listeners_after_a_kill() {
    let origin = Origin::echo();
    let (door, admin) = (free_port(), free_port());
    let mut setup = Setup::new(Scheme::TLS).service("a", origin.port()).forward(origin.port());
    setup.server_lines = format!(
        "workers: 1\nhttp: {{ listen: \"127.0.0.1:{door}\" }}\n\
         admin: {{ listen: \"127.0.0.1:{admin}\", token: q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi }}\n"
    );
    setup.client_lines = "workers: 1\n".to_owned();
    let managers =
        ["server", "client"].map(|role| Manager::at(&setup.dir().join(format!("{role}.notify"))));
    for (env, manager) in [&mut setup.server_env, &mut setup.client_env].into_iter().zip(&managers)
    {
        env.extend([manager.variable(), ("FDSTORE", "64".into())]);
    }
    let port = setup.server_port();
    let mut running = setup.start();
    running.wait_echo(running.public("a"));
    let local = running.local();
    let names = |ports: &[u16]| -> Vec<String> {
        ports.iter().map(|port| format!("tunnel-tcp-127.0.0.1_{port}")).collect()
    };
    for (role, ports) in [("server", vec![port, door, admin]), ("client", vec![local])] {
        let manager = &managers[usize::from(role == "client")];
        let (names, mut store) = (names(&ports), Store::default());
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        store.fill(manager, &names, 1);
        let process = if role == "server" { &mut running.server } else { running.client() };
        process.kill();
        let visitors: Vec<Connects> = ports.iter().copied().map(Connects::start).collect();
        visitors.iter().for_each(Connects::go_on);
        let starter = started_with(&running.file(&format!("{role}.fds")), store.all());
        running.start_again(role, starter);
        manager.wait("READY", "1");
        visitors.iter().for_each(Connects::go_on);
        visitors.into_iter().for_each(|visitors| drop(visitors.end()));
        running.wait_echo(running.public("a"));
        running.wait_echo(local);
    }
}

/// The client ends, and the server closes the listeners of its services.
fn leave(running: &mut Running) {
    running.client().terminate();
    assert!(running.client().wait_end(SOON).success());
    wait("the end of the session", SOON, || {
        let status = running.status("server")?;
        status["sessions"].as_array()?.is_empty().then_some(())
    });
}

#[test]
fn a_port_of_a_service_in_a_socket_unit_is_open_while_its_client_is_away() {
    let origin = Origin::echo();
    let public = free_port();
    let mut setup = Setup::new(Scheme::TLS).service_on("a", origin.port(), public);
    setup.server_lines.push_str("workers: 2\n");
    let listener = |port: u16| {
        let everywhere = net::bindable(SocketAddr::from(([0; 16], port))).unwrap();
        OwnedFd::from(net::listen_group(everywhere, 1).unwrap().pop().unwrap())
    };
    let socket = listener(public);
    setup.server_starter = started_with(
        &setup.dir().join("server.fds"),
        vec![("main.socket".to_owned(), socket.try_clone().unwrap())],
    );
    // A visitor before the server, and one while the client is dead.
    let early = TcpStream::connect(local(public)).unwrap();
    let mut running = setup.start();
    echoes(early).unwrap();
    running.wait_echo(public);
    for _ in 0..2 {
        leave(&mut running);
        let waits = TcpStream::connect(local(public)).unwrap();
        running.start_client();
        echoes(waits).unwrap();
    }
    // An upgrade hands the port over, also while nobody has it.
    let _ended = Ended(running.file("server.sock"));
    let upgraded = run(tunnel(&["upgrade", "--control"]).arg(running.file("server.sock")));
    assert!(upgraded.status.success(), "{upgraded:?}");
    leave(&mut running);
    let upgraded = run(tunnel(&["upgrade", "--control"]).arg(running.file("server.sock")));
    assert!(upgraded.status.success(), "{upgraded:?}");
    let waits = TcpStream::connect(local(public)).unwrap();
    running.start_client();
    echoes(waits).unwrap();
    let stopped = run(tunnel(&["stop", "--now", "--control"]).arg(running.file("server.sock")));
    assert!(stopped.status.success(), "{stopped:?}");
    // The unit still listens.
    wait("the last process", SOON, || (!running.file("server.sock").exists()).then_some(()));
    TcpStream::connect(local(public)).unwrap();
}

#[test]
fn descriptors_that_nothing_wants_are_named_and_closed_and_no_child_gets_any() {
    let proxy = Proxy::new();
    let manager = Manager::at(&proxy.file("notify"));
    let (other, former) = (free_port(), free_port());
    let stored = OwnedFd::from(TcpListener::bind(local(former)).unwrap());
    let by_file = UnixListener::bind(proxy.file("other.sock")).unwrap();
    let sockets = vec![
        unit(proxy.ports[0]),
        unit(other),
        (format!("tunnel-tcp-127.0.0.1_{former}"), stored),
        ("main.socket".to_owned(), by_file.into()),
        ("config".to_owned(), fs::File::open(proxy.file("proxy.yaml")).unwrap().into()),
    ];
    let mut daemon = proxy.start("first", &sockets, Some(&manager));
    manager.wait("READY", "1");
    // What a former process has stored is taken back, and listens no more although this test has
    // it.
    let removed = manager.wait("FDSTOREREMOVE", "1");
    assert!(removed.says("FDNAME", &format!("tunnel-tcp-127.0.0.1_{former}")), "{removed:?}");
    assert!(is_refused(former));
    for words in [
        vec!["error", &format!("tcp://127.0.0.1:{other}"), "is closed"],
        vec!["error", &format!("tcp://127.0.0.1:{former}"), "is closed"],
        vec!["error", "other.sock", "is closed"],
        vec!["error", "descriptor 7 (config)", "no listening socket"],
    ] {
        daemon.wait_one_line(&words, SOON);
    }
    assert!(!daemon.log().contains(&format!("tcp://127.0.0.1:{} ", proxy.ports[0])));
    echoes(connect(proxy.ports[0])).unwrap();
    echoes(connect(proxy.ports[1])).unwrap();
    // A unit's socket is left alone.
    TcpStream::connect(local(other)).unwrap();
    let inode = |link: &std::path::Path| fs::read_link(link).map(|link| link.display().to_string());
    let process = format!("/proc/{}", daemon.id());
    let open: Vec<(String, String)> = fs::read_dir(format!("{process}/fd"))
        .unwrap()
        .filter_map(|entry| {
            let entry = entry.unwrap();
            let number = entry.file_name().into_string().unwrap();
            Some((number, inode(&entry.path()).ok()?))
        })
        .collect();
    for (number, link) in &open {
        if link.starts_with("socket:") {
            // The stream of a visitor that has left is closed meanwhile.
            let info = fs::read_to_string(format!("{process}/fdinfo/{number}"));
            let Ok(info) = info else { continue };
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
            let flags = u32::from_str_radix(flags.trim(), 8).unwrap();
            assert!(flags & 0o2_000_000 != 0, "a child inherits {number} ({link})");
        }
    }
    let number_of =
        |socket: &OwnedFd| format!("socket:[{}]", rustix::fs::fstat(socket).unwrap().st_ino);
    let is_open = |nth: usize| {
        let link = number_of(&sockets[nth].1);
        open.iter().any(|(_, open)| *open == link)
    };
    assert_eq!([0, 1, 2, 3].map(is_open), [true, false, false, false]);

    // The next process of an upgrade has no descriptors from its start.
    let _ended = Ended(proxy.file("proxy.sock"));
    let upgraded = run(tunnel(&["upgrade", "--control"]).arg(proxy.file("proxy.sock")));
    assert!(upgraded.status.success(), "{upgraded:?}");
    assert!(daemon.wait_end(SOON).success());
    let main = loop {
        if let Some(main) = manager.next().field("MAINPID") {
            break main.to_owned();
        }
    };
    let environment = fs::read(format!("/proc/{main}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment).into_owned();
    assert!(environment.contains("NOTIFY_SOCKET=") && !environment.contains("LISTEN_"));
    // It knows that the unit has the first port: a reload may close the listener and open it again.
    for ports in [&proxy.ports[1..], &proxy.ports[..]] {
        proxy.listen(ports, 2);
        let reload = run(tunnel(&["reload", "--control"]).arg(proxy.file("proxy.sock")));
        assert!(reload.status.success(), "{reload:?}");
    }
    echoes(connect(proxy.ports[0])).unwrap();
    let stopped = run(tunnel(&["stop", "--now", "--control"]).arg(proxy.file("proxy.sock")));
    assert!(stopped.status.success(), "{stopped:?}");
}

#[test]
fn descriptors_for_another_process_and_wrong_numbers_do_no_harm() {
    for (variable, value, line) in [
        ("LISTEN_PID", "1", None),
        ("LISTEN_FDS", "4", Some("descriptor 6 is not open")),
        ("LISTEN_FDS", "-1", Some("is no number of descriptors")),
        ("LISTEN_FDS", "2000000000", Some("more than 16384 sockets")),
    ] {
        let proxy = Proxy::new();
        let wanted = tunnel(&["proxy", "--config"]);
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "export LISTEN_PID=$$ LISTEN_FDS=0; export \"$0\"; exec \"$@\""]);
        command.arg(format!("{variable}={value}")).arg(wanted.get_program());
        command.args(wanted.get_args()).arg(proxy.file("proxy.yaml"));
        command.env("HOME", proxy.dir.path()).env("NO_COLOR", "1").env_remove("NOTIFY_SOCKET");
        let mut daemon = Daemon::start("proxy", proxy.dir.path(), &mut command);
        daemon.wait_line(&["proxy with 3 listeners"], SOON);
        match line {
            Some(line) => drop(daemon.wait_line(&["error", line], SOON)),
            None => assert!(!daemon.log().contains("ERROR"), "{}", daemon.log()),
        }
        echoes(connect(proxy.ports[1])).unwrap();
        daemon.terminate();
        assert!(daemon.wait_end(SOON).success());
    }
}

#[test]
fn an_address_that_differs_from_the_socket_unit_is_named_when_the_start_fails() {
    let proxy = Proxy::new();
    let port = proxy.ports[0];
    let everywhere = net::listen_group(SocketAddr::from(([0; 4], port)), 1).unwrap().pop().unwrap();
    let sockets = [("main.socket".to_owned(), OwnedFd::from(everywhere))];
    let mut daemon = proxy.start("first", &sockets, None);
    assert_eq!(daemon.wait_end(SOON).code(), Some(1));
    daemon
        .wait_one_line(&["error", &format!("tcp://0.0.0.0:{port}"), "has no listener here"], SOON);
    daemon.wait_line(&[&format!("cannot listen on tcp://127.0.0.1:{port}")], SOON);
}

#[test]
fn the_program_of_systemd_starts_a_proxy_at_the_first_visitor() {
    let proxy = Proxy::new();
    let mut command = Command::new(program("systemd-socket-activate"));
    let home = format!("HOME={}", proxy.dir.path().display());
    command.args(["-l", &local(proxy.ports[0]).to_string(), "-E", &home]);
    let wanted = tunnel(&["proxy", "--config"]);
    command.arg(wanted.get_program()).args(wanted.get_args()).arg(proxy.file("proxy.yaml"));
    let mut daemon = Daemon::start("proxy", proxy.dir.path(), &mut command);
    let visitor = wait("the socket", SOON, || TcpStream::connect(local(proxy.ports[0])).ok());
    echoes(visitor).unwrap();
    echoes(connect(proxy.ports[0])).unwrap();
    daemon.terminate();
    assert!(daemon.wait_end(SOON).success(), "{}", daemon.log());
}
