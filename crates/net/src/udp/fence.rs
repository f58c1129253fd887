//! Drops floods of first packets over UDP before they cost any work.
//!
//! The first packet of a connection costs a server a reply with a proof, which a packet of a known
//! connection does not. First packets are recognized by the first byte of each datagram and counted
//! per source right after the read. For a source that sends too many, the kernel drops further
//! first packets by a classic BPF program on the socket (`SO_ATTACH_FILTER`), so they neither wake
//! the worker nor fill the queue in front of the packets of others.
//!
//! | source | first packets per second and worker |
//! |---|---|
//! | an address with its port | [`OF_PORT`] |
//! | an IPv4 address or an IPv6 /64, except of a reverse proxy | [`OF_ADDRESS`] |
//!
//! A client sends only a few first packets from a port. So a program that floods from one port
//! blocks no client, not even one at the same address. The kernel drops for [`FENCED`]; a
//! continuing flood is fenced again. Packets of existing connections are never dropped.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_RET,
    BPF_RSH, BPF_W, SKF_NET_OFF,
};
use socket2::{SockFilter, SockRef};

use super::steer::Form;
use crate::source::{Rates, prefix};

/// The limit per address and port: a handshake takes up to ten first packets, and a UDP proxy may
/// send those of many clients from one port. 1,000 replies take a worker less than 1 % of a core.
const OF_PORT: u32 = 1_000;
/// The limit per address: 8,000 replies take a worker about 5 % of a core. Clients behind a NAT
/// share its address; if 5,000 of them connect at once, each sends a few.
const OF_ADDRESS: u32 = 8_000;

/// The time for which the kernel drops. A client at the same address retries every second.
const FENCED: Duration = Duration::from_millis(900);
/// The maximum number of sources fenced in the kernel. Packets of additional sources are dropped
/// after the read.
const MOST: usize = 64;
/// A program is attached at once for the first source, and for additional sources at this interval,
/// because each attach costs a system call.
const INTERVAL: Duration = Duration::from_millis(10);

/// Offset of the payload: the program also sees the UDP header.
const PAYLOAD: u32 = 8;
/// The return value for accepting the whole datagram.
const WHOLE: u32 = u32::MAX;

/// The filter of sources that send too many first packets to one socket.
#[derive(Debug)]
pub struct Fence {
    form: Form,
    ports: Rates,
    addresses: Rates,
    fenced: Vec<Fenced>,
    /// Whether the kernel has a program.
    is_up: bool,
    /// When the program must be updated because it differs from `fenced`.
    due: Option<Instant>,
    /// When the last program was attached.
    last: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fenced {
    address: IpAddr,
    /// `None`: all ports.
    port: Option<u16>,
    until: Instant,
}

impl Form {
    /// Whether a datagram is a first packet, sent by a client without a connection. The program in
    /// the kernel checks the same bits.
    #[must_use]
    pub const fn is_first(self, datagram: &[u8]) -> bool {
        match (self, datagram) {
            (Self::Quic, [first, rest @ ..]) if *first & LONG != 0 => {
                // The reply to another version is a Version Negotiation packet.
                *first & TYPE == 0 || !matches!(rest, [0, 0, 0, 1, ..])
            }
            (Self::Kcp, [first, ..]) => *first == HELLO || *first == OPENING,
            (Self::Quic | Self::Kcp, _) => false,
        }
    }
}

/// The bits of the first byte for a QUIC long header and its type, which is 0 for an Initial (RFC
/// 9000 section 17.2).
const LONG: u8 = 0x80;
const TYPE: u8 = 0x30;
/// The QUIC version whose packet types are known.
const VERSION: u32 = 1;
/// The first bytes of a Hello and of an Opening of `kcp://`.
const HELLO: u8 = 0x40;
const OPENING: u8 = 0x42;

impl Fence {
    /// A fence without blocked sources. A filter that a previous process left on the socket is
    /// removed.
    pub fn new(form: Form, socket: &impl AsFd) -> Self {
        // Without a filter the call fails, which is harmless.
        let _ = SockRef::from(socket).detach_filter();
        Self {
            form,
            ports: Rates::new(OF_PORT),
            addresses: Rates::new(OF_ADDRESS),
            fenced: Vec::new(),
            is_up: false,
            due: None,
            last: None,
        }
    }

    /// Whether a datagram from this source is accepted. `is_proxy`: the source is a reverse proxy,
    /// whose address many clients share.
    pub fn takes(
        &mut self,
        now: Instant,
        from: SocketAddr,
        is_proxy: impl FnOnce() -> bool,
        datagram: &[u8],
    ) -> bool {
        if !self.form.is_first(datagram) {
            return true;
        }
        let (ip, address) = (from.ip().to_canonical(), prefix(from.ip()));
        if !self.ports.take_of(now, (ip, from.port())) {
            self.fence(now, ip, Some(from.port()));
            return false;
        }
        if !self.addresses.take_of(now, address) && !is_proxy() {
            self.fence(now, address, None);
            return false;
        }
        true
    }

    /// Whether to reply to a packet of an unknown connection. Before the read it cannot be
    /// distinguished from a packet of a known connection, so the kernel accepts it.
    pub fn answers(&mut self, now: Instant, from: SocketAddr) -> bool {
        self.ports.take_of(now, (from.ip().to_canonical(), from.port()))
    }

    fn fence(&mut self, now: Instant, address: IpAddr, port: Option<u16>) {
        let is_known = |one: &Fenced| one.address == address && one.port == port;
        if self.fenced.iter().any(is_known) || self.fenced.len() >= MOST {
            return;
        }
        self.fenced.push(Fenced { address, port, until: now + FENCED });
        let next = self.last.map_or(now, |last| (last + INTERVAL).max(now));
        self.due = Some(self.due.map_or(next, |due| due.min(next)));
        tracing::debug!(source = %address, ?port, "a source sends too many first packets over UDP");
    }

    /// When [`Self::settle`] is due.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        let ends = self.fenced.iter().map(|one| one.until).min();
        self.due.into_iter().chain(ends).min()
    }

    /// Attaches the program for the currently fenced sources.
    pub fn settle(&mut self, now: Instant, socket: &impl AsFd) {
        if self.due().is_none_or(|due| due > now) {
            return;
        }
        self.fenced.retain(|one| one.until > now);
        (self.due, self.last) = (None, Some(now));
        let socket = SockRef::from(socket);
        let done = if self.fenced.is_empty() {
            if std::mem::take(&mut self.is_up) { socket.detach_filter() } else { Ok(()) }
        } else {
            self.is_up = true;
            socket.attach_filter(&self.program())
        };
        if let Err(error) = done {
            // Then the packets are dropped after the read.
            tracing::debug!(%error, "the kernel takes no filter for a UDP socket");
        }
    }

    /// The program that drops first packets of the fenced sources. Jump offsets count from the next
    /// instruction.
    fn program(&self) -> Vec<SockFilter> {
        let mut all = vec![load(BPF_B, PAYLOAD)];
        // Other packets are accepted at once. A load beyond the end of a packet drops it.
        match self.form {
            Form::Quic => all.extend([
                jump(BPF_JSET, u32::from(LONG), 1, 0),
                take(),
                step(BPF_ALU | BPF_AND | BPF_K, u32::from(TYPE)),
                jump(BPF_JEQ, 0, 3, 0), // to the sources
                load(BPF_W, PAYLOAD + 1),
                jump(BPF_JEQ, VERSION, 0, 1),
                take(),
            ]),
            Form::Kcp => all.extend([
                jump(BPF_JEQ, u32::from(HELLO), 2, 0),
                jump(BPF_JEQ, u32::from(OPENING), 1, 0),
                take(),
            ]),
        }
        for Fenced { address, port, .. } in &self.fenced {
            let (version, parts) = match address {
                IpAddr::V4(ip) => (4, vec![(12, u32::from(*ip))]),
                IpAddr::V6(ip) => {
                    let [a, b, c, d, e, f, g, h] = ip.segments().map(u32::from);
                    let mut parts = vec![(8, a << 16 | b), (12, c << 16 | d)];
                    if port.is_some() {
                        parts.extend([(16, e << 16 | f), (20, g << 16 | h)]);
                    }
                    (6, parts)
                }
            };
            let mut one = vec![load_ip(BPF_B, 0), step(BPF_ALU | BPF_RSH | BPF_K, 4)];
            let mut tests = vec![(one.len(), version)];
            one.push(take());
            for (offset, part) in parts {
                one.push(load_ip(BPF_W, offset));
                tests.push((one.len(), part));
                one.push(take());
            }
            if let Some(port) = port {
                one.push(load(BPF_H, 0));
                tests.push((one.len(), u32::from(*port)));
                one.push(take());
            }
            one.push(step(BPF_RET | BPF_K, 0));
            let end = one.len();
            for (at, value) in tests {
                // Another source: jump behind this test.
                one[at] = jump(BPF_JEQ, value, 0, u8::try_from(end - at - 1).unwrap_or(u8::MAX));
            }
            all.extend(one);
        }
        all.push(take());
        all
    }
}

fn step(code: u32, k: u32) -> SockFilter {
    SockFilter::new(code as u16, 0, 0, k)
}

fn jump(test: u32, k: u32, yes: u8, no: u8) -> SockFilter {
    SockFilter::new((BPF_JMP | test | BPF_K) as u16, yes, no, k)
}

/// Loads from the UDP header and the payload.
fn load(size: u32, at: u32) -> SockFilter {
    step(BPF_LD | size | BPF_ABS, at)
}

/// Loads from the IP header.
fn load_ip(size: u32, at: u32) -> SockFilter {
    load(size, SKF_NET_OFF.cast_unsigned().wrapping_add(at))
}

fn take() -> SockFilter {
    step(BPF_RET | BPF_K, WHOLE)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    fn never() -> bool {
        false
    }

    fn bound(address: &str) -> Option<UdpSocket> {
        let socket = UdpSocket::bind(address).ok()?;
        socket.set_nonblocking(true).unwrap();
        Some(socket)
    }

    /// The number of datagrams that arrive. Loopback delivers within the send call.
    fn arrived(socket: &UdpSocket) -> usize {
        std::iter::from_fn(|| socket.recv(&mut [0; 2000]).ok()).count()
    }

    #[test]
    fn a_port_that_floods_is_dropped_by_the_kernel_and_its_neighbours_are_not() {
        for (form, first, other) in [
            (Form::Kcp, vec![HELLO; 1200], vec![1; 100]),
            (Form::Kcp, vec![OPENING; 100], vec![0x43; 25]),
            (Form::Quic, vec![0xc3; 1200], vec![0x43; 100]),
            (Form::Quic, vec![0xf3; 1200], vec![0xe3, 0, 0, 0, 1, 8, 7]),
        ] {
            for here in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
                let Some(server) = bound(here) else { continue };
                let mut to = server.local_addr().unwrap();
                let local = if here == "[::1]:0" { "[::1]:0" } else { "127.0.0.1:0" };
                if here == "[::]:0" {
                    to.set_ip([127, 0, 0, 1].into());
                }
                let [loud, quiet] = [(); 2].map(|()| bound(local).unwrap());
                let (mut fence, now) = (Fence::new(form, &server), Instant::now());
                let from = loud.local_addr().unwrap();
                let taken = (0..5000).filter(|_| fence.takes(now, from, never, &first)).count();
                assert_eq!(taken, OF_PORT as usize);
                assert!(fence.takes(now, from, never, &other), "a packet of a connection");
                assert!(fence.takes(now, quiet.local_addr().unwrap(), never, &first));
                assert_eq!(fence.due(), Some(now));
                fence.settle(now, &server);
                for socket in [&loud, &quiet] {
                    for datagram in [&first, &other] {
                        socket.send_to(datagram, to).unwrap();
                    }
                }
                loud.send_to(&[], to).unwrap();
                // The empty datagram is dropped: it is not a packet of either protocol.
                assert_eq!(arrived(&server), 3, "{form:?} at {here}");
                let end = fence.due().unwrap();
                fence.settle(end, &server);
                loud.send_to(&first, to).unwrap();
                assert_eq!(arrived(&server), 1, "the time is over");
                assert_eq!(fence.due(), None);
            }
        }
    }

    #[test]
    fn an_address_that_floods_from_many_ports_is_dropped_unless_it_is_a_reverse_proxy() {
        for here in ["127.0.0.1:0", "[::1]:0"] {
            let Some(server) = bound(here) else { continue };
            let to = server.local_addr().unwrap();
            let (mut fence, now) = (Fence::new(Form::Kcp, &server), Instant::now());
            let flood = |fence: &mut Fence, is_proxy: bool| {
                let froms = (0..12_000u16).map(|port| SocketAddr::new(to.ip(), port + 1));
                froms.filter(|from| fence.takes(now, *from, || is_proxy, &[HELLO; 1200])).count()
            };
            assert_eq!(flood(&mut fence, true), 12_000);
            assert_eq!(fence.due(), None);
            let mut fence = Fence::new(Form::Kcp, &server);
            let taken = flood(&mut fence, false);
            assert!(taken <= OF_ADDRESS as usize, "{taken}");
            fence.settle(now, &server);
            let client = bound(here).unwrap();
            client.send_to(&[HELLO; 1200], to).unwrap();
            client.send_to(&[1; 1200], to).unwrap();
            assert_eq!(arrived(&server), 1);
        }
    }

    #[test]
    fn sources_without_number_make_a_bounded_program() {
        let server = bound("127.0.0.1:0").unwrap();
        let (mut fence, now) = (Fence::new(Form::Quic, &server), Instant::now());
        for n in 0..100u32 {
            let from = SocketAddr::from(((n << 8 | 7).to_be_bytes(), 9));
            let taken = (0..=OF_PORT).filter(|_| fence.takes(now, from, never, &[0xc3; 1200]));
            assert!(taken.count() <= OF_PORT as usize);
        }
        assert_eq!(fence.fenced.len(), MOST);
        fence.settle(now, &server);
        assert!(fence.is_up);
    }
}
