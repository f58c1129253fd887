//! The setup of a server and a client: their files, made from a few choices.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use config::Scheme;
use tempfile::TempDir;

use super::daemon::own_binary;
use super::{Running, SOON, StageLock, binary, free_port, run, tunnel, wait_listening};
use crate::wire::Wire;

/// The tunnel's path in the URL of a transport.
const fn place(scheme: Scheme) -> &'static str {
    if scheme.http { "/tunnel" } else { "" }
}

/// A test's choices. The files can be changed between [`Setup::new`] and [`Setup::start`].
#[derive(Debug)]
pub struct Setup {
    pub(super) binary: PathBuf,
    scheme: Scheme,
    dir: Folder,
    token: String,
    /// Name, port of the target, public port.
    pub(super) services: Vec<(String, u16, u16)>,
    /// Local port of the client, port of the target on the server's side.
    pub(super) forwards: Vec<(u16, u16)>,
    /// Ports that the server allows in addition to the services' ports.
    pub allow: Vec<u16>,
    /// Additional rights of the client: keys of `allow` in the form of a flow map.
    pub more_rights: Vec<String>,
    /// Additional targets of the client's forwards: entries of `allow.forward`.
    pub more_targets: Vec<String>,
    /// URLs of additional listeners for clients, or flow maps in the form `{ url: …, … }`.
    pub more_listen: Vec<String>,
    /// Additional top-level lines of the files.
    pub server_lines: String,
    pub client_lines: String,
    /// The client's `tls` as a flow map, instead of the server's pin.
    pub client_tls: Option<String>,
    /// Additional variables of the daemons' environment.
    pub server_env: Vec<(&'static str, OsString)>,
    pub client_env: Vec<(&'static str, OsString)>,
    /// The words before the command that starts a daemon.
    pub server_starter: Vec<OsString>,
    pub client_starter: Vec<OsString>,
    /// The path of the server's URL, for schemes that have a path.
    pub server_path: String,
    /// The URL by which the client dials the server, instead of the server's or the wire's address.
    pub server_url: Option<String>,
    /// The address of all listeners and all targets.
    host: &'static str,
    pub(super) server_port: u16,
    pub(super) wire: Option<Wire>,
    /// The last field, because it must be dropped after all others.
    _turn: Option<StageLock>,
}

/// The folder of files and logs.
#[derive(Debug)]
enum Folder {
    Temporary(TempDir),
    Kept(PathBuf),
}

impl Setup {
    /// For end-to-end tests: the binary beside the test program, in a folder only for this setup.
    #[must_use]
    pub fn new(scheme: Scheme) -> Self {
        let turn = Some(StageLock::beside_others());
        Self::build(&binary(), scheme, temporary(), turn)
    }

    /// As [`Self::new`], with `tunnel` of the build that contains the test program, whatever binary
    /// is under test: that build has debug assertions, and variables for tests.
    #[must_use]
    pub fn with_assertions(scheme: Scheme) -> Self {
        let turn = Some(StageLock::beside_others());
        Self::build(&own_binary(), scheme, temporary(), turn)
    }

    /// For tests that measure: no other test runs meanwhile.
    #[must_use]
    pub fn alone(scheme: Scheme) -> Self {
        Self::build(&binary(), scheme, temporary(), Some(StageLock::alone()))
    }

    /// For programs: this binary, and a folder that is kept. The folder must exist.
    #[must_use]
    pub fn kept(binary: &Path, scheme: Scheme, dir: &Path) -> Self {
        Self::build(binary, scheme, Folder::Kept(dir.to_owned()), None)
    }

    fn build(binary: &Path, scheme: Scheme, dir: Folder, turn: Option<StageLock>) -> Self {
        let output = run(&mut tunnel(binary, &["generate", "token"]));
        assert!(output.status.success(), "generate token: {output:?}");
        let token = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        Self {
            binary: binary.to_owned(),
            scheme,
            dir,
            token,
            services: Vec::new(),
            forwards: Vec::new(),
            allow: Vec::new(),
            more_rights: Vec::new(),
            more_targets: Vec::new(),
            more_listen: Vec::new(),
            server_lines: String::new(),
            client_lines: String::new(),
            client_tls: None,
            server_env: Vec::new(),
            client_env: Vec::new(),
            server_starter: Vec::new(),
            client_starter: Vec::new(),
            server_path: place(scheme).to_owned(),
            server_url: None,
            host: "127.0.0.1",
            server_port: free_port(),
            wire: None,
            _turn: turn,
        }
    }

    /// The folder of the files, logs and control sockets.
    #[must_use]
    pub fn dir(&self) -> &Path {
        match &self.dir {
            Folder::Temporary(dir) => dir.path(),
            Folder::Kept(dir) => dir,
        }
    }

    /// The port where the server listens for clients.
    #[must_use]
    pub fn server_port(&self) -> u16 {
        self.server_port
    }

    /// Publishes this loopback port on a free public port.
    #[must_use]
    pub fn service(self, name: &str, target: u16) -> Self {
        self.service_on(name, target, free_port())
    }

    /// Publishes this loopback port on the public port `public`.
    #[must_use]
    pub fn service_on(mut self, name: &str, target: u16, public: u16) -> Self {
        self.services.push((name.to_owned(), target, public));
        self
    }

    /// Opens a local port on the client. The port leads to this loopback port on the server's side.
    #[must_use]
    pub fn forward(mut self, target: u16) -> Self {
        self.forwards.push((free_port(), target));
        self
    }

    /// Uses the loopback address of IPv6 everywhere.
    #[must_use]
    pub fn on_ipv6(mut self) -> Self {
        self.host = "[::1]";
        self
    }

    /// One connection, through a [`Wire`].
    #[must_use]
    pub fn wired(self) -> Self {
        self.wired_with(1)
    }

    /// `connections` connections, all through one [`Wire`].
    #[must_use]
    pub fn wired_with(mut self, connections: usize) -> Self {
        writeln!(self.client_lines, "connections: {connections}").unwrap();
        self.wire = Some(Wire::to(self.server_port));
        self
    }

    /// Starts both daemons and waits until every port listens.
    pub fn start(self) -> Running {
        let mut running = self.start_server();
        running.start_client();
        running.wait_ready();
        running
    }

    /// Writes `server.yaml` and starts the server, without a client.
    pub fn start_server(self) -> Running {
        fs::write(self.dir().join("server.yaml"), self.server_yaml()).unwrap();
        let server = Running::spawn(&self, "server");
        wait_listening(self.server_port, SOON);
        let pinned = self.scheme.tls && self.client_tls.is_none();
        let pin = pinned.then(|| {
            let line = server.wait_line(&["sha256:"], SOON);
            let pin = line.split("sha256:").nth(1).unwrap();
            let end = |c: char| !c.is_ascii_alphanumeric() && !"+/=_-".contains(c);
            format!("{{ pin: \"sha256:{}\" }}", pin.split(end).next().unwrap())
        });
        let tls = self.client_tls.clone().or(pin);
        fs::write(self.dir().join("client.yaml"), self.client_yaml(tls.as_deref())).unwrap();
        Running::of_server(server, self)
    }

    fn server_yaml(&self) -> String {
        let ports = self.services.iter().map(|service| service.2).chain(self.allow.iter().copied());
        let ports: Vec<_> =
            ports.map(|port| format!("\"{}\"", self.public_address(port))).collect();
        let targets = self.forwards.iter().map(|forward| forward.1);
        let targets = targets.map(|port| format!("{}:{port}", self.host));
        let targets = targets.chain(self.more_targets.iter().cloned());
        let targets: Vec<_> = targets.map(|target| format!("\"{target}\"")).collect();
        let other = |at: &String| {
            if at.starts_with('{') { format!(", {at}") } else { format!(", \"{at}\"") }
        };
        let others: Vec<_> = self.more_listen.iter().map(other).collect();
        format!(
            "listen: [\"{scheme}://{host}:{port}{path}\"{others}]\n\
             state_dir: {dir}/state\n\
             control: {dir}/server.sock\n\
             clients:\n\
             \x20 - name: home\n\
             \x20   token: \"{token}\"\n\
             \x20   allow: {{ tcp: [{ports}], forward: [{targets}]{rights} }}\n\
             {more}",
            scheme = self.scheme.name,
            host = self.host,
            port = self.server_port,
            path = self.server_path,
            others = others.concat(),
            dir = self.dir().display(),
            token = self.token,
            ports = ports.join(", "),
            targets = targets.join(", "),
            rights = self.more_rights.iter().map(|right| format!(", {right}")).collect::<String>(),
            more = self.server_lines,
        )
    }

    /// The address has a host only where the default would be another host.
    fn public_address(&self, port: u16) -> String {
        if self.host == "127.0.0.1" { port.to_string() } else { format!("{}:{port}", self.host) }
    }

    fn client_yaml(&self, tls: Option<&str>) -> String {
        let port = self.wire.as_ref().map_or(self.server_port, Wire::port);
        let (scheme, path) = (self.scheme.name, &self.server_path);
        let server = self.server_url.clone();
        let server = server.unwrap_or_else(|| format!("{scheme}://{}:{port}{path}", self.host));
        let mut yaml = format!(
            "servers: [\"{server}\"]\n\
             name: home\n\
             token: \"{token}\"\n\
             state_dir: {dir}/client-state\n\
             control: {dir}/client.sock\n\
             {more}",
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

fn temporary() -> Folder {
    Folder::Temporary(tempfile::tempdir().unwrap())
}
