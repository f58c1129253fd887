//! The options of sockets, declared once: what the packets, the probes and the buffers of a socket
//! are like. A caller makes a [`SocketOptions`] from the configuration and hands it on; only this
//! crate sets an option of a socket (`cargo xtask test walls`).
//!
//! One function for each moment decides which options apply to which kind of socket:
//!
//! | moment | TCP | UDP |
//! |---|---|---|
//! | [`SocketOptions::at_bind`] | `dscp`, `keepalive`: connections inherit them | `dscp`, `buffers` |
//! | [`SocketOptions::at_connect`], before the socket is bound | `dscp`, `keepalive` | `dscp`, `buffers` |
//! | [`SocketOptions::apply_to`], after the accept and at a change | `dscp`, `keepalive` | `dscp` |
//! | [`SocketOptions::established`], before bytes move | `no_delay`, `user_timeout`, `unsent`, `unread` | |
//! | [`SocketOptions::moved`], [`SocketOptions::taken`], while bytes move | `unsent`, `unread` | |
//!
//! A Unix socket has none of these options. An option that the socket has already is not set again.
//!
//! The moment before a connect sets `interface` and `source` in addition, of TCP and of UDP.
//!
//! A further option is a field, its value in [`SocketOptions::DEFAULT`], and a line in the function
//! of its moment.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::time::Duration;

use nix::sys::socket::sockopt::{GetStruct, IpBindAddressNoPort, SetStruct};
use nix::sys::socket::{getsockopt, setsockopt};
use nix::{getsockopt_impl, libc, setsockopt_impl};
use rustix::io::Errno;
use socket2::{Domain, SockRef, Socket, TcpKeepalive, Type};

use crate::dscp;
use crate::udp::buffers::{self, Buffers};

/// The kind of a socket, which decides the options that it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketKind {
    /// TCP: a listener or a connection.
    Tcp,
    /// UDP.
    Udp,
    /// A Unix socket.
    Unix,
}

/// A socket of a known kind.
pub trait SocketOfKind: AsFd {
    /// The kind.
    fn kind(&self) -> SocketKind;
}

/// Names the kind of types of sockets: `of_kind!(Udp: UdpSocket)` implements [`SocketOfKind`] for
/// `UdpSocket`, as a UDP socket.
macro_rules! of_kind {
    ($kind:ident: $($socket:ty),+) => {
        $(impl SocketOfKind for $socket {
            fn kind(&self) -> SocketKind {
                SocketKind::$kind
            }
        })+
    };
}

of_kind!(Tcp: std::net::TcpListener, std::net::TcpStream);
of_kind!(Tcp: tokio::net::TcpListener, tokio::net::TcpSocket, tokio::net::TcpStream);
of_kind!(Udp: std::net::UdpSocket, tokio::net::UdpSocket);
of_kind!(Unix: std::os::unix::net::UnixStream, tokio::net::UnixStream);

/// The options of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// The code point of the packets ([`crate::dscp`]), 0 to 63; 0 is best effort.
    pub dscp: u8,
    /// The probes of an idle connection.
    pub keepalive: KeepAlive,
    /// The time after which the kernel drops a connection whose bytes stay unacknowledged; `None`:
    /// that of the system.
    pub user_timeout: Option<Duration>,
    /// Nagle's algorithm is off.
    pub no_delay: bool,
    /// The limit of unsent bytes in the kernel.
    pub unsent: Unsent,
    /// The fixed size of the receive buffer until [`SocketOptions::taken`], in bytes; `None`: the
    /// system sizes the buffer.
    pub unread: Option<usize>,
    /// The buffers of a UDP socket; `None`: those of the system.
    pub buffers: Option<Buffers>,
    /// The interface by which the packets of a dial leave (socket(7), `SO_BINDTODEVICE`); `None`:
    /// the routes of the system decide.
    pub interface: Option<Interface>,
    /// The source address of the packets of a dial; `None`: the system chooses.
    pub source: Option<IpAddr>,
}

/// The name of a network interface, in place, so that options are copied without an allocation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Interface([u8; libc::IFNAMSIZ]);

impl Interface {
    /// `None`: no interface has a name of this length.
    #[must_use]
    pub fn new(name: &str) -> Option<Self> {
        let mut bytes = [0; libc::IFNAMSIZ];
        bytes.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
        // The last byte is zero.
        (1..libc::IFNAMSIZ).contains(&name.len()).then_some(Self(bytes))
    }

    fn name(&self) -> &[u8] {
        self.0.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.name()))
    }
}

impl fmt::Debug for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Interface({self})")
    }
}

/// The probes of an idle connection. A visitor or a target that vanishes sends no FIN, and without
/// probes an idle socket stays open forever.
///
/// `TCP_USER_TIMEOUT` is no substitute: it resets a far end that is alive but does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// The idle time before the first probe, in whole seconds from 1 to 32,767 (tcp(7),
    /// `TCP_KEEPIDLE`). Zero disables the probes.
    pub idle: Duration,
    /// The time between two probes.
    pub interval: Duration,
    /// The number of unanswered probes after which the system ends the connection.
    pub probes: u32,
}

/// The limit of unsent bytes that the kernel buffers for a connection beyond the far end's window.
/// Without a limit it buffers 2.5 to 4 MB for a visitor or target that does not read, and 400 of
/// them push the machine into TCP memory pressure, in which every connection is slow: a concurrent
/// download of 200 MB took 60 to 100 s instead of 0.4 s.
///
/// Bytes in flight do not count, so the limit does not slow long paths. It costs a wake-up per half
/// of the limit while the far end reads more slowly than bytes arrive, so a stream that has moved
/// bytes gets the higher limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsent {
    /// For a connection that has not been seen to be read, in bytes.
    pub unmoved: u32,
    /// For a connection in progress, in bytes.
    pub moved: u32,
}

impl KeepAlive {
    /// Including the probes it takes 4 min to detect that the far end has vanished: within the
    /// promised 5 min, and below the 5 min after which many NATs drop an idle connection. A path
    /// interruption of less than 2 min breaks no connection.
    pub const DEFAULT: Self =
        Self { idle: Duration::from_secs(120), interval: Duration::from_secs(15), probes: 8 };

    fn set(self, socket: &impl AsFd, had: Option<Self>) -> io::Result<()> {
        let is_off = |keepalive: Self| keepalive.idle.is_zero();
        if had.is_some_and(|had| had == self || is_off(had) && is_off(self)) {
            return Ok(());
        }
        let socket = SockRef::from(socket);
        if is_off(self) {
            return socket.set_keepalive(false);
        }
        let mut probes = TcpKeepalive::new().with_time(self.idle);
        if had.is_none_or(|had| had.interval != self.interval) {
            probes = probes.with_interval(self.interval);
        }
        if had.is_none_or(|had| had.probes != self.probes) {
            probes = probes.with_retries(self.probes);
        }
        socket.set_tcp_keepalive(&probes)
    }
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl SocketOptions {
    /// The options of sockets of visitors and targets, and of their listeners.
    pub const DEFAULT: Self = Self {
        dscp: 0,
        keepalive: KeepAlive::DEFAULT,
        user_timeout: None,
        // Frames are batches already, so the delay would only add latency.
        no_delay: true,
        unsent: Unsent {
            // The largest loopback segment.
            unmoved: 64 << 10,
            // A higher limit saves no time (decision 0076).
            moved: 384 << 10,
        },
        // The default size of a new socket, but fixed. Without this limit the buffer of an unread
        // socket grows to several MiB, and a few hundred of them exhaust the TCP memory of the
        // system. The kernel doubles the value (socket(7)).
        unread: Some(128 << 10),
        buffers: None,
        interface: None,
        source: None,
    };

    /// The options of connections that carry a link.
    pub const CARRIER: Self = Self {
        // The link pings after 15 s of silence and notices a dead carrier itself. The probes serve
        // carriers whose greeting never came, and keep state tables on the path alive.
        keepalive: KeepAlive {
            idle: Duration::from_secs(30),
            interval: Duration::from_secs(10),
            probes: KeepAlive::DEFAULT.probes,
        },
        // Above the link's own 5 s, and far below the kernel's default of a quarter of an hour.
        user_timeout: Some(Duration::from_secs(20)),
        // Until the link sets another limit ([`limit_unsent`]).
        unsent: Unsent { unmoved: 128 << 10, moved: 128 << 10 },
        unread: None,
        ..Self::DEFAULT
    };

    /// What a new socket has.
    pub const UNSET: Self = Self {
        // The system has times of its own, but sends no probes.
        keepalive: KeepAlive { idle: Duration::ZERO, interval: Duration::ZERO, probes: 0 },
        no_delay: false,
        unsent: Unsent { unmoved: u32::MAX, moved: u32::MAX },
        unread: None,
        ..Self::DEFAULT
    };

    /// The options of a UDP socket that has these buffers.
    #[must_use]
    pub const fn with_buffers(buffers: Buffers) -> Self {
        Self { buffers: Some(buffers), ..Self::DEFAULT }
    }

    /// The same for a connection below a layer such as TLS, which takes all bytes that arrive.
    #[must_use]
    pub fn below_layer(&self) -> Self {
        Self { unread: None, ..self.clone() }
    }

    /// Sets what a bound socket has before it serves. `had`: what the socket has already; `None`:
    /// it comes from another process, and may have anything.
    ///
    /// # Errors
    /// Those of setsockopt(2).
    pub fn at_bind(&self, socket: &impl SocketOfKind, had: Option<&Self>) -> io::Result<()> {
        match socket.kind() {
            SocketKind::Tcp => all([self.probe(socket, had), self.mark(socket, had)]),
            SocketKind::Udp => all([self.mark(socket, had), self.enlarge(socket)]),
            SocketKind::Unix => Ok(()),
        }
    }

    /// Sets what a new socket has before it is bound and connects.
    ///
    /// # Errors
    /// Those of setsockopt(2). This machine has not the interface or the source address, or the
    /// source is not of the family of the socket: the text names it.
    pub fn at_connect(&self, socket: &impl SocketOfKind) -> io::Result<()> {
        let had = Some(&Self::UNSET);
        match socket.kind() {
            SocketKind::Tcp => {
                all([self.probe(socket, had), self.mark(socket, had), self.choose_way(socket)])
            }
            SocketKind::Udp => {
                all([self.mark(socket, had), self.enlarge(socket), self.choose_way(socket)])
            }
            SocketKind::Unix => Ok(()),
        }
    }

    /// Binds the UDP socket of a dial, so that it has a port although it may never connect. `any`:
    /// the unspecified address of its family.
    pub(crate) fn bind(&self, socket: &std::net::UdpSocket, any: SocketAddr) -> io::Result<()> {
        let Some(source) = self.source else { return SockRef::from(socket).bind(&any.into()) };
        // [`Self::choose_way`] has left the port open. On failure the first datagram chooses it.
        let _ = setsockopt(socket, IpBindAddressNoPort, &false);
        SockRef::from(socket).bind(&SocketAddr::new(source, 0).into())
    }

    /// Tries whether a socket can have the interface and the source address now. Nothing is sent.
    ///
    /// # Errors
    /// As [`Self::at_connect`].
    pub fn try_way(&self) -> io::Result<()> {
        let of =
            if self.source.is_some_and(|ip| ip.is_ipv6()) { Domain::IPV6 } else { Domain::IPV4 };
        self.choose_way(&std::net::UdpSocket::from(Socket::new(of, Type::DGRAM, None)?))
    }

    /// Names the interface and the source address in an error of connect(2) that they may have
    /// caused.
    #[must_use]
    pub fn told(&self, error: io::Error) -> io::Error {
        let interface = self.interface.map(|name| format!("interface {name}"));
        let source = self.source.map(|source| format!("source {source}"));
        let from: Vec<String> = interface.into_iter().chain(source).collect();
        let is_of_way = matches!(
            error.kind(),
            io::ErrorKind::NetworkUnreachable
                | io::ErrorKind::HostUnreachable
                | io::ErrorKind::NetworkDown
                | io::ErrorKind::InvalidInput
        );
        if from.is_empty() || !is_of_way {
            return error;
        }
        io::Error::new(error.kind(), format!("{error} (from {})", from.join(", ")))
    }

    /// Sets what an open socket has from now on: after the accept the options of its service, and
    /// the new options after a change. `had`: the options that the socket has, an accepted one from
    /// its listener; `None`: they are not known.
    ///
    /// # Errors
    /// Those of setsockopt(2).
    pub fn apply_to(&self, socket: &impl SocketOfKind, had: Option<&Self>) -> io::Result<()> {
        match socket.kind() {
            SocketKind::Tcp => all([self.probe(socket, had), self.mark(socket, had)]),
            SocketKind::Udp => self.mark(socket, had),
            SocketKind::Unix => Ok(()),
        }
    }

    /// Sets what a connection has before bytes move.
    ///
    /// # Errors
    /// Those of setsockopt(2).
    pub fn established(&self, socket: &impl SocketOfKind) -> io::Result<()> {
        if socket.kind() != SocketKind::Tcp {
            return Ok(());
        }
        if let Some(size) = self.unread {
            bound_unread(socket, size);
        }
        let raw = SockRef::from(socket);
        all([
            if self.no_delay { raw.set_tcp_nodelay(true) } else { Ok(()) },
            self.user_timeout.map_or(Ok(()), |time| raw.set_tcp_user_timeout(Some(time))),
            raw.set_tcp_notsent_lowat(self.unsent.unmoved),
        ])
    }

    /// Raises the limit of unsent bytes, because the connection has moved bytes.
    pub fn moved(&self, socket: &impl SocketOfKind) {
        if socket.kind() == SocketKind::Tcp && self.unsent.moved != self.unsent.unmoved {
            // Failure is harmless, apart from the cost that [`Unsent`] describes.
            let _ = limit_unsent(socket, self.unsent.moved);
        }
    }

    /// Lets the system size the receive buffer, because the far side has taken bytes.
    pub fn taken(&self, socket: &impl SocketOfKind) {
        if socket.kind() == SocketKind::Tcp && self.unread.is_some() {
            let _ = setsockopt(socket, BufferLock, &0);
        }
    }

    fn probe(&self, socket: &impl AsFd, had: Option<&Self>) -> io::Result<()> {
        self.keepalive.set(socket, had.map(|had| had.keepalive))
    }

    fn mark(&self, socket: &impl AsFd, had: Option<&Self>) -> io::Result<()> {
        if had.is_some_and(|had| had.dscp == self.dscp) {
            return Ok(());
        }
        dscp::mark(socket, self.dscp)
    }

    /// Binds a socket that is dialled to its interface and to its source address. The port stays
    /// open until the connect, so that connections to different targets may share one.
    fn choose_way(&self, socket: &impl SocketOfKind) -> io::Result<()> {
        let raw = SockRef::from(socket);
        if let Some(interface) = self.interface {
            raw.bind_device(Some(interface.name())).map_err(|error| not_on(interface, error))?;
        }
        let Some(source) = self.source else { return Ok(()) };
        let is_v6 = raw.domain()? == Domain::IPV6;
        if is_v6 != source.is_ipv6() {
            let family = if is_v6 { "IPv6" } else { "IPv4" };
            let text = format!("no address of {family} is reached from the source {source}");
            return Err(io::Error::new(io::ErrorKind::NetworkUnreachable, text));
        }
        // On failure the bind chooses the port, and fewer connections have the same source.
        let _ = setsockopt(socket, IpBindAddressNoPort, &true);
        raw.bind(&SocketAddr::new(source, 0).into()).map_err(|error| {
            match Errno::from_io_error(&error) {
                // Another kind of error is a lack of ports.
                Some(Errno::ADDRNOTAVAIL) => io::Error::new(
                    io::ErrorKind::HostUnreachable,
                    format!("the source {source} is no address of this machine"),
                ),
                _ => io::Error::new(error.kind(), format!("source {source}: {error}")),
            }
        })
    }

    fn enlarge(&self, socket: &impl AsFd) -> io::Result<()> {
        self.buffers.map_or(Ok(()), |wanted| buffers::raise(socket, wanted).map(drop))
    }
}

/// Limits the unsent bytes of a connection. The link does so while it measures its path; the limit
/// of a stream is a matter of [`SocketOptions`].
///
/// # Errors
/// Those of setsockopt(2).
pub fn limit_unsent(socket: &impl SocketOfKind, bytes: u32) -> io::Result<()> {
    SockRef::from(socket).set_tcp_notsent_lowat(bytes)
}

/// The error of a socket that cannot be bound to an interface.
fn not_on(interface: Interface, error: io::Error) -> io::Error {
    let (kind, why) = match Errno::from_io_error(&error) {
        Some(Errno::NODEV) => (
            io::ErrorKind::NetworkUnreachable,
            format!("this machine has no interface {interface}"),
        ),
        Some(Errno::PERM) => (
            error.kind(),
            format!(
                "interface {interface}: this kernel binds sockets to an interface only for \
                 processes with CAP_NET_RAW (every process may since Linux 5.7)"
            ),
        ),
        _ => (error.kind(), format!("interface {interface}: {error}")),
    };
    io::Error::new(kind, why)
}

/// The first error of several calls, which have all been made.
fn all<const N: usize>(outcomes: [io::Result<()>; N]) -> io::Result<()> {
    outcomes.into_iter().collect()
}

/// The option for the buffers that the kernel must not resize, since Linux 5.14.
const SO_BUF_LOCK: libc::c_int = 72;

/// The buffers of a socket with a fixed size: 1 is the send buffer, 2 the receive buffer.
#[derive(Clone, Copy, Debug)]
struct BufferLock;

setsockopt_impl!(BufferLock, libc::SOL_SOCKET, SO_BUF_LOCK, u32, SetStruct<'_, u32>);
getsockopt_impl!(BufferLock, libc::SOL_SOCKET, SO_BUF_LOCK, u32, GetStruct<u32>);

/// Fixes the size of the receive buffer. No effect on a kernel that could not undo it later.
fn bound_unread(socket: &impl AsFd, size: usize) {
    static CAN_FREE: OnceLock<bool> = OnceLock::new();
    if *CAN_FREE.get_or_init(|| getsockopt(socket, BufferLock).is_ok()) {
        // Failure is harmless, apart from the memory.
        let _ = SockRef::from(socket).set_recv_buffer_size(size);
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpSocket;

    use super::*;

    /// The idle time before the first probe, the interval and the number of probes, as set in the
    /// kernel; `None` without keepalive.
    fn probes(socket: &impl AsFd) -> Option<(u64, u64, u32)> {
        let socket = SockRef::from(socket);
        socket.keepalive().unwrap().then(|| {
            let seconds = |time: io::Result<Duration>| time.unwrap().as_secs();
            let times =
                (seconds(socket.tcp_keepalive_time()), seconds(socket.tcp_keepalive_interval()));
            (times.0, times.1, socket.tcp_keepalive_retries().unwrap())
        })
    }

    fn probed(idle: u64) -> SocketOptions {
        let keepalive = KeepAlive { idle: Duration::from_secs(idle), ..KeepAlive::DEFAULT };
        SocketOptions { keepalive, ..SocketOptions::DEFAULT }
    }

    #[test]
    fn a_receive_buffer_keeps_its_size_until_it_is_freed() {
        let socket = TcpSocket::new_v4().unwrap();
        let lock = || getsockopt(&socket, BufferLock).unwrap();
        let options = SocketOptions::default();
        let unread = options.unread.unwrap();
        assert_eq!(lock(), 0);
        options.established(&socket).unwrap();
        assert_eq!((lock(), SockRef::from(&socket).recv_buffer_size().unwrap()), (2, 2 * unread));
        options.taken(&socket);
        assert_eq!(lock(), 0);
        options.below_layer().established(&socket).unwrap();
        assert_eq!(lock(), 0, "the layer takes all bytes");
    }

    #[test]
    fn what_is_dialled_and_what_a_listener_accepts_is_probed() {
        let options = SocketOptions::default();
        let dialled = crate::socket::dialling("127.0.0.1:1".parse().unwrap(), &options).unwrap();
        assert_eq!(probes(&dialled), Some((120, 15, 8)));
        let group = crate::listen_group("127.0.0.1:0".parse().unwrap(), 2).unwrap();
        for listener in group {
            let _visitor = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            // Either listener of the group may have the connection.
            let Ok((accepted, _)) = listener.accept() else { continue };
            assert_eq!(probes(&accepted), Some((120, 15, 8)));
            probed(30).apply_to(&accepted, Some(&options)).unwrap();
            assert_eq!(probes(&accepted), Some((30, 15, 8)));
            probed(0).apply_to(&accepted, Some(&probed(30))).unwrap();
            assert_eq!(probes(&accepted), None);
            options.apply_to(&accepted, None).unwrap();
            assert_eq!(probes(&accepted), Some((120, 15, 8)), "a socket of another service");
            return;
        }
        panic!("nothing was accepted");
    }

    #[test]
    fn a_carrier_has_probes_of_its_own() {
        let (dialled, accepted) = (TcpSocket::new_v4().unwrap(), TcpSocket::new_v4().unwrap());
        SocketOptions::CARRIER.at_connect(&dialled).unwrap();
        let listener = SocketOptions::default();
        listener.at_bind(&accepted, Some(&SocketOptions::UNSET)).unwrap();
        SocketOptions::CARRIER.apply_to(&accepted, Some(&listener)).unwrap();
        for socket in [dialled, accepted] {
            SocketOptions::CARRIER.established(&socket).unwrap();
            assert_eq!(probes(&socket), Some((30, 10, 8)));
            let raw = SockRef::from(&socket);
            assert_eq!(raw.tcp_notsent_lowat().unwrap(), 128 << 10);
            assert_eq!(raw.tcp_user_timeout().unwrap(), Some(Duration::from_secs(20)));
            assert!(raw.tcp_nodelay().unwrap());
            assert_eq!(getsockopt(&socket, BufferLock).unwrap(), 0);
        }
    }

    #[test]
    fn an_option_that_the_socket_has_is_not_set_again() {
        let socket = TcpSocket::new_v4().unwrap();
        probed(30).apply_to(&socket, Some(&probed(30))).unwrap();
        assert_eq!(probes(&socket), None, "the socket has what the caller says");
        let marked = SocketOptions { dscp: 46, ..SocketOptions::DEFAULT };
        marked.apply_to(&socket, Some(&marked)).unwrap();
        assert_eq!(dscp::of(&socket), 0);
        marked.apply_to(&socket, Some(&SocketOptions::DEFAULT)).unwrap();
        assert_eq!(dscp::of(&socket), 46);
        SocketOptions::DEFAULT.apply_to(&socket, Some(&marked)).unwrap();
        assert_eq!(dscp::of(&socket), 0, "a reload takes the mark away");
    }

    fn from(source: &str) -> SocketOptions {
        SocketOptions { source: Some(source.parse().unwrap()), ..SocketOptions::CARRIER }
    }

    fn by(interface: &str) -> SocketOptions {
        SocketOptions { interface: Interface::new(interface), ..SocketOptions::CARRIER }
    }

    #[tokio::test]
    async fn a_connection_and_a_datagram_come_from_the_source() {
        let options = from("127.0.0.2");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let socket = crate::socket::dialling(to, &options).unwrap();
        assert_eq!(socket.local_addr().unwrap().port(), 0, "the connect chooses the port");
        let dialled = crate::socket::connect(socket, to, &options).await.unwrap();
        assert_eq!(listener.accept().unwrap().1, dialled.local_addr().unwrap());
        assert_eq!(dialled.local_addr().unwrap().ip(), options.source.unwrap());
        let carrier = crate::udp::dialled(to, &options).unwrap();
        let own = carrier.local_addr().unwrap();
        assert!(own.ip() == options.source.unwrap() && own.port() > 0, "{own}");
        assert_eq!(crate::udp::local_address(to, &options).unwrap(), own.ip());
    }

    #[test]
    fn a_source_that_is_not_here_or_of_another_family_is_named() {
        let text = |options: &SocketOptions| options.try_way().unwrap_err().to_string();
        let absent = "the source 192.0.2.7 is no address of this machine";
        assert_eq!(text(&from("192.0.2.7")), absent);
        let Err(error) = crate::socket::dialling("[::1]:9".parse().unwrap(), &from("127.0.0.2"))
        else {
            panic!("IPv4 to IPv6")
        };
        // The other addresses of the name are tried, and their errors are shown.
        assert_eq!(error.kind(), io::ErrorKind::NetworkUnreachable);
        from("127.0.0.2").try_way().unwrap();
    }

    #[test]
    fn a_socket_is_bound_to_the_interface_and_an_absent_one_is_named() {
        let bound = |socket: &dyn Fn() -> Option<Vec<u8>>| {
            assert_eq!(socket().as_deref(), Some(&b"lo"[..]));
        };
        let to = "127.0.0.1:9".parse().unwrap();
        let tcp = crate::socket::dialling(to, &by("lo")).unwrap();
        bound(&|| SockRef::from(&tcp).device().unwrap());
        let udp = crate::udp::dialled(to, &by("lo")).unwrap();
        bound(&|| SockRef::from(&udp).device().unwrap());
        let error = by("absent0").try_way().unwrap_err();
        assert_eq!(error.to_string(), "this machine has no interface absent0");
        let lo = Interface::new("lo").unwrap();
        let error = not_on(lo, Errno::PERM.into()).to_string();
        assert!(error.starts_with("interface lo: ") && error.contains("CAP_NET_RAW"), "{error}");
        let names = ["", "sixteen-letters0"].map(Interface::new);
        assert_eq!((names, Interface::new("fifteen-letters").is_some()), ([None, None], true));
    }

    #[test]
    fn an_error_of_the_way_names_it_and_an_answer_of_the_far_end_stays_as_it_is() {
        let options = SocketOptions { source: from("127.0.0.2").source, ..by("lo") };
        let told = |errno: Errno| options.told(errno.into());
        let text = told(Errno::NETUNREACH).to_string();
        assert!(text.ends_with("(from interface lo, source 127.0.0.2)"), "{text}");
        assert_eq!(Errno::from_io_error(&told(Errno::CONNREFUSED)), Some(Errno::CONNREFUSED));
        let plain = SocketOptions::CARRIER.told(Errno::NETUNREACH.into());
        assert_eq!(Errno::from_io_error(&plain), Some(Errno::NETUNREACH));
    }

    #[test]
    fn a_udp_socket_has_its_mark_and_its_buffers_and_a_unix_socket_has_nothing() {
        let buffers = Buffers { receive: 64 << 10, send: 64 << 10 };
        let options = SocketOptions { dscp: 34, ..SocketOptions::with_buffers(buffers) };
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        options.at_connect(&udp).unwrap();
        let size = SockRef::from(&udp).recv_buffer_size().unwrap();
        assert_eq!((dscp::of(&udp), size), (34, 2 * buffers.receive));
        // Options of TCP would be errors here.
        options.established(&udp).unwrap();
        let (unix, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        let before = SockRef::from(&unix).recv_buffer_size().unwrap();
        options.at_connect(&unix).unwrap();
        options.apply_to(&unix, None).unwrap();
        options.established(&unix).unwrap();
        assert_eq!(SockRef::from(&unix).recv_buffer_size().unwrap(), before);
    }
}
