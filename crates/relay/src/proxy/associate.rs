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
use proto::{Open, Priority, ResetCode, Target};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UdpSocket;
use tokio::time::{Instant, MissedTickBehavior, interval};
use transport::{DATAGRAM_MAX, FlowInlet, FlowOutlet};

use super::handshake::linger;
use super::local::Proxy;
use super::socks5::{self, ADDRESS_MAX, Reply};
use crate::{Permit, Settings, Socket};

/// Flows of one association. A browser or a resolver talks to some dozens at a time; beyond the
/// limit the flow that was used least recently ends.
const FLOWS: usize = 256;

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
    let made = Association::bind(&socket, port, settings, proxy.priority());
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
    tracing::debug!(drops = ?association.near.drops, "an association ended");
}

/// The side of an association that its flows share.
#[derive(Debug)]
struct Near {
    socket: UdpSocket,
    settings: Rc<Settings>,
    drops: Drops,
}

/// Datagrams that were dropped, by reason.
#[derive(Debug, Default)]
struct Drops {
    /// From another program or another port.
    stranger: Cell<u64>,
    /// No datagram of SOCKS5, a fragment, or an address that cannot be asked for.
    malformed: Cell<u64>,
    /// The far end refused the destination a moment ago, or there is no link.
    refused: Cell<u64>,
    /// The carrier takes no more at present.
    carrier: Cell<u64>,
    /// The socket of the program takes no more, or the datagram is too large for it.
    program: Cell<u64>,
}

fn add(counter: &Cell<u64>, n: usize) {
    counter.set(counter.get().wrapping_add(n as u64));
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

/// What the link tells of a flow.
#[derive(Debug)]
struct FlowState {
    /// The time of the last datagram, or of the end of the flow.
    last: Cell<Instant>,
    answered: Cell<bool>,
    /// The flow has ended. It stays in the list for a while, so that its destination is not asked
    /// for again at once.
    closed: Cell<bool>,
}

impl Association {
    /// Binds a socket at the address to which the program connected. Returns its address, too.
    fn bind(
        socket: &Socket,
        port: u16,
        settings: &Rc<Settings>,
        priority: Priority,
    ) -> io::Result<(Self, SocketAddr)> {
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
        let near = Rc::new(Near { socket, settings: Rc::clone(settings), drops: Drops::default() });
        let flows = HashMap::new();
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
        let near = Rc::clone(&self.near);
        let drops = &near.drops;
        let is_program = from.ip() == self.program.ip()
            && (self.program.port() == 0 || self.program.port() == from.port());
        if !is_program {
            return add(&drops.stranger, 1);
        }
        let Some(datagram) = socks5::datagram(bytes) else { return add(&drops.malformed, 1) };
        if datagram.payload.len() > DATAGRAM_MAX {
            return add(&drops.malformed, 1);
        }
        let mut key = [0; 2 + ADDRESS_MAX];
        let length = 2 + datagram.address.len();
        key[..2].copy_from_slice(&from.port().to_be_bytes());
        key[2..length].copy_from_slice(datagram.address);
        let key = &key[..length];
        let now = Instant::now();
        self.clock += 1;
        if let Some(flow) = self.flows.get(key).filter(|flow| flow.state.closed.get()) {
            if now - flow.state.last.get() < REFUSED {
                return add(&drops.refused, 1);
            }
            self.flows.remove(key);
        }
        if !self.flows.contains_key(key) {
            let Ok(target) = datagram.asked() else { return add(&drops.malformed, 1) };
            if target.port == 0 {
                return add(&drops.malformed, 1);
            }
            self.make_room();
            let Some(flow) = self.open(from, datagram.address, target.to_string(), proxy) else {
                return add(&drops.refused, 1);
            };
            self.flows.insert(key.to_vec(), flow);
        }
        let Some(flow) = self.flows.get_mut(key) else { return };
        flow.used = self.clock;
        flow.state.last.set(now);
        near.settings.stats.count_in(datagram.payload.len());
        add(&drops.carrier, flow.inlet.send(&mut std::iter::once(datagram.payload)));
    }

    /// Opens the flow of a destination.
    fn open(
        &self,
        program: SocketAddr,
        address: &[u8],
        target: String,
        proxy: &Proxy,
    ) -> Option<Flow> {
        let state = Rc::new(FlowState {
            last: Cell::new(Instant::now()),
            answered: Cell::new(false),
            closed: Cell::new(false),
        });
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
        let link = proxy.links.now()?;
        match link.flows.open_flow(open, Rc::new(back)) {
            Ok(inlet) => Some(Flow { inlet, state, used: self.clock }),
            Err(error) => {
                tracing::debug!(target, %error, "no flow for the datagrams of a program");
                None
            }
        }
    }

    /// Ends the flow that was used least recently, if there are as many as there may be.
    fn make_room(&mut self) {
        if self.flows.len() < FLOWS {
            return;
        }
        let oldest = self.flows.iter().min_by_key(|(_, flow)| flow.used);
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
            self.flows.remove(&key);
        }
    }

    /// Ends flows that are idle, and forgets those that have ended.
    fn sweep(&mut self) {
        let now = Instant::now();
        self.flows.retain(|_, flow| {
            let period = match (flow.state.closed.get(), flow.state.answered.get()) {
                (true, _) => REFUSED,
                (false, true) => IDLE,
                (false, false) => IDLE_UNANSWERED,
            };
            now - flow.state.last.get() < period
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
        let Near { socket, settings, drops } = &*self.near;
        let (header, length) = (self.header.len(), self.header.len() + datagram.len());
        let mut buffer = SCRATCH.take();
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        buffer[..header].copy_from_slice(&self.header);
        buffer[header..length].copy_from_slice(&datagram);
        match socket.try_send_to(&buffer[..length], self.program) {
            Ok(_) => settings.stats.count_out(datagram.len()),
            Err(_) => add(&drops.program, 1),
        }
        SCRATCH.replace(buffer);
    }

    fn close(&self, _code: ResetCode) {
        self.state.closed.set(true);
        self.state.last.set(Instant::now());
    }

    fn peer(&self) -> Option<SocketAddr> {
        Some(self.program)
    }

    fn counted_in(&self) -> *const () {
        self.near.settings.stats.identity()
    }
}

impl fmt::Debug for Back {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Back").field("program", &self.program).finish_non_exhaustive()
    }
}
