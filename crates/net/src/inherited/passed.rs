//! Listening sockets that one part of this process leaves to another part: the port stays open
//! without a gap, and the connections in its queue stay.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Socket, inherited};

/// The sockets of a port that its former user has left to the next bind of the port. On drop the
/// sockets that nobody has taken are closed, which resets the connections in their queues.
#[derive(Debug)]
pub struct PassedOn(Option<u64>);

impl PassedOn {
    /// Offers the sockets of a port, in the order in which they joined their group. Where the
    /// service manager has the sockets of the port, they are closed: the next bind gets the
    /// sockets of the service manager.
    #[must_use]
    pub fn offer(group: Vec<OwnedFd>) -> Self {
        static OFFERS: AtomicU64 = AtomicU64::new(1);
        let offer = OFFERS.fetch_add(1, Ordering::Relaxed);
        let of_offer = |socket: Socket| Socket { offer: Some(offer), ..socket };
        let sockets: Vec<_> = group.into_iter().filter_map(Socket::of).map(of_offer).collect();
        let Some(place) = sockets.first().map(|first| first.place.clone()) else {
            return Self(None);
        };
        let mut all = inherited();
        if all.0.iter().any(|other| other.place == place) {
            return Self(None);
        }
        all.0.extend(sockets);
        Self(Some(offer))
    }
}

impl Drop for PassedOn {
    fn drop(&mut self) {
        let Self(Some(offer)) = *self else { return };
        // Descriptors that were taken have the same numbers in a later offer of the port.
        let is_left = |socket: &mut Socket| socket.held.is_none() && socket.offer == Some(offer);
        drop(inherited().0.extract_if(.., is_left).collect::<Vec<_>>());
    }
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn a_port_that_is_passed_on_keeps_the_connections_that_wait() {
        let group = crate::listen_group(SocketAddr::from(([127, 0, 0, 1], 0)), 2).unwrap();
        let at = group[0].local_addr().unwrap();
        let mut visitors: Vec<_> = (0..16).map(|_| TcpStream::connect(at).unwrap()).collect();
        let kept = group.iter().map(|one| one.as_fd().try_clone_to_owned().unwrap()).collect();
        drop(group);
        let passed = PassedOn::offer(kept);
        visitors.push(TcpStream::connect(at).expect("the port is open"));
        let group = crate::listen_group(at, 2).unwrap();
        drop(passed);
        let mut accepted = 0;
        for listener in &group {
            while let Ok((mut stream, _)) = listener.accept() {
                stream.write_all(b"x").unwrap();
                accepted += 1;
            }
        }
        assert_eq!(accepted, visitors.len());
        for mut visitor in visitors {
            visitor.read_exact(&mut [0]).unwrap();
        }
    }

    #[test]
    fn an_offer_that_was_taken_closes_no_later_offer_of_its_port() {
        let group = crate::listen_group(SocketAddr::from(([127, 0, 0, 1], 0)), 1).unwrap();
        let at = group[0].local_addr().unwrap();
        let first = PassedOn::offer(group.into_iter().map(OwnedFd::from).collect());
        let group = crate::listen_group(at, 1).unwrap();
        // The same descriptors are passed on once more.
        let second = PassedOn::offer(group.into_iter().map(OwnedFd::from).collect());
        drop(first);
        TcpStream::connect(at).expect("the port is open");
        drop(second);
        assert_eq!(TcpStream::connect(at).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_port_that_nobody_takes_is_closed() {
        let group = crate::listen_group(SocketAddr::from(([127, 0, 0, 1], 0)), 1).unwrap();
        let at = group[0].local_addr().unwrap();
        let passed = PassedOn::offer(group.into_iter().map(OwnedFd::from).collect());
        TcpStream::connect(at).unwrap();
        drop(passed);
        assert_eq!(TcpStream::connect(at).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }
}
