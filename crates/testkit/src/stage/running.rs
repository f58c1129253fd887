//! A running server, a running client and their visitors.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::{Daemon, LONG, SOON, Setup, run, tunnel, wait, wait_listening};
use crate::wire::Wire;

/// Processes that run until they are dropped, and their files.
#[derive(Debug)]
pub struct Running {
    pub server: Daemon,
    client: Option<Daemon>,
    setup: Setup,
}

impl Running {
    /// A running server whose client has not started.
    pub(super) fn of_server(server: Daemon, setup: Setup) -> Self {
        Self { server, client: None, setup }
    }

    pub(super) fn spawn(setup: &Setup, role: &str) -> Daemon {
        Self::spawn_as(setup, role, role)
    }

    /// A daemon of this role with `NAME.yaml`.
    fn spawn_as(setup: &Setup, role: &str, name: &str) -> Daemon {
        let (env, starter) = if role == "server" {
            (&setup.server_env, &setup.server_starter)
        } else {
            (&setup.client_env, &setup.client_starter)
        };
        let file = setup.dir().join(format!("{name}.yaml"));
        let mut command = tunnel(&setup.binary, &[role, "--config"]);
        command.arg(file).env("HOME", setup.dir()).envs(env.iter().cloned());
        Daemon::start(name, setup.dir(), &mut started_by(starter, command))
    }

    pub fn dir(&self) -> &Path {
        self.setup.dir()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    pub fn client(&mut self) -> &mut Daemon {
        self.client.as_mut().unwrap()
    }

    pub fn wire(&self) -> &Wire {
        self.setup.wire.as_ref().unwrap()
    }

    pub fn server_port(&self) -> u16 {
        self.setup.server_port
    }

    /// The public port of a service.
    pub fn public(&self, name: &str) -> u16 {
        self.setup.services.iter().find(|service| service.0 == name).unwrap().2
    }

    /// The first forward's local port.
    pub fn local(&self) -> u16 {
        self.setup.forwards[0].0
    }

    /// The local port of the forward whose target is this port.
    #[must_use]
    pub fn local_to(&self, target: u16) -> u16 {
        self.setup.forwards.iter().find(|forward| forward.1 == target).unwrap().0
    }

    /// Starts a client with the same files; the previous client must have ended.
    pub fn start_client(&mut self) {
        self.client = Some(Self::spawn(&self.setup, "client"));
    }

    /// Starts one more client process. Its file is made from the first client's file. It has its
    /// own folders, as on another machine.
    pub fn start_another_client(&self, edit: impl FnOnce(String) -> String) -> Daemon {
        let text = fs::read_to_string(self.file("client.yaml")).unwrap();
        let text = edit(text.replace("/client.sock", "/another/another.sock"));
        let text = text.replace("/client-state", "/another/state");
        fs::write(self.file("another.yaml"), text).unwrap();
        Self::spawn_as(&self.setup, "client", "another")
    }

    /// The answer of `tunnel status --json` for a role.
    pub fn status(&self, role: &str) -> Option<serde_json::Value> {
        let socket = self.file(&format!("{role}.sock"));
        let output =
            run(tunnel(&self.setup.binary, &["status", "--json", "--control"]).arg(socket));
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }

    /// Runs `tunnel reload` for a role.
    pub fn reload(&self, role: &str) -> Output {
        let socket = self.file(&format!("{role}.sock"));
        run(tunnel(&self.setup.binary, &["reload", "--control"]).arg(socket))
    }

    /// Waits until the client has `count` live links.
    pub fn wait_links(&self, count: usize) {
        wait(&format!("{count} live links"), SOON, || {
            let status = self.status("client")?;
            let links = status["sessions"][0]["links"].as_array()?;
            (links.iter().filter(|link| link["state"] == "up").count() == count).then_some(())
        });
    }

    /// Starts a new server process with the same files; the previous server must have ended.
    pub fn start_server_again(&mut self) {
        self.server = Self::spawn(&self.setup, "server");
    }

    /// Starts a daemon again with the same files and these words before its command; the previous
    /// process must have ended.
    pub fn start_again(&mut self, role: &str, starter: Vec<OsString>) {
        if role == "server" {
            self.setup.server_starter = starter;
            self.start_server_again();
        } else {
            self.setup.client_starter = starter;
            self.start_client();
        }
    }

    /// Waits until every public and local port is listening, and both daemons accept commands.
    pub fn wait_ready(&self) {
        for socket in ["server.sock", "client.sock"] {
            let socket = self.file(socket);
            wait("the control socket", SOON, || UnixStream::connect(&socket).ok());
        }
        let public = self.setup.services.iter().map(|service| service.2);
        for port in public.chain(self.setup.forwards.iter().map(|forward| forward.0)) {
            wait_listening(port, SOON);
        }
    }

    /// Waits until a visitor of this echo service gets an answer: then the tunnel works end to end.
    pub fn wait_echo(&self, port: u16) {
        wait("an echo through the tunnel", SOON, || {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
            // Longer than any pause while a link resumes.
            stream.set_read_timeout(Some(SOON / 2)).unwrap();
            io::Write::write_all(&mut stream, b"?").ok()?;
            io::Read::read_exact(&mut stream, &mut [0]).ok()
        });
    }

    /// Replaces `client.yaml` by a file made from the current file.
    pub fn edit_client(&self, edit: impl FnOnce(String) -> String) {
        self.edit("client.yaml", edit);
    }

    /// Replaces `server.yaml` by a file made from the current file.
    pub fn edit_server(&self, edit: impl FnOnce(String) -> String) {
        self.edit("server.yaml", edit);
    }

    fn edit(&self, name: &str, edit: impl FnOnce(String) -> String) {
        let file = self.file(name);
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, edit(text)).unwrap();
    }
}

/// The same command with these words before it.
fn started_by(words: &[OsString], command: Command) -> Command {
    let [program, args @ ..] = words else { return command };
    let mut whole = Command::new(program);
    whole.args(args).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => whole.env(name, value),
            None => whole.env_remove(name),
        };
    }
    whole
}

/// Connects as a visitor. No read or write on the socket takes longer than [`LONG`].
pub fn connect(port: u16) -> TcpStream {
    try_connect(port).unwrap_or_else(|e| panic!("connecting to port {port}: {e}"))
}

/// Connects as a visitor that may be refused.
pub fn try_connect(port: u16) -> io::Result<TcpStream> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let stream = TcpStream::connect_timeout(&address, SOON)?;
    stream.set_read_timeout(Some(LONG))?;
    stream.set_write_timeout(Some(LONG))?;
    Ok(stream)
}
