//! A server and a client with their files. [`Setup`] says what is wanted, [`Running`] is alive.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{Daemon, LONG, SOON, Turn, Wire, free_port, run, tunnel, wait, wait_listening};

/// The transport between client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Tls,
    Tcp,
}

impl Scheme {
    pub(crate) const ALL: [Self; 2] = [Self::Tls, Self::Tcp];

    const fn name(self) -> &'static str {
        match self {
            Self::Tls => "tls",
            Self::Tcp => "tcp",
        }
    }
}

/// A test's wishes. The files can be changed between [`Setup::new`] and [`Setup::start`].
#[derive(Debug)]
pub(crate) struct Setup {
    scheme: Scheme,
    dir: TempDir,
    token: String,
    /// Name, port of the target, public port.
    services: Vec<(String, u16, u16)>,
    /// Local port of the client, port of the target on the server's side.
    forwards: Vec<(u16, u16)>,
    /// Ports the server allows beside those of the services.
    pub(crate) allow: Vec<u16>,
    /// More top-level lines for the files.
    pub(crate) server_lines: String,
    pub(crate) client_lines: String,
    /// Instead of the server's pin: the client's `tls`, a flow map.
    pub(crate) client_tls: Option<String>,
    /// More of the daemons' environment.
    pub(crate) server_env: Vec<(&'static str, OsString)>,
    pub(crate) client_env: Vec<(&'static str, OsString)>,
    /// Where everybody listens and every target is.
    host: &'static str,
    server_port: u16,
    wire: Option<Wire>,
    /// The last field: given up when everything else is gone.
    _turn: Turn,
}

impl Setup {
    pub(crate) fn new(scheme: Scheme) -> Self {
        Self::in_turn(scheme, Turn::beside_others())
    }

    /// For tests that measure: nothing else runs meanwhile.
    pub(crate) fn alone(scheme: Scheme) -> Self {
        Self::in_turn(scheme, Turn::alone())
    }

    fn in_turn(scheme: Scheme, turn: Turn) -> Self {
        let output = run(&mut tunnel(&["generate", "token"]));
        assert!(output.status.success(), "generate token: {output:?}");
        let token = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        Self {
            scheme,
            dir: tempfile::tempdir().unwrap(),
            token,
            services: Vec::new(),
            forwards: Vec::new(),
            allow: Vec::new(),
            server_lines: String::new(),
            client_lines: String::new(),
            client_tls: None,
            server_env: Vec::new(),
            client_env: Vec::new(),
            host: "127.0.0.1",
            server_port: free_port(),
            wire: None,
            _turn: turn,
        }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Publishes this loopback port on a free public port.
    #[must_use]
    pub(crate) fn service(self, name: &str, target: u16) -> Self {
        self.service_on(name, target, free_port())
    }

    /// Publishes this loopback port.
    #[must_use]
    pub(crate) fn service_on(mut self, name: &str, target: u16, public: u16) -> Self {
        self.services.push((name.to_owned(), target, public));
        self
    }

    /// Opens a local port on the client that leads to this loopback port on the server's side.
    #[must_use]
    pub(crate) fn forward(mut self, target: u16) -> Self {
        self.forwards.push((free_port(), target));
        self
    }

    /// Everything on the loopback address of IPv6.
    #[must_use]
    pub(crate) fn on_ipv6(mut self) -> Self {
        self.host = "[::1]";
        self
    }

    /// One connection, and a [`Wire`] on its way.
    #[must_use]
    pub(crate) fn wired(self) -> Self {
        self.wired_with(1)
    }

    /// So many connections, all over one [`Wire`].
    #[must_use]
    pub(crate) fn wired_with(mut self, connections: usize) -> Self {
        writeln!(self.client_lines, "connections: {connections}").unwrap();
        self.wire = Some(Wire::to(self.server_port));
        self
    }

    /// Starts both and waits until every port is there.
    pub(crate) fn start(self) -> Running {
        let mut running = self.start_server();
        running.start_client();
        running.wait_ready();
        running
    }

    /// Writes `server.yaml` and starts the server. The client has yet to come.
    pub(crate) fn start_server(self) -> Running {
        fs::write(self.dir().join("server.yaml"), self.server_yaml()).unwrap();
        let server = Running::spawn(&self, "server");
        wait_listening(self.server_port, SOON);
        let pinned = self.scheme == Scheme::Tls && self.client_tls.is_none();
        let pin = pinned.then(|| {
            let line = server.wait_line(&["sha256:"], SOON);
            let pin = line.split("sha256:").nth(1).unwrap();
            let end = |c: char| !c.is_ascii_alphanumeric() && !"+/=_-".contains(c);
            format!("{{ pin: \"sha256:{}\" }}", pin.split(end).next().unwrap())
        });
        let tls = self.client_tls.clone().or(pin);
        fs::write(self.dir().join("client.yaml"), self.client_yaml(tls.as_deref())).unwrap();
        Running { server, client: None, setup: self }
    }

    fn server_yaml(&self) -> String {
        let ports = self.services.iter().map(|service| service.2).chain(self.allow.iter().copied());
        let ports: Vec<_> =
            ports.map(|port| format!("\"{}\"", self.public_address(port))).collect();
        let targets = self.forwards.iter().map(|forward| forward.1);
        let targets: Vec<_> = targets.map(|port| format!("\"{}:{port}\"", self.host)).collect();
        format!(
            "listen: [\"{scheme}://{host}:{port}\"]\n\
             state_dir: {dir}/state\n\
             control: {dir}/server.sock\n\
             clients:\n\
             \x20 - name: home\n\
             \x20   token: \"{token}\"\n\
             \x20   allow: {{ tcp: [{ports}], forward: [{targets}] }}\n\
             {more}",
            scheme = self.scheme.name(),
            host = self.host,
            port = self.server_port,
            dir = self.dir().display(),
            token = self.token,
            ports = ports.join(", "),
            targets = targets.join(", "),
            more = self.server_lines,
        )
    }

    /// With a host only where the default would be another.
    fn public_address(&self, port: u16) -> String {
        if self.host == "127.0.0.1" { port.to_string() } else { format!("{}:{port}", self.host) }
    }

    fn client_yaml(&self, tls: Option<&str>) -> String {
        let port = self.wire.as_ref().map_or(self.server_port, Wire::port);
        let mut yaml = format!(
            "servers: [\"{scheme}://{host}:{port}\"]\n\
             name: home\n\
             token: \"{token}\"\n\
             control: {dir}/client.sock\n\
             {more}",
            scheme = self.scheme.name(),
            host = self.host,
            token = self.token,
            dir = self.dir().display(),
            more = self.client_lines,
        );
        if let Some(tls) = tls {
            writeln!(yaml, "tls: {tls}").unwrap();
        }
        let host = self.host;
        if !self.services.is_empty() {
            yaml.push_str("services:\n");
        }
        for (name, target, public) in &self.services {
            let public = self.public_address(*public);
            let colon = if public.contains(':') { "" } else { ":" };
            writeln!(
                yaml,
                "  - {{ name: {name}, target: \"tcp://{host}:{target}\", \
                 public: \"tcp://{colon}{public}\" }}"
            )
            .unwrap();
        }
        if !self.forwards.is_empty() {
            yaml.push_str("forwards:\n");
        }
        for (local, target) in &self.forwards {
            writeln!(
                yaml,
                "  - {{ listen: \"tcp://{host}:{local}\", target: \"tcp://{host}:{target}\" }}"
            )
            .unwrap();
        }
        yaml
    }
}

/// Processes that are alive until dropped, and their files.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) server: Daemon,
    client: Option<Daemon>,
    setup: Setup,
}

impl Running {
    fn spawn(setup: &Setup, role: &str) -> Daemon {
        Self::spawn_as(setup, role, role)
    }

    /// A daemon of this role with `NAME.yaml`.
    fn spawn_as(setup: &Setup, role: &str, name: &str) -> Daemon {
        let env = if role == "server" { &setup.server_env } else { &setup.client_env };
        let file = setup.dir().join(format!("{name}.yaml"));
        let mut command = tunnel(&[role, "--config"]);
        command.arg(file).env("HOME", setup.dir()).envs(env.iter().cloned());
        Daemon::start(name, setup.dir(), &mut command)
    }

    pub(crate) fn dir(&self) -> &Path {
        self.setup.dir()
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    pub(crate) fn client(&mut self) -> &mut Daemon {
        self.client.as_mut().unwrap()
    }

    pub(crate) fn wire(&self) -> &Wire {
        self.setup.wire.as_ref().unwrap()
    }

    pub(crate) fn server_port(&self) -> u16 {
        self.setup.server_port
    }

    /// The public port of a service.
    pub(crate) fn public(&self, name: &str) -> u16 {
        self.setup.services.iter().find(|service| service.0 == name).unwrap().2
    }

    /// The first forward's local port.
    pub(crate) fn local(&self) -> u16 {
        self.setup.forwards[0].0
    }

    pub(crate) fn start_client(&mut self) {
        self.client = Some(Self::spawn(&self.setup, "client"));
    }

    /// One more client process, with a file made from that of the first.
    pub(crate) fn start_another_client(&self, edit: impl FnOnce(String) -> String) -> Daemon {
        let text = fs::read_to_string(self.file("client.yaml")).unwrap();
        let text = edit(text.replace("/client.sock", "/another.sock"));
        fs::write(self.file("another.yaml"), text).unwrap();
        Self::spawn_as(&self.setup, "client", "another")
    }

    /// What `tunnel status --json` says of a role.
    pub(crate) fn status(&self, role: &str) -> Option<serde_json::Value> {
        let socket = self.file(&format!("{role}.sock"));
        let output = run(tunnel(&["status", "--json", "--control"]).arg(socket));
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// Waits until the client has so many live links.
    pub(crate) fn wait_links(&self, count: usize) {
        wait(&format!("{count} live links"), SOON, || {
            let status = self.status("client")?;
            let links = status["sessions"][0]["links"].as_array()?;
            (links.iter().filter(|link| link["state"] == "up").count() == count).then_some(())
        });
    }

    /// A new server process with the same files; the former must have ended.
    pub(crate) fn start_server_again(&mut self) {
        self.server = Self::spawn(&self.setup, "server");
    }

    /// Waits until every public and local port is listening.
    pub(crate) fn wait_ready(&self) {
        let public = self.setup.services.iter().map(|service| service.2);
        for port in public.chain(self.setup.forwards.iter().map(|forward| forward.0)) {
            wait_listening(port, SOON);
        }
    }

    /// Waits until a visitor of this echo service gets an answer: links live end to end.
    pub(crate) fn wait_echo(&self, port: u16) {
        wait("an echo through the tunnel", SOON, || {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
            // Longer than any pause while a link resumes.
            stream.set_read_timeout(Some(SOON / 2)).unwrap();
            io::Write::write_all(&mut stream, b"?").ok()?;
            io::Read::read_exact(&mut stream, &mut [0]).ok()
        });
    }

    /// Writes another file over `client.yaml`, made from the present one.
    pub(crate) fn edit_client(&self, edit: impl FnOnce(String) -> String) {
        let file = self.file("client.yaml");
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, edit(text)).unwrap();
    }
}

/// A visitor. Nothing it does takes longer than [`LONG`].
pub(crate) fn connect(port: u16) -> TcpStream {
    try_connect(port).unwrap_or_else(|e| panic!("connecting to port {port}: {e}"))
}

/// A visitor that may be turned away.
pub(crate) fn try_connect(port: u16) -> io::Result<TcpStream> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let stream = TcpStream::connect_timeout(&address, SOON)?;
    stream.set_read_timeout(Some(LONG))?;
    stream.set_write_timeout(Some(LONG))?;
    Ok(stream)
}
