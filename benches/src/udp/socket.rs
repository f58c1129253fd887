//! The sockets of sender and receiver: datagrams of one size leave in one call (UDP_SEGMENT), and
//! those that arrive together are read together (UDP_GRO, recvmmsg).

use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use quinn_udp::{BATCH_SIZE, RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Bytes of the largest message that arrives.
const MESSAGE: usize = 64 << 10;

/// Bytes of one call at most: 65,535 less the heads of IPv4 and UDP.
const CALL: usize = 65_507;

/// The largest segment: the payload of a packet of 1,500 bytes over IPv6. The kernel does not cut a
/// segment into fragments, so larger datagrams leave alone.
const SEGMENT: usize = 1_452;

/// A socket, and what the kernel can do for it.
#[derive(Debug)]
pub struct Socket {
    socket: UdpSocket,
    state: UdpSocketState,
}

/// Room for the messages of one read.
#[derive(Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    metas: [RecvMeta; BATCH_SIZE],
}

impl Default for Buffer {
    fn default() -> Self {
        Self { bytes: vec![0; MESSAGE * BATCH_SIZE], metas: [RecvMeta::default(); BATCH_SIZE] }
    }
}

impl Socket {
    /// A socket that receives from everyone.
    ///
    /// # Errors
    /// The address is not of this machine or in use, or an option is missing.
    pub fn listen(address: SocketAddr) -> io::Result<Self> {
        Self::new(UdpSocket::bind(address)?)
    }

    /// A socket with a port of its own that is connected to `target`.
    ///
    /// # Errors
    /// There is no route to the target, or no free port.
    pub fn connect(target: SocketAddr) -> io::Result<Self> {
        let own: SocketAddr = if target.is_ipv4() {
            ([0, 0, 0, 0], 0).into()
        } else {
            (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
        };
        let socket = UdpSocket::bind(own)?;
        socket.connect(target)?;
        Self::new(socket)
    }

    fn new(socket: UdpSocket) -> io::Result<Self> {
        let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
        // Buffers are those of the program under test.
        net::udp::raise(&socket, net::udp::WANTED)?;
        Ok(Self { socket, state })
    }

    /// The address of this end.
    ///
    /// # Errors
    /// The error of getsockname(2).
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// The number of datagrams of this size that leave in one call.
    #[must_use]
    pub fn segments(&self, payload: usize) -> usize {
        if payload > SEGMENT {
            return 1;
        }
        (CALL / payload.max(1)).min(self.state.max_gso_segments()).max(1)
    }

    /// Sends `datagrams`, which have `payload` bytes each, at most [`Self::segments`] of them.
    /// Waits for room.
    ///
    /// # Errors
    /// Nobody listens at the target, which an earlier datagram has found out, or the system
    /// refuses.
    pub fn send(&self, to: SocketAddr, datagrams: &[u8], payload: usize) -> io::Result<()> {
        let segment_size = (datagrams.len() > payload).then_some(payload);
        let transmit = Transmit {
            destination: to,
            ecn: None,
            contents: datagrams,
            segment_size,
            src_ip: None,
        };
        loop {
            match self.state.try_send(UdpSockRef::from(&self.socket), &transmit) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(PollFlags::OUT, Duration::from_millis(100))?;
                }
                outcome => return outcome,
            }
        }
    }

    /// Waits for datagrams, and hands out what is there with its sender. Returns false if nothing
    /// has come until the deadline.
    ///
    /// # Errors
    /// As [`Self::send`].
    pub fn receive(
        &self,
        buffer: &mut Buffer,
        deadline: Instant,
        mut take: impl FnMut(SocketAddr, &[u8]),
    ) -> io::Result<bool> {
        let Buffer { bytes, metas } = buffer;
        let mut chunks = bytes.chunks_mut(MESSAGE);
        let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
            std::array::from_fn(|_| IoSliceMut::new(chunks.next().unwrap_or_default()));
        let messages = loop {
            match self.state.recv(UdpSockRef::from(&self.socket), &mut slices, metas) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() || !self.wait(PollFlags::IN, left)? {
                        return Ok(false);
                    }
                }
                outcome => break outcome?,
            }
        };
        for (meta, chunk) in metas.iter().take(messages).zip(bytes.chunks(MESSAGE)) {
            for datagram in chunk[..meta.len.min(MESSAGE)].chunks(meta.stride.max(1)) {
                take(meta.addr, datagram);
            }
        }
        Ok(true)
    }

    /// Waits at most `time` for an event. Returns false without one.
    fn wait(&self, event: PollFlags, time: Duration) -> io::Result<bool> {
        let time = Timespec::try_from(time).map_err(io::Error::other)?;
        match poll(&mut [PollFd::new(&self.socket, event)], Some(&time)) {
            Err(rustix::io::Errno::INTR) => Ok(true),
            outcome => Ok(outcome? > 0),
        }
    }
}
