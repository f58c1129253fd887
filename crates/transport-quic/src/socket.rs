//! A socket for quinn that respects the limits of one system call.
//!
//! quinn puts ten packets into a call, regardless of their size. The kernel segments at most 64 KiB
//! (`UDP_MAX_SEGMENTS` and the length field of IP) and answers EMSGSIZE to more. quinn takes
//! EMSGSIZE for an MTU probe that was too large, so with packets of 8,952 bytes no packet would
//! arrive.
//!
//! quinn's own socket logs a datagram that the system refuses to send as `sendmsg error: Os { code:
//! 101, … }`, which only a programmer understands. So this socket sends by itself, and receives
//! through the socket of quinn.

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use net::source::Proxies;
use net::udp::{Buffers, keep_joining, take_one_by_one, unsent};
use net::{Current, dscp};
use quinn::udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use quinn::{AsyncUdpSocket, Runtime, TokioRuntime, UdpPoller};
use rustix::io::Errno;

use crate::fenced::Fenced;
use crate::settings::DATAGRAMS;
use crate::twice;

/// The payload of one call: 65,535 bytes minus the headers of IPv6 and UDP, which the length field
/// of IPv4 counts as well.
const CALL: usize = 65_535 - 48;

/// The number of bytes that the kernel may join into one received message.
const JOINED: usize = 65_535;

/// The number of messages read in one call. Small messages may be followed by large ones, so a
/// larger number could be too many bytes. At high rates the kernel coalesces datagrams, and a
/// message is worth a call.
const FEW: usize = 3;

/// The largest number of bytes read in one call.
const ONCE: usize = FEW * JOINED;

/// After this number of bytes the connections and their readers run, before the next call. quinn
/// would read 32 messages, which are 2 MiB if coalesced. A connection takes all of them before its
/// reader runs, and its buffer of datagrams drops what it has no room for.
const TURN: usize = DATAGRAMS - ONCE;

/// The smallest kernel receive buffer, in bytes, with which a client coalesces arriving datagrams.
/// A smaller buffer means that memory must be saved. Without coalescing a connection takes 0.3 MB
/// instead of 2.3 MB.
const JOINED_FROM: usize = 256 << 10;

/// How datagrams that arrive together are received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receiving {
    /// The kernel coalesces datagrams into messages of up to 64 KiB, for which quinn has a buffer
    /// of 2 MB.
    Joined,
    /// Each datagram is a message; quinn's buffer holds 32 of them.
    OneByOne,
}

impl Receiving {
    /// The choice for a client whose socket has these buffers.
    pub(crate) const fn within(buffers: Buffers) -> Self {
        if buffers.receive < JOINED_FROM { Self::OneByOne } else { Self::Joined }
    }

    /// The size of quinn's receive buffer, in bytes, in an endpoint for payloads of `mtu` bytes.
    pub(crate) fn buffers(self, mtu: u16) -> usize {
        let each = match self {
            Self::Joined => JOINED.next_multiple_of(usize::from(mtu)),
            Self::OneByOne => usize::from(mtu),
        };
        quinn::udp::BATCH_SIZE * each
    }

    /// The largest payload that justifies its buffers, in bytes.
    pub(crate) const fn largest(self) -> u16 {
        match self {
            Self::Joined => u16::MAX,
            // The payload of a jumbo frame.
            Self::OneByOne => 8_952,
        }
    }
}

/// A protocol that shares the port with QUIC.
pub(crate) trait Beside: std::fmt::Debug + Send + Sync {
    /// Whether datagrams from this source are read at all. It is called for every message, so it
    /// takes no lock.
    fn admits(&self, from: SocketAddr) -> bool;

    /// Whether QUIC receives every datagram that has the form of a QUIC packet. Otherwise
    /// [`Self::takes`] decides for each datagram.
    fn is_open(&self) -> bool;

    /// A datagram has arrived from `from` at the address `at` of this machine. `true`: it does not
    /// belong to QUIC.
    fn takes(&self, socket: &Socket, from: SocketAddr, at: Option<IpAddr>, datagram: &[u8])
    -> bool;
}

/// The bits of the first byte of which every QUIC packet has at least one set (RFC 9443), because
/// none of our ends greases the fixed bit.
const OF_QUIC: u8 = 0xc0;

/// A UDP socket of this thread's runtime.
#[derive(Debug)]
pub(crate) struct Socket {
    inner: Arc<dyn AsyncUdpSocket>,
    /// The same socket for sending.
    same: Arc<std::net::UdpSocket>,
    sending: UdpSocketState,
    /// The code point of sent packets.
    dscp: u8,
    /// The number of segments of the largest size that a received message can hold.
    receive: usize,
    /// The size of the last sent segments. They usually belong to the same connection as the next
    /// segments. So the next call of quinn becomes one system call, and not a full and a small one.
    segment: AtomicUsize,
    /// The number of bytes read since other tasks ran.
    read: AtomicUsize,
    beside: Option<Arc<dyn Beside>>,
    /// Keeps floods of unauthenticated peers out, on a server.
    fenced: Option<Arc<Fenced>>,
}

impl Socket {
    /// Makes the socket; `mtu` is the largest received payload. Its packets carry the mark of the
    /// given socket ([`net::dscp`]). With the reverse proxies of a server, floods of first packets
    /// are kept out.
    pub(crate) fn new(
        socket: std::net::UdpSocket,
        mtu: u16,
        receiving: Receiving,
        beside: Option<Arc<dyn Beside>>,
        proxies: Option<&Current<Proxies>>,
    ) -> io::Result<Arc<Self>> {
        keep_joining();
        let same = Arc::new(socket.try_clone()?);
        let inner = TokioRuntime.wrap_udp_socket(socket)?;
        // Like quinn's own state it enables coalescing in the kernel, which may be disabled below.
        let sending = UdpSocketState::new(UdpSockRef::from(&same))?;
        // Quinn makes a buffer of this number of payloads for each of 32 messages.
        let receive = match receiving {
            Receiving::Joined => {
                inner.max_receive_segments().min(JOINED.div_ceil(usize::from(mtu)))
            }
            Receiving::OneByOne => {
                take_one_by_one(&same)?;
                1
            }
        };
        let (segment, read, dscp) = (1.into(), 0.into(), dscp::of(&*same));
        let fenced = proxies.map(|proxies| Fenced::new(Arc::clone(&same), proxies.clone()));
        Ok(Arc::new(Self { inner, same, sending, dscp, receive, segment, read, beside, fenced }))
    }
}

impl Socket {
    /// Sends with one call. Only a full socket is an error: a datagram that the system refuses for
    /// another reason counts as lost on the path.
    fn send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let sent = dscp::send(&self.sending, &self.same, transmit, self.dscp);
        let Err(error) = sent else { return Ok(()) };
        if error.kind() == io::ErrorKind::WouldBlock {
            // The runtime must notice it, or the wait for room would end at once. If there is room
            // again in the meantime, this packet is sent without a mark.
            return self.inner.try_send(transmit);
        }
        // A device without segmentation: quinn sends datagrams one by one from now on.
        let is_segmented = transmit.segment_size.is_some();
        let is_of_device = matches!(Errno::from_io_error(&error), Some(Errno::IO | Errno::INVAL));
        if !(is_segmented && is_of_device) {
            unsent(transmit.destination, &error);
        }
        Ok(())
    }
}

impl Socket {
    /// Sends a datagram of the protocol beside QUIC from the address `from` of this machine, or
    /// from the address that the route selects if the machine no longer has `from`. A datagram that
    /// finds no room is lost, as datagrams may be.
    pub(crate) fn send_beside(&self, to: SocketAddr, from: Option<IpAddr>, contents: &[u8]) {
        self.send_within(to, from, contents, None);
    }

    /// The same with a datagram that expires after this number of hops.
    pub(crate) fn send_within(
        &self,
        to: SocketAddr,
        from: Option<IpAddr>,
        contents: &[u8],
        hops: Option<u8>,
    ) {
        let send = |src_ip| {
            let transmit =
                Transmit { destination: to, ecn: None, contents, segment_size: None, src_ip };
            match hops {
                Some(hops) => {
                    dscp::send_within(&self.same, (to, src_ip), contents, (self.dscp, hops))
                }
                None => dscp::send(&self.sending, &self.same, &transmit, self.dscp),
            }
        };
        let sent = match send(from) {
            Err(error) if from.is_some() && error.kind() != io::ErrorKind::WouldBlock => send(None),
            sent => sent,
        };
        if let Err(error) = sent
            && error.kind() != io::ErrorKind::WouldBlock
        {
            tracing::debug!(%error, "a datagram of STUN is not sent");
        }
    }

    /// An address in the form that the socket accepts: an IPv6 socket takes IPv4 addresses in
    /// IPv4-mapped form.
    pub(crate) fn form_of(&self, to: SocketAddr) -> SocketAddr {
        let is_dual = self.local_addr().is_ok_and(|local| local.is_ipv6());
        let ip = to.ip().to_canonical();
        let mapped = match ip {
            IpAddr::V4(v4) if is_dual => v4.to_ipv6_mapped().into(),
            IpAddr::V4(_) | IpAddr::V6(_) => ip,
        };
        SocketAddr::new(mapped, to.port())
    }

    /// Removes the datagrams that do not belong to QUIC from a received message. All datagrams of a
    /// message except the last have one size, and this is kept.
    fn sift(&self, beside: &dyn Beside, buf: &mut [u8], meta: &mut RecvMeta) {
        if !beside.admits(meta.addr) {
            meta.len = 0;
            return;
        }
        let (stride, mut kept) = (meta.stride.max(1), 0);
        let is_open = beside.is_open();
        for from in (0..meta.len).step_by(stride) {
            let until = (from + stride).min(meta.len);
            let datagram = &buf[from..until];
            let is_of_quic = datagram.first().is_some_and(|first| first & OF_QUIC != 0);
            if is_open && is_of_quic || !beside.takes(self, meta.addr, meta.dst_ip, datagram) {
                if kept < from {
                    buf.copy_within(from..until, kept);
                }
                kept += until - from;
            }
        }
        meta.len = kept;
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.inner).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let is_twice = twice::take();
        if let Some(segment) = transmit.segment_size {
            self.segment.store(segment, Ordering::Relaxed);
        }
        let Some(segment) = transmit.segment_size.filter(|_| transmit.contents.len() > CALL) else {
            self.send(transmit)?;
            if is_twice {
                // A copy that finds no room is dropped.
                let _ = self.send(transmit);
            }
            return Ok(());
        };
        let call = (CALL / segment).max(1) * segment;
        for (turn, contents) in transmit.contents.chunks(call).enumerate() {
            let segment_size = (contents.len() > segment).then_some(segment);
            let part = Transmit { contents, segment_size, ..transmit_of(transmit) };
            match self.send(&part) {
                // The first part was sent. Sending it again would be worse than losing the rest.
                Err(error) if turn > 0 && error.kind() == io::ErrorKind::WouldBlock => break,
                done => done?,
            }
        }
        Ok(())
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        if self.read.load(Ordering::Relaxed) >= TURN {
            // quinn's task ends its turn, and continues after the tasks that it has woken.
            self.read.store(0, Ordering::Relaxed);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let asked = FEW.min(bufs.len());
        let polled = self.inner.poll_recv(cx, &mut bufs[..asked], meta);
        match &polled {
            Poll::Ready(Ok(read)) => {
                let bytes = meta[..*read].iter().map(|meta| meta.len).sum();
                self.read.fetch_add(bytes, Ordering::Relaxed);
                if let Some(fenced) = &self.fenced {
                    for (meta, buf) in meta[..*read].iter_mut().zip(bufs.iter_mut()) {
                        fenced.sift(buf, meta);
                    }
                }
                if let Some(beside) = &self.beside {
                    for (meta, buf) in meta[..*read].iter_mut().zip(bufs.iter_mut()) {
                        self.sift(beside.as_ref(), buf, meta);
                    }
                }
            }
            Poll::Pending => self.read.store(0, Ordering::Relaxed),
            Poll::Ready(Err(_)) => {}
        }
        polled
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        let fit = CALL / self.segment.load(Ordering::Relaxed).max(1);
        self.sending.max_gso_segments().min(fit.max(1))
    }

    fn max_receive_segments(&self) -> usize {
        self.receive
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}

/// The same transmit with empty contents, which the caller fills in.
const fn transmit_of<'a>(transmit: &Transmit<'a>) -> Transmit<'a> {
    Transmit {
        destination: transmit.destination,
        ecn: transmit.ecn,
        contents: transmit.contents,
        segment_size: None,
        src_ip: transmit.src_ip,
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::net::UdpSocket;

    use nix::libc;
    use nix::sys::socket::setsockopt;

    use super::*;

    /// Sends without checksums, so that the kernel cannot segment.
    #[derive(Clone, Debug)]
    struct NoCheck;
    nix::setsockopt_impl!(
        NoCheck,
        libc::SOL_SOCKET,
        libc::SO_NO_CHECK,
        bool,
        nix::sys::socket::sockopt::SetBool
    );

    fn bound() -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        socket
    }

    async fn send(socket: &Arc<Socket>, transmit: &Transmit<'_>) {
        let mut poller = Arc::clone(socket).create_io_poller();
        poll_fn(|cx| poller.as_mut().poll_writable(cx)).await.unwrap();
        socket.try_send(transmit).unwrap();
    }

    /// Sends four datagrams in one call. Returns the number of messages that arrive, and the number
    /// of bytes in them.
    async fn arrivals(receiving: Receiving) -> (usize, usize) {
        let socket = bound();
        let destination = socket.local_addr().unwrap();
        let socket = Socket::new(socket, 1_000, receiving, None, None).unwrap();
        let sender = Socket::new(bound(), 1_000, receiving, None, None).unwrap();
        let contents = [7; 4_000];
        let transmit = Transmit {
            destination,
            ecn: None,
            contents: &contents,
            segment_size: Some(1_000),
            src_ip: None,
        };
        send(&sender, &transmit).await;
        let mut space = vec![0; 1_000 * socket.max_receive_segments() * 4];
        let mut buffers: Vec<_> =
            space.chunks_mut(1_000 * socket.max_receive_segments()).map(IoSliceMut::new).collect();
        let (mut messages, mut bytes) = (0, 0);
        while bytes < contents.len() {
            let mut metas = [RecvMeta::default(); 4];
            let read = poll_fn(|cx| socket.poll_recv(cx, &mut buffers, &mut metas)).await.unwrap();
            messages += read;
            bytes += metas[..read].iter().map(|meta| meta.len).sum::<usize>();
        }
        (messages, bytes)
    }

    #[tokio::test]
    async fn datagrams_come_joined_or_one_by_one() {
        assert_eq!(arrivals(Receiving::Joined).await, (1, 4_000));
        assert_eq!(arrivals(Receiving::OneByOne).await, (4, 4_000));
    }

    #[tokio::test]
    async fn a_check_leaves_when_the_machine_has_another_address_now() {
        let peer = bound();
        peer.set_nonblocking(false).unwrap();
        let any = UdpSocket::bind("0.0.0.0:0").unwrap();
        any.set_nonblocking(true).unwrap();
        let socket = Socket::new(any, 1_000, Receiving::OneByOne, None, None).unwrap();
        // An address of the documents (RFC 5737), which this machine does not have.
        let gone = "192.0.2.77".parse().unwrap();
        socket.send_beside(peer.local_addr().unwrap(), Some(gone), b"check");
        peer.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        let mut read = [0; 10];
        assert_eq!(peer.recv(&mut read).unwrap(), 5);
    }

    /// Takes what has the letter of the alphabet that it is told, and all that is not of QUIC.
    #[derive(Debug)]
    struct Takes(u8);

    impl Beside for Takes {
        fn admits(&self, from: SocketAddr) -> bool {
            from.port() != 666
        }

        fn is_open(&self) -> bool {
            self.0 == 0
        }

        fn takes(&self, _: &Socket, _: SocketAddr, _: Option<IpAddr>, datagram: &[u8]) -> bool {
            datagram[0] == self.0 || datagram[0] < 64
        }
    }

    #[tokio::test]
    async fn what_is_beside_quic_is_taken_out_of_joined_datagrams() {
        let socket = Socket::new(bound(), 1_000, Receiving::Joined, None, None).unwrap();
        for (takes, arrived, left) in [
            (b'x', "aaabbbcccd", "aaabbbcccd"),
            (b'b', "aaabbbcccd", "aaacccd"),
            (b'a', "aaabbbcccd", "bbbcccd"),
            (b'd', "aaabbbcccd", "aaabbbccc"),
            (b'a', "aaaaaa", ""),
            (0, "aaa\u{1}bbccc", "aaaccc"),
            (b'x', "\u{3}aabbb", "bbb"),
            (b'x', "", ""),
        ] {
            let mut bytes = arrived.as_bytes().to_vec();
            let mut meta = RecvMeta { len: bytes.len(), stride: 3, ..RecvMeta::default() };
            socket.sift(&Takes(takes), &mut bytes, &mut meta);
            assert_eq!(std::str::from_utf8(&bytes[..meta.len]).unwrap(), left, "{arrived}");
        }
    }

    #[tokio::test]
    async fn a_message_from_a_source_that_is_not_admitted_is_dropped() {
        let socket = Socket::new(bound(), 1_000, Receiving::Joined, None, None).unwrap();
        for (port, left) in [(665, 6), (666, 0)] {
            let addr = SocketAddr::from(([192, 0, 2, 1], port));
            let mut meta = RecvMeta { addr, len: 6, stride: 3, ..RecvMeta::default() };
            socket.sift(&Takes(0), &mut [b'a'; 6], &mut meta);
            assert_eq!(meta.len, left);
        }
    }

    #[tokio::test]
    async fn what_is_to_leave_twice_leaves_twice_and_the_next_once() {
        let to = bound();
        let socket = Socket::new(bound(), 1_000, Receiving::Joined, None, None).unwrap();
        let transmit = Transmit {
            destination: to.local_addr().unwrap(),
            ecn: None,
            contents: &[7; 100],
            segment_size: None,
            src_ip: None,
        };
        twice::set(true);
        send(&socket, &transmit).await;
        send(&socket, &Transmit { contents: &[7; 50], ..transmit_of(&transmit) }).await;
        let arrived: Vec<_> = (0..4).map_while(|_| to.recv(&mut [0; 1_000]).ok()).collect();
        assert_eq!(arrived, [100, 100, 50]);
    }

    /// A device without checksums, or an IPsec tunnel, refuses batches in the same way, with EIO.
    #[tokio::test]
    async fn where_the_kernel_refuses_a_batch_packets_leave_one_by_one() {
        let to = bound();
        let from = bound();
        setsockopt(&from, NoCheck, &true).unwrap();
        let socket = Socket::new(from, 1_000, Receiving::Joined, None, None).unwrap();
        assert!(socket.max_transmit_segments() > 1, "the kernel segments");
        let batch = Transmit {
            destination: to.local_addr().unwrap(),
            ecn: None,
            contents: &[7; 4_000],
            segment_size: Some(1_000),
            src_ip: None,
        };
        send(&socket, &batch).await;
        let arrived = to.recv(&mut [0; 4_000]).unwrap_err();
        assert_eq!(
            arrived.kind(),
            io::ErrorKind::WouldBlock,
            "the batch is lost, as packets may be"
        );

        assert_eq!(socket.max_transmit_segments(), 1);
        for _ in 0..4 {
            let contents = &batch.contents[..1_000];
            send(&socket, &Transmit { contents, segment_size: None, ..transmit_of(&batch) }).await;
            assert_eq!(to.recv(&mut [0; 4_000]).unwrap(), 1_000);
        }
    }

    /// A socket in which messages of one size wait.
    #[derive(Debug)]
    struct Backlog {
        size: usize,
        left: AtomicUsize,
    }

    impl AsyncUdpSocket for Backlog {
        fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
            unimplemented!("nothing is sent")
        }

        fn try_send(&self, _: &Transmit<'_>) -> io::Result<()> {
            unimplemented!("nothing is sent")
        }

        fn poll_recv(
            &self,
            _: &mut Context<'_>,
            bufs: &mut [IoSliceMut<'_>],
            meta: &mut [RecvMeta],
        ) -> Poll<io::Result<usize>> {
            let left = self.left.load(Ordering::Relaxed);
            let read = left.min(bufs.len());
            if read == 0 {
                return Poll::Pending;
            }
            self.left.store(left - read, Ordering::Relaxed);
            meta[..read].iter_mut().for_each(|meta| meta.len = self.size);
            Poll::Ready(Ok(read))
        }

        fn local_addr(&self) -> io::Result<SocketAddr> {
            unimplemented!("nobody asks")
        }
    }

    /// The messages of each call of a reader that reads as long as it may, by turns.
    fn turns(size: usize, count: usize) -> Vec<Vec<usize>> {
        let inner = Arc::new(Backlog { size, left: count.into() });
        let same = Arc::new(bound());
        let sending = UdpSocketState::new(UdpSockRef::from(&same)).unwrap();
        let (segment, read, beside, fenced) = (1.into(), 0.into(), None, None);
        let (dscp, receive) = (0, 1);
        let socket = Socket { inner, same, sending, dscp, receive, segment, read, beside, fenced };
        let mut space = [0; 32];
        let mut turns = vec![Vec::new()];
        while turns.iter().flatten().sum::<usize>() < count {
            let mut buffers: Vec<_> = space.chunks_mut(1).map(IoSliceMut::new).collect();
            let mut metas = [RecvMeta::default(); 32];
            let mut cx = Context::from_waker(std::task::Waker::noop());
            match socket.poll_recv(&mut cx, &mut buffers, &mut metas) {
                Poll::Ready(read) => turns.last_mut().unwrap().push(read.unwrap()),
                Poll::Pending => turns.push(Vec::new()),
            }
        }
        turns
    }

    #[test]
    fn a_turn_reads_no_more_than_the_buffer_of_a_connection_holds() {
        assert_eq!(turns(65_000, 7), [vec![3], vec![3], vec![1]]);
        for size in [100, 1_200, 1_472, 6_000, 8_952, 16_336, 40_000, 65_000] {
            for turn in turns(size, 1_000) {
                let bytes = turn.iter().sum::<usize>() * size;
                assert!(bytes <= DATAGRAMS, "{size}: {turn:?}");
            }
        }
    }

    #[tokio::test]
    async fn what_the_system_refuses_counts_as_lost_and_ends_no_connection() {
        let socket = Socket::new(bound(), 1_200, Receiving::Joined, None, None).unwrap();
        let transmit = Transmit {
            // A socket of IPv4 reaches no address of IPv6.
            destination: "[2001:db8::1]:7000".parse().unwrap(),
            ecn: None,
            contents: &[0; 1_200],
            segment_size: None,
            src_ip: None,
        };
        send(&socket, &transmit).await;
        send(&socket, &transmit).await;
    }

    #[tokio::test]
    async fn a_batch_is_no_longer_than_one_call_takes() {
        let socket = Socket::new(bound(), 8_952, Receiving::Joined, None, None).unwrap();
        let most = socket.max_transmit_segments();
        let to = bound();
        let transmit = Transmit {
            destination: to.local_addr().unwrap(),
            ecn: None,
            contents: &[0; 8_952 * 10],
            segment_size: Some(8_952),
            src_ip: None,
        };
        send(&socket, &transmit).await;
        assert_eq!(socket.max_transmit_segments(), 7.min(most), "64 KiB of these");
        let transmit = Transmit { contents: &[0; 2_400], segment_size: Some(1_200), ..transmit };
        send(&socket, &transmit).await;
        assert_eq!(socket.max_transmit_segments(), 54.min(most));
    }
}
