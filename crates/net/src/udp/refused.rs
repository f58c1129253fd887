//! Detects at once, instead of after a timeout, that no process listens on a port.
//!
//! The kernel reports ICMP "port unreachable" (RFC 792) only on connected sockets. The socket of a
//! QUIC or KCP client is not connected: a connected socket keeps its source address, so a client
//! whose address changes would lose its connection. So a second socket sends one empty datagram,
//! which every server ignores, and waits for the ICMP error.

use std::io;
use std::net::SocketAddr;

use tokio::net::UdpSocket;

use super::dialled;
use crate::options::SocketOptions;

/// Returns if the port is refused, and otherwise never. The datagram has the options of the
/// client's packets.
pub async fn refused(address: SocketAddr, options: &SocketOptions) -> io::Error {
    match ask(address, options).await {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            io::Error::new(error.kind(), "nobody listens on this UDP port (connection refused)")
        }
        // No free descriptor or no route: the connection attempt itself returns the error.
        Ok(()) | Err(_) => std::future::pending().await,
    }
}

async fn ask(address: SocketAddr, options: &SocketOptions) -> io::Result<()> {
    // One empty datagram needs no buffers.
    let socket = dialled(address, &SocketOptions { buffers: None, ..options.clone() })?;
    socket.set_nonblocking(true)?;
    let socket = UdpSocket::from_std(socket)?;
    socket.connect(address).await?;
    socket.send(&[]).await?;
    socket.recv(&mut [0]).await.map(drop)
}
