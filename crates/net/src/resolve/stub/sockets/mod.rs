//! A query to a server over UDP, or over TCP if the reply does not fit into a datagram.
//!
//! Each query has its own socket, so its port and its id are both random: a forged reply has to
//! guess 32 bits (RFC 5452). The queries for IPv6 and IPv4 do not share a port, because some
//! firewalls would drop the second query (`single-request-reopen` of resolv.conf(5)).

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, sleep_until};

use super::ask::{Answering, Exchange, SILENCE};
use super::failure::Trouble;
use super::wire::{DnsReply, Question, Said};

/// The buffer size for a datagram. The reply to a query without EDNS has at most 512 bytes.
const DATAGRAM: usize = 4096;

/// The sockets of this machine.
#[derive(Debug)]
pub(in crate::resolve) struct Sockets;

impl Exchange for Sockets {
    fn ask(&self, server: SocketAddr, question: &Question, by_tcp: bool) -> Answering {
        let question = question.clone();
        Box::pin(async move {
            let asked = if by_tcp {
                over_tcp(server, &question).await.map(|said| said.map(UdpAnswer::of))
            } else {
                over_udp(server, &question).await
            };
            match asked {
                Ok(Some(UdpAnswer::Whole(reply))) => Ok(reply),
                Ok(Some(UdpAnswer::No(trouble))) => Err(trouble),
                Ok(Some(UdpAnswer::Cut(part))) => match over_tcp(server, &question).await {
                    Ok(Some(Said::Reply { reply, .. })) => Ok(reply),
                    // Some networks block TCP. A part of the addresses is enough to connect. A
                    // part of the servers of a service would look as if the others were removed.
                    Ok(_) | Err(_) if !part.found.is_empty() && !question.is_of_services() => {
                        Ok(part)
                    }
                    Ok(Some(Said::Refusal(code))) => Err(Trouble::Refusal(code)),
                    Ok(Some(Said::Lame)) => Err(Trouble::Lame),
                    Ok(None) => Err(Trouble::Garbled),
                    Err(error) => Err(Trouble::of(&error)),
                },
                Ok(None) => Err(Trouble::Garbled),
                Err(error) => Err(Trouble::of(&error)),
            }
        })
    }
}

enum UdpAnswer {
    Whole(DnsReply),
    Cut(DnsReply),
    No(Trouble),
}

impl UdpAnswer {
    fn of(said: Said) -> Self {
        match said {
            Said::Reply { reply, is_whole: true } => Self::Whole(reply),
            Said::Reply { reply, is_whole: false } => Self::Cut(reply),
            Said::Refusal(code) => Self::No(Trouble::Refusal(code)),
            Said::Lame => Self::No(Trouble::Lame),
        }
    }
}

/// An unpredictable query id.
fn number() -> io::Result<u16> {
    let mut bytes = [0; 2];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(u16::from_ne_bytes(bytes))
}

/// Sends the query until the server replies, with retransmissions at growing intervals because a
/// datagram may be lost. Packets that are not a reply to this query are ignored, because they may
/// be forged.
async fn over_udp(server: SocketAddr, question: &Question) -> io::Result<Option<UdpAnswer>> {
    let id = number()?;
    let Some(packet) = question.packet(id) else { return Ok(None) };
    // The system chooses a random port. A connected socket receives packets of this server only,
    // and gets an error if the server's port is closed.
    let socket = match server {
        SocketAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await?,
        SocketAddr::V6(_) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).await?,
    };
    socket.connect(server).await?;
    let mut buffer = vec![0; DATAGRAM];
    let mut pause: Duration = SILENCE;
    loop {
        socket.send(&packet).await?;
        let again = Instant::now() + pause;
        pause *= 2;
        loop {
            let size = tokio::select! {
                read = socket.recv(&mut buffer) => read?,
                () = sleep_until(again) => break,
            };
            if let Some(said) = question.read(id, &buffer[..size]) {
                return Ok(Some(UdpAnswer::of(said)));
            }
        }
    }
}

/// Sends the query over TCP (RFC 7766). `None`: the reply does not match the query.
async fn over_tcp(server: SocketAddr, question: &Question) -> io::Result<Option<Said>> {
    let id = number()?;
    let Some(packet) = question.packet(id) else { return Ok(None) };
    let size = u16::try_from(packet.len()).map_err(io::Error::other)?;
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(&[&size.to_be_bytes()[..], &packet].concat()).await?;
    let size = stream.read_u16().await?;
    // The buffer grows with the received data, not with the announced length.
    let mut answer = Vec::new();
    stream.take(size.into()).read_to_end(&mut answer).await?;
    Ok(question.read(id, &answer))
}

#[cfg(test)]
mod tests;
