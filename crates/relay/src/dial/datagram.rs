//! A query in a datagram, for health checks of UDP targets.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use net::SocketOptions;
use net::resolve::Lookups;
use net::udp::dialling;
use rustix::io::Errno;
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep_until, timeout};
use transport::DATAGRAM_MAX;

use super::{DialError, TargetAddr, addresses_of, more_specific};
use crate::Room;
use crate::room::Position;

/// How many times the query is sent: a datagram may be lost.
const TIMES: u32 = 3;

/// Sends `question` to the target, and returns its first answer. Without an answer the query is
/// repeated. If an address refuses, the next address of the name is tried. With `broadcast` the
/// target may be all hosts of a network, and the first answer counts. The socket is as that of
/// [`dial`](super::dial).
///
/// # Errors
/// The target does not resolve, each of its addresses refuses, or no answer arrives within
/// `deadline`.
pub async fn ask_datagram(
    (target, broadcast): (&TargetAddr, bool),
    question: &[u8],
    deadline: Duration,
    (room, options): (Room, &SocketOptions),
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
                options.at_connect(&socket)?;
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

/// Repeats the query until an answer arrives. `to` is the destination if the socket is not
/// connected.
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
