//! Runs the client's half of a greeting over a lane, before any frame. The state machines are in
//! `proto::greeting`; this file reads, writes and enforces the deadline. The server's half is in
//! `server/exchange.rs`.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;

use bytes::{Bytes, BytesMut};
use proto::greeting::{
    Binding, ClientAccepted, ClientGreeting, ClientSetup, EarlyBinding, GREETING_MAX,
    GREETING_TIMEOUT, GreetingError, Refusal,
};
use transport::{Carrier, CarrierError, Lane, Peer};

/// Why a greeting failed.
#[derive(Debug, thiserror::Error)]
pub enum GreetError {
    /// The connection failed during the greeting.
    #[error("the greeting was cut off: {0}")]
    Io(#[from] io::Error),
    /// The peer refused, sent a wrong proof, or sent a malformed message.
    #[error(transparent)]
    Greeting(#[from] GreetingError),
    /// The handshake of the transport failed after an early greeting had begun.
    #[error(transparent)]
    Handshake(#[from] CarrierError),
    /// The greeting exceeded its deadline.
    #[error("no greeting within {} s", GREETING_TIMEOUT.as_secs())]
    Timeout,
}

impl GreetError {
    /// The refusal of the server, if the server refused.
    #[must_use]
    pub const fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Greeting(GreetingError::Refused(refusal)) => Some(*refusal),
            // As with a wrong token, another attempt would fail in the same way.
            Self::Greeting(GreetingError::Introduction) => Some(Refusal::BadCredential),
            Self::Io(_) | Self::Greeting(_) | Self::Handshake(_) | Self::Timeout => None,
        }
    }
}

/// The channel binding of the peer's connection.
pub(crate) fn binding(peer: &Peer) -> Binding {
    peer.exporter.map_or(Binding::None, Binding::Exporter)
}

/// Greets a server. `said` is the binding of the early data, if early data was sent.
pub(crate) async fn greet_server(
    carrier: &mut Carrier,
    setup: ClientSetup,
    said: Option<&EarlyBinding>,
) -> Result<(ClientAccepted, BytesMut), GreetError> {
    let mut greeting = match said {
        Some(binding) => ClientGreeting::after_early(setup, binding)?,
        None => ClientGreeting::new(setup)?,
    };
    let mut input = BytesMut::with_capacity(GREETING_MAX);
    let lane = &mut carrier.lane;
    let work = async {
        loop {
            while let Some(output) = greeting.poll_output() {
                write(&mut **lane, output).await?;
            }
            if let Some(outcome) = greeting.poll_outcome() {
                return Ok(outcome?);
            }
            read(&mut **lane, &mut input).await?;
            greeting.handle_input(&mut input);
        }
    };
    let accepted: Result<ClientAccepted, GreetError> =
        tokio::time::timeout(GREETING_TIMEOUT, work).await.map_err(|_| GreetError::Timeout)?;
    Ok((accepted?, input))
}

pub(crate) async fn write(lane: &mut dyn Lane, output: Bytes) -> io::Result<()> {
    write_all(lane, VecDeque::from([output])).await
}

pub(crate) async fn write_all(lane: &mut dyn Lane, mut frames: VecDeque<Bytes>) -> io::Result<()> {
    if frames.is_empty() {
        return Ok(());
    }
    while !frames.is_empty() {
        poll_fn(|cx| lane.poll_write(cx, &mut frames)).await?;
    }
    poll_fn(|cx| lane.poll_flush(cx)).await
}

pub(crate) async fn read(lane: &mut dyn Lane, input: &mut BytesMut) -> io::Result<()> {
    // The length is bounded, because the machine rejects a longer message before it has arrived
    // completely.
    input.reserve(GREETING_MAX);
    match poll_fn(|cx| lane.poll_read(cx, input)).await? {
        0 => {
            let text = "the other side closed the connection";
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, text))
        }
        _ => Ok(()),
    }
}
