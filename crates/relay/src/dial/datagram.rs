//! A query by datagram, for health checks of UDP targets.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use net::resolve::Lookups;
use net::udp::dialling;
use rustix::io::Errno;
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep_until, timeout};
use transport::DATAGRAM_MAX;

use super::{DialError, TargetAddr, addresses_of, more_specific};
use crate::Room;
use crate::room::Position;

/// The number of times that the query is sent: one datagram may be lost.
const TIMES: u32 = 3;

/// Sends `question` to the target, and returns its first answer. Without an answer the query is
/// sent again. An address that refuses is followed by the next address of the name. With
/// `broadcast` the target may be all machines of a network, of which the first answer counts.
///
/// # Errors
/// The target does not resolve, each of its addresses refuses, or nothing answers within
/// `deadline`.
pub async fn ask_datagram(
    (target, broadcast): (&TargetAddr, bool),
    question: &[u8],
    deadline: Duration,
    room: Room,
    lookups: &Lookups,
) -> Result<Vec<u8>, DialError> {
    let attempt = async {
        let mut first: Option<io::Error> = None;
        for address in addresses_of(target, None, lookups).await? {
            let asked = async {
                let socket = dialling(address)?;
                if room.place(&socket) != Position::Inside {
                    return Err(Errno::MFILE.into());
                }
                socket.set_nonblocking(true)?;
                let is_connected = net::udp::connect(&socket, address, broadcast)?;
                let to = (!is_connected).then_some(address);
                ask(&UdpSocket::from_std(socket)?, to, question, deadline / TIMES).await
            };
            match asked.await {
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    first = Some(match first {
                        Some(first) => more_specific(first, error),
                        None => error,
                    });
                }
            }
        }
        let source = first.unwrap_or_else(|| io::ErrorKind::NotFound.into());
        Err(match Errno::from_io_error(&source) {
            Some(Errno::MFILE | Errno::NFILE) => DialError::Exhausted(target.clone()),
            Some(Errno::ACCESS) => DialError::Broadcast(target.clone()),
            _ => DialError::Connect { target: target.clone(), source },
        })
    };
    timeout(deadline, attempt).await.unwrap_or_else(|_| Err(DialError::Timeout(target.clone())))
}

/// Asks until something answers. `to` is the address where the socket is not connected.
async fn ask(
    socket: &UdpSocket,
    to: Option<SocketAddr>,
    question: &[u8],
    pause: Duration,
) -> io::Result<Vec<u8>> {
    let mut answer = vec![0; DATAGRAM_MAX];
    loop {
        let again = Instant::now() + pause;
        match to {
            Some(to) => socket.send_to(question, to).await?,
            None => socket.send(question).await?,
        };
        let read = async {
            loop {
                let (read, from) = socket.recv_from(&mut answer).await?;
                if to.is_none_or(|to| to.port() == from.port()) {
                    return io::Result::Ok(read);
                }
            }
        };
        tokio::select! {
            read = read => {
                answer.truncate(read?);
                return Ok(answer);
            }
            () = sleep_until(again) => {}
        }
    }
}
