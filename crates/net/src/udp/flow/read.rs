//! Received datagrams. The kernel coalesces datagrams of one peer into messages (UDP_GRO), and one
//! call reads several messages (recvmmsg). All sockets of a thread read into the same buffer, so an
//! idle socket holds none.

use std::cell::Cell;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use quinn_udp::{RecvMeta, UdpSockRef, UdpSocketState};
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::Route;

/// The maximum size of a message: coalesced datagrams do not exceed the maximum packet size.
const MESSAGE: usize = 64 << 10;

/// The maximum number of messages per call. Pages of the buffer that small datagrams do not touch
/// use no memory.
const MESSAGES: usize = 16;

/// The number of messages of the first call of a turn, and of calls after large messages, so that a
/// turn reads little more than its budget.
const FEW: usize = 4;

/// The mean size from which messages count as large, in bytes.
const LARGE: usize = 8 << 10;

type Buffer = Box<[u8]>;

thread_local! {
    /// `None` while the buffer is in use.
    static BUFFER: Cell<Option<Buffer>> = const { Cell::new(None) };
}

/// One or more datagrams of one peer that arrived together.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The sender and the destination address, as reported by the socket.
    pub route: Route,
    bytes: &'a [u8],
    stride: usize,
}

impl<'a> Arrival<'a> {
    /// The datagrams, in the order of their arrival. There is at least one; it may be empty.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let empty = self.bytes.is_empty().then_some(&[][..]);
        empty.into_iter().chain(self.bytes.chunks(self.stride.max(1)))
    }

    /// The number of datagrams.
    #[must_use]
    pub fn count(&self) -> usize {
        self.bytes.len().div_ceil(self.stride.max(1)).max(1)
    }

    /// The number of bytes of all datagrams.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

/// The number of messages that the next call reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace(usize);

impl Pace {
    pub(super) const BEGIN: Self = Self(FEW);

    fn after(&mut self, messages: usize, bytes: usize) {
        self.0 = if bytes >= messages * LARGE { FEW } else { MESSAGES };
    }
}

/// Reads once and passes the received datagrams to `take`. Returns the number of messages and
/// bytes.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`]: the queue is empty. Other errors concern datagrams that were sent
/// earlier, or a lack of memory.
pub(super) fn read(
    calls: &UdpSocketState,
    socket: &UdpSocket,
    pace: &mut Pace,
    mut take: impl FnMut(Arrival<'_>),
) -> io::Result<(usize, usize)> {
    let mut buffer =
        BUFFER.take().unwrap_or_else(|| vec![0; MESSAGE * MESSAGES].into_boxed_slice());
    let mut metas = [RecvMeta::default(); MESSAGES];
    let outcome = receive(calls, socket, &mut buffer, pace.0, &mut metas);
    let mut bytes = 0;
    if let Ok(messages) = outcome {
        for (meta, chunk) in metas.iter().take(messages).zip(buffer.chunks(MESSAGE)) {
            bytes += meta.len;
            if let Some(arrived) = chunk.get(..meta.len) {
                let route = Route { peer: meta.addr, local: meta.dst_ip.and_then(usable), dscp: 0 };
                take(Arrival { route, bytes: arrived, stride: meta.stride });
            }
        }
        pace.after(messages, bytes);
    }
    BUFFER.set(Some(buffer));
    outcome.map(|messages| (messages, bytes))
}

fn receive(
    calls: &UdpSocketState,
    socket: &UdpSocket,
    buffer: &mut [u8],
    messages: usize,
    metas: &mut [RecvMeta; MESSAGES],
) -> io::Result<usize> {
    let mut chunks = buffer.chunks_mut(MESSAGE);
    let mut slices: [IoSliceMut<'_>; MESSAGES] =
        std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
    let messages = messages.min(MESSAGES);
    let mut done = 0;
    // The readiness is read before the call, so an event during the call is not lost.
    let outcome = socket.try_io(Interest::READABLE, || {
        done = calls.recv(
            UdpSockRef::from(socket),
            &mut slices[..messages],
            &mut metas[..messages],
        )?;
        // The queue is now empty (epoll(7), question 9). That saves a call.
        if done < messages { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    });
    match outcome {
        Err(error) if done == 0 => Err(error),
        Ok(()) | Err(_) => Ok(done),
    }
}

/// The address usable as the source of a reply: not multicast, broadcast or unspecified.
fn usable(local: IpAddr) -> Option<IpAddr> {
    let plain = local.to_canonical();
    (!plain.is_multicast() && !plain.is_unspecified() && plain != Ipv4Addr::BROADCAST)
        .then_some(local)
}

/// Whether a peer can receive a reply. No socket has port 0 (RFC 768), so such an address is
/// forged.
pub(super) const fn has_port(peer: SocketAddr) -> bool {
    peer.port() != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(bytes: &[u8], stride: usize) -> Arrival<'_> {
        let route = Route { peer: "192.0.2.1:5".parse().unwrap(), local: None, dscp: 0 };
        Arrival { route, bytes, stride }
    }

    #[test]
    fn a_message_is_cut_where_its_datagrams_end() {
        let bytes = [1, 1, 1, 2, 2, 2, 3];
        for (stride, lengths) in [(3, &[3, 3, 1][..]), (7, &[7]), (9, &[7])] {
            let arrived = arrival(&bytes, stride);
            let cut: Vec<_> = arrived.datagrams().map(<[u8]>::len).collect();
            assert_eq!(cut, lengths);
            assert_eq!(arrived.count(), lengths.len());
        }
        let empty = arrival(&[], 0);
        assert_eq!((empty.datagrams().count(), empty.count(), empty.bytes()), (1, 1, 0));
        assert_eq!(empty.datagrams().next(), Some(&[][..]));
    }

    #[test]
    fn no_answer_leaves_from_an_address_of_many() {
        for (local, is_usable) in [
            ("192.0.2.1", true),
            ("::ffff:192.0.2.1", true),
            ("2001:db8::1", true),
            ("255.255.255.255", false),
            ("::ffff:255.255.255.255", false),
            ("224.0.0.251", false),
            ("ff02::fb", false),
            ("0.0.0.0", false),
        ] {
            assert_eq!(usable(local.parse().unwrap()).is_some(), is_usable, "{local}");
        }
    }
}
