//! Three daemons in a cage: the server at a public address, the client `home` with a private
//! service and the client `laptop`, which visits it, each on a host behind its NATs.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use serde_json::Value;
use tempfile::TempDir;
use testkit::cage::{
    Network, SERVER_V4, SERVER_V6, internet, network, on, outer_v4, rules, within,
};
use testkit::stage::{Daemon, LONG, binary, program, run, start_sshd, tunnel, wait};

/// The token of each visitor for the service of `home`.
const VISIT: &str = "q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ";

/// The tokens by which clients log in at the server.
const HOME: &str = "Zt5RkW1xQ8bN4mVc7LpYs2HdJf9GaE3uXeWqBn6Tz0A";
const LAPTOP: &str = "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYzA1bC2dE3fG";
const PHONE: &str = "mN2pQ4rS6tU8vW0xYzA1bC2dE3fGaB3dE5fG7hJ9kL1";

/// The ports of the service on its host, and of the forwards on the host of the visitors.
const SERVICE: u16 = 7_777;
const FORWARD: u16 = 2_222;
const OF_PHONE: u16 = 2_223;
const OF_SSH: u16 = 2_224;

pub(crate) struct Stage {
    pub(crate) laptop: Daemon,
    pub(crate) home: Daemon,
    pub(crate) server: Daemon,
    networks: [Network; 2],
    hosts: [String; 2],
    /// What clients know the server by.
    pin: String,
    /// The sshd of the host of `home`, and how `ssh` reaches it.
    sshd: Option<(Daemon, Vec<String>)>,
    dir: TempDir,
}

impl Stage {
    /// `laptop` is in the first network, `home` in the second one. Ready when both have a link.
    pub(crate) fn new(networks: [Network; 2]) -> Self {
        Self::of(networks, false, "auto")
    }

    /// The same with a second private service, the sshd of the host of `home`.
    pub(crate) fn with_ssh(networks: [Network; 2]) -> Self {
        Self::of(networks, true, "auto")
    }

    /// The same with direct paths over WebRTC.
    pub(crate) fn over_webrtc(networks: [Network; 2]) -> Self {
        Self::of(networks, false, "webrtc")
    }

    fn of(networks: [Network; 2], has_ssh: bool, p2p: &str) -> Self {
        internet();
        let hosts = [network(1, networks[0]), network(2, networks[1])];
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("server.yaml"), &server_yaml(dir.path()));
        let server = start(dir.path(), None, "server", "server");
        let line = server.wait_line(&["sha256:"], LONG);
        let pin = line.split("sha256:").nth(1).unwrap();
        let end = |c: char| !c.is_ascii_alphanumeric() && !"+/=_-".contains(c);
        let pin = pin.split(end).next().unwrap().to_owned();
        server.wait_line(&["serving clients on"], LONG);
        echo(&hosts[1]);
        let visitors =
            ["laptop", "phone"].map(|name| format!("{{ name: {name}, token: {VISIT} }}"));
        let private = |name, port| {
            format!(
                "  - {{ name: {name}, public: private, target: \"tcp://127.0.0.1:{port}\", \
                 visitors: [{}] }}\n",
                visitors.join(", ")
            )
        };
        let mut services = format!("services:\n{}", private("echo", SERVICE));
        let mut forwards = format!("forwards:\n{}", forward(FORWARD, "echo", p2p));
        let mut sshd = None;
        if has_ssh {
            let (port, daemon, options) = within(&hosts[1], || start_sshd(dir.path()));
            services.push_str(&private("ssh", port));
            forwards.push_str(&forward(OF_SSH, "ssh", p2p));
            sshd = Some((daemon, options));
        }
        let of = |name, token, at: usize, lines: &str| {
            let yaml = client_yaml(dir.path(), (name, token), (networks[at], &pin), lines);
            write(&dir.path().join(format!("{name}.yaml")), &yaml);
            start(dir.path(), Some(&hosts[at]), "client", name)
        };
        let home = of("home", HOME, 1, &services);
        home.wait_line(&["is connected to"], LONG);
        let laptop = of("laptop", LAPTOP, 0, &forwards);
        laptop.wait_line(&["is connected to"], LONG);
        wait("the port of the forward", LONG, || connect(&hosts[0], FORWARD).ok());
        Self { laptop, home, server, networks, hosts, pin, sshd, dir }
    }

    /// A command that `ssh` on the host of `laptop` starts on the host of `home`.
    pub(crate) fn ssh(&self, remote: &str) -> Command {
        let Some((_, options)) = &self.sshd else { panic!("a stage without sshd") };
        let user = String::from_utf8(run(Command::new("id").arg("-un")).stdout).unwrap();
        let mut command = on(&self.hosts[0]);
        command.arg(program("ssh")).args(options).arg("-T").args(["-p", &OF_SSH.to_string()]);
        command.arg(format!("{}@127.0.0.1", user.trim())).arg(remote);
        command
    }

    /// A connection of a program on the host of `laptop`.
    pub(crate) fn visit(&self) -> TcpStream {
        connect(&self.hosts[0], FORWARD).unwrap()
    }

    /// A further client visits from the host of `laptop`.
    pub(crate) fn start_phone(&self) -> Daemon {
        let (name, dir) = ("phone", self.dir.path());
        let known = (self.networks[0], &*self.pin);
        let forwards = format!("forwards:\n{}", forward(OF_PHONE, "echo", "auto"));
        let yaml = client_yaml(dir, (name, PHONE), known, &forwards);
        write(&dir.join("phone.yaml"), &yaml);
        let phone = start(dir, Some(&self.hosts[0]), "client", name);
        phone.wait_line(&["is connected to"], LONG);
        phone
    }

    /// A connection by the forward of the further client.
    pub(crate) fn visit_by_phone(&self) -> TcpStream {
        let open = || connect(&self.hosts[0], OF_PHONE).ok();
        wait("the port of the further forward", LONG, open)
    }

    /// The server's process dies.
    pub(crate) fn kill_server(&mut self) {
        self.server.kill();
    }

    pub(crate) fn start_server_again(&mut self) {
        self.server = start(self.dir.path(), None, "server", "server");
    }

    /// What `tunnel COMMAND --json` says of a client.
    pub(crate) fn ask(&self, client: &str, command: &str) -> Value {
        let socket = self.dir.path().join(format!("{client}.sock"));
        let command = tunnel(&binary(), &[command, "--json", "--control"]).arg(socket).output();
        serde_json::from_slice(&command.unwrap().stdout).unwrap()
    }

    /// The payload bytes that a client has received from other clients through the server.
    pub(crate) fn relayed(&self, client: &str) -> u64 {
        self.ask(client, "status")["peers"]["bytes"]["relayed"]["received"].as_u64().unwrap()
    }

    /// What `tunnel status` says of the paths of a visitor: there is a link for each service and
    /// worker that visits it, and each link has its own path.
    pub(crate) fn paths(&self, visitor: &str) -> Vec<Value> {
        let status = self.ask(visitor, "status");
        let sessions = status["sessions"].as_array().unwrap();
        let is_peer = |session: &&Value| {
            session["peer"].as_str().is_some_and(|peer| peer.starts_with("home/"))
        };
        let links = sessions
            .iter()
            .filter(is_peer)
            .flat_map(|session| session["links"].as_array().unwrap());
        links.map(|link| link["path"].clone()).collect()
    }

    /// Waits until all paths of a visitor are `direct`, or `relayed`.
    pub(crate) fn wait_all(&self, visitor: &str, state: &str) {
        wait(&format!("all paths of {visitor} are {state}"), LONG, || {
            let paths = self.paths(visitor);
            let are_so = !paths.is_empty() && paths.iter().all(|path| path["state"] == state);
            are_so.then_some(())
        });
    }

    /// What `tunnel status` prints for a person.
    pub(crate) fn status(&self) -> String {
        let socket = self.dir.path().join("laptop.sock");
        let output = run(tunnel(&binary(), &["status", "--control"]).arg(socket));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// No datagram passes between the NATs of both ends any more. Neither end is told.
    pub(crate) fn cut(&self) {
        for (nat, other) in [("nat1", outer_v4(2)), ("nat2", outer_v4(1))] {
            let text = format!(
                "table ip cut {{
                    chain through {{
                        type filter hook forward priority 1
                        meta l4proto udp ip daddr {other} drop
                    }}
                }}"
            );
            rules(nat, &text);
        }
    }

    /// They pass again.
    pub(crate) fn mend(&self) {
        ["nat1", "nat2"].into_iter().for_each(|nat| rules(nat, "delete table ip cut"));
    }
}

fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let stream = within(host, || TcpStream::connect(("127.0.0.1", port)))?;
    stream.set_read_timeout(Some(LONG))?;
    stream.set_write_timeout(Some(LONG))?;
    Ok(stream)
}

/// A service on this host: every byte comes back, and the end of the stream too.
fn echo(host: &str) {
    let listener = within(host, || TcpListener::bind(("127.0.0.1", SERVICE)).unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || copy(stream));
        }
    });
}

fn copy(mut stream: TcpStream) -> io::Result<()> {
    let mut block = vec![0; 64 << 10];
    loop {
        match stream.read(&mut block)? {
            0 => return stream.shutdown(std::net::Shutdown::Write),
            length => stream.write_all(&block[..length])?,
        }
    }
}

/// Writes a file with tokens, which nobody else may read.
pub(crate) fn write(path: &Path, text: &str) {
    let mut file = File::options();
    let mut file = file.write(true).create(true).mode(0o600).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

fn start(dir: &Path, host: Option<&str>, role: &str, name: &str) -> Daemon {
    let file: PathBuf = dir.join(format!("{name}.yaml"));
    let mut daemon = tunnel(&binary(), &[role, "--config"]);
    daemon.arg(file).env("HOME", dir);
    let Some(host) = host else { return Daemon::start(name, dir, &mut daemon) };
    let mut command: Command = on(host);
    command
        .arg(daemon.get_program())
        .args(daemon.get_args())
        .envs(daemon.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Daemon::start(name, dir, &mut command)
}

fn server_yaml(dir: &Path) -> String {
    let visitor = |name, token| {
        format!("  - {{ name: {name}, token: {token}, allow: {{ visit: [\"home/*\"] }} }}\n")
    };
    format!(
        "listen: [\"tls://[::]:7000\", \"quic://[::]:7000\"]\nstate_dir: {dir}/server\n\
         control: {dir}/server.sock\nclients:\n  - {{ name: home, token: {HOME} }}\n{}{}",
        visitor("laptop", LAPTOP),
        visitor("phone", PHONE),
        dir = dir.display(),
    )
}

fn client_yaml(
    dir: &Path,
    (name, token): (&str, &str),
    (network, pin): (Network, &str),
    lines: &str,
) -> String {
    let server =
        if network == Network::V6 { format!("[{SERVER_V6}]") } else { SERVER_V4.to_owned() };
    let dir = dir.display();
    format!(
        "servers: [\"tls://{server}:7000\"]\nname: {name}\ntoken: {token}\n\
         tls: {{ pin: \"sha256:{pin}\" }}\nstate_dir: {dir}/{name}\ncontrol: {dir}/{name}.sock\n\
         retry: {{ min: 20ms, max: 200ms }}\n{lines}"
    )
}

fn forward(port: u16, service: &str, p2p: &str) -> String {
    format!(
        "  - {{ listen: \"tcp://127.0.0.1:{port}\", target: \"service://home/{service}\", \
         p2p: {p2p}, token: {VISIT} }}\n"
    )
}
