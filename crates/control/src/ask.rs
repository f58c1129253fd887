//! The command line's side of the control socket. The calls block, because the command has nothing
//! else to do.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use ops::clients::{Clients, Details, Held, HoldOrder, LimitOrder, Limits};
use ops::command::{Answer, Command};
use ops::enrol::{Allowed, Opened, Order};
use ops::events::Heard;
use ops::lists::ListChange;
use ops::measure::{Ping, Progress, Speed};
use ops::nat::NatReport;
use ops::requests::{RequestDetail, RequestFilter, SeenRequests};
use ops::share::ShareOrder;
use ops::status::{Restarted, Status, StreamNumber, Streams};
use ops::term;
use ops::tested::Tested;
use ops::upgrade::{UpgradeOrder, Upgraded};
use ops::visit::{Invitation, InviteOrder, InvitedVisitor, Uninvited};
use ops::{ConsoleLink, Reconnected, Reloaded, WrongConfig};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};

use crate::denied::Denied;

/// Time limit of each read and write. A daemon responds to most requests within 3 s, or reports an
/// error.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// Time limit of a reload: the daemon may have to wait for another reload, and both for new links.
const RELOAD_TIMEOUT: Duration = Duration::from_secs(60);

/// Time limit of a connection to a target: the client may wait 10 s for a link, and the server may
/// resolve a name and dial several addresses.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// Time limit for a sign of life among events: twice the period of 15 s, plus one more.
const EVENTS_TIMEOUT: Duration = Duration::from_secs(45);

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
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(Self { path: path.to_owned(), stream })
    }

    /// Requests a drain, or with `now` an immediate end, and returns immediately.
    pub fn begin_stop(&self, now: bool) -> anyhow::Result<Stopping> {
        let answer = self.ask(Command::Stop { now })?;
        let Answer::Stopping { pid, now } = answer else { bail!(UNASKED) };
        Ok(Stopping { pid, now })
    }

    fn ask(&self, request: Command) -> anyhow::Result<Answer> {
        self.send(request)?;
        self.next(&mut BufReader::new((&self.stream).take(MAX_ANSWER)))
    }

    fn send(&self, request: Command) -> anyhow::Result<()> {
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
            Err(_) => bail!(
                "{}: the daemon is of another version than this program ({}); restart the daemon",
                self.path.display(),
                env!("CARGO_PKG_VERSION"),
            ),
        }
    }
}

/// The status of the daemon.
pub fn status(instance: &Instance) -> anyhow::Result<Status> {
    let answer = instance.ask(Command::Status)?;
    let Answer::Status(status) = answer else { bail!(UNASKED) };
    Ok(*status)
}

/// Makes the daemon reload its configuration. The error may be a [`WrongConfig`].
pub fn reload(instance: &Instance) -> anyhow::Result<Reloaded> {
    instance.stream.set_read_timeout(Some(RELOAD_TIMEOUT))?;
    let answer = instance.ask(Command::Reload)?;
    let Answer::Reloaded(reloaded) = answer else { bail!(UNASKED) };
    Ok(reloaded)
}

/// Ends the links of a client. Returns false if the client is not connected.
pub fn kick(instance: &Instance, name: String) -> anyhow::Result<bool> {
    let answer = instance.ask(Command::Kick { name })?;
    let Answer::Kicked(was) = answer else { bail!(UNASKED) };
    Ok(was)
}

/// Makes a link to the web console of the daemon.
pub fn console(instance: &Instance) -> anyhow::Result<ConsoleLink> {
    let answer = instance.ask(Command::Console)?;
    let Answer::Console(link) = answer else { bail!(UNASKED) };
    Ok(link)
}

/// Makes the daemon continue in a new process. `None`: the daemon was started from a file other
/// than that of the order.
pub fn upgrade(instance: &Instance, order: UpgradeOrder) -> anyhow::Result<Option<Upgraded>> {
    let patience = Duration::from_millis(order.timeout_millis) + RELOAD_TIMEOUT;
    instance.stream.set_read_timeout(Some(patience))?;
    let answer = instance.ask(Command::Upgrade(order))?;
    let Answer::Upgraded(upgraded) = answer else { bail!(UNASKED) };
    Ok(upgraded)
}

/// Changes the services and forwards of a client. The error may be a [`WrongConfig`].
pub fn change_lists(instance: &Instance, change: ListChange) -> anyhow::Result<Reloaded> {
    instance.stream.set_read_timeout(Some(RELOAD_TIMEOUT))?;
    let answer = instance.ask(Command::Lists(change))?;
    let Answer::Reloaded(reloaded) = answer else { bail!(UNASKED) };
    Ok(reloaded)
}

/// Lists at most `limit` streams and flows of the daemon, of all services or of the named service.
pub fn streams(
    instance: &Instance,
    service: Option<String>,
    limit: usize,
) -> anyhow::Result<Streams> {
    let answer = instance.ask(Command::Streams { service, limit })?;
    let Answer::Streams(streams) = answer else { bail!(UNASKED) };
    Ok(streams)
}

/// Lists the kept requests of visitors.
pub fn requests(instance: &Instance, filter: RequestFilter) -> anyhow::Result<SeenRequests> {
    let answer = instance.ask(Command::Requests(filter))?;
    let Answer::Requests(requests) = answer else { bail!(UNASKED) };
    Ok(requests)
}

/// A kept request in full; `None`: it is no longer kept.
pub fn request(
    instance: &Instance,
    id: u64,
    secrets: bool,
) -> anyhow::Result<Option<RequestDetail>> {
    let answer = instance.ask(Command::Request { id, secrets })?;
    let Answer::Request(request) = answer else { bail!(UNASKED) };
    Ok(request.map(|request| *request))
}

/// Sends a kept request to its target again. The result is the new request.
pub fn replay(instance: &Instance, id: u64) -> anyhow::Result<Option<RequestDetail>> {
    instance.stream.set_read_timeout(Some(RELOAD_TIMEOUT))?;
    let answer = instance.ask(Command::Replay { id })?;
    let Answer::Request(request) = answer else { bail!(UNASKED) };
    Ok(request.map(|request| *request))
}

/// Resets a stream, or ends a flow. Returns false if the link has no stream or flow of this number.
pub fn kill(instance: &Instance, number: StreamNumber) -> anyhow::Result<bool> {
    let StreamNumber { link, kind, number: stream } = number;
    let answer = instance.ask(Command::Kill { link, stream, kind })?;
    let Answer::Killed(was) = answer else { bail!(UNASKED) };
    Ok(was)
}

/// Makes an enrolment code for a new client.
pub fn enroll(instance: &Instance, order: Order) -> anyhow::Result<Opened> {
    let answer = instance.ask(Command::Enroll(order))?;
    let Answer::Opened(opened) = answer else { bail!(UNASKED) };
    Ok(opened)
}

/// Adds rights to a client. Returns all its rights. The error may be a [`WrongConfig`].
pub fn allow(instance: &Instance, order: Order) -> anyhow::Result<Allowed> {
    // The daemon may have to wait for a reload in progress, as a reload does.
    instance.stream.set_read_timeout(Some(RELOAD_TIMEOUT))?;
    let answer = instance.ask(Command::Allow(order))?;
    let Answer::Allowed(allowed) = answer else { bail!(UNASKED) };
    Ok(allowed)
}

/// Removes rights from a client. Returns its remaining rights. The error may be a [`WrongConfig`].
pub fn deny(instance: &Instance, order: Order) -> anyhow::Result<Allowed> {
    instance.stream.set_read_timeout(Some(RELOAD_TIMEOUT))?;
    let answer = instance.ask(Command::Deny(order))?;
    let Answer::Allowed(allowed) = answer else { bail!(UNASKED) };
    Ok(allowed)
}

/// Makes a code for a visitor of a private service. The error may be a [`WrongConfig`].
pub fn invite(instance: &Instance, order: InviteOrder) -> anyhow::Result<Invitation> {
    // The daemon queries its server, and may have to wait for a reload.
    instance.stream.set_read_timeout(Some(RELOAD_TIMEOUT))?;
    let answer = instance.ask(Command::Invite(order))?;
    let Answer::Invitation(invitation) = answer else { bail!(UNASKED) };
    Ok(invitation)
}

/// Lists the visitors of private services that were invited by codes.
pub fn visitors(instance: &Instance) -> anyhow::Result<Vec<InvitedVisitor>> {
    let Answer::Visitors(visitors) = instance.ask(Command::Visitors)? else { bail!(UNASKED) };
    Ok(visitors)
}

/// Invalidates the tokens of a visitor. An empty list of services: no visitor of this name was
/// invited by a code.
pub fn uninvite(instance: &Instance, visitor: String) -> anyhow::Result<Uninvited> {
    instance.stream.set_read_timeout(Some(RELOAD_TIMEOUT))?;
    let answer = instance.ask(Command::Uninvite { visitor })?;
    let Answer::Uninvited(uninvited) = answer else { bail!(UNASKED) };
    Ok(uninvited)
}

/// Ends the carriers of a client's links, which then reconnect.
pub fn reconnect(instance: &Instance, client: Option<String>) -> anyhow::Result<Reconnected> {
    let answer = instance.ask(Command::Reconnect { client })?;
    let Answer::Reconnected(reconnected) = answer else { bail!(UNASKED) };
    Ok(reconnected)
}

/// Changes limits of a client. Returns all its limits. The error may be a [`WrongConfig`].
pub fn limit(instance: &Instance, order: LimitOrder) -> anyhow::Result<Limits> {
    instance.stream.set_read_timeout(Some(RELOAD_TIMEOUT))?;
    let answer = instance.ask(Command::Limit(order))?;
    let Answer::Limited(limits) = answer else { bail!(UNASKED) };
    Ok(limits)
}

/// Puts a client of a server on hold, or ends its hold. Returns the hold in force. The error may be
/// a [`WrongConfig`].
pub fn hold(instance: &Instance, order: HoldOrder) -> anyhow::Result<Option<Held>> {
    let answer = instance.ask(Command::Hold(order))?;
    let Answer::Held(held) = answer else { bail!(UNASKED) };
    Ok(held)
}

/// Lists all clients that the server knows.
pub fn clients(instance: &Instance) -> anyhow::Result<Clients> {
    let answer = instance.ask(Command::Clients)?;
    let Answer::Clients(clients) = answer else { bail!(UNASKED) };
    Ok(clients)
}

/// One client in full; `None`: the server knows no client of this name.
pub fn client(instance: &Instance, name: String) -> anyhow::Result<Option<Details>> {
    let answer = instance.ask(Command::Client { name })?;
    let Answer::Client(client) = answer else { bail!(UNASKED) };
    Ok(client.map(|client| *client))
}

/// Removes a client that was enrolled by a code. Returns false if there is no such client.
pub fn revoke(instance: &Instance, name: String) -> anyhow::Result<bool> {
    let answer = instance.ask(Command::Revoke { name })?;
    let Answer::Revoked(was) = answer else { bail!(UNASKED) };
    Ok(was)
}

/// Sets the daemon's log filter if `filter` is given. Returns the filter that is in force.
pub fn log(instance: &Instance, filter: Option<String>) -> anyhow::Result<String> {
    let answer = instance.ask(Command::Log { filter })?;
    let Answer::Log { filter } = answer else { bail!(UNASKED) };
    Ok(filter)
}

/// Measures one round trip over every link. `patience` limits the wait for the answers.
pub fn ping(instance: &Instance, patience: Duration) -> anyhow::Result<Ping> {
    let answer = instance.ask(Command::Ping { timeout_millis: millis(patience) })?;
    let Answer::Pong(ping) = answer else { bail!(UNASKED) };
    Ok(ping)
}

/// Queries the client for the NATs and firewalls between it and other clients.
pub fn nat(instance: &Instance) -> anyhow::Result<NatReport> {
    let Answer::Nat(report) = instance.ask(Command::Nat)? else { bail!(UNASKED) };
    Ok(report)
}

/// Tests the targets of a service.
pub fn test(
    instance: &Instance,
    service: String,
    client: Option<String>,
) -> anyhow::Result<Tested> {
    let answer = instance.ask(Command::Test { service, client })?;
    let Answer::Tested(tested) = answer else { bail!(UNASKED) };
    Ok(*tested)
}

/// Measures the throughput of the tunnel, for `span` in each direction. `news` is called with the
/// progress while the test runs.
pub fn speedtest(
    instance: &Instance,
    span: Duration,
    mut news: impl FnMut(&Progress),
) -> anyhow::Result<Speed> {
    instance.send(Command::Speedtest { millis: millis(span) })?;
    let mut answers = BufReader::new((&instance.stream).take(MAX_ANSWER));
    loop {
        match instance.next(&mut answers)? {
            Answer::Progress(progress) => news(&progress),
            Answer::Speed(speed) => return Ok(*speed),
            Answer::Ok
            | Answer::Status(_)
            | Answer::Stopping { .. }
            | Answer::Reloaded(_)
            | Answer::Restarted(_)
            | Answer::Configuration(_)
            | Answer::Console(_)
            | Answer::Foreseen(_)
            | Answer::Opened(_)
            | Answer::Allowed(_)
            | Answer::Shared(_)
            | Answer::Visit(_)
            | Answer::Invitation(_)
            | Answer::Visitors(_)
            | Answer::Uninvited(_)
            | Answer::Limited(_)
            | Answer::Held(_)
            | Answer::Clients(_)
            | Answer::Client(_)
            | Answer::Revoked(_)
            | Answer::Kicked(_)
            | Answer::Streams(_)
            | Answer::Killed(_)
            | Answer::Reconnected(_)
            | Answer::Log { .. }
            | Answer::Wrong(_)
            | Answer::Pong(_)
            | Answer::Nat(_)
            | Answer::Tested(_)
            | Answer::Event(_)
            | Answer::Lost(_)
            | Answer::Upgraded(_)
            | Answer::Requests(_)
            | Answer::Request(_)
            | Answer::Error(_) => bail!(UNASKED),
        }
    }
}

/// Shares a target for the lifetime of the connection. `news` is called with each answer, the first
/// of which is [`Answer::Shared`], and with [`Answer::Ok`] at least once in 2 s; it returns whether
/// to go on. Returns `Ok` when `news` ended the sharing, or the daemon has ended. The error may be
/// a [`WrongConfig`].
pub fn share(
    instance: &Instance,
    order: ShareOrder,
    mut news: impl FnMut(Answer) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    instance.stream.set_read_timeout(Some(RELOAD_TIMEOUT))?;
    instance.send(Command::Share(order))?;
    let mut answers = BufReader::new(&instance.stream);
    let mut is_first = true;
    loop {
        if !is_first && answers.fill_buf()?.is_empty() {
            return Ok(());
        }
        let answer = instance.next(&mut (&mut answers).take(MAX_ANSWER))?;
        match (is_first, &answer) {
            (true, Answer::Shared(_))
            | (false, Answer::Ok | Answer::Visit(_) | Answer::Lost(_)) => {}
            _ => bail!(UNASKED),
        }
        is_first = false;
        if !news(answer)? {
            return Ok(());
        }
    }
}

/// Listens for the events of the daemon, until it ends or standard output has no reader. `news` is
/// called with each event, and its error ends the listening.
pub fn events(
    instance: &Instance,
    mut news: impl FnMut(&Heard) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    instance.stream.set_read_timeout(Some(EVENTS_TIMEOUT))?;
    instance.send(Command::Events)?;
    let mut answers = BufReader::new(&instance.stream);
    let mut is_heard = false;
    loop {
        if answers.buffer().is_empty() && !term::wait_for(&instance.stream, EVENTS_TIMEOUT)? {
            bail!("no sign of life from {}", instance.path.display());
        }
        if is_heard && answers.fill_buf()?.is_empty() {
            return Ok(());
        }
        is_heard = true;
        let mut answers = (&mut answers).take(MAX_ANSWER);
        let answer = instance.next(&mut answers)?;
        if let Answer::Event(event) = answer {
            news(&Heard::Event(event))?;
        } else if let Answer::Lost(count) = answer {
            news(&Heard::Lost(count))?;
        } else if answer != Answer::Ok {
            bail!(UNASKED);
        }
    }
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
    instance.stream.set_read_timeout(Some(CONNECT_TIMEOUT))?;
    instance.send(Command::Connect { target })?;
    let mut answers = BufReader::new((&instance.stream).take(MAX_ANSWER));
    let answer = instance.next(&mut answers)?;
    let early = answers.buffer().to_vec();
    let Answer::Ok = answer else { bail!(UNASKED) };
    let Instance { stream: socket, .. } = instance;
    socket.set_read_timeout(None)?;
    socket.set_write_timeout(None)?;
    Ok(Connected { socket, early })
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A daemon that is stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopping {
    /// The process id of the daemon.
    pub pid: u32,
    /// Whether the remaining streams are reset.
    pub now: bool,
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
    let streams = streams(&Instance::connect(path).ok()?, None, LEFT_MAX).ok()?;
    let seconds = status(&Instance::connect(path).ok()?).ok()?.drain_seconds;
    Some(Left { streams, seconds })
}

/// Ends the daemons of `tunnel run`, all or the named daemon, and starts them again. Returns as
/// soon as the daemons were notified.
pub fn restart(instance: &Instance, name: Option<String>, now: bool) -> anyhow::Result<Restarted> {
    let answer = instance.ask(Command::Restart { name, now })?;
    let Answer::Restarted(restarted) = answer else { bail!(UNASKED) };
    Ok(restarted)
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
    let stopping = instance.begin_stop(now)?;
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
