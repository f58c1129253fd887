//! The command line's end of the control socket. Blocking: there is nothing else to do.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use ops::enrol::{Opened, Order};
use ops::measure::{Ping, Progress, Speed};
use ops::status::{Status, Streams};
use ops::{Reloaded, WrongConfig};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{PidfdFlags, pidfd_open};

use crate::message::{Answer, Request};

/// A daemon answers within 3 s or says that it cannot.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// It may have to wait for another one, and both for links to be made.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(60);

/// A status of ten thousands of services still fits.
const MAX_ANSWER: u64 = 64 << 20;

/// A daemon of another version, at most.
const UNASKED: &str = "the daemon answers what was not asked";

/// A running daemon that we are connected to.
#[derive(Debug)]
pub struct Instance {
    path: PathBuf,
    stream: UnixStream,
}

impl Instance {
    /// Connects to its control socket.
    pub fn connect(path: &Path) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(path)
            .with_context(|| format!("no tunnel answers at {}", path.display()))?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(Self { path: path.to_owned(), stream })
    }

    /// Asks for a drain and returns at once, with the number of the process.
    pub fn begin_stop(&self) -> anyhow::Result<u32> {
        let answer = self.ask(Request::Stop)?;
        let Answer::Stopping { pid } = answer else { bail!(UNASKED) };
        Ok(pid)
    }

    fn ask(&self, request: Request) -> anyhow::Result<Answer> {
        self.send(request)?;
        self.next(&mut BufReader::new((&self.stream).take(MAX_ANSWER)))
    }

    fn send(&self, request: Request) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(&request)?;
        line.push(b'\n');
        Ok((&self.stream).write_all(&line)?)
    }

    fn next(&self, from: &mut impl BufRead) -> anyhow::Result<Answer> {
        let mut answer = String::new();
        let length = from
            .read_line(&mut answer)
            .with_context(|| format!("no answer from {}", self.path.display()))?;
        if length == 0 {
            bail!("{} ended without an answer", self.path.display());
        }
        match serde_json::from_str(&answer) {
            Ok(Answer::Error(text)) => bail!("{}: {text}", self.path.display()),
            Ok(Answer::Wrong(problems)) => Err(WrongConfig(problems).into()),
            Ok(answer) => Ok(answer),
            Err(e) => bail!("{}: an answer of another version: {e}", self.path.display()),
        }
    }
}

/// How things are there.
pub fn status(instance: &Instance) -> anyhow::Result<Status> {
    let answer = instance.ask(Request::Status)?;
    let Answer::Status(status) = answer else { bail!(UNASKED) };
    Ok(*status)
}

/// Lets it read its configuration again. The error may be a [`WrongConfig`].
pub fn reload(instance: &Instance) -> anyhow::Result<Reloaded> {
    instance.stream.set_read_timeout(Some(RELOAD_TIMEOUT))?;
    let answer = instance.ask(Request::Reload)?;
    let Answer::Reloaded(reloaded) = answer else { bail!(UNASKED) };
    Ok(reloaded)
}

/// At most `limit` of its streams, of one service if it is named.
pub fn streams(
    instance: &Instance,
    service: Option<String>,
    limit: usize,
) -> anyhow::Result<Streams> {
    let answer = instance.ask(Request::Streams { service, limit })?;
    let Answer::Streams(streams) = answer else { bail!(UNASKED) };
    Ok(streams)
}

/// Resets a stream. Says whether there was one of this number.
pub fn kill(instance: &Instance, link: u64, stream: u32) -> anyhow::Result<bool> {
    let answer = instance.ask(Request::Kill { link, stream })?;
    let Answer::Killed(was) = answer else { bail!(UNASKED) };
    Ok(was)
}

/// A code for a new client.
pub fn enroll(instance: &Instance, order: Order) -> anyhow::Result<Opened> {
    let answer = instance.ask(Request::Enroll(order))?;
    let Answer::Opened(opened) = answer else { bail!(UNASKED) };
    Ok(opened)
}

/// Puts a client out that came in by a code. Says whether there was one.
pub fn revoke(instance: &Instance, name: String) -> anyhow::Result<bool> {
    let answer = instance.ask(Request::Revoke { name })?;
    let Answer::Revoked(was) = answer else { bail!(UNASKED) };
    Ok(was)
}

/// Lets it log this, if something is given; what it logs from now on.
pub fn log(instance: &Instance, filter: Option<String>) -> anyhow::Result<String> {
    let answer = instance.ask(Request::Log { filter })?;
    let Answer::Log { filter } = answer else { bail!(UNASKED) };
    Ok(filter)
}

/// One round trip over every link.
pub fn ping(instance: &Instance, patience: Duration) -> anyhow::Result<Ping> {
    let answer = instance.ask(Request::Ping { timeout_millis: millis(patience) })?;
    let Answer::Pong(ping) = answer else { bail!(UNASKED) };
    Ok(ping)
}

/// What the tunnel carries, `span` for each direction; news come while it runs.
pub fn speedtest(
    instance: &Instance,
    span: Duration,
    mut news: impl FnMut(&Progress),
) -> anyhow::Result<Speed> {
    instance.send(Request::Speedtest { millis: millis(span) })?;
    let mut answers = BufReader::new((&instance.stream).take(MAX_ANSWER));
    loop {
        match instance.next(&mut answers)? {
            Answer::Progress(progress) => news(&progress),
            Answer::Speed(speed) => return Ok(*speed),
            Answer::Status(_)
            | Answer::Stopping { .. }
            | Answer::Reloaded(_)
            | Answer::Opened(_)
            | Answer::Revoked(_)
            | Answer::Streams(_)
            | Answer::Killed(_)
            | Answer::Log { .. }
            | Answer::Wrong(_)
            | Answer::Pong(_)
            | Answer::Error(_) => bail!(UNASKED),
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Asks for a drain and waits until the process has ended, however long its drain takes. Returns
/// its number.
pub fn stop(instance: &Instance) -> anyhow::Result<u32> {
    // Held before we ask, so that the number cannot belong to somebody else by then.
    let process = process_of(&instance.stream);
    let pid = instance.begin_stop()?;
    match process {
        Some(process) => {
            let mut ends = [PollFd::new(&process, PollFlags::IN)];
            while let Err(e) = poll(&mut ends, None) {
                if e != rustix::io::Errno::INTR {
                    return Err(e).context("waiting for the end of the process");
                }
            }
        }
        // Another namespace, or a kernel before 5.3: the connection ends with the process.
        None => {
            instance.stream.set_read_timeout(None)?;
            // A reset tells the same.
            drop((&instance.stream).read(&mut [0; 1]));
        }
    }
    Ok(pid)
}

fn process_of(stream: &UnixStream) -> Option<OwnedFd> {
    let peer = rustix::net::sockopt::socket_peercred(stream).ok()?;
    pidfd_open(peer.pid, PidfdFlags::empty()).ok()
}
