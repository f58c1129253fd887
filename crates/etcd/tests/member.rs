//! Real members of etcd: `etcd` of `PATH`, or the program that `TUNNEL_ETCD` names. They end with
//! their value, also when a test panics.

use std::future::Future;
use std::process::Command;
use std::time::Duration;

use etcd::{Connect, Connecting, Etcd, EtcdSettings, MemberStream};
use hyper_util::rt::TokioIo;
use rustix::process::Signal;
use tempfile::TempDir;
use testkit::stage::{Daemon, free_port, program};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, LocalOptions};
use tokio::time::{Instant, sleep, timeout};

/// The most time for all that a test does. An idle machine needs seconds.
const ALL: Duration = Duration::from_secs(180);

/// The time for what takes a second on an idle machine.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Runs a test in real time.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async { timeout(ALL, test).await.expect("the test ends in time") });
}

/// Connections over TCP.
#[derive(Debug)]
struct Plain;

impl Connect for Plain {
    fn connect<'a>(&'a self, _: usize, address: &'a str) -> Connecting<'a> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(TokioIo::new(stream)) as Box<dyn MemberStream>)
        })
    }
}

/// Some members, and the folder of their data.
pub(crate) struct Members {
    members: Vec<Member>,
    options: Vec<String>,
    /// Of the addresses for clients.
    scheme: &'static str,
    dir: TempDir,
}

struct Member {
    client: u16,
    peer: u16,
    process: Option<Daemon>,
}

impl Members {
    /// Starts members with further options, and waits until each of them answers.
    pub(crate) async fn start(count: usize, options: &[&str]) -> Self {
        let mut members = Self::new(count, options);
        for index in 0..count {
            members.begin(index);
        }
        for index in 0..count {
            members.ready(index).await;
        }
        members
    }

    /// Members that are not started yet.
    pub(crate) fn new(count: usize, options: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let member = |_| Member { client: free_port(), peer: free_port(), process: None };
        let options = options.iter().map(|&option| option.to_owned()).collect();
        Self { members: (0..count).map(member).collect(), options, scheme: "http", dir }
    }

    /// Makes members speak TLS with their clients.
    pub(crate) fn over_tls(&mut self, certificate: &str, key: &str) {
        self.scheme = "https";
        let options = ["--cert-file", certificate, "--key-file", key];
        self.options.extend(options.map(str::to_owned));
    }

    /// Starts a member, again if it ran before.
    pub(crate) fn begin(&mut self, index: usize) {
        let path = std::env::var_os("TUNNEL_ETCD").unwrap_or_else(|| program("etcd").into());
        let url = |port| format!("http://127.0.0.1:{port}");
        let all = self.members.iter().enumerate();
        let all: Vec<_> = all.map(|(at, member)| format!("n{at}={}", url(member.peer))).collect();
        let member = &self.members[index];
        let client = format!("{}://127.0.0.1:{}", self.scheme, member.client);
        let peer = url(member.peer);
        let mut command = Command::new(path);
        // Each option of etcd is a variable, too.
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.arg("--data-dir").arg(self.dir.path().join(format!("n{index}")));
        command.args(["--name", &format!("n{index}"), "--log-level", "error"]);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &all.join(",")]).args(&self.options);
        let process = Daemon::start(&format!("etcd{index}"), self.dir.path(), &mut command);
        self.members[index].process = Some(process);
    }

    /// Waits until a member knows a leader.
    pub(crate) async fn ready(&self, index: usize) {
        self.ready_for(&self.etcd(SOON), index).await;
    }

    /// Waits until a member knows a leader and says so to this client.
    pub(crate) async fn ready_for(&self, etcd: &Etcd, index: usize) {
        let mut calls = etcd.calls();
        let start = Instant::now();
        loop {
            match calls.status(index).await {
                Ok(status) if status.leader.is_some() => return,
                other => assert!(start.elapsed() < SOON, "{other:?}"),
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Settings with this deadline, which a busy machine does not meet where it is short.
    pub(crate) fn settings(&self, deadline: Duration) -> EtcdSettings {
        let address = |member: &Member| format!("127.0.0.1:{}", member.client);
        let mut settings = EtcdSettings::new(self.members.iter().map(address).collect());
        settings.deadline = deadline;
        settings
    }

    /// A client of the members without a user.
    pub(crate) fn etcd(&self, deadline: Duration) -> Etcd {
        Etcd::new(self.settings(deadline), Box::new(Plain)).unwrap()
    }

    /// A client with these settings.
    pub(crate) fn with(settings: EtcdSettings) -> Etcd {
        Etcd::new(settings, Box::new(Plain)).unwrap()
    }

    /// The address at which a member listens for the others.
    pub(crate) fn peer_address(&self, index: usize) -> String {
        format!("127.0.0.1:{}", self.members[index].peer)
    }

    /// Sends a signal to a member.
    #[allow(dead_code, reason = "the tests of three members use it")]
    pub(crate) fn signal(&self, index: usize, signal: Signal) {
        self.members[index].process.as_ref().unwrap().signal(signal);
    }

    /// Kills a member.
    pub(crate) fn kill(&mut self, index: usize) {
        self.members[index].process.take().unwrap().kill();
    }

    /// The body of an answer to a request that the crate does not make.
    pub(crate) async fn post(&self, index: usize, path: &str, body: &str, token: &str) -> String {
        let mut stream =
            TcpStream::connect(("127.0.0.1", self.members[index].client)).await.unwrap();
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.0\r\nHost: x\r\nAuthorization: {token}\r\nContent-Length: \
             {length}\r\n\r\n{body}"
        );
        let head = if token.is_empty() { head.replace("Authorization: \r\n", "") } else { head };
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(" 200 "), "{path}: {answer}");
        body.to_owned()
    }
}
