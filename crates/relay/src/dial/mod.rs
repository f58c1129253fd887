//! Connects to a target: resolves the name, checks each address, and races the addresses, all
//! within one deadline.

mod address;
mod datagram;
mod dialled;
mod error;
mod turns;
mod unix;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use net::guarded;
use net::options::SocketOptions;
use net::race::{ADDRESS_STAGGER, interleave, race};
use net::resolve::Lookups;
use net::socket::{bound_segments, dialling, reset_on_close};
use proto::{ScopedAddr, UnixAddr};
use rustix::io::Errno;
use tokio::time::{Instant, sleep};
use transport::LocalFuture;

use crate::eviction;
use crate::room::Position;
use crate::stall_pressure;
use crate::{Room, Settings};
pub use address::{TargetAddr, TargetError};
pub use datagram::ask_datagram;
pub use dialled::Dialled;
pub use error::DialError;
pub use turns::{DialAccount, Dials};

/// The largest number of addresses that one dial tries. A name with more addresses is a pool, of
/// which the first eight suffice. The bound keeps one stream from opening hundreds of sockets.
const ADDRESSES: usize = 8;

/// A destination that a dial checks against a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination<'a> {
    /// A host name and a port, before name resolution. If a rule denies the name, no query is sent
    /// to a name server. If it permits the name, it also checks each address of the name.
    Name(&'a str, u16),
    /// An IP address and a port. IPv4-mapped IPv6 addresses appear as IPv4.
    Tcp(IpAddr, u16),
    /// As [`Destination::Tcp`], for a flow.
    Udp(IpAddr, u16),
    /// A Unix socket, as the target address writes it.
    Unix(&'a UnixAddr),
}

/// A rule that permits or denies destinations. A dial checks a name and then each address of the
/// name, because a permitted name can resolve to a forbidden address.
#[derive(Clone)]
pub struct Allow(Rc<dyn Fn(Destination<'_>) -> bool>);

impl Allow {
    /// Makes a rule from a function that returns true for a permitted destination.
    pub fn new(rule: impl Fn(Destination<'_>) -> bool + 'static) -> Self {
        Self(Rc::new(rule))
    }

    pub(crate) fn permits(&self, destination: Destination<'_>) -> bool {
        (self.0)(destination)
    }
}

impl fmt::Debug for Allow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Allow")
    }
}

/// Connects to a target of a service with the settings of its streams. The socket counts in the
/// descriptor share of the service.
pub(crate) async fn dial_for(
    settings: &Settings,
    target: &TargetAddr,
    allow: Option<&Allow>,
) -> Result<Dialled, DialError> {
    let Settings { timeouts, socket, room, holder, lookups, dials, .. } = settings;
    let seat = match holder {
        Some(holder) => {
            Some(holder.seat_of_target().ok_or_else(|| DialError::Share(target.clone()))?)
        }
        None => None,
    };
    let dial = |left| dial(target, allow, left, (*room, socket), lookups);
    let mut dialled = dials.dial(target, timeouts.dial, dial).await?;
    seat.into_iter().for_each(|seat| dialled.socket.sit(seat));
    Ok(dialled)
}

/// Connects to `target` within `deadline`, which includes name resolution by `lookups`. The
/// descriptor of the new socket must lie inside `room`, and the socket has these options from the
/// first packet on.
pub async fn dial(
    target: &TargetAddr,
    allow: Option<&Allow>,
    deadline: Duration,
    (room, options): (Room, &SocketOptions),
    lookups: &Lookups,
) -> Result<Dialled, DialError> {
    let attempt = async {
        let outcome = match target {
            TargetAddr::Tcp { .. } => {
                let mut addresses = addresses_of(target, allow, lookups).await?;
                addresses.retain(|address| !guarded::leads_to_port(*address));
                if addresses.is_empty() {
                    return Err(DialError::Guarded(target.clone()));
                }
                let start = |address| -> LocalFuture<'static, _> {
                    Box::pin(connect(address, room, options.clone()))
                };
                let raced = race(addresses, ADDRESS_STAGGER, start, more_specific).await;
                raced.unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()))
            }
            // A stream cannot be carried by datagrams.
            TargetAddr::Udp { .. } => Err(io::ErrorKind::Unsupported.into()),
            TargetAddr::Unix(address) if !permits(allow, Destination::Unix(address)) => {
                return Err(DialError::Denied(target.clone()));
            }
            TargetAddr::Unix(address)
                if address.abstract_name().is_none()
                    && guarded::leads_to_socket(Path::new(address.place())) =>
            {
                return Err(DialError::Guarded(target.clone()));
            }
            TargetAddr::Unix(address) => {
                let connect = async || {
                    let begun = Instant::now();
                    let socket = unix::connect(address).await?.into();
                    within(room, Dialled { socket, took: begun.elapsed() })
                };
                match connect().await {
                    Err(error) if is_exhausted(&error) => {
                        make_room().await;
                        connect().await
                    }
                    outcome => outcome,
                }
            }
        };
        outcome.map_err(|source| match Errno::from_io_error(&source) {
            Some(Errno::MFILE | Errno::NFILE) => DialError::Exhausted(target.clone()),
            _ if source.kind() == io::ErrorKind::AddrNotAvailable => {
                DialError::Ports(target.clone())
            }
            _ => DialError::Connect { target: target.clone(), source },
        })
    };
    let outcome = match tokio::time::timeout(deadline, attempt).await {
        Ok(outcome) => outcome,
        Err(_) => Err(DialError::Timeout(target.clone())),
    };
    if let (Err(DialError::Connect { .. } | DialError::Timeout(_)), TargetAddr::Tcp { host, .. }) =
        (&outcome, target)
    {
        // A restarted container has another address, so the next dial resolves the name again.
        lookups.forget(host);
    }
    outcome
}

fn permits(allow: Option<&Allow>, destination: Destination<'_>) -> bool {
    allow.is_none_or(|allow| allow.permits(destination))
}

/// Resolves the name of a target over TCP or UDP. Returns at least one permitted address, in the
/// order in which to try them. The caller sets the deadline.
pub(crate) async fn addresses_of(
    target: &TargetAddr,
    allow: Option<&Allow>,
    lookups: &Lookups,
) -> Result<Vec<SocketAddr>, DialError> {
    type Named = fn(IpAddr, u16) -> Destination<'static>;
    let (host, port, of): (_, _, Named) = match target {
        TargetAddr::Tcp { host, port } => (host, *port, Destination::Tcp),
        TargetAddr::Udp { host, port } => (host, *port, Destination::Udp),
        TargetAddr::Unix(_) => return Err(DialError::Denied(target.clone())),
    };
    if let Ok(at) = host.parse::<ScopedAddr>() {
        // Rules are about addresses without interfaces: a link-local address is the same on each
        // interface.
        if !permits(allow, of(at.ip().into(), port)) {
            return Err(DialError::Denied(target.clone()));
        }
        let found = net::zone::socket_addr(at.ip(), at.zone(), port);
        let unresolved = |source| DialError::Resolve { host: host.clone(), source };
        return found.map(|address| vec![address]).map_err(unresolved);
    }
    let is_name = host.parse::<IpAddr>().is_err();
    if is_name && !permits(allow, Destination::Name(host, port)) {
        return Err(DialError::Denied(target.clone()));
    }
    let mut found = lookups.resolve(host).await.map_err(|source| {
        if source.kind() == io::ErrorKind::QuotaExceeded {
            DialError::Names(target.clone())
        } else {
            DialError::Resolve { host: host.clone(), source }
        }
    })?;
    found.retain(|ip| permits(allow, of(ip.to_canonical(), port)));
    if found.is_empty() {
        return Err(DialError::Denied(target.clone()));
    }
    let addresses = found.into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
    Ok(interleave(addresses, ADDRESSES))
}

async fn connect(address: SocketAddr, room: Room, options: SocketOptions) -> io::Result<Dialled> {
    let make = || dialling(address, &options).and_then(|socket| within(room, socket));
    let socket = match make() {
        Err(error) if is_exhausted(&error) => {
            make_room().await;
            make()
        }
        outcome => outcome,
    }?;
    reset_on_close(&socket)?;
    if stall_pressure::is_high() {
        bound_segments(&socket, true);
    }
    let begun = Instant::now();
    let socket = net::socket::connect(socket, address, &options).await?.into();
    Ok(Dialled { socket, took: begun.elapsed() })
}

/// How long to wait for another worker to evict flows.
const OTHERS: Duration = Duration::from_millis(20);

/// Evicts a flow, so that its descriptor is free for the connection.
async fn make_room() {
    if !eviction::make_room() {
        sleep(OTHERS).await;
    }
}

fn is_exhausted(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Of several errors, the dial returns that of the first address to fail. The error of an address
/// without a route is less specific than the others.
pub(crate) fn more_specific(first: io::Error, next: io::Error) -> io::Error {
    if first.kind() == io::ErrorKind::NetworkUnreachable { next } else { first }
}

fn within<T: AsFd>(room: Room, socket: T) -> io::Result<T> {
    if room.place(&socket) == Position::Inside { Ok(socket) } else { Err(Errno::MFILE.into()) }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use net::resolve::{Bounds, Resolver};
    use proto::ResetCode;

    use super::error::code_of;
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A place for a new socket with the default options.
    fn place() -> (Room, &'static SocketOptions) {
        (Room::default(), &SocketOptions::DEFAULT)
    }

    fn local(port: u16) -> TargetAddr {
        TargetAddr::Tcp { host: "127.0.0.1".into(), port }
    }

    fn free_port() -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.local_addr().unwrap().port()
    }

    #[tokio::test]
    async fn a_closed_port_is_refused() {
        let error = dial(&local(free_port()), None, 5 * SECOND, place(), &Lookups::default())
            .await
            .unwrap_err();
        assert_eq!(error.code(), ResetCode::Refused);
    }

    #[tokio::test]
    async fn no_spelling_of_a_target_leads_to_the_daemon_itself() {
        let api = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = api.local_addr().unwrap().port();
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("own.sock");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::os::unix::fs::symlink("own.sock", dir.path().join("link")).unwrap();
        std::fs::hard_link(&socket, dir.path().join("hard")).unwrap();
        let _guards = [
            guarded::Guard::port(api.local_addr().unwrap()),
            guarded::Guard::socket(&socket).unwrap(),
        ];
        let hosts =
            ["127.0.0.1", "0.0.0.0", "::ffff:127.0.0.1", "127.1", "2130706433", "localhost"];
        let tcp = hosts.map(|host| TargetAddr::Tcp { host: host.into(), port });
        let unix = ["own.sock", "link", "hard"].map(|name| {
            format!("unix://{}", dir.path().join(name).display()).parse::<TargetAddr>().unwrap()
        });
        let lookups = Lookups::default();
        for target in tcp.iter().chain(&unix) {
            let error = dial(target, None, 10 * SECOND, place(), &lookups).await.unwrap_err();
            assert!(
                matches!(error, DialError::Guarded(_) | DialError::Resolve { .. })
                    // `localhost` has a second address, without a listener.
                    || matches!(&error, DialError::Connect { .. } if target.to_string().contains("localhost")),
                "{target}: {error}"
            );
            assert!(!error.is_own(), "{error}");
        }
        api.set_nonblocking(true).unwrap();
        assert!(api.accept().is_err(), "nobody came");
    }

    #[tokio::test]
    async fn an_unwanted_connection_is_reset_and_a_kept_one_ends_cleanly() {
        use std::io::Read;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let target = local(listener.local_addr().unwrap().port());
        let end = async |keep: bool| {
            let dialled =
                dial(&target, None, 5 * SECOND, place(), &Lookups::default()).await.unwrap();
            let (mut accepted, _) = listener.accept().unwrap();
            if keep {
                drop(dialled.keep())
            } else {
                drop(dialled)
            }
            accepted.read(&mut [0]).map_err(|e| e.kind())
        };
        assert_eq!(end(false).await, Err(io::ErrorKind::ConnectionReset));
        assert_eq!(end(true).await, Ok(0));
    }

    #[tokio::test]
    async fn a_permission_is_asked_after_resolution_and_in_ipv4_form() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let by_name = |to: &Destination<'_>| matches!(to, Destination::Name(..));
        let deny = Allow::new(move |to| {
            by_name(&to) || matches!(to, Destination::Tcp(ip, _) if !ip.is_loopback())
        });
        let lookups = Lookups::default();
        for host in ["127.0.0.1", "localhost", "::ffff:127.0.0.1"] {
            let target = TargetAddr::Tcp { host: host.into(), port };
            let dialling = dial(&target, Some(&deny), 5 * SECOND, place(), &lookups);
            assert_eq!(dialling.await.unwrap_err().code(), ResetCode::Denied, "{host}");
        }
        let allow = Allow::new(move |to| matches!(to, Destination::Tcp(_, p) if p == port));
        dial(&local(port), Some(&allow), 5 * SECOND, place(), &lookups).await.unwrap();
    }

    #[tokio::test]
    async fn a_link_local_address_is_permitted_by_its_address_and_dialled_behind_its_interface() {
        let resolver = Resolver::with(Bounds::OWN, |host| panic!("{host} was looked up"));
        let lookups = Lookups::on(&resolver, "home");
        let at = |host: &str| TargetAddr::Tcp { host: host.into(), port: 7 };
        let allow = |wanted: &'static str| {
            Allow::new(move |to| to == Destination::Tcp(wanted.parse().unwrap(), 7))
        };
        let (own, other) = (allow("fe80::1"), allow("fe80::2"));
        let found = addresses_of(&at("fe80::1%lo"), Some(&own), &lookups).await.unwrap();
        assert!(matches!(found[..], [SocketAddr::V6(at)] if at.scope_id() > 0), "{found:?}");
        let error = addresses_of(&at("fe80::1%lo"), Some(&other), &lookups).await.unwrap_err();
        assert_eq!(error.code(), ResetCode::Denied);
        let error = addresses_of(&at("fe80::1%absent0"), None, &lookups).await.unwrap_err();
        assert!(error.to_string().ends_with("no interface absent0"), "{error}");
        assert_eq!(error.code(), ResetCode::Unreachable);
    }

    #[tokio::test]
    async fn a_denied_name_is_not_looked_up() {
        let resolver = Resolver::with(Bounds::OWN, |host| panic!("{host} was looked up"));
        let lookups = Lookups::on(&resolver, "home");
        let deny = Allow::new(|to| !matches!(to, Destination::Name("leak.example", 53)));
        let target = TargetAddr::Tcp { host: "leak.example".into(), port: 53 };
        let error = dial(&target, Some(&deny), 5 * SECOND, place(), &lookups).await;
        assert_eq!(error.unwrap_err().code(), ResetCode::Denied);
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_never_answers_is_a_timeout() {
        // A listener whose backlog is full drops additional SYNs.
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        socket.listen(0).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        let fillers: Vec<_> = (0..4)
            .map(|_| {
                let filler =
                    socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)
                        .unwrap();
                filler.set_nonblocking(true).unwrap();
                let _ = filler.connect(&address.into());
                filler
            })
            .collect();
        let error = dial(&local(address.port()), None, 10 * SECOND, place(), &Lookups::default())
            .await
            .unwrap_err();
        assert_eq!(error.code(), ResetCode::Timeout);
        drop(fillers);
    }

    #[tokio::test]
    async fn a_target_takes_no_descriptor_that_is_kept_for_others() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let target = local(listener.local_addr().unwrap().port());
        let error = dial(
            &target,
            None,
            5 * SECOND,
            (Room::below(3, 3), &SocketOptions::DEFAULT),
            &Lookups::default(),
        )
        .await
        .unwrap_err();
        assert_eq!(error.code(), ResetCode::Limit);
        assert!(error.to_string().contains("LimitNOFILE"), "{error}");
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn errors_of_the_system_have_their_codes() {
        for (errno, code) in [
            (Errno::CONNREFUSED, ResetCode::Refused),
            (Errno::TIMEDOUT, ResetCode::Timeout),
            (Errno::HOSTUNREACH, ResetCode::Unreachable),
            (Errno::NETUNREACH, ResetCode::Unreachable),
            (Errno::ADDRNOTAVAIL, ResetCode::Unreachable),
            (Errno::NOBUFS, ResetCode::Limit),
            (Errno::NFILE, ResetCode::Limit),
            (Errno::ACCESS, ResetCode::Denied),
            (Errno::MFILE, ResetCode::Limit),
        ] {
            assert_eq!(code_of(&errno.into()), code, "{errno}");
        }
    }
}
