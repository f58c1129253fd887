//! The model of `health`: how the health of a target is checked.

use std::sync::Arc;

use crate::Span;

/// A health check of a target: the client connects to it, and may send a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The time between two health checks.
    pub interval: Span,
    /// The time in which the target must accept the connection and answer the request.
    pub timeout: Span,
    /// The path of the HTTP/1.1 request; a healthy target answers with a status from 200 to 399.
    /// `None`: no request is sent.
    pub path: Option<Arc<str>>,
    /// The datagrams that check a UDP target. `None`: the target is not checked by datagrams.
    pub udp: Option<DatagramCheck>,
}

/// How the health of a UDP target is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatagramCheck {
    /// A DNS query, which any reply except SERVFAIL satisfies.
    Dns,
    /// A datagram from the configuration.
    Own {
        /// The datagram to send.
        send: Arc<[u8]>,
        /// The expected start of the reply.
        expect: Arc<[u8]>,
    },
}
