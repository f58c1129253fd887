//! The command line's side of the control socket. The calls block, because the command has nothing
//! else to do.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use ops::WrongConfig;
use ops::command::{
    self, About, Command, Connect, DaemonLine, FailedCommand, FollowEvents, ListStreams, News,
    ReadStatus, Stop, Stopping,
};
use ops::events::Heard;
use ops::status::Streams;
use ops::term;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};

use crate::denied::Denied;

/// Time limit of each write, and of each read whose command sets no other.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Longest answer, in bytes. A status with tens of thousands of services fits.
const MAX_ANSWER: u64 = 64 << 20;

/// The error for an answer of the wrong kind. Only a daemon of another version can send it.
const UNASKED: &str =
    "the daemon answers another question: it is of another version; restart the daemon";

/// A connection to a running daemon.
#[derive(Debug)]
pub struct Instance {
    path: PathBuf,
    stream: UnixStream,
}

impl Instance {
    /// Connects to the control socket at `path`.
    ///
    /// # Errors
    /// A [`Denied`] if the socket belongs to another user.
    pub fn connect(path: &Path) -> anyhow::Result<Self> {
        let stream = match UnixStream::connect(path) {
            Ok(stream) => stream,
            Err(error) => {
                if let Some(denied) = Denied::of(path, true, &error) {
                    return Err(denied.into());
                }
                let text = format!("no tunnel answers at {}", path.display());
                return Err(error).context(text);
            }
        };
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self { path: path.to_owned(), stream })
    }

    fn send<C: Command>(&self, command: &C) -> anyhow::Result<Lines<'_>> {
        self.write(&command::request(command)?, command.patience())?;
        Ok(Lines {
            instance: self,
            stream: BufReader::new(&self.stream),
            line: String::new(),
            about: &C::ABOUT,
        })
    }

    fn write(&self, request: &[u8], patience: Duration) -> anyhow::Result<()> {
        self.stream.set_read_timeout(Some(patience))?;
        Ok((&self.stream).write_all(&[request, b"\n"].concat())?)
    }

    fn other_version(&self) -> anyhow::Error {
        anyhow!(
            "{}: the daemon is of another version than this program ({}); restart the daemon",
            self.path.display(),
            env!("CARGO_PKG_VERSION"),
        )
    }
}

/// The lines that a daemon sends in response to a command.
struct Lines<'a> {
    instance: &'a Instance,
    stream: BufReader<&'a UnixStream>,
    line: String,
    about: &'static About,
}

impl Lines<'_> {
    /// Reads the next line.
    fn next(&mut self) -> anyhow::Result<DaemonLine<'_>> {
        let path = &self.instance.path;
        self.line.clear();
        let length = (&mut self.stream)
            .take(MAX_ANSWER)
            .read_line(&mut self.line)
            .with_context(|| format!("no answer from {}", path.display()))?;
        if length == 0 {
            bail!("{} ended without an answer", path.display());
        }
        match DaemonLine::read(&self.line, self.about.answer) {
            Some(DaemonLine::FailedCommand(FailedCommand::Error(text))) => {
                bail!("{}: {text}", path.display())
            }
            Some(DaemonLine::FailedCommand(FailedCommand::Wrong(problems))) => {
                Err(WrongConfig(problems).into())
            }
            Some(said) => Ok(said),
            None => Err(self.instance.other_version()),
        }
    }

    /// Whether the daemon has ended between two messages of an endless command.
    fn is_over(&mut self) -> anyhow::Result<bool> {
        Ok(self.about.is_endless && !self.line.is_empty() && self.stream.fill_buf()?.is_empty())
    }
}

/// Asks the daemon to carry a command out. The error may be a [`WrongConfig`].
pub fn ask<C: Command>(instance: &Instance, command: C) -> anyhow::Result<C::Answer> {
    follow(instance, command, |_| bail!(UNASKED))?.context(UNASKED)
}

/// Asks the daemon to carry a command out that reports before its answer, or instead of one. `news`
/// is called with each message, and returns whether to go on. `None`: `news` has ended the command,
/// or an endless command has ended with the daemon. The error may be a [`WrongConfig`].
pub fn follow<C: Command>(
    instance: &Instance,
    command: C,
    mut news: impl FnMut(News) -> anyhow::Result<bool>,
) -> anyhow::Result<Option<C::Answer>> {
    follow_if(instance, command, &|| Ok(()), &mut news)
}

/// As [`follow`]. `wait` is called before a line that was not read yet.
fn follow_if<C: Command>(
    instance: &Instance,
    command: C,
    wait: &dyn Fn() -> anyhow::Result<()>,
    news: &mut dyn FnMut(News) -> anyhow::Result<bool>,
) -> anyhow::Result<Option<C::Answer>> {
    let mut lines = instance.send(&command)?;
    loop {
        if lines.stream.buffer().is_empty() {
            wait()?;
        }
        if lines.is_over()? {
            return Ok(None);
        }
        match lines.next()? {
            DaemonLine::Answer(json) => {
                let answer = serde_json::from_str(json);
                return answer.map(Some).map_err(|_| instance.other_version());
            }
            DaemonLine::News(message) => {
                if !news(message)? {
                    return Ok(None);
                }
            }
            DaemonLine::FailedCommand(_) => bail!(UNASKED),
        }
    }
}

/// Listens for the events of the daemon, until it ends or standard output has no reader. `news` is
/// called with each event, and its error ends the listening.
pub fn events(
    instance: &Instance,
    mut news: impl FnMut(&Heard) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let command = FollowEvents {};
    let patience = command.patience();
    let wait = || {
        if !term::wait_for(&instance.stream, patience)? {
            bail!("no sign of life from {}", instance.path.display());
        }
        Ok(())
    };
    follow_if(instance, command, &wait, &mut |message| {
        match message {
            News::Event(event) => news(&Heard::Event(event))?,
            News::Lost(count) => news(&Heard::Lost(count))?,
            News::Ok => {}
            News::Shared(_) | News::Visit(_) | News::Progress(_) => bail!(UNASKED),
        }
        Ok(true)
    })
    .map(drop)
}

/// A byte stream to a target.
#[derive(Debug)]
pub struct Connected {
    /// The stream. Reads and writes have no time limit.
    pub socket: UnixStream,
    /// The bytes of the target that have already arrived.
    pub early: Vec<u8>,
}

/// Turns the connection to the daemon into the byte stream to a target on the server's side. The
/// error may be a [`WrongConfig`].
pub fn connect(instance: Instance, target: String) -> anyhow::Result<Connected> {
    let mut lines = instance.send(&Connect { target })?;
    let DaemonLine::News(News::Ok) = lines.next()? else { bail!(UNASKED) };
    let early = lines.stream.buffer().to_vec();
    drop(lines);
    let Instance { stream: socket, .. } = instance;
    socket.set_read_timeout(None)?;
    socket.set_write_timeout(None)?;
    Ok(Connected { socket, early })
}

/// The streams that a stopping daemon waits for.
#[derive(Clone, Debug)]
pub struct Left {
    /// The remaining streams.
    pub streams: Streams,
    /// The seconds until they are reset.
    pub seconds: Option<u64>,
}

/// The largest number of streams that are listed while a daemon stops.
const LEFT_MAX: usize = 10_000;

/// The interval between two queries of the remaining streams.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// The streams that the daemon at `path` waits for. `None`: it no longer responds.
fn left(path: &Path) -> Option<Left> {
    let all = ListStreams { service: None, limit: LEFT_MAX };
    let streams = ask(&Instance::connect(path).ok()?, all).ok()?;
    let seconds = ask(&Instance::connect(path).ok()?, ReadStatus {}).ok()?.drain_seconds;
    Some(Left { streams, seconds })
}

/// Requests a drain, or with `now` an immediate end, and waits, without a time limit, until the
/// process has ended. `begun` is called with the answer of the daemon, and `news` repeatedly with
/// the remaining streams.
pub fn stop(
    instance: &Instance,
    now: bool,
    begun: impl FnOnce(Stopping),
    mut news: impl FnMut(&Left),
) -> anyhow::Result<u32> {
    // The descriptor is opened before the request, so that it cannot refer to another process that
    // has reused the id.
    let process = process_of(&instance.stream);
    let stopping = ask(instance, Stop { now })?;
    begun(stopping);
    match process {
        Some(process) => {
            let mut ends = [PollFd::new(&process, PollFlags::IN)];
            loop {
                match poll(&mut ends, Some(&LOOK)) {
                    Ok(0) => left(&instance.path).iter().for_each(&mut news),
                    Ok(_) => break,
                    Err(rustix::io::Errno::INTR) => {}
                    Err(e) => return Err(e).context("waiting for the end of the process"),
                }
            }
        }
        // Without a descriptor (another PID namespace, or a kernel before 5.3), the end of the
        // connection shows the end of the process.
        None => {
            instance.stream.set_read_timeout(None)?;
            // An error, such as a reset, also shows the end.
            drop((&instance.stream).read(&mut [0; 1]));
        }
    }
    Ok(stopping.pid)
}

fn process_of(stream: &UnixStream) -> Option<OwnedFd> {
    let peer = rustix::net::sockopt::socket_peercred(stream).ok()?;
    pidfd_open(peer.pid, PidfdFlags::empty()).ok()
}
