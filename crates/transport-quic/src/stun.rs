//! The STUN server (RFC 8489, only Binding): it tells clients the address from which their
//! datagrams come. It answers at the ports of `quic://` beside QUIC, on whichever worker a request
//! arrives, and at one additional port, so that a client can detect whether its NAT chooses a
//! different port per destination. It keeps no state, so a forged source costs one datagram of at
//! most [`punch::stun::ANSWER`] bytes, and [`RATE`] bounds their number.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use net::source::Rates;
use net::udp::udp_group;
use punch::stun;
use quinn::AsyncUdpSocket as _;
use quinn::udp::RecvMeta;

use crate::socket::{Beside, Receiving, Socket};

/// Answers per second to one source, at all ports together. An attempt of a client sends at most
/// eight requests, and a thousand clients behind one address rarely try at the same moment.
pub const RATE: u32 = 100;

/// A request with all known attributes is much shorter.
const REQUEST: u16 = 1_500;

/// The number of messages read at once.
const BATCH: usize = 8;

/// The STUN server of a process. All its ports share it.
pub struct StunServer {
    rates: Mutex<Rates>,
    /// The additional port, which answers requests for an answer from another port.
    other: OnceLock<Mutex<Weak<Socket>>>,
    other_port: AtomicU16,
    answered: AtomicU64,
    dropped: AtomicU64,
}

/// The received requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StunCounts {
    /// The answered requests.
    pub answered: u64,
    /// The requests that were dropped, because too many came from their source.
    pub dropped: u64,
}

impl Default for StunServer {
    fn default() -> Self {
        let rates = Mutex::new(Rates::new(RATE));
        let (other, other_port) = (OnceLock::new(), AtomicU16::new(0));
        let (answered, dropped) = Default::default();
        Self { rates, other, other_port, answered, dropped }
    }
}

impl StunServer {
    /// The number of the additional port, while it is open.
    #[must_use]
    pub fn other_port(&self) -> Option<u16> {
        Some(self.other_port.load(Ordering::Relaxed)).filter(|port| *port != 0)
    }

    /// Binds the additional port and answers at it, in the runtime of this thread, until the future
    /// is dropped.
    ///
    /// # Errors
    /// The port cannot be bound, or the socket failed.
    pub async fn serve(self: &Arc<Self>, address: SocketAddr) -> io::Result<()> {
        let bound = udp_group(address, 1)?.pop().ok_or(io::ErrorKind::AddrNotAvailable)?;
        let port = bound.local_addr()?.port();
        let socket =
            Socket::new(bound, REQUEST, Receiving::OneByOne, Some(Arc::clone(self) as _), None)?;
        *self.other().lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&socket);
        self.other_port.store(port, Ordering::Relaxed);
        let _closed = Closed(self);
        tracing::debug!(port, "STUN is answered at a further port");
        let mut space = vec![0; BATCH * usize::from(REQUEST)];
        loop {
            let mut buffers: Vec<_> =
                space.chunks_mut(REQUEST.into()).map(IoSliceMut::new).collect();
            let mut metas = [RecvMeta::default(); BATCH];
            // Datagrams that the STUN server accepts are answered; all others are dropped.
            poll_fn(|cx| socket.poll_recv(cx, &mut buffers, &mut metas)).await?;
        }
    }

    /// Answers at a socket that another task reads: for a port without QUIC.
    #[must_use]
    pub fn answers(&self, datagram: &[u8], from: SocketAddr) -> Option<stun::Answer> {
        let answer = stun::answer(datagram, from)?;
        let now = tokio::time::Instant::now().into_std();
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        let is_given = rates.take(now, Some(from.ip()));
        drop(rates);
        let count = if is_given { &self.answered } else { &self.dropped };
        count.fetch_add(1, Ordering::Relaxed);
        is_given.then_some(answer)
    }

    /// The requests received so far.
    #[must_use]
    pub fn counts(&self) -> StunCounts {
        StunCounts {
            answered: self.answered.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
        }
    }

    fn other(&self) -> &Mutex<Weak<Socket>> {
        self.other.get_or_init(|| Mutex::new(Weak::new()))
    }
}

/// Removes the additional port when it closes.
struct Closed<'a>(&'a StunServer);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.other_port.store(0, Ordering::Relaxed);
    }
}

impl Beside for StunServer {
    /// The server answers everybody.
    fn admits(&self, _: SocketAddr) -> bool {
        true
    }

    fn is_open(&self) -> bool {
        true
    }

    fn takes(
        &self,
        socket: &Socket,
        from: SocketAddr,
        at: Option<IpAddr>,
        datagram: &[u8],
    ) -> bool {
        if !stun::is_stun(datagram) {
            return false;
        }
        let Some(answer) = self.answers(datagram, from) else { return true };
        if answer.from_other_port {
            let other = self.other().lock().unwrap_or_else(PoisonError::into_inner).upgrade();
            // The additional port cannot answer from the ports of QUIC, which it does not know.
            if let Some(other) = other.filter(|other| !std::ptr::eq(Arc::as_ptr(other), socket)) {
                other.send_beside(other.form_of(from), at, answer.bytes());
            }
        } else {
            socket.send_beside(from, at, answer.bytes());
        }
        true
    }
}

impl fmt::Debug for StunServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StunServer").field("other_port", &self.other_port()).finish_non_exhaustive()
    }
}
