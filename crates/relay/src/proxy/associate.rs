//! UDP over SOCKS5 (RFC 1928 sections 4, 6 and 7): a UDP socket in addition to the connection of a
//! program. Each destination of each port of the program is a flow, whose far end dials. The flows
//! work as those of a port (`flows/near`), and end with the connection.
//!
//! ```text
//!   program ──header, payload──> socket ──payload──> flow of the destination ──> far end
//!   program <─header, payload── socket <──payload── flow <── far end
//! ```
//!
//! The socket accepts only datagrams from the source address of the connection, and from the port
//! that the request announced, if any. A fragment is dropped. A reply carries the destination as
//! the program wrote it, a name as a name.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use net::socket::canonical;
use net::udp::{Loss, Tally as _};
use proto::{Open, ResetCode, Target};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UdpSocket;
use tokio::time::Instant;
use transport::{DATAGRAM_MAX, FlowInlet, FlowOutlet, OpenError};

use super::Proxy;
use super::handshake::linger;
use super::socks5::{self, ADDRESS_MAX, Datagram, Reply};
use crate::flows::{Ends, IdleTimer, NearFlows, NearSocket, hand_over};
use crate::{DropReason, FlowBounds, FlowSettings, FlowStats, Gate, Permit, Settings, Socket};

/// The maximum number of flows of one association. A browser or a resolver uses some dozens at a
/// time; beyond the limit the least valuable flow is evicted.
const FLOWS: u32 = 256;

/// The number of datagrams per turn before other tasks run.
const BUDGET: usize = 64;

thread_local! {
    /// The buffer of the current datagram, for all associations of a worker.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The size of the largest datagram with its header, in bytes.
const DATAGRAM_WITH_HEADER: usize = 3 + ADDRESS_MAX + DATAGRAM_MAX;

/// Answers a request for an association, and carries its datagrams until the connection ends.
/// `port`: the announced source port of the program, or 0.
pub(super) async fn serve(
    mut socket: Socket,
    port: u16,
    proxy: &Rc<Proxy>,
    permit: Option<Permit>,
) {
    let settings = &proxy.settings;
    let made = Association::bind(&socket, port, proxy, permit);
    let (association, bound) = match made {
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
    association.run(&mut socket).await;
}

/// The socket of an association.
#[derive(Debug)]
struct Near(UdpSocket, Option<Permit>);

/// A port of the program, and the header of each answer to it.
type To = (SocketAddr, Box<[u8]>);

impl NearSocket for Near {
    /// The port of the program, and the destination as the program wrote it.
    type Key = Box<[u8]>;
    type To = To;

    fn send(&self, (program, head): &To, _: u8, datagram: Bytes, stats: &FlowStats) -> bool {
        let (header, length) = (head.len(), head.len() + datagram.len());
        let mut buffer = SCRATCH.take();
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        buffer[..header].copy_from_slice(head);
        buffer[header..length].copy_from_slice(&datagram);
        match self.0.try_send_to(&buffer[..length], *program) {
            Ok(_) => stats.sent(1, datagram.len()),
            Err(error) => stats.lost(Loss::of(&error), 1),
        }
        SCRATCH.replace(buffer);
        true
    }

    fn gate(&self) -> Option<&Arc<Gate>> {
        self.1.as_ref().map(Permit::gate)
    }
}

/// A UDP socket and its flows.
#[derive(Debug)]
struct Association {
    flows: Rc<NearFlows<Near>>,
    /// The address of the program. Port 0 means any port.
    program: SocketAddr,
    proxy: Rc<Proxy>,
}

impl Drop for Association {
    fn drop(&mut self) {
        self.flows.end_all(ResetCode::Aborted);
        self.proxy.settings.stats.leave();
    }
}

impl Association {
    /// Binds a socket at the address to which the program connected. Returns its address, too.
    fn bind(
        socket: &Socket,
        port: u16,
        proxy: &Rc<Proxy>,
        permit: Option<Permit>,
    ) -> io::Result<(Self, SocketAddr)> {
        let Settings { room, stats, .. } = &*proxy.settings;
        let Socket::Tcp(tcp) = socket else { return Err(io::ErrorKind::Unsupported.into()) };
        let mut local = tcp.local_addr()?;
        if local.ip().to_canonical().is_ipv4() {
            // The listener has both families; the IPv4-mapped form would create an IPv6 socket.
            local = canonical(local);
        }
        local.set_port(0);
        let mut program = canonical(tcp.peer_addr()?);
        program.set_port(port);
        let udp = std::net::UdpSocket::bind(local)?;
        if !room.holds(&udp) {
            return Err(rustix::io::Errno::MFILE.into());
        }
        udp.set_nonblocking(true)?;
        let bound = udp.local_addr()?;
        let socket = Near(UdpSocket::from_std(udp)?, permit);
        stats.enter();
        stats.count_opened();
        // The program is the only source.
        let bounds = Arc::new(FlowBounds::new(FLOWS, FLOWS));
        let stats = Rc::clone(&proxy.flows);
        let flows = FlowSettings { bounds, stats, ..FlowSettings::default() };
        let flows = NearFlows::new(socket, Rc::new(flows));
        Ok((Self { flows, program, proxy: Rc::clone(proxy) }, bound))
    }

    /// Carries datagrams until the connection of the program ends.
    async fn run(&self, connection: &mut Socket) {
        let mut timer = IdleTimer::default();
        let mut ignored = [0; 64];
        let near = &self.flows.socket.0;
        loop {
            let is_busy = tokio::select! {
                read = connection.read(&mut ignored) => {
                    // The program may send on the connection, but need not.
                    if matches!(read, Ok(0) | Err(_)) {
                        return;
                    }
                    false
                }
                ready = near.readable() => {
                    if ready.is_err() {
                        return;
                    }
                    self.read() == BUDGET
                }
                () = poll_fn(|cx| timer.poll(cx, self.flows.next_idle())) => self.flows.end_idle(),
            };
            if is_busy {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Reads datagrams from the program, and returns their number.
    fn read(&self) -> usize {
        // The buffer is taken out, so that a flow that answers during the call allocates another
        // buffer.
        let mut buffer = SCRATCH.take();
        // One byte more than the largest datagram, so that a longer one is recognized.
        buffer.resize(DATAGRAM_WITH_HEADER + 1, 0);
        let mut count = 0;
        while count < BUDGET {
            match self.flows.socket.0.try_recv_from(&mut buffer) {
                Ok((size, from)) => self.take(from, &buffer[..size]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The error of an earlier datagram that the program refused.
                Err(_) => {}
            }
            count += 1;
        }
        SCRATCH.replace(buffer);
        count
    }

    /// Handles a datagram that has arrived at the socket.
    fn take(&self, from: SocketAddr, bytes: &[u8]) {
        let stats = &self.flows.settings.stats;
        let datagram = socks5::datagram(bytes);
        let payload = datagram.as_ref().map_or(bytes, |datagram| datagram.payload);
        stats.count_in(1, payload.len());
        let mut one = std::iter::once(payload);
        match self.flow(from, datagram) {
            Ok(flow) => flow.pass(1, payload.len(), |inlet| hand_over(&mut one, 1, inlet, stats)),
            Err(reason) => stats.count_dropped(reason, 1),
        }
    }

    /// Finds or opens the flow of a datagram.
    ///
    /// # Errors
    /// The reason to drop the datagram.
    fn flow(
        &self,
        from: SocketAddr,
        datagram: Option<Datagram<'_>>,
    ) -> Result<Ends<Near>, DropReason> {
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
        let (key, now) = (&key[..length], Instant::now());
        if let Some(flow) = self.flows.look_up(key, now)? {
            return Ok(flow);
        }
        let target = datagram.asked().map_err(|_| DropReason::Failed)?;
        if target.port == 0 {
            return Err(DropReason::Failed);
        }
        let mut header = Vec::with_capacity(3 + datagram.address.len());
        socks5::put_header(&mut header, datagram.address);
        let to = (from, header.into_boxed_slice());
        let open = |outlet| self.open(from, &target.to_string(), outlet);
        self.flows.open(key.into(), to, from, now, open)
    }

    /// Opens the flow of a destination.
    fn open(
        &self,
        program: SocketAddr,
        target: &str,
        outlet: Rc<dyn FlowOutlet>,
    ) -> Result<(Box<dyn FlowInlet>, Option<Permit>), DropReason> {
        let link = self.proxy.links.now().ok_or(DropReason::NoLink)?;
        let open = Open {
            target: Target::Forward(format!("udp://{target}")),
            visitor: Some(program),
            priority: self.proxy.priority,
            fields: None,
        };
        let inlet = link.flows.open_flow(open, outlet).map_err(|error| {
            tracing::debug!(target, %error, "no flow for the datagrams of a program");
            match error {
                OpenError::Limit => DropReason::Limit,
                OpenError::Closed | OpenError::TooOld => DropReason::NoLink,
            }
        })?;
        Ok((inlet, None))
    }
}
