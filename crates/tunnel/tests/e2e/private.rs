//! Private services: a client reaches a service of another client through the server, which cannot
//! read it. The stage has a server, the client `home` with services, and the client `laptop`, which
//! visits them.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use testkit::stage::{Daemon, Running};
use testkit::wire::Wire;

use crate::harness::{
    LONG, Origin, SOON, Scheme, Setup, bytes, connect, free_port, program, run, start_sshd,
    try_connect, tunnel, wait,
};

const MB: u64 = 1_000_000;

/// The token of `laptop` for services of `home`.
pub(crate) const VISIT: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";

/// Another token.
const OTHER: &str = "Zt5RkW1xQ8bN4mVc7LpYs2HdJf9GaE3uXeWqBn6Tz0A";

/// The token by which `laptop` logs in.
pub(crate) const LAPTOP: &str = "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYzA1bC2dE3fG";

/// The router of this machine is none of ours to ask.
pub(crate) const NO_ROUTER: &str = "p2p: { candidates: [host, reflexive] }\n";

pub(crate) struct Stage {
    pub(crate) running: Running,
    laptop: Option<Daemon>,
    /// Where `laptop` finds the server.
    server_port: u16,
}

impl Stage {
    /// `home` has these services, each a line of a flow map without braces. `right` is the right of
    /// `laptop`.
    pub(crate) fn new(setup: Setup, right: &str, services: &[String]) -> Self {
        Self::with(setup, right, services, "")
    }

    /// The same with further lines of the server's file.
    pub(crate) fn with(setup: Setup, right: &str, services: &[String], lines: &str) -> Self {
        let mut setup = setup;
        setup.server_lines.push_str(&format!(
            "  - {{ name: laptop, token: {LAPTOP}, allow: {{ visit: {right} }} }}\n{lines}"
        ));
        setup.client_lines.push_str("retry: { min: 20ms, max: 200ms }\n");
        setup.client_lines.push_str(NO_ROUTER);
        let mut running = setup.start_server();
        let server_port = running.server_port();
        running.edit_client(|text| text + &listed(services));
        running.start_client();
        running.client().wait_line(&["is connected to"], SOON);
        Self { running, laptop: None, server_port }
    }

    /// Starts `laptop` with these lines.
    pub(crate) fn visit(&mut self, lines: &str) -> &Daemon {
        // A second process of one name is refused on one machine.
        self.laptop = None;
        let port = self.server_port;
        let (own, old) = (format!(":{port}"), format!(":{}", self.running.server_port()));
        self.laptop = Some(self.running.start_another_client(|text| {
            // The file of `home` without its services.
            let text = text.split("services:").next().unwrap().to_owned();
            let home = text.lines().find(|line| line.starts_with("token:")).unwrap();
            let text = text.replace(home, &format!("token: {LAPTOP}"));
            let text = text.replace("name: home", "name: laptop").replace(&old, &own);
            // A file has one `p2p`.
            let text = if lines.contains("p2p: {") { text.replace(NO_ROUTER, "") } else { text };
            format!("{text}{lines}")
        }));
        self.laptop().wait_line(&["is connected to"], SOON);
        self.laptop.as_ref().unwrap()
    }

    pub(crate) fn laptop(&self) -> &Daemon {
        self.laptop.as_ref().unwrap()
    }

    pub(crate) fn home(&mut self) -> &mut Daemon {
        self.running.client()
    }

    pub(crate) fn another_socket(&self) -> PathBuf {
        self.running.file("another/another.sock")
    }

    /// Changes the services of `home` and reloads it.
    pub(crate) fn publish(&self, services: &[String]) {
        self.running.edit_client(|text| {
            let before = text.split("services:").next().unwrap().to_owned();
            before + &listed(services)
        });
        let output = self.running.reload("client");
        assert!(output.status.success(), "{output:?}");
    }
}

fn listed(services: &[String]) -> String {
    let all: String = services.iter().map(|service| format!("  - {{ {service} }}\n")).collect();
    format!("services:\n{all}")
}

/// A private service for `laptop`.
pub(crate) fn private(name: &str, target: &str) -> String {
    private_for(name, target, &format!("{{ name: laptop, token: {VISIT} }}"))
}

pub(crate) fn private_for(name: &str, target: &str, visitors: &str) -> String {
    format!("name: {name}, public: private, target: \"{target}\", visitors: [{visitors}]")
}

pub(crate) fn tcp(port: u16) -> String {
    format!("tcp://127.0.0.1:{port}")
}

/// A forward of `laptop`.
pub(crate) fn forward(listen: &str, service: &str) -> String {
    format!("  - {{ listen: \"{listen}\", target: \"service://{service}\", token: {VISIT} }}\n")
}

/// The same, which no direct path takes away from the wires.
pub(crate) fn relayed(listen: &str, service: &str) -> String {
    forward(listen, service).replace(" }", ", p2p: relay }")
}

/// Each byte that is sent comes back.
pub(crate) fn echoes(mut stream: impl io::Read + io::Write) -> bool {
    stream.write_all(b"?").is_ok() && stream.read_exact(&mut [0]).is_ok()
}

/// Reads what a visitor sends and answers with as much.
fn swallow_then_send(total: u64) -> Origin {
    Origin::start(move |stream| {
        bytes::expect(&stream, total);
        bytes::send(&stream, total);
        stream.shutdown(Shutdown::Write).unwrap();
        bytes::expect_end(&stream);
    })
}

fn send_then_swallow(port: u16, total: u64) {
    let visitor = connect(port);
    bytes::send(&visitor, total);
    bytes::expect(&visitor, total);
    bytes::expect_end(&visitor);
}

#[test]
fn ssh_visits_by_a_forward_and_by_a_command() {
    let dir = tempfile::tempdir().unwrap();
    let (sshd_port, _sshd, options) = start_sshd(dir.path());
    let mut stage =
        Stage::new(Setup::new(Scheme::TLS), "home/ssh", &[private("ssh", &tcp(sshd_port))]);
    let local = free_port();
    stage.visit(&format!("forwards:\n{}", forward(&tcp(local), "home/ssh")));
    let user = String::from_utf8(run(Command::new("id").arg("-un")).stdout).unwrap();
    let ssh = |more: &[String]| {
        let mut command = Command::new(program("ssh"));
        command.args(&options);
        for option in more {
            command.args(["-o", option]);
        }
        command.arg(format!("{}@127.0.0.1", user.trim())).arg("echo it is $((40 + 2))");
        let output = run(&mut command);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "it is 42\n");
    };
    ssh(&[format!("Port={local}")]);
    let by_command = format!(
        "ProxyCommand={} connect --control {} service://home/ssh",
        crate::harness::binary().display(),
        stage.another_socket().display()
    );
    ssh(&[by_command]);
    // Both visits were over one link.
    let log = stage.home().log();
    assert_eq!(log.matches("visits the private service ssh").count(), 1, "{log}");
}

#[test]
fn programs_visit_by_name_through_the_proxies_of_a_client() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("page.txt"), "private page\n").unwrap();
    let files = format!("file://{}", dir.path().display());
    let mut stage = Stage::new(Setup::new(Scheme::TLS), "home/*", &[private("web", &files)]);
    let (socks, http) = (free_port(), free_port());
    stage.visit(&format!(
        "forwards:\n  - listen: socks5://127.0.0.1:{socks}\n  - listen: http-proxy://127.0.0.1:{http}\n\
         visits:\n  - {{ service: home/web, token: {VISIT} }}\n"
    ));
    let curl = |proxy: &str, url: &str| {
        let mut command = Command::new(program("curl"));
        command.args(["-sS", "--max-time", "60", "--noproxy", "", "-p", "-x", proxy, url]);
        run(&mut command)
    };
    for proxy in [format!("socks5h://127.0.0.1:{socks}"), format!("http://127.0.0.1:{http}")] {
        let output = curl(&proxy, "http://web.home.service.tunnel/page.txt");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "private page\n", "{output:?}");
        let output = curl(&proxy, "http://other.home.service.tunnel/page.txt");
        assert!(!output.status.success(), "{output:?}");
    }
    stage.laptop().wait_line(&["other.home.service.tunnel", "`visits`"], SOON);
}

#[test]
fn unix_sockets_and_datagrams_are_visited_as_tcp_is() {
    let dir = tempfile::tempdir().unwrap();
    let (target, listen) = (dir.path().join("target.sock"), dir.path().join("listen.sock"));
    let origin = std::os::unix::net::UnixListener::bind(&target).unwrap();
    thread::spawn(move || {
        for stream in origin.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || io::copy(&mut stream.try_clone().unwrap(), &mut stream));
        }
    });
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let udp_port = udp.local_addr().unwrap().port();
    thread::spawn(move || {
        let mut datagram = [0; 2048];
        while let Ok((n, from)) = udp.recv_from(&mut datagram) {
            let _ = udp.send_to(&datagram[..n], from);
        }
    });
    let services = [
        private("app", &format!("unix://{}", target.display())),
        private("dns", &format!("udp://127.0.0.1:{udp_port}")),
    ];
    let mut stage = Stage::new(Setup::new(Scheme::TLS), "home/*", &services);
    let local = UdpSocket::bind("127.0.0.1:0").unwrap();
    let udp_local = free_port();
    stage.visit(&format!(
        "forwards:\n{}{}",
        forward(&format!("unix://{}", listen.display()), "home/app"),
        forward(&format!("udp://127.0.0.1:{udp_local}"), "home/dns")
    ));
    let visitor = wait("the socket of the forward", SOON, || UnixStream::connect(&listen).ok());
    visitor.set_read_timeout(Some(LONG)).unwrap();
    assert!(echoes(visitor));
    // The link for datagrams is made at the start.
    stage.home().wait_line(&["visits the private service dns"], LONG);
    local.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    wait("an answer by datagram", LONG, || {
        local.send_to(b"question", ("127.0.0.1", udp_local)).unwrap();
        let mut answer = [0; 64];
        let n = local.recv(&mut answer).ok()?;
        assert_eq!(&answer[..n], b"question");
        Some(())
    });
}

#[test]
fn a_relayed_transfer_outlives_the_carriers_of_all_three_links_and_the_server() {
    let origin = swallow_then_send(60 * MB);
    let setup = Setup::new(Scheme::TLS).wired();
    let mut stage = Stage::new(setup, "home/*", &[private("bulk", &tcp(origin.port()))]);
    let wire = Wire::to(stage.running.server_port());
    stage.server_port = wire.port();
    // The wire of `home` is in its file.
    let (from, to) = (stage.running.wire().port(), stage.running.server_port());
    stage.running.edit_client(|text| text.replace(&format!(":{from}"), &format!(":{to}")));
    let local = free_port();
    stage.visit(&format!("forwards:\n{}", relayed(&tcp(local), "home/bulk")));
    let visitor = thread::spawn(move || send_then_swallow(local, 60 * MB));
    let home = stage.running.wire();
    wait("the first bytes", LONG, || (wire.passed() > 5 * MB).then_some(()));
    wire.kill();
    wait("more bytes", LONG, || (wire.passed() > 15 * MB).then_some(()));
    home.kill();
    wait("more bytes", LONG, || (wire.passed() > 25 * MB).then_some(()));
    // The links to the server end, and with them the carrier of the link between the two clients.
    stage.running.server.kill();
    stage.running.start_server_again();
    stage.laptop().wait_line(&["private service home/bulk", "goes on through the server"], LONG);
    stage.running.wire().kill();
    wire.kill();
    visitor.join().unwrap();
    origin.wait_one(LONG);
}

/// Visits the echo service, waits for a direct path and kills the server. Returns a visitor, whose
/// stream began before that, and what the status says of its link.
fn served_without_the_server(stage: &mut Stage, port: u16) -> (TcpStream, serde_json::Value) {
    let mut visitor = connect(port);
    assert!(echoes(&mut visitor), "the visitor is served before there is a direct path");
    stage.laptop().wait_line(&["private service home/echo", "goes on over a direct path"], LONG);
    stage.running.server.kill();
    stage.laptop().wait_line(&["lost the server"], LONG);
    for _ in 0..3 {
        assert!(echoes(&mut visitor), "the stream goes on without the server");
        assert!(echoes(connect(port)), "and new streams begin");
    }
    let socket = stage.another_socket();
    let status = run(tunnel(&["status", "--json", "--control"]).arg(&socket));
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    let sessions = status["sessions"].as_array().unwrap();
    let of = sessions.iter().find(|session| session["peer"] == "home/echo").unwrap();
    let link = of["links"][0].clone();
    assert_eq!(link["path"]["state"], "direct", "{of}");
    (visitor, link)
}

#[test]
fn a_direct_path_is_taken_while_bytes_flow_and_serves_without_the_server() {
    let origin = Origin::echo();
    let services = [private("echo", &tcp(origin.port()))];
    let mut stage = Stage::new(Setup::new(Scheme::TLS), "home/*", &services);
    let (local, by_relay) = (free_port(), free_port());
    stage.visit(&format!(
        "forwards:\n{}{}",
        forward(&tcp(local), "home/echo"),
        relayed(&tcp(by_relay), "home/other")
    ));
    let (mut visitor, link) = served_without_the_server(&mut stage, local);
    assert!(link["path"]["pair"].as_str().unwrap().contains("host "), "{link}");
    // The server is back: the relayed carrier stands by again, and the stream is the same.
    stage.running.start_server_again();
    stage.laptop().wait_line(&["is connected to", "again, after"], LONG);
    assert!(echoes(&mut visitor));
}

#[test]
fn a_direct_path_over_webrtc_serves_without_the_server() {
    let origin = Origin::echo();
    let services = [private("echo", &tcp(origin.port()))];
    let mut stage = Stage::new(Setup::new(Scheme::TLS), "home/*", &services);
    let local = free_port();
    let forward = forward(&tcp(local), "home/echo").replace(" }", ", p2p: webrtc }");
    stage.visit(&format!("forwards:\n{forward}"));
    let (mut visitor, link) = served_without_the_server(&mut stage, local);
    assert!(link["path"]["pair"].as_str().unwrap().starts_with("WebRTC with "), "{link}");
    assert_eq!(link["carriers"][0]["transport"], "webrtc", "{link}");
    stage.running.start_server_again();
    stage.laptop().wait_line(&["is connected to", "again, after"], LONG);
    assert!(echoes(&mut visitor));
}

#[test]
fn a_forward_of_direct_paths_alone_waits_for_one_and_refuses_without_one() {
    let origin = Origin::echo();
    let services = [private("echo", &tcp(origin.port()))];
    let mut stage = Stage::new(Setup::new(Scheme::TLS), "home/*", &services);
    let local = free_port();
    let direct = forward(&tcp(local), "home/echo").replace(" }", ", p2p: direct }");
    stage.visit(&format!("forwards:\n{direct}"));
    let mut visitor = connect(local);
    assert!(echoes(&mut visitor));
    // The stream began on the direct path, so the move stands in the log by now.
    assert!(stage.laptop().log().contains("over a direct path"), "{}", stage.laptop().log());

    // Without a port there is no socket, and so no direct path.
    let taken = UdpSocket::bind("[::]:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let other = free_port();
    let direct = forward(&tcp(other), "home/echo").replace(" }", ", p2p: direct }");
    stage.visit(&format!(
        "p2p: {{ ports: {port}, candidates: [host, reflexive] }}\nforwards:\n{direct}"
    ));
    let visitor = wait("the forward listens", LONG, || try_connect(other).ok());
    bytes::expect_reset(visitor);
    stage.laptop().wait_line(&["no visit of the private service home/echo", "`p2p.ports`"], LONG);
}

#[test]
fn a_client_whose_services_stay_relayed_says_so_to_the_visitor() {
    let origin = Origin::echo();
    let services = ["echo", "other"].map(|name| private(name, &tcp(origin.port())));
    let mut stage = Stage::new(Setup::new(Scheme::TLS), "home/*", &services);
    let (by_relay, local) = (free_port(), free_port());
    let direct = forward(&tcp(local), "home/echo").replace(" }", ", p2p: direct }");
    stage.running.edit_client(|text| text.replace(NO_ROUTER, "p2p: { candidates: [] }\n"));
    assert!(stage.running.reload("client").status.success());
    stage.running.edit_client(|text| text.replace("p2p: { candidates: [] }\n", NO_ROUTER));
    stage.visit(&format!("forwards:\n{direct}{}", relayed(&tcp(by_relay), "home/other")));
    assert!(echoes(connect(by_relay)));
    bytes::expect_refused(try_connect(local));
    let why = "the configuration of the other side permits relayed paths only";
    stage.laptop().wait_line(&["no visit of the private service home/echo", why], LONG);
}

/// Copies connections to `to`, and keeps every byte.
fn tap(to: u16) -> (u16, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen = Arc::<Mutex<Vec<u8>>>::default();
    let kept = Arc::clone(&seen);
    let copy = move |mut from: TcpStream, mut to: TcpStream, seen: Arc<Mutex<Vec<u8>>>| {
        let mut piece = vec![0; 16 << 10];
        while let Ok(n @ 1..) = from.read(&mut piece) {
            seen.lock().unwrap().extend_from_slice(&piece[..n]);
            if to.write_all(&piece[..n]).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    };
    thread::spawn(move || {
        for near in listener.incoming() {
            let near = near.unwrap();
            let far = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], to))).unwrap();
            let (back, forth) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            let (one, other) = (Arc::clone(&kept), Arc::clone(&kept));
            thread::spawn(move || copy(near, far, one));
            thread::spawn(move || copy(forth, back, other));
        }
    });
    (port, seen)
}

#[test]
fn the_server_carries_bytes_that_it_cannot_read() {
    let echo = Origin::echo();
    // The links to the server have no TLS of their own, so that what the server sees is on the
    // wire.
    let services = [private("echo", &tcp(echo.port()))];
    let mut stage = Stage::new(Setup::new(Scheme::TCP), "home/*", &services);
    let (port, seen) = tap(stage.running.server_port());
    stage.server_port = port;
    let (local, open) = (free_port(), Origin::echo());
    let openly = free_port();
    stage.running.edit_server(|text| {
        let right = "allow: { visit: home/*";
        text.replace(right, &format!("{right}, forward: [\"127.0.0.1:{}\"]", open.port()))
    });
    assert!(stage.running.reload("server").status.success());
    stage.visit(&format!(
        "forwards:\n{}  - {{ listen: {openly}, target: {} }}\n",
        relayed(&tcp(local), "home/echo"),
        open.port()
    ));
    let say = |port: u16, text: &[u8]| {
        let mut visitor = connect(port);
        visitor.write_all(text).unwrap();
        let mut answer = vec![0; text.len()];
        visitor.read_exact(&mut answer).unwrap();
        assert_eq!(answer, text);
    };
    let has = |text: &[u8]| seen.lock().unwrap().windows(text.len()).any(|part| part == text);
    let (secret, open) = (b"a secret that nobody else may read", b"words that anybody may read");
    say(local, secret);
    say(openly, open);
    assert!(has(open), "the tap sees what the server sees");
    assert!(!has(secret), "the server carries TLS of the two clients");
}

#[test]
fn who_may_not_visit_learns_nothing_and_each_reason_has_the_same_answer() {
    let echo = Origin::echo();
    let target = tcp(echo.port());
    let services = [
        private("named", &target),
        private_for("others", &target, &format!("{{ name: \"office-*\", token: {VISIT} }}")),
        format!("name: public, target: \"{target}\", public: \"tcp://:{}\"", free_port()),
    ];
    let mut stage = Stage::new(Setup::new(Scheme::TLS), "[home/others, home/none]", &services);
    let all = ["home/named", "home/others", "home/none", "home/public", "nobody/named"];
    let ports: Vec<_> = all.iter().map(|_| free_port()).collect();
    let forwards = all.iter().zip(&ports).map(|(service, port)| forward(&tcp(*port), service));
    stage.visit(&format!("forwards:\n{}", forwards.collect::<String>()));
    for (service, port) in all.iter().zip(&ports) {
        bytes::expect_refused(try_connect(*port));
        stage.laptop().wait_line(
            &[&format!("no visit of the private service {service}"), "the server refuses"],
            LONG,
        );
    }
    assert!(!stage.home().log().contains("laptop"), "{}", stage.home().log());
    // The refusals differ in the name of the service alone.
    let log = stage.laptop().log();
    let said: std::collections::BTreeSet<_> = log
        .lines()
        .filter_map(|line| line.split_once("no visit of the private service "))
        .map(|(_, rest)| {
            let (service, _) = rest.split_once(':').unwrap();
            let (client, _) = service.split_once('/').unwrap();
            rest.replace(service, "SERVICE").replace(&format!("client {client}"), "client CLIENT")
        })
        .map(|line| line.split("  ").next().unwrap().to_owned())
        .collect();
    let said: std::collections::BTreeSet<_> =
        said.into_iter().map(|line| line.split(" service=").next().unwrap().to_owned()).collect();
    assert_eq!(said.len(), 1, "{said:?}");
}

#[test]
fn a_wrong_token_is_refused_with_the_reason_on_both_sides_and_reaches_no_other_service() {
    let echo = Origin::echo();
    let services = [
        private("right", &tcp(echo.port())),
        private_for("wrong", &tcp(echo.port()), &format!("{{ name: laptop, token: {OTHER} }}")),
    ];
    let mut stage = Stage::new(Setup::new(Scheme::TLS), "home/*", &services);
    let (right, wrong) = (free_port(), free_port());
    stage.visit(&format!(
        "forwards:\n{}{}",
        forward(&tcp(right), "home/right"),
        forward(&tcp(wrong), "home/wrong")
    ));
    assert!(echoes(connect(right)));
    bytes::expect_refused(try_connect(wrong));
    stage.laptop().wait_line(&["home/wrong", "client home refuses the token"], LONG);
    stage.home().wait_line(&["laptop", "private service wrong", "wrong token"], LONG);
    // The command says the reason as well.
    let socket = stage.another_socket();
    let output = run(tunnel(&["connect", "--control"]).arg(&socket).arg("service://home/wrong"));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("client home refuses the token"), "{said}");
}

#[test]
fn a_visitor_waits_for_a_client_that_comes_back_and_is_refused_when_it_stays_away() {
    let echo = Origin::echo();
    let mut stage =
        Stage::new(Setup::new(Scheme::TLS), "home/*", &[private("echo", &tcp(echo.port()))]);
    let local = free_port();
    stage.visit(&format!("forwards:\n{}", forward(&tcp(local), "home/echo")));
    let mut known = connect(local);
    assert!(echoes(&mut known));
    stage.home().kill();
    stage.running.server.wait_line(&["link", "of client home"], LONG);
    let waiting = thread::spawn(move || {
        // A machine that is busy may take longer to start the client than a visitor is kept.
        wait("the visitor is served when the client is back", LONG, || {
            echoes(try_connect(local).ok()?).then_some(())
        });
    });
    stage.running.start_client();
    waiting.join().unwrap();
    // The link of the former process is not known any more, and nobody has to look.
    let log = stage.home().log();
    assert!(!log.contains("does not visit"), "{log}");
    stage.home().kill();
    wait("a refusal", LONG, || {
        let mut visitor = try_connect(local).ok()?;
        (!echoes(&mut visitor)).then_some(())
    });
}

#[test]
fn a_reload_adds_and_removes_visitors() {
    let echo = Origin::echo();
    let target = tcp(echo.port());
    let nobody = private_for("echo", &target, &format!("{{ name: office, token: {VISIT} }}"));
    let mut stage = Stage::new(Setup::new(Scheme::TLS), "home/*", std::slice::from_ref(&nobody));
    let local = free_port();
    stage.visit(&format!("forwards:\n{}", forward(&tcp(local), "home/echo")));
    bytes::expect_refused(try_connect(local));
    stage.publish(&[private("echo", &target)]);
    let mut visitor = wait("a visit", LONG, || {
        let mut visitor = try_connect(local).ok()?;
        echoes(&mut visitor).then_some(visitor)
    });
    // A change of the token ends the visit, as the removal of the visitor does.
    stage.publish(&[nobody]);
    wait("the end of the visit", LONG, || (!echoes(&mut visitor)).then_some(()));
    stage.home().wait_line(&["laptop may not visit the private service echo any more"], SOON);
    bytes::expect_refused(try_connect(local));
}

#[test]
fn a_stop_does_not_wait_for_idle_visits() {
    let echo = Origin::echo();
    let mut stage =
        Stage::new(Setup::new(Scheme::TLS), "home/*", &[private("echo", &tcp(echo.port()))]);
    let local = free_port();
    stage.visit(&format!("forwards:\n{}", forward(&tcp(local), "home/echo")));
    assert!(echoes(connect(local)));
    // Less than `drain_timeout`, which is 120 s.
    let soon = Duration::from_secs(60);
    stage.running.server.terminate();
    assert!(stage.running.server.wait_end(soon).success());
    stage.running.start_server_again();
    wait("a visit after the restart", LONG, || echoes(try_connect(local).ok()?).then_some(()));
    stage.home().terminate();
    assert!(stage.home().wait_end(soon).success());
    stage.running.start_client();
    wait("a visit after the restart", LONG, || echoes(try_connect(local).ok()?).then_some(()));
    let mut laptop = stage.laptop.take().unwrap();
    laptop.terminate();
    assert!(laptop.wait_end(soon).success());
}
