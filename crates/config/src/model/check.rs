//! The model of `health`: how a target is asked whether it serves.

use std::sync::Arc;

use crate::Span;

/// How a target is checked: the client connects to it, and may send a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The time between two checks.
    pub interval: Span,
    /// The longest time until the target accepts the connection, and has answered the request.
    pub timeout: Span,
    /// The path of the request over HTTP/1.1, which a target that serves answers with a status from
    /// 200 to 399. `None`: there is no request.
    pub path: Option<Arc<str>>,
    /// The datagrams by which a target of UDP is checked. `None`: it is not.
    pub udp: Option<DatagramCheck>,
}

/// How a target of UDP is asked whether it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatagramCheck {
    /// A query of DNS, which any answer to it ends but SERVFAIL.
    Dns,
    /// A datagram of the configuration.
    Own {
        /// What is sent.
        send: Arc<[u8]>,
        /// How the answer has to begin.
        expect: Arc<[u8]>,
    },
}
