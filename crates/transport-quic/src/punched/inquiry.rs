//! An inquiry at STUN servers with sockets like those of a trial.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, UdpSocket as Bound};
use std::time::Instant;

use net::socket::canonical;
use punch::{Inquiry, Nat, Port};
use tokio::net::UdpSocket;
use tokio::time::sleep_until;

use super::{PunchSettings, hosts};

/// Larger than any expected answer.
const SPACE: usize = 1_500;

/// The result of an inquiry.
#[derive(Debug)]
pub struct Inquired {
    /// The addresses of this machine that a trial with these settings would send to a peer.
    pub hosts: Vec<SocketAddr>,
    /// The servers, each with the outer address that it reported, or with the reason for a missing
    /// answer where this machine knows it.
    pub servers: Vec<(SocketAddr, Result<SocketAddr, Option<io::ErrorKind>>)>,
    /// The NAT properties for IPv4; `None` when no server was queried over it.
    pub ipv4: Option<Nat>,
    /// The same of IPv6.
    pub ipv6: Option<Nat>,
}

/// The sockets of an inquiry.
struct Sockets {
    main: UdpSocket,
    fresh: Option<UdpSocket>,
}

impl Sockets {
    fn bind(settings: &PunchSettings, servers: &[SocketAddr]) -> io::Result<(Self, Hosts)> {
        let main = hosts::bind(settings)?;
        let own = hosts::hosts(&main, settings, servers)?;
        let own = own.into_iter().map(|host| host.address).collect();
        // Outside the range the router may admit less, so no other port replaces an exhausted
        // range: the filter stays unknown.
        let fresh = hosts::bind(settings).and_then(into_tokio).ok();
        Ok((Self { main: into_tokio(main)?, fresh }, own))
    }

    fn of(&self, port: Port) -> Option<&UdpSocket> {
        match port {
            Port::Main => Some(&self.main),
            Port::Fresh => self.fresh.as_ref(),
        }
    }

    /// The next datagram at either socket.
    async fn receive(&self) -> io::Result<(Port, SocketAddr, Vec<u8>)> {
        let (mut at_main, mut at_fresh) = ([0; SPACE], [0; SPACE]);
        let fresh = async {
            match &self.fresh {
                Some(socket) => socket.recv_from(&mut at_fresh).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            got = self.main.recv_from(&mut at_main) => {
                let (length, from) = got?;
                Ok((Port::Main, canonical(from), at_main[..length].to_vec()))
            }
            got = fresh => {
                let (length, from) = got?;
                Ok((Port::Fresh, canonical(from), at_fresh[..length].to_vec()))
            }
        }
    }
}

type Hosts = Vec<SocketAddr>;

fn into_tokio(socket: Bound) -> io::Result<UdpSocket> {
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}

/// Queries STUN servers for the NATs between this machine and them, until all have answered, or
/// until no answer is expected any more, at the latest at `until`.
///
/// # Errors
/// This machine has no socket or no random numbers for it.
pub async fn inquire(
    settings: &PunchSettings,
    servers: &[SocketAddr],
    until: tokio::time::Instant,
) -> io::Result<Inquired> {
    let (sockets, hosts) = Sockets::bind(settings, servers)?;
    let mut failed = None;
    let mut random = |bytes: &mut [u8]| failed = getrandom::fill(bytes).err().or(failed);
    let mut inquiry = Inquiry::new(now(), servers, sockets.fresh.is_some(), &mut random);
    if let Some(error) = failed {
        return Err(io::Error::other(error));
    }
    let mut unsent: HashMap<SocketAddr, io::ErrorKind> = HashMap::new();
    while let Some(due) = inquiry.poll_timeout() {
        tokio::select! {
            () = sleep_until(until) => break,
            () = sleep_until(due.into()) => {
                inquiry.handle_timeout(now());
                while let Some(asked) = inquiry.poll_asked() {
                    let Some(socket) = sockets.of(asked.from) else { continue };
                    let to = form_of(asked.to, socket);
                    if let Err(error) = socket.send_to(&asked.bytes, to).await {
                        unsent.insert(asked.to, error.kind());
                    }
                }
            }
            got = sockets.receive() => {
                let (at, from, datagram) = got?;
                inquiry.handle_datagram(at, from, &datagram);
            }
        }
    }
    let own = |seen| hosts.contains(&seen);
    let servers = inquiry.answers();
    let servers = servers
        .map(|(server, seen)| (server, seen.ok_or_else(|| unsent.get(&server).copied())))
        .collect();
    let (ipv4, ipv6) = (inquiry.nat(true, own), inquiry.nat(false, own));
    let first = hosts.iter().take(punch::HOSTS).copied().collect();
    Ok(Inquired { servers, ipv4, ipv6, hosts: first })
}

/// The form in which a socket of both address families sends to IPv4.
fn form_of(to: SocketAddr, socket: &UdpSocket) -> SocketAddr {
    match (to, socket.local_addr()) {
        (SocketAddr::V4(v4), Ok(SocketAddr::V6(_))) => {
            SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port())
        }
        (to, _) => to,
    }
}

/// The time of tokio, which tests may pause.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}
