//! Members that follow a script, in memory and in virtual time.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use etcd::{Connect, Connecting, Etcd, EtcdSettings, LogIn, MemberStream};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::runtime::{Builder, LocalOptions};
use tokio::time::sleep;

/// What the next dial of a member meets. Without one it is refused.
#[derive(Clone, Debug)]
pub(crate) enum Dial {
    /// No answer to the dial.
    Never,
    /// A connection.
    Talk(Vec<Step>),
}

/// What a member does on a connection. After the last step it waits for the end.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Waits for a request.
    Request,
    /// Writes these bytes.
    Write(Vec<u8>),
    /// Writes these bytes again and again.
    Forever(Vec<u8>),
    /// Does nothing for a while.
    Wait(Duration),
    /// Ends the connection.
    Close,
}

/// A request, or the end of a connection, as a member saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Request { member: usize, path: String, token: Option<String>, body: String },
    Closed { member: usize },
}

/// The members.
#[derive(Clone, Default)]
pub(crate) struct Script(Arc<Mutex<State>>);

/// Without what the members saw: tests look for secrets in the output of the crate.
impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Script")
    }
}

#[derive(Debug, Default)]
struct State {
    dials: Vec<VecDeque<Dial>>,
    seen: Vec<Seen>,
}

impl Script {
    /// For each member, what its dials meet.
    pub(crate) fn new(dials: Vec<Vec<Dial>>) -> Self {
        let dials = dials.into_iter().map(VecDeque::from).collect();
        Self(Arc::new(Mutex::new(State { dials, seen: Vec::new() })))
    }

    /// etcd of these members, `m0` and so on.
    pub(crate) fn etcd(&self, log_in: Option<LogIn>) -> Etcd {
        let count = self.0.lock().unwrap().dials.len();
        let mut settings = EtcdSettings::new((0..count).map(|at| format!("m{at}")).collect());
        settings.log_in = log_in;
        settings.answer_bytes = 100_000;
        Etcd::new(settings, Box::new(self.clone())).unwrap()
    }

    /// What the members saw.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.0.lock().unwrap().seen.clone()
    }

    /// The members, paths and tokens of all requests.
    pub(crate) fn requests(&self) -> Vec<(usize, String, Option<String>)> {
        let requests = self.seen().into_iter().filter_map(|seen| match seen {
            Seen::Request { member, path, token, .. } => Some((member, path, token)),
            Seen::Closed { .. } => None,
        });
        requests.collect()
    }

    /// The bodies of all requests.
    pub(crate) fn bodies(&self) -> Vec<String> {
        let bodies = self.seen().into_iter().filter_map(|seen| match seen {
            Seen::Request { body, .. } => Some(body),
            Seen::Closed { .. } => None,
        });
        bodies.collect()
    }
}

impl Connect for Script {
    fn connect<'a>(&'a self, member: usize, address: &'a str) -> Connecting<'a> {
        assert_eq!(address, format!("m{member}"));
        let dial = self.0.lock().unwrap().dials[member].pop_front();
        let script = self.clone();
        Box::pin(async move {
            match dial {
                None => Err(io::Error::from(io::ErrorKind::ConnectionRefused)),
                Some(Dial::Never) => std::future::pending().await,
                Some(Dial::Talk(steps)) => {
                    let (ours, theirs) = tokio::io::duplex(64 << 10);
                    tokio::task::spawn_local(talk(script, member, theirs, steps));
                    Ok(Box::new(TokioIo::new(ours)) as Box<dyn MemberStream>)
                }
            }
        })
    }
}

async fn talk(script: Script, member: usize, mut io: DuplexStream, steps: Vec<Step>) {
    for step in steps {
        match step {
            Step::Request => match request(&mut io).await {
                Some((path, token, body)) => {
                    let seen = Seen::Request { member, path, token, body };
                    script.0.lock().unwrap().seen.push(seen);
                }
                None => break,
            },
            Step::Write(bytes) => drop(io.write_all(&bytes).await),
            Step::Forever(bytes) => while io.write_all(&bytes).await.is_ok() {},
            Step::Wait(time) => sleep(time).await,
            Step::Close => return,
        }
    }
    while io.read(&mut [0; 1000]).await.is_ok_and(|count| count > 0) {}
    script.0.lock().unwrap().seen.push(Seen::Closed { member });
}

/// The path, the token and the body of a request.
async fn request(io: &mut DuplexStream) -> Option<(String, Option<String>, String)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(io.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.lines();
    let path = lines.next()?.strip_prefix("POST ")?.split(' ').next()?.to_owned();
    let field = |name: &str| {
        let mut fields = head.lines().filter_map(|line| line.split_once(": "));
        fields.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    let mut body = vec![0; field("content-length")?.parse().unwrap()];
    io.read_exact(&mut body).await.ok()?;
    Some((path, field("authorization"), String::from_utf8(body).unwrap()))
}

/// A connection on which each request has one of these answers.
pub(crate) fn answers(answers: &[(u16, &str)]) -> Dial {
    let steps = answers.iter().flat_map(|(status, body)| [Step::Request, answer(*status, body)]);
    Dial::Talk(steps.collect())
}

/// An answer.
pub(crate) fn answer(status: u16, body: &str) -> Step {
    let length = body.len();
    Step::Write(format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}").into())
}

/// The begin of an answer without an end.
pub(crate) fn begin() -> Step {
    Step::Write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".into())
}

/// A piece of such an answer.
pub(crate) fn piece(text: &str) -> Step {
    Step::Write(format!("{:x}\r\n{text}\r\n", text.len()).into())
}

/// Runs a test on one thread, in virtual time.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build_local(LocalOptions::default());
    runtime.unwrap().block_on(test);
}
