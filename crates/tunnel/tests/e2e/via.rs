//! A client that reaches one of its two servers through the other server (`via` of a path).

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use serde_json::Value;
use testkit::stage::Daemon;
use testkit::wire::{Entry, Wire};

use crate::harness::{
    LONG, Origin, SOON, bytes, connect, free_port, run, try_connect, tunnel, wait, wait_listening,
};

const TOKEN: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";

/// The bytes of a transfer in each direction.
const TOTAL: u64 = 40_000_000;

/// The right of the client at the second server to go to the first server.
const RIGHT: &str = "via: ['127.0.0.1:1-65535']";

/// The servers `fra` and `nyc`, and a wire between the client and `tls://` of `fra`.
struct Stage {
    dir: tempfile::TempDir,
    /// The ports of `fra` by scheme: `tls`, `wss`, `tcp`, `ws`.
    ports: [u16; 4],
    /// The public port of `fra`.
    public: u16,
    nyc: u16,
    direct: Wire,
    servers: [Daemon; 2],
    client: Option<Daemon>,
    origin: Origin,
}

impl Stage {
    /// Starts the servers. `right`: what the client may reach through `nyc`. The direct path is
    /// closed.
    fn new(right: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().display();
        let (ports, public, nyc) = ([0; 4].map(|_: u16| free_port()), free_port(), free_port());
        let [tls, wss, tcp, ws] = ports;
        let listen = format!(
            "[tls://127.0.0.1:{tls}, wss://127.0.0.1:{wss}/t, tcp://127.0.0.1:{tcp}, \
             ws://127.0.0.1:{ws}/t]"
        );
        let other = format!("tls://127.0.0.1:{nyc}");
        let mut servers = Vec::new();
        for (name, listen, allow, port) in [
            ("fra", listen, format!("tcp: [{public}]"), tls),
            ("nyc", other, right.to_owned(), nyc),
        ] {
            let text = format!(
                "listen: {listen}\nstate_dir: {at}/{name}-state\ncontrol: {at}/{name}.sock\n\
                 clients:\n  - name: home\n    token: {TOKEN}\n    allow: {{ {allow} }}\n"
            );
            fs::write(dir.path().join(format!("{name}.yaml")), text).unwrap();
            servers.push(daemon(dir.path(), "server", name));
            wait_listening(port, SOON);
        }
        let servers = servers.try_into().unwrap();
        let (direct, origin) = (Wire::to(tls), Origin::echo());
        direct.entry(Entry::Refused);
        Self { dir, ports, public, nyc, direct, servers, client: None, origin }
    }

    fn run(&self, daemon: &str, words: &[&str]) -> Output {
        run(tunnel(words).arg("--control").arg(self.dir.path().join(format!("{daemon}.sock"))))
    }

    fn text(&self, daemon: &str, words: &[&str]) -> String {
        let output = self.run(daemon, words);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn status(&self, daemon: &str) -> Value {
        serde_json::from_str(&self.text(daemon, &["status", "--json"])).unwrap()
    }

    fn pin(&self, server: &str) -> String {
        self.status(server)["pins"][0].as_str().unwrap().to_owned()
    }

    /// The entry of `fra` with these paths behind the direct path.
    fn fra(&self, paths: &str) -> String {
        let (pin, direct) = (self.pin("fra"), self.direct.port());
        format!(
            "  - name: fra\n    paths:\n      - {{ url: 'tls://127.0.0.1:{direct}', tls: {{ pin: \
             '{pin}' }} }}\n{paths}"
        )
    }

    fn nyc(&self) -> String {
        let pin = self.pin("nyc");
        format!(
            "  - {{ name: nyc, url: 'tls://127.0.0.1:{}', tls: {{ pin: '{pin}' }} }}\n",
            self.nyc
        )
    }

    /// A path to `fra` through `nyc`.
    fn detour(&self, url: &str) -> String {
        let pin = self.pin("fra");
        format!("      - {{ url: '{url}', via: nyc, tls: {{ pin: '{pin}' }} }}\n")
    }

    fn through(&self) -> String {
        format!("tls://127.0.0.1:{}", self.ports[0])
    }

    fn write(&self, servers: &str) {
        let at = self.dir.path().display();
        let text = format!(
            "servers:\n{servers}name: home\ntoken: {TOKEN}\nstate_dir: {at}/client-state\n\
             control: {at}/client.sock\nservices:\n  - {{ name: echo, target: \
             'tcp://127.0.0.1:{}', public: '{}', servers: fra }}\n",
            self.origin.port(),
            self.public
        );
        fs::write(self.dir.path().join("client.yaml"), text).unwrap();
    }

    fn start(&mut self) {
        self.client = Some(daemon(self.dir.path(), "client", "client"));
    }

    fn client(&mut self) -> &mut Daemon {
        self.client.as_mut().unwrap()
    }

    fn wait_echo(&self) {
        wait("a visitor of fra", LONG, || {
            try_connect(self.public).is_ok_and(|stream| echo(stream).is_some()).then_some(())
        });
    }

    /// The transports of the carriers to `fra` with the server through which they lead.
    fn carriers(&self) -> Vec<(String, Option<String>)> {
        let status = self.status("client");
        let sessions = status["sessions"].as_array().unwrap().clone();
        let own = sessions.iter().filter(|one| one["peer"] == "fra");
        let links = own.flat_map(|one| one["links"].as_array().cloned().unwrap_or_default());
        let text = |value: &Value| value.as_str().map(str::to_owned);
        links
            .flat_map(|link| link["carriers"].as_array().cloned().unwrap_or_default())
            .map(|carrier| (text(&carrier["transport"]).unwrap(), text(&carrier["via"])))
            .collect()
    }

    fn wait_carriers(&self, transport: &str, via: Option<&str>) {
        wait(&format!("{transport} via {via:?}"), LONG, || {
            let found = self.carriers();
            let is_it =
                |(of, by): &(String, Option<String>)| of == transport && by.as_deref() == via;
            (!found.is_empty() && found.iter().all(is_it)).then_some(())
        });
    }

    /// Sends and receives over the echo while `meanwhile` runs, and checks each byte.
    fn transfer(&mut self, meanwhile: impl FnOnce(&mut Self)) {
        let near: TcpStream = connect(self.public);
        near.set_read_timeout(Some(LONG)).unwrap();
        let far = near.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || bytes::send(near, TOTAL));
            scope.spawn(move || bytes::expect(far, TOTAL));
            meanwhile(self);
        });
    }
}

fn daemon(dir: &Path, role: &str, name: &str) -> Daemon {
    let mut command = tunnel(&[role, "--config"]);
    command.arg(dir.join(format!("{name}.yaml"))).env("HOME", dir);
    Daemon::start(name, dir, &mut command)
}

fn echo(mut stream: TcpStream) -> Option<TcpStream> {
    stream.set_read_timeout(Some(SOON)).ok()?;
    stream.write_all(b"?").ok()?;
    stream.read_exact(&mut [0]).ok()?;
    Some(stream)
}

#[test]
fn a_server_is_reached_through_another_server_over_every_transport_over_tcp() {
    let mut stage = Stage::new(RIGHT);
    let [tls, wss, tcp, ws] = stage.ports;
    for (transport, url) in [
        ("tls", format!("tls://127.0.0.1:{tls}")),
        ("wss", format!("wss://127.0.0.1:{wss}/t")),
        ("tcp", format!("tcp://127.0.0.1:{tcp}")),
        ("ws", format!("ws://127.0.0.1:{ws}/t")),
    ] {
        let detour = stage.detour(&url);
        // TLS alone has a certificate.
        let is_plain = matches!(transport, "tcp" | "ws");
        let detour = if is_plain {
            detour.replace(&detour[detour.find(", tls:").unwrap()..], " }\n")
        } else {
            detour
        };
        stage.write(&format!("{}{}", stage.fra(&detour), stage.nyc()));
        stage.start();
        stage.wait_echo();
        stage.wait_carriers(transport, Some("nyc"));
        stage.transfer(|_| ());
        let why = stage.text("client", &["status", "--why"]);
        assert!(why.contains(&format!("{transport} to 127.0.0.1:")), "{why}");
        assert!(why.contains(" via nyc"), "{why}");
        let table = stage.text("client", &["status"]);
        assert!(table.contains(&format!("over {transport} via nyc")), "{table}");
        // The links to both servers end, although one is inside the other.
        stage.client().terminate();
        assert!(stage.client().wait_end(SOON).success());
    }
}

#[test]
fn a_detour_without_the_right_is_refused_and_told_at_both_ends() {
    let mut stage = Stage::new("forward: ['127.0.0.1:1-65535']");
    let fra = format!("127.0.0.1:{}", stage.ports[0]);
    stage.write(&format!("{}{}", stage.fra(&stage.detour(&stage.through())), stage.nyc()));
    stage.start();
    let place = format!("server nyc does not allow the way to {fra}: ");
    stage.client().wait_line(&[&place, "allow.via"], LONG);
    let advice = format!("tunnel allow home --via {fra}");
    let words = ["a path through this server of client home to", "allow.via", &advice];
    stage.servers[1].wait_line(&words, SOON);
    assert!(try_connect(stage.public).is_err());
    let said = stage.run("nyc", &["allow", "home", "--via", &fra]);
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(
        text.contains(&format!("may go via the server to 127.0.0.1/32:{}", stage.ports[0])),
        "{said:?}"
    );
    stage.wait_echo();
    stage.wait_carriers("tls", Some("nyc"));
}

#[test]
fn a_link_survives_the_death_of_the_server_through_which_it_leads() {
    let mut stage = Stage::new(RIGHT);
    let through = stage.through();
    stage.write(&format!("{}{}", stage.fra(&stage.detour(&through)), stage.nyc()));
    stage.start();
    stage.wait_echo();
    stage.wait_carriers("tls", Some("nyc"));
    stage.transfer(|stage| {
        std::thread::sleep(Duration::from_millis(300));
        stage.direct.entry(Entry::Open);
        stage.servers[1].kill();
    });
    stage.wait_carriers("tls", None);
    let log = stage.client().log();
    assert!(log.contains("resumed over tls://127.0.0.1:"), "{log}");

    // Without the other server the direct path alone is left, and the reason is told.
    stage.direct.entry(Entry::Refused);
    stage.direct.kill();
    let open = connect(stage.public);
    stage.client().wait_line(&["carrier lost: link"], SOON);
    stage.direct.entry(Entry::Open);
    assert!(echo(open).is_some());
}

#[test]
fn links_move_to_a_detour_and_back_and_a_reload_without_the_other_server_ends_no_stream() {
    let mut stage = Stage::new(RIGHT);
    stage.direct.entry(Entry::Open);
    let through = stage.through();
    stage.write(&format!("{}{}", stage.fra(&stage.detour(&through)), stage.nyc()));
    stage.start();
    stage.wait_echo();
    stage.wait_carriers("tls", None);
    let label = format!("{through} (via nyc)");
    let direct = format!("tls://127.0.0.1:{}", stage.direct.port());
    stage.transfer(|stage| {
        for to in [&label, &direct, &label] {
            std::thread::sleep(Duration::from_millis(100));
            let said = stage.run("client", &["move", "--to", to]);
            assert!(said.status.success(), "{said:?}");
        }
    });
    stage.wait_carriers("tls", Some("nyc"));
    // A server that stops does not wait for the links of others.
    stage.transfer(|stage| {
        std::thread::sleep(Duration::from_millis(100));
        stage.servers[1].terminate();
        assert!(stage.servers[1].wait_end(SOON).success());
    });
    stage.wait_carriers("tls", None);
    stage.servers[1] = daemon(stage.dir.path(), "server", "nyc");
    wait_listening(stage.nyc, SOON);
    wait("the way through nyc", LONG, || {
        stage.run("client", &["move", "--to", &label]).status.success().then_some(())
    });
    stage.wait_carriers("tls", Some("nyc"));
    let stays = echo(connect(stage.public)).unwrap();
    stage.write(&stage.fra(""));
    let said = stage.run("client", &["reload"]);
    assert!(said.status.success(), "{said:?}");
    stage.wait_echo();
    let stays = echo(stays).expect("the stream goes on over the former links");
    let bad = stage.fra(&stage.detour(&through));
    stage.write(&bad);
    let said = stage.run("client", &["reload"]);
    let complaint = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(
        complaint.contains("servers[0].paths[1].via: no other server is named nyc"),
        "{complaint}"
    );
    assert!(echo(stays).is_some());
}
