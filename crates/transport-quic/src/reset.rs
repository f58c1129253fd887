//! Stateless resets (RFC 9000 section 10.3) that a new server process sends unsolicited to the
//! connections of its predecessor. Their clients return at once, and not only after their next
//! packet.

use std::io;
use std::net::UdpSocket;

use aws_lc_rs::{hmac, rand};
use quinn::ConnectionId;

use crate::{Keys, RecordedPeer};

/// The length of the token at the end of the datagram, by which the client recognises the server.
const TOKEN: usize = 16;

/// The length of the flags, the longest id, and the shortest packet that can be sealed. A datagram
/// of at least this length looks like any other packet to an observer.
const LEAST: usize = 1 + 20 + 22;

/// The range of the random length, in bytes.
const SPREAD: usize = 32;

/// The two highest bits of a packet with a short header. All other bits of its first byte look
/// random.
const FIXED: u8 = 0b0100_0000;

/// The datagram that ends the connection whose peer addresses us by `id`. `None`: the system
/// provides no random numbers, so an observer could distinguish the datagram from a packet.
fn reset_datagram(keys: &Keys, id: &ConnectionId) -> Option<Vec<u8>> {
    let mut datagram = vec![0; LEAST + SPREAD];
    rand::fill(&mut datagram).ok()?;
    let length = LEAST + usize::from(datagram[1]) % SPREAD;
    datagram.truncate(length - TOKEN);
    datagram[0] = FIXED | (datagram[0] >> 2);
    // quinn derives the token in the same way (`ResetToken::new`): the truncated HMAC-SHA-256 of
    // the id.
    datagram.extend_from_slice(&hmac::sign(&keys.reset, id).as_ref()[..TOKEN]);
    Some(datagram)
}

/// Sends a reset to each of `known` that used this socket's port; returns the number of resets
/// sent. A starting server calls this function before it uses the socket. A reset takes about 3 µs.
/// A reset that the system does not accept at once is skipped; that client learns of the restart
/// from its next packet.
pub fn call_back(socket: &UdpSocket, keys: &Keys, known: &[RecordedPeer]) -> io::Result<usize> {
    let here = socket.local_addr()?;
    let sent = known
        .iter()
        .filter_map(|one| Some((one, one.reachable(here)?)))
        .filter(|(one, peer)| {
            let reset = reset_datagram(keys, &ConnectionId::new(&one.id.0));
            reset.is_some_and(|reset| socket.send_to(&reset, peer).is_ok())
        })
        .count();
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use files::peers::PeerId;

    use super::*;

    #[test]
    fn a_reset_looks_like_any_packet_and_ends_with_its_proof() {
        let keys = Keys::fleeting().unwrap();
        let id = ConnectionId::new(&[7; 8]);
        let made: Vec<_> = (0..500).map(|_| reset_datagram(&keys, &id).unwrap()).collect();
        let lengths: std::collections::BTreeSet<_> = made.iter().map(Vec::len).collect();
        assert_eq!((lengths.first(), lengths.len()), (Some(&43), 32));
        assert!(made.iter().all(|one| one[0] & 0b1100_0000 == FIXED));
        assert!(made.iter().any(|one| one[0] != made[0][0]));
        let token = |datagram: &[u8]| datagram[datagram.len() - TOKEN..].to_vec();
        assert!(made.iter().all(|one| token(one) == token(&made[0])));
        let other = reset_datagram(&keys, &ConnectionId::new(&[8; 8])).unwrap();
        assert_ne!(token(&other), token(&made[0]));
    }

    #[test]
    fn only_who_came_in_at_this_port_is_called() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_nonblocking(true).unwrap();
        let port = server.local_addr().unwrap().port();
        let peer = client.local_addr().unwrap();
        let id = PeerId([7; 8]);
        let keys = Keys::fleeting().unwrap();
        let elsewhere = RecordedPeer { id, peer, port: port ^ 1 };
        assert_eq!(call_back(&server, &keys, &[elsewhere]).unwrap(), 0);
        assert_eq!(
            call_back(&server, &keys, &[elsewhere, RecordedPeer { port, ..elsewhere }]).unwrap(),
            1
        );
        assert!(client.recv(&mut [0; 128]).unwrap() >= LEAST);
        assert!(client.recv(&mut [0; 128]).is_err());
    }
}
