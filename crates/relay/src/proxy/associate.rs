//! UDP over SOCKS5 (RFC 1928 sections 4, 6 and 7): a socket beside the connection of a program. Each
//! destination of each port of the program is a flow, whose far end dials. The association ends
//! with the connection.
//!
//! ```text
//!   program ──header, payload──> socket ──payload──> flow of the destination ──> far end
//!   program <─header, payload── socket <──payload── flow <── far end
//! ```
//!
//! The socket takes only datagrams from the address from which the connection came, and from the
//! port that the request announced, if it did. A fragment is dropped. A reply carries the
//! destination as the program wrote it, a name as a name.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use net::socket::canonical;
use net::udp::{Loss, Tally as _};
use proto::{Open, Priority, ResetCode, Target};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UdpSocket;
use tokio::time::{Instant, MissedTickBehavior, interval};
use transport::{DATAGRAM_MAX, FlowInlet, FlowOutlet, OpenError};

use super::handshake::linger;
use super::local::Proxy;
use super::socks5::{self, ADDRESS_MAX, Datagram, Reply};
use crate::flows::is_refusal;
use crate::{DropReason, FlowStats, Permit, Settings, Socket};

/// Flows of one association. A browser or a resolver talks to some dozens at a time; beyond the
/// limit the flow that is worth least ends.
const FLOWS: usize = 256;

/// Nobody waits for the answer of a flow that is pending for this time, and an answered flow is
/// over when it is quiet for the second time: as for the flows of a port (`flows/table`).
const LATE: Duration = Duration::from_secs(5);
const OVER: Duration = Duration::from_secs(1);

/// A flow without a reply so far ends after this time without a datagram, another after the second
/// time (RFC 4787 REQ-5).
const IDLE_UNANSWERED: Duration = Duration::from_secs(30);
const IDLE: Duration = Duration::from_secs(120);

/// How often idle flows are looked for.
const SWEEP: Duration = Duration::from_secs(5);

/// After a refusal the datagrams to the same destination are dropped for this time: a program that
/// goes on sending would open a flow per datagram.
const REFUSED: Duration = Duration::from_secs(1);

/// Datagrams per turn before other tasks run.
const BUDGET: usize = 64;

thread_local! {
    /// The datagram that is being read or written, for all associations of a worker.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Bytes of the largest datagram with its header.
const DATAGRAM_WITH_HEADER: usize = 3 + ADDRESS_MAX + DATAGRAM_MAX;

/// Answers a request for an association, and carries its datagrams until the connection ends.
/// `port`: the port from which the program will send, or 0.
pub(super) async fn serve(
    mut socket: Socket,
    port: u16,
    proxy: &Rc<Proxy>,
    _permit: Option<Permit>,
) {
    let settings = &proxy.settings;
    let made = Association::bind(&socket, port, proxy);
    let (mut association, bound) = match made {
        Ok(made) => made,
        Err(error) => {
            tracing::debug!(%error, "no socket for the datagrams of a program");
            settings.stats.count_refused(ResetCode::Limit);
            let answer = socks5::reply(Reply::Failure, None);
            if socket.write_all(&answer).await.is_ok() {
                linger(&mut socket).await;
            }
            return;
        }
    };
    if socket.write_all(&socks5::reply(Reply::Succeeded, Some(bound))).await.is_err() {
        return;
    }
    association.run(&mut socket, proxy).await;
}

/// The side of an association that its flows share.
#[derive(Debug)]
struct Near {
    socket: UdpSocket,
    /// The counters of the connections of the proxy.
    settings: Rc<Settings>,
    /// The counters of the flows of the proxy.
    flows: Rc<FlowStats>,
}

impl Drop for Association {
    fn drop(&mut self) {
        self.near.settings.stats.leave();
    }
}

/// A socket for datagrams and its flows.
#[derive(Debug)]
struct Association {
    near: Rc<Near>,
    /// The program. A port of 0 is any port.
    program: SocketAddr,
    priority: Priority,
    /// The flows by the port of the program and the destination as it was written.
    flows: HashMap<Vec<u8>, Flow>,
    /// Grows with each datagram; orders the flows by their last use.
    clock: u64,
}

#[derive(Debug)]
struct Flow {
    inlet: Box<dyn FlowInlet>,
    state: Rc<FlowState>,
    used: u64,
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.state.end(ResetCode::Aborted);
    }
}

/// What the link tells of a flow.
#[derive(Debug)]
struct FlowState {
    stats: Rc<FlowStats>,
    /// The time of the last datagram, or of the end of the flow.
    last: Cell<Instant>,
    answered: Cell<bool>,
    /// Datagrams that the link took before the first answer.
    unanswered: Cell<usize>,
    /// Why the flow has ended. It stays in the list for a while, so that its destination is not
    /// asked for again at once.
    closed: Cell<Option<ResetCode>>,
}

impl FlowState {
    fn new(stats: &Rc<FlowStats>) -> Rc<Self> {
        stats.enter();
        Rc::new(Self {
            stats: Rc::clone(stats),
            last: Cell::new(Instant::now()),
            answered: Cell::new(false),
            unanswered: Cell::new(0),
            closed: Cell::new(None),
        })
    }

    /// Why datagrams are dropped now, if they are.
    fn refusal(&self) -> Option<DropReason> {
        self.closed.get().map(DropReason::of_refusal)
    }

    /// Orders the flows by what they are worth; the least is the first to end.
    fn worth(&self, now: Instant) -> u8 {
        let quiet = now - self.last.get();
        match (self.closed.get().is_some(), self.answered.get()) {
            (true, _) => 0,
            (false, false) if quiet >= LATE => 1,
            (false, true) if quiet >= OVER => 2,
            (false, _) => 3,
        }
    }

    fn end(&self, code: ResetCode) {
        if self.closed.get().is_some() {
            return;
        }
        self.closed.set(Some(code));
        self.last.set(Instant::now());
        self.stats.leave();
        if !self.answered.get() && is_refusal(code) {
            self.stats.count_dropped(DropReason::of_refusal(code), self.unanswered.take());
        }
    }
}

impl Association {
    /// Binds a socket at the address to which the program connected. Returns its address, too.
    fn bind(socket: &Socket, port: u16, proxy: &Proxy) -> io::Result<(Self, SocketAddr)> {
        let settings = &proxy.settings;
        let Socket::Tcp(tcp) = socket else { return Err(io::ErrorKind::Unsupported.into()) };
        let mut local = tcp.local_addr()?;
        if local.ip().to_canonical().is_ipv4() {
            // A listener of both families; the mapped form would get a socket of IPv6.
            local = canonical(local);
        }
        local.set_port(0);
        let mut program = canonical(tcp.peer_addr()?);
        program.set_port(port);
        let udp = std::net::UdpSocket::bind(local)?;
        if !settings.room.holds(&udp) {
            return Err(rustix::io::Errno::MFILE.into());
        }
        udp.set_nonblocking(true)?;
        let bound = udp.local_addr()?;
        let socket = UdpSocket::from_std(udp)?;
        settings.stats.enter();
        settings.stats.count_opened();
        let (settings, flows) = (Rc::clone(settings), Rc::clone(&proxy.flows));
        let near = Rc::new(Near { socket, settings, flows });
        let (flows, priority) = (HashMap::new(), proxy.priority());
        Ok((Self { near, program, priority, flows, clock: 0 }, bound))
    }

    /// Carries datagrams until the connection of the program ends.
    async fn run(&mut self, connection: &mut Socket, proxy: &Proxy) {
        let mut sweep = interval(SWEEP);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut ignored = [0; 64];
        let near = Rc::clone(&self.near);
        loop {
            tokio::select! {
                read = connection.read(&mut ignored) => {
                    // The program has nothing to say on the connection, but it may.
                    if matches!(read, Ok(0) | Err(_)) {
                        return;
                    }
                }
                ready = near.socket.readable() => {
                    if ready.is_err() {
                        return;
                    }
                    if self.read(proxy) == BUDGET {
                        tokio::task::yield_now().await;
                    }
                }
                _ = sweep.tick() => self.sweep(),
            }
        }
    }

    /// Reads datagrams of the program, and returns their number.
    fn read(&mut self, proxy: &Proxy) -> usize {
        // Taken out, so that a flow that answers from inside of the link finds a buffer of its own.
        let mut buffer = SCRATCH.take();
        // One byte more than the largest datagram: a longer one cannot pass for it.
        buffer.resize(DATAGRAM_WITH_HEADER + 1, 0);
        let near = Rc::clone(&self.near);
        let mut count = 0;
        while count < BUDGET {
            match near.socket.try_recv_from(&mut buffer) {
                Ok((size, from)) => self.take(from, &buffer[..size], proxy),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The error of an earlier datagram that the program did not want.
                Err(_) => {}
            }
            count += 1;
        }
        SCRATCH.replace(buffer);
        count
    }

    /// Takes a datagram that has arrived at the socket.
    fn take(&mut self, from: SocketAddr, bytes: &[u8], proxy: &Proxy) {
        let stats = Rc::clone(&self.near.flows);
        let datagram = socks5::datagram(bytes);
        stats.count_in(1, datagram.as_ref().map_or(bytes, |datagram| datagram.payload).len());
        if let Err(reason) = self.pass(from, datagram, proxy) {
            stats.count_dropped(reason, 1);
        }
    }

    /// # Errors
    /// Why the datagram is dropped.
    fn pass(
        &mut self,
        from: SocketAddr,
        datagram: Option<Datagram<'_>>,
        proxy: &Proxy,
    ) -> Result<(), DropReason> {
        let is_program = from.ip() == self.program.ip()
            && (self.program.port() == 0 || self.program.port() == from.port());
        if !is_program {
            return Err(DropReason::Denied);
        }
        // A fragment, or another protocol.
        let datagram = datagram.ok_or(DropReason::Failed)?;
        if datagram.payload.len() > DATAGRAM_MAX {
            return Err(DropReason::TooBig);
        }
        let mut key = [0; 2 + ADDRESS_MAX];
        let length = 2 + datagram.address.len();
        key[..2].copy_from_slice(&from.port().to_be_bytes());
        key[2..length].copy_from_slice(datagram.address);
        let key = &key[..length];
        let now = Instant::now();
        self.clock += 1;
        if let Some((flow, reason)) =
            self.flows.get(key).and_then(|flow| Some((flow, flow.state.refusal()?)))
        {
            // A flow that ended for another reason than the destination's is opened again at once.
            let is_refused = flow.state.closed.get().is_some_and(is_refusal);
            if is_refused && now - flow.state.last.get() < REFUSED {
                return Err(reason);
            }
            self.flows.remove(key);
        }
        if !self.flows.contains_key(key) {
            let target = datagram.asked().map_err(|_| DropReason::Failed)?;
            if target.port == 0 {
                return Err(DropReason::Failed);
            }
            self.make_room();
            let flow = self.open(from, datagram.address, target.to_string(), proxy)?;
            self.flows.insert(key.to_vec(), flow);
        }
        let Some(flow) = self.flows.get_mut(key) else { return Ok(()) };
        flow.used = self.clock;
        if let Some(reason) = flow.state.refusal() {
            return Err(reason);
        }
        flow.state.last.set(now);
        let dropped = flow.inlet.send(&mut std::iter::once(datagram.payload));
        if dropped > 0 {
            self.near.flows.count_dropped(DropReason::QueueFull, dropped);
        } else if !flow.state.answered.get() {
            flow.state.unanswered.set(flow.state.unanswered.get().saturating_add(1));
        }
        Ok(())
    }

    /// Opens the flow of a destination.
    fn open(
        &self,
        program: SocketAddr,
        address: &[u8],
        target: String,
        proxy: &Proxy,
    ) -> Result<Flow, DropReason> {
        let link = proxy.links.now().ok_or(DropReason::NoLink)?;
        let state = FlowState::new(&self.near.flows);
        let mut header = Vec::with_capacity(3 + address.len());
        socks5::put_header(&mut header, address);
        let back = Back {
            near: Rc::clone(&self.near),
            program,
            header: header.into_boxed_slice(),
            state: Rc::clone(&state),
        };
        let open = Open {
            target: Target::Forward(format!("udp://{target}")),
            visitor: Some(program),
            priority: self.priority,
        };
        match link.flows.open_flow(open, Rc::new(back)) {
            Ok(inlet) => Ok(Flow { inlet, state, used: self.clock }),
            Err(error) => {
                tracing::debug!(target, %error, "no flow for the datagrams of a program");
                state.end(ResetCode::Aborted);
                Err(match error {
                    OpenError::Limit => DropReason::Limit,
                    OpenError::Closed | OpenError::TooOld => DropReason::NoLink,
                })
            }
        }
    }

    /// Ends the flow that is worth least, if there are as many as there may be: one that has ended,
    /// then one that nobody waits for, then the one that was used least recently.
    fn make_room(&mut self) {
        if self.flows.len() < FLOWS {
            return;
        }
        let now = Instant::now();
        let oldest = self.flows.iter().min_by_key(|(_, flow)| (flow.state.worth(now), flow.used));
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
            let stats = Rc::clone(&self.near.flows);
            stats.count_evicted();
            let gone = self.flows.remove(&key);
            if let Some(FlowState { answered, unanswered, closed, .. }) =
                gone.as_ref().map(|flow| &*flow.state)
                && !answered.get()
                && closed.get().is_none()
            {
                stats.count_dropped(DropReason::Evicted, unanswered.take());
            }
        }
    }

    /// Ends flows that are idle, and forgets those that have ended.
    fn sweep(&mut self) {
        let now = Instant::now();
        let stats = &self.near.flows;
        self.flows.retain(|_, flow| {
            let period = match (flow.state.closed.get().is_some(), flow.state.answered.get()) {
                (true, _) => REFUSED,
                (false, true) => IDLE,
                (false, false) => IDLE_UNANSWERED,
            };
            let stays = now - flow.state.last.get() < period;
            if !stays && flow.state.closed.get().is_none() {
                stats.count_idle();
            }
            stays
        });
    }
}

/// The way back to a program.
struct Back {
    near: Rc<Near>,
    program: SocketAddr,
    /// The header of each reply.
    header: Box<[u8]>,
    state: Rc<FlowState>,
}

impl FlowOutlet for Back {
    fn deliver(&self, datagram: Bytes) {
        self.state.answered.set(true);
        self.state.last.set(Instant::now());
        let Near { socket, flows, .. } = &*self.near;
        let (header, length) = (self.header.len(), self.header.len() + datagram.len());
        let mut buffer = SCRATCH.take();
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        buffer[..header].copy_from_slice(&self.header);
        buffer[header..length].copy_from_slice(&datagram);
        match socket.try_send_to(&buffer[..length], self.program) {
            Ok(_) => flows.sent(1, datagram.len()),
            Err(error) => flows.lost(Loss::of(&error), 1),
        }
        SCRATCH.replace(buffer);
    }

    fn close(&self, code: ResetCode) {
        self.state.end(code);
    }

    fn peer(&self) -> Option<SocketAddr> {
        Some(self.program)
    }

    fn counted_in(&self) -> *const () {
        self.near.flows.identity()
    }
}

impl fmt::Debug for Back {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Back").field("program", &self.program).finish_non_exhaustive()
    }
}
