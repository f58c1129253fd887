//! Three members of etcd, each on a host of its own, and requests to their JSON gateway.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::cage::{Lan, on};
use testkit::stage::{Daemon, LONG, program, run, wait};

/// The hosts of the members.
pub(crate) const MEMBERS: [&str; 3] = ["etcd0", "etcd1", "etcd2"];

/// The longest time of a request of the test.
const PATIENCE: Duration = Duration::from_secs(3);

/// The members.
pub(crate) struct Etcd {
    dir: PathBuf,
    addresses: [Ipv4Addr; 3],
    processes: [Option<Daemon>; 3],
    /// Further options.
    options: Vec<String>,
}

/// A text as JSON of the gateway has it.
pub(crate) fn text(text: &str) -> String {
    BASE64.encode(text)
}

/// The bytes of a field of the gateway.
pub(crate) fn bytes(value: &Value) -> Vec<u8> {
    BASE64.decode(value.as_str().unwrap_or_default()).unwrap_or_default()
}

/// A number of the gateway, which writes numbers of 64 bits as texts.
pub(crate) fn number(value: &Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// The end of the keys that begin with a prefix, which ends with `/`.
pub(crate) fn behind(prefix: &str) -> String {
    format!("{}0", prefix.strip_suffix('/').unwrap())
}

impl Etcd {
    pub(crate) fn start(lan: &Lan, dir: &Path, options: &[&str]) -> Self {
        let addresses = MEMBERS.map(|member| lan.address(member));
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut etcd =
            Self { dir: dir.to_owned(), addresses, processes: [const { None }; 3], options };
        (0..3).for_each(|member| etcd.begin(member));
        etcd.wait_quorum();
        etcd
    }

    /// The addresses for nodes, as a list of YAML.
    pub(crate) fn urls(&self) -> String {
        self.addresses.map(|address| format!("'http://{address}:2379'")).join(", ")
    }

    fn data(&self, member: usize) -> PathBuf {
        self.dir.join(MEMBERS[member])
    }

    fn peer(&self, member: usize) -> String {
        format!("http://{}:2380", self.addresses[member])
    }

    fn all_peers(&self) -> String {
        let peer = |member: usize| format!("{}={}", MEMBERS[member], self.peer(member));
        [0, 1, 2].map(peer).join(",")
    }

    /// Starts a member, again if it ran before.
    pub(crate) fn begin(&mut self, member: usize) {
        let (clients, peer) =
            (format!("http://{}:2379", self.addresses[member]), self.peer(member));
        let mut command = on(MEMBERS[member]);
        // etcd reads its settings from variables as well.
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.arg(program("etcd")).arg("--data-dir").arg(self.data(member));
        command.args(["--name", MEMBERS[member], "--log-level", "warn"]);
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &self.all_peers()]).args(&self.options);
        let process = Daemon::start(MEMBERS[member], &self.dir, &mut command);
        self.processes[member] = Some(process);
    }

    /// Ends a member without a word.
    pub(crate) fn kill(&mut self, member: usize) {
        if let Some(mut process) = self.processes[member].take() {
            process.kill();
        }
    }

    pub(crate) fn signal(&self, member: usize, signal: Signal) {
        self.processes[member].as_ref().unwrap().signal(signal);
    }

    /// Waits until each member carries out a request.
    pub(crate) fn wait_quorum(&self) {
        for (member, name) in MEMBERS.iter().enumerate() {
            wait(&format!("a quorum at {name}"), LONG, || self.range(member, "x", None).ok());
        }
    }

    /// The answer of a member.
    pub(crate) fn post(&self, member: usize, path: &str, body: &Value) -> Result<Value, String> {
        let address = SocketAddr::new(self.addresses[member].into(), 2379);
        post(address, path, body)
    }

    pub(crate) fn addresses(&self) -> [SocketAddr; 3] {
        self.addresses.map(|address| SocketAddr::new(address.into(), 2379))
    }

    /// The keys of a range, or of one key.
    pub(crate) fn range(
        &self,
        member: usize,
        from: &str,
        to: Option<&str>,
    ) -> Result<Vec<Value>, String> {
        let mut body = json!({ "key": text(from) });
        if let Some(to) = to {
            body["range_end"] = text(to).into();
        }
        let answer = self.post(member, "/v3/kv/range", &body)?;
        Ok(answer["kvs"].as_array().cloned().unwrap_or_default())
    }

    /// The member that leads.
    pub(crate) fn leader(&self) -> usize {
        wait("a leader", LONG, || {
            (0..3).find(|member| {
                self.post(*member, "/v3/maintenance/status", &json!({})).is_ok_and(|status| {
                    let leader = number(&status["leader"]);
                    leader != 0 && leader == number(&status["header"]["member_id"])
                })
            })
        })
    }

    /// Saves all keys to a file.
    pub(crate) fn save(&self, file: &Path) {
        let mut command = on(MEMBERS[0]);
        let endpoint = format!("http://{}:2379", self.addresses[0]);
        command.env("ETCDCTL_API", "3").arg(program("etcdctl"));
        command.args(["--endpoints", &endpoint, "snapshot", "save"]).arg(file);
        succeeds(&mut command);
    }

    /// Ends all members, and starts them with the keys of a file, as after a disaster.
    pub(crate) fn restore(&mut self, file: &Path) {
        for (member, name) in MEMBERS.into_iter().enumerate() {
            self.kill(member);
            fs::remove_dir_all(self.data(member)).unwrap();
            let mut command = Command::new(program("etcdctl"));
            command.env("ETCDCTL_API", "3").args(["snapshot", "restore"]).arg(file);
            command.args(["--name", name, "--initial-cluster", &self.all_peers()]);
            command.args(["--initial-advertise-peer-urls", &self.peer(member)]);
            succeeds(command.arg("--data-dir").arg(self.data(member)));
        }
        (0..3).for_each(|member| self.begin(member));
        self.wait_quorum();
    }
}

impl Drop for Etcd {
    /// The data of members has hundreds of megabytes. Logs and histories stay.
    fn drop(&mut self) {
        for member in 0..3 {
            self.kill(member);
            drop(fs::remove_dir_all(self.data(member)));
        }
    }
}

fn succeeds(command: &mut Command) {
    let output = run(command);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The answer of a gateway.
pub(crate) fn post(address: SocketAddr, path: &str, body: &Value) -> Result<Value, String> {
    let failed = |error: std::io::Error| error.to_string();
    let body = body.to_string();
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let length = body.len();
    let head = format!("POST {path} HTTP/1.0\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(format!("{head}{body}").as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).map_err(failed)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no answer")?;
    if head.split(' ').nth(1) == Some("200") {
        serde_json::from_str(body).map_err(|error| error.to_string())
    } else {
        Err(body.trim().to_owned())
    }
}
