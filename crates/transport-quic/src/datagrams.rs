//! Datagrams: DATAGRAM frames (RFC 9221). `settings.rs` limits the number of waiting datagrams.

use std::fmt;
use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;
use quinn::{Connection, ConnectionError, SendDatagramError};
use transport::Datagrams;

use crate::error::of_connection;
use crate::waiting::Waiting;

/// The datagrams of a carrier, the same on both ends.
pub(crate) struct QuicDatagrams {
    connection: Connection,
    receiving: Waiting<Result<Bytes, ConnectionError>>,
}

impl QuicDatagrams {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { connection, receiving: Waiting::default() }
    }
}

impl Datagrams for QuicDatagrams {
    fn limit(&self) -> usize {
        self.connection.max_datagram_size().unwrap_or(0)
    }

    fn send(&mut self, datagram: Bytes) -> io::Result<()> {
        self.connection.send_datagram(datagram).map_err(|error| match error {
            SendDatagramError::ConnectionLost(error) => of_connection(&error),
            SendDatagramError::TooLarge => {
                io::Error::new(io::ErrorKind::InvalidInput, "longer than the path takes now")
            }
            SendDatagramError::UnsupportedByPeer | SendDatagramError::Disabled => {
                io::Error::new(io::ErrorKind::InvalidInput, "the peer takes no datagrams")
            }
        })
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let connection = &self.connection;
        let received = self.receiving.poll(cx, || {
            let connection = connection.clone();
            async move { connection.read_datagram().await }
        });
        received.map_err(|error| of_connection(&error))
    }
}

impl fmt::Debug for QuicDatagrams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QuicDatagrams({})", self.connection.stable_id())
    }
}
