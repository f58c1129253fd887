//! One client of two servers: `use: all` and `failover`, services and forwards at named servers,
//! and servers that a reload adds and removes.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Output;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testkit::stage::Daemon;

use crate::harness::{
    LONG, Origin, SOON, connect, free_port, run, try_connect, tunnel, wait, wait_listening,
};

const TOKEN: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";

/// Two servers and the file of a client.
pub(crate) struct Stage {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) servers: [Server; 2],
    client: Option<Daemon>,
    pub(crate) origin: Origin,
}

/// A server with one public port.
pub(crate) struct Server {
    name: &'static str,
    port: u16,
    pub(crate) public: u16,
    pub(crate) daemon: Daemon,
}

impl Stage {
    /// Starts the servers. The client's file gets `rest` behind its servers. `{0}` and `{1}` stand
    /// for the public ports of the servers, `{o}` for the port of the origin.
    pub(crate) fn new(rest: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let origin = Origin::echo();
        let servers = ["fra", "nyc"].map(|name| {
            let (port, public) = (free_port(), free_port());
            fs::write(
                dir.path().join(format!("{name}.yaml")),
                format!(
                    "listen: tcp://127.0.0.1:{port}\nstate_dir: {at}/{name}-state\n\
                     control: {at}/{name}.sock\n\
                     clients:\n  - name: home\n    token: {TOKEN}\n    \
                     allow: {{ tcp: [{public}], forward: ['127.0.0.1:{}'] }}\n",
                    origin.port(),
                    at = dir.path().display(),
                ),
            )
            .unwrap();
            let daemon = daemon(dir.path(), "server", name);
            wait_listening(port, SOON);
            Server { name, port, public, daemon }
        });
        let stage = Self { dir, servers, client: None, origin };
        stage.write(&stage.both(), rest);
        stage
    }

    /// `servers:` with both servers.
    fn both(&self) -> String {
        let entries = self.servers.iter().map(|server| {
            format!("  - {{ name: {}, paths: 'tcp://127.0.0.1:{}' }}\n", server.name, server.port)
        });
        format!("servers:\n{}", entries.collect::<String>())
    }

    fn write(&self, servers: &str, rest: &str) {
        let [fra, nyc] = [0, 1].map(|n: usize| self.servers[n].public.to_string());
        let rest = rest.replace("{0}", &fra).replace("{1}", &nyc);
        let rest = rest.replace("{o}", &self.origin.port().to_string());
        let at = self.dir.path().display();
        let text = format!(
            "{servers}name: home\ntoken: {TOKEN}\nstate_dir: {at}/client-state\n\
             control: {at}/client.sock\n{rest}"
        );
        fs::write(self.dir.path().join("client.yaml"), text).unwrap();
    }

    pub(crate) fn start(&mut self) {
        self.client = Some(daemon(self.dir.path(), "client", "client"));
    }

    pub(crate) fn client(&self) -> &Daemon {
        self.client.as_ref().unwrap()
    }

    pub(crate) fn start_server(&mut self, n: usize) {
        self.servers[n].daemon = daemon(self.dir.path(), "server", self.servers[n].name);
        wait_listening(self.servers[n].port, SOON);
    }

    pub(crate) fn command(&self, words: &[&str]) -> Output {
        let socket = self.dir.path().join("client.sock");
        run(tunnel(words).arg("--control").arg(socket))
    }

    fn status(&self) -> Option<serde_json::Value> {
        let output = self.command(&["status", "--json"]);
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// Waits until each server has this state: `up`, `standby` or `down`.
    pub(crate) fn wait_states(&self, states: [&str; 2]) {
        wait(&format!("the states {states:?}"), LONG, || {
            let status = self.status()?;
            let sessions = status["sessions"].as_array()?.clone();
            let is_so = self.servers.iter().zip(states).all(|(server, state)| {
                let own = sessions.iter().find(|one| one["peer"] == server.name);
                let Some(own) = own else { return state == "gone" };
                let live = own["links"]
                    .as_array()
                    .is_some_and(|links| links.iter().any(|link| link["state"] == "up"));
                let stands_by = own["standby"] == true;
                let serves = own["services"]
                    .as_array()
                    .is_some_and(|all| all.iter().any(|service| service["state"] == "up"));
                match state {
                    "up" => live && !stands_by && serves,
                    "standby" => live && stands_by && !serves,
                    _ => !live,
                }
            });
            is_so.then_some(())
        });
    }

    /// Waits until `tunnel clients` of a server says whether the client stands by there.
    pub(crate) fn wait_known(&self, n: usize, stands_by: bool) {
        let socket = self.dir.path().join(format!("{}.sock", self.servers[n].name));
        wait(&format!("server {n} to know that it stands by: {stands_by}"), LONG, || {
            let output = run(tunnel(&["clients", "--json"]).arg("--control").arg(&socket));
            let clients: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
            let home = &clients["list"][0];
            let is_told = home["state_text"].as_str()?.ends_with(", stands by");
            let is_so = (home["standby"] == true, is_told) == (stands_by, stands_by);
            (is_so && home["state"] == "connected").then_some(())
        });
    }

    /// Waits until the client has counted these takeovers of each server.
    pub(crate) fn wait_takeovers(&self, counts: [u64; 2]) {
        wait(&format!("the takeovers {counts:?}"), LONG, || {
            let status = self.status()?;
            let sessions = status["sessions"].as_array()?;
            let is_so = self.servers.iter().zip(counts).all(|(server, count)| {
                let own = sessions.iter().find(|one| one["peer"] == server.name);
                own.is_some_and(|own| own["server"]["takeovers"] == count)
            });
            is_so.then_some(())
        });
    }

    pub(crate) fn echoes(&self, n: usize) -> bool {
        try_connect(self.servers[n].public).is_ok_and(|stream| echo(stream).is_some())
    }
}

fn daemon(dir: &std::path::Path, role: &str, name: &str) -> Daemon {
    let mut command = tunnel(&[role, "--config"]);
    command.arg(dir.join(format!("{name}.yaml"))).env("HOME", dir);
    Daemon::start(name, dir, &mut command)
}

pub(crate) fn echo(mut stream: TcpStream) -> Option<TcpStream> {
    stream.set_read_timeout(Some(SOON)).ok()?;
    stream.write_all(b"?").ok()?;
    stream.read_exact(&mut [0]).ok()?;
    Some(stream)
}

/// Ports differ where the servers run on one machine, so each service names its server.
pub(crate) const EACH: &str = "services:\n\
    \x20 - { name: at-fra, target: 'tcp://127.0.0.1:{o}', public: '{0}', servers: fra }\n\
    \x20 - { name: at-nyc, target: 'tcp://127.0.0.1:{o}', public: '{1}', servers: nyc }\n";

#[test]
fn services_are_at_every_server_and_a_server_that_dies_takes_no_other_visitor() {
    let mut stage = Stage::new(EACH);
    stage.start();
    stage.wait_states(["up", "up"]);
    let stays = echo(connect(stage.servers[1].public)).unwrap();
    assert!(stage.echoes(0) && stage.echoes(1));
    stage.servers[0].daemon.kill();
    for _ in 0..50 {
        assert!(stage.echoes(1), "a visitor of the other server has failed");
    }
    assert!(echo(stays).is_some());
    let said = stage.command(&["status"]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("fra") && said.contains("nyc"), "{said}");
    stage.start_server(0);
    stage.wait_states(["up", "up"]);
    wait("a visitor of the server that is back", LONG, || stage.echoes(0).then_some(()));
}

#[test]
fn the_next_server_takes_over_within_a_second_and_the_first_stands_by_afterwards() {
    let services = "use: failover\nservices:\n\
        \x20 - { name: at-fra, target: 'tcp://127.0.0.1:{o}', public: '{0}', servers: fra }\n\
        \x20 - { name: at-nyc, target: 'tcp://127.0.0.1:{o}', public: '{1}', servers: nyc }\n";
    let mut stage = Stage::new(services);
    stage.start();
    stage.wait_states(["up", "standby"]);
    assert!(stage.echoes(0));
    assert!(try_connect(stage.servers[1].public).is_err(), "a server that stands by has no port");
    stage.wait_known(0, false);
    stage.wait_known(1, true);
    stage.servers[0].daemon.kill();
    let start = Instant::now();
    wait("the other server", LONG, || stage.echoes(1).then_some(()));
    let took = start.elapsed();
    println!("the next server served after {took:?}");
    stage.wait_takeovers([0, 1]);
    // 0.5 s of grace and a round trip; the rest is for a busy machine.
    assert!(took < Duration::from_secs(5), "{took:?}");
    stage.start_server(0);
    stage.wait_states(["standby", "up"]);
    assert!(stage.echoes(1));
    stage.wait_known(0, true);
    stage.wait_known(1, false);
}

#[test]
fn a_forward_goes_to_another_server_without_an_error() {
    let local = [free_port(), free_port()];
    let proxy = free_port();
    let rest = format!(
        "{EACH}forwards:\n\
         \x20 - {{ listen: 'tcp://127.0.0.1:{}', target: 'tcp://127.0.0.1:{{o}}' }}\n\
         \x20 - {{ listen: 'tcp://127.0.0.1:{}', target: 'tcp://127.0.0.1:{{o}}', server: nyc }}\n\
         \x20 - 'socks5://127.0.0.1:{proxy}'\n",
        local[0], local[1]
    );
    for policy in ["all", "failover"] {
        let mut stage = Stage::new(&format!("use: {policy}\n{rest}"));
        stage.start();
        stage.wait_states(["up", if policy == "all" { "up" } else { "standby" }]);
        let through = |at: u16| echo(connect(at)).is_some();
        let origin = stage.origin.port();
        let by_proxy = || socks(proxy, origin).and_then(echo).is_some();
        assert!(through(local[0]) && through(local[1]) && by_proxy());
        stage.servers[0].daemon.kill();
        assert!((0..10).all(|_| by_proxy()), "{policy}: a program of the proxy has failed");
        for _ in 0..50 {
            assert!(through(local[0]), "{policy}: a program has seen an error");
        }
        assert!(through(local[1]));
        stage.start_server(0);
        stage.servers[1].daemon.kill();
        // The first server is back, and the program waits for a link to it.
        wait("a forward by the first server", LONG, || try_connect(local[0]).ok().and_then(echo));
    }
}

#[test]
fn a_reload_that_brings_a_choice_measures_the_servers() {
    let mut stage = Stage::new("");
    let port = stage.servers[0].port;
    stage.write(&format!("servers: 'tcp://127.0.0.1:{port}'\n"), "");
    stage.start();
    wait("the only server", LONG, || {
        let status = stage.status()?;
        (!status["sessions"][0]["links"].as_array()?.is_empty()).then_some(())
    });
    stage.write(&stage.both(), "use: nearest\n");
    let said = stage.command(&["reload"]);
    assert!(said.status.success(), "{said:?}");
    wait("a measurement of each server", LONG, || {
        let status = stage.status()?;
        let measured = ["fra", "nyc"].map(|name| {
            let sessions = status["sessions"].as_array().unwrap().iter();
            let mut own = sessions.filter(|one| one["peer"] == name);
            own.any(|one| one["server"]["rtt_micros"].as_u64().is_some())
        });
        (measured == [true; 2]).then_some(())
    });
}

#[test]
fn a_stream_of_a_forward_that_a_server_has_not_served_goes_on_at_the_next_and_is_counted() {
    let local = free_port();
    let forward = format!(
        "forwards: [{{ listen: 'tcp://127.0.0.1:{local}', target: 'tcp://127.0.0.1:{{o}}' }}]\n"
    );
    let mut stage = Stage::new(&format!("{EACH}{forward}"));
    stage.start();
    stage.wait_states(["up", "up"]);
    // The server takes the stream and does not answer, and after its end nobody has served it.
    stage.servers[0].daemon.signal(Signal::STOP);
    let waiting = connect(local);
    wait("the stream at the silent server", LONG, || {
        let status = stage.status()?;
        let sessions = status["sessions"].as_array()?.iter();
        let mut own = sessions.filter(|one| one["peer"] == "fra");
        let links = own.next()?["links"].as_array()?.clone();
        links.iter().any(|link| link["streams"] == 1).then_some(())
    });
    stage.servers[0].daemon.kill();
    stage.start_server(0);
    assert!(echo(waiting).is_some(), "the program has seen an error");
    let failovers = |status: &serde_json::Value| {
        let sessions = status["sessions"].as_array().unwrap().iter();
        let forwards = sessions.flat_map(|one| one["forwards"].as_array().unwrap());
        forwards.filter_map(|one| one["failovers"].as_u64()).sum::<u64>()
    };
    assert!(failovers(&stage.status().unwrap()) > 0);
}

#[test]
fn a_reload_that_removes_the_server_in_charge_leaves_the_services_at_the_next() {
    let mut stage = Stage::new(&format!("use: failover\n{EACH}"));
    stage.start();
    stage.wait_states(["up", "standby"]);
    let at_fra = echo(connect(stage.servers[0].public)).unwrap();
    let nyc = &stage.servers[1];
    let (nyc, local) = (format!("servers: ['nyc=tcp://127.0.0.1:{}']\n", nyc.port), free_port());
    let service = EACH.replace(EACH.lines().nth(1).unwrap(), "");
    // A forward comes in the same reload.
    let forward = format!(
        "forwards: [{{ listen: 'socks5://127.0.0.1:{local}', server: nyc }}]\nuse: failover\n"
    );
    stage.write(&nyc, &format!("{service}{forward}"));
    let said = stage.command(&["reload"]);
    assert!(said.status.success(), "{said:?}");
    wait("the services at the other server", LONG, || stage.echoes(1).then_some(()));
    assert!(echo(at_fra).is_some(), "a stream over the removed server has ended");
    assert!(echo(wait("the proxy", LONG, || socks(local, stage.origin.port()))).is_some());
}

/// A connection through a SOCKS5 proxy (RFC 1928), without a password.
fn socks(at: u16, to: u16) -> Option<TcpStream> {
    let mut stream = try_connect(at).ok()?;
    stream.set_read_timeout(Some(SOON)).ok()?;
    stream.write_all(&[5, 1, 0]).ok()?;
    stream.read_exact(&mut [0; 2]).ok()?;
    let [high, low] = to.to_be_bytes();
    stream.write_all(&[5, 1, 0, 1, 127, 0, 0, 1, high, low]).ok()?;
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).ok()?;
    (answer[1] == 0).then_some(stream)
}

#[test]
fn a_reload_adds_and_removes_servers_and_loses_no_stream() {
    let mut stage = Stage::new(EACH);
    let [fra, nyc] = [0, 1].map(|n: usize| {
        let server = &stage.servers[n];
        format!("servers: [{{ name: {}, url: 'tcp://127.0.0.1:{}' }}]\n", server.name, server.port)
    });
    let service = |n: usize| EACH.replace(EACH.lines().nth(2 - n).unwrap(), "");
    stage.write(&fra, &service(0));
    stage.start();
    wait("the first server", LONG, || stage.echoes(0).then_some(()));
    let at_fra = echo(connect(stage.servers[0].public)).unwrap();

    stage.write(&stage.both(), EACH);
    let said = stage.command(&["reload"]);
    assert!(said.status.success(), "{said:?}");
    stage.wait_states(["up", "up"]);
    let at_nyc = echo(connect(stage.servers[1].public)).unwrap();
    let at_fra = echo(at_fra).unwrap();

    stage.write(&nyc, &service(1));
    let said = stage.command(&["reload"]);
    assert!(said.status.success(), "{said:?}");
    wait("the port of the removed server to close", LONG, || {
        try_connect(stage.servers[0].public).is_err().then_some(())
    });
    assert!(echo(at_fra).is_some(), "a stream over the removed server has ended");
    assert!(echo(at_nyc).is_some() && stage.echoes(1));

    stage.write(&nyc, &format!("use: most\n{}", service(1)));
    let said = stage.command(&["reload"]);
    let complaint = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(complaint.contains("unknown policy `most` of servers"), "{complaint}");
    assert!(stage.echoes(1));
}

/// An API that names servers. The text is its whole answer; without a text it closes at once.
fn api(answer: &Arc<Mutex<String>>) -> Origin {
    let answer = Arc::clone(answer);
    Origin::start(move |mut stream: TcpStream| {
        let mut head = [0; 2048];
        let _ = stream.read(&mut head);
        let _ = stream.write_all(answer.lock().unwrap().as_bytes());
    })
}

fn named(server: &Server) -> String {
    let body = format!(
        "{{\"servers\": [{{\"name\": \"{}\", \"paths\": [\"tcp://127.0.0.1:{}\"]}}]}}",
        server.name, server.port
    );
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    )
}

#[test]
fn an_api_names_the_servers_and_a_failure_changes_nothing() {
    let mut stage = Stage::new("");
    let answer = Arc::new(Mutex::new(named(&stage.servers[0])));
    let source = api(&answer);
    let from = format!("servers_from: 'http://127.0.0.1:{}/servers'\n", source.port());
    stage.write(&from, EACH);
    stage.start();
    wait("the first server", LONG, || stage.echoes(0).then_some(()));
    // The client asks again when it has no link, and a failure changes nothing. The other kinds of
    // failures are cases of `client/src/found/tests.rs`.
    let failed = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";
    *answer.lock().unwrap() = failed.to_owned();
    stage.servers[0].daemon.kill();
    let client = stage.client.as_ref().unwrap();
    client.wait_line(&["WARN", "names no servers, so the former stay"], LONG);
    stage.start_server(0);
    wait("the first server again", LONG, || stage.echoes(0).then_some(()));
    *answer.lock().unwrap() = named(&stage.servers[1]);
    stage.servers[0].daemon.kill();
    wait("the server that the API names now", LONG, || stage.echoes(1).then_some(()));

    // A start without the API uses the last answer.
    *answer.lock().unwrap() = String::new();
    stage.client = None;
    stage.start();
    let client = stage.client.as_ref().unwrap();
    client.wait_line(&["WARN", "of its last answer are used"], LONG);
    wait("the server of the last answer", LONG, || stage.echoes(1).then_some(()));
    let said = stage.command(&["reload"]);
    assert!(said.status.success(), "{said:?}");
    assert!(stage.echoes(1), "a reload keeps the servers that were found");
}
