//! Learns that nobody listens on a port, at once instead of after a time-out.
//!
//! The kernel tells of ICMP "port unreachable" (RFC 792) on connected sockets only, and the socket
//! of a QUIC client is not connected: it would keep the source address of the moment, and a client
//! whose address changes would be cut off. So a socket beside it sends one empty datagram, which
//! every QUIC server passes over, and waits for the refusal.

use std::io;
use std::net::SocketAddr;

use tokio::net::UdpSocket;

use net::udp::unspecified;

/// Returns when the port is refused, and never else.
pub(crate) async fn refused(address: SocketAddr) -> io::Error {
    match ask(address).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            io::Error::new(error.kind(), "nobody listens on this UDP port (connection refused)")
        }
        // No socket to spare, no route: the attempt itself finds out.
        Ok(()) | Err(_) => std::future::pending().await,
    }
}

async fn ask(address: SocketAddr) -> io::Result<()> {
    let socket = UdpSocket::bind(unspecified(address)).await?;
    socket.connect(address).await?;
    socket.send(&[]).await?;
    socket.recv(&mut [0]).await.map(drop)
}
