//! Runs a greeting over a lane, before any frame. The machines are in `proto::greeting`; here are
//! bytes and the deadline.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;

use bytes::{Bytes, BytesMut};
use proto::greeting::{
    Binding, ClientAccepted, ClientGreeting, ClientSetup, GREETING_MAX, GREETING_TIMEOUT, Grant,
    GreetingError, Name, Refusal, ServerAccepted, ServerEvent, ServerGreeting, ServerSetup,
};
use transport::{Carrier, Lane, Peer};

use crate::server::Verifier;

/// A greeting that came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum GreetError {
    /// The connection failed under it.
    #[error("the greeting was cut off: {0}")]
    Io(#[from] io::Error),
    /// Refused, unproved or malformed.
    #[error(transparent)]
    Greeting(#[from] GreetingError),
    /// The peer took longer than allowed.
    #[error("no greeting within {} s", GREETING_TIMEOUT.as_secs())]
    Timeout,
}

impl GreetError {
    /// The server's no, if it was that.
    #[must_use]
    pub const fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Greeting(GreetingError::Refused(refusal)) => Some(*refusal),
            // As for a wrong token, another attempt comes to the same.
            Self::Greeting(GreetingError::Introduction) => Some(Refusal::BadCredential),
            Self::Io(_) | Self::Greeting(_) | Self::Timeout => None,
        }
    }
}

/// The binding that a peer's connection allows.
pub(crate) fn binding(peer: &Peer) -> Binding {
    peer.exporter.map_or(Binding::None, Binding::Exporter)
}

/// Greets a server.
pub(crate) async fn greet_server(
    carrier: &mut Carrier,
    setup: ClientSetup,
) -> Result<(ClientAccepted, BytesMut), GreetError> {
    let mut greeting = ClientGreeting::new(setup)?;
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

/// Greets a client.
pub(crate) async fn greet_client(
    carrier: &mut Carrier,
    verifier: &dyn Verifier,
    setup: ServerSetup,
) -> Result<(Grant, ServerAccepted, BytesMut), GreetError> {
    let mut greeting = ServerGreeting::new(setup);
    let mut input = BytesMut::with_capacity(GREETING_MAX);
    let peer = carrier.peer.clone();
    let lane = &mut carrier.lane;
    let work = async {
        let mut done = None;
        let mut claimed = None;
        loop {
            let outcome = answer(&mut greeting, verifier, &peer, &mut claimed).await;
            if let (Outcome::Failed(GreetingError::Refused(_)), Some(name)) = (&outcome, &claimed) {
                tokio::time::sleep(verifier.penalty(name, &peer)).await;
            }
            while let Some(output) = greeting.poll_output() {
                write(&mut **lane, output).await?;
            }
            match outcome {
                Outcome::Pending => {}
                Outcome::Accepted(grant, accepted) => done = Some((*grant, accepted)),
                Outcome::Failed(error) => {
                    // The refusal shall arrive before the connection closes.
                    poll_fn(|cx| lane.poll_close(cx)).await.ok();
                    return Err(error.into());
                }
            }
            if let Some((grant, accepted)) = done.take() {
                return Ok((grant, accepted));
            }
            read(&mut **lane, &mut input).await?;
            greeting.handle_input(&mut input);
        }
    };
    let accepted: Result<(Grant, ServerAccepted), GreetError> =
        tokio::time::timeout(GREETING_TIMEOUT, work).await.map_err(|_| GreetError::Timeout)?;
    let (grant, accepted) = accepted?;
    Ok((grant, accepted, input))
}

enum Outcome {
    Pending,
    Accepted(Box<Grant>, ServerAccepted),
    Failed(GreetingError),
}

/// Answers what the greeting asks, and notes whom the client claims to be.
async fn answer(
    greeting: &mut ServerGreeting,
    verifier: &dyn Verifier,
    peer: &Peer,
    claimed: &mut Option<Name>,
) -> Outcome {
    while let Some(event) = greeting.poll_event() {
        match event {
            ServerEvent::Credentials { name, certificate, enrolls } => {
                if enrolls {
                    greeting.credentials(verifier.code(&name).as_slice());
                } else if certificate && verifier.certificate_suffices(&name) {
                    greeting.certificate_suffices();
                } else {
                    match verifier.credentials(&name).await {
                        Ok(credentials) => greeting.credentials(&credentials),
                        Err(refusal) => greeting.refuse(refusal),
                    }
                }
                *claimed = Some(name);
            }
            ServerEvent::LinkSecret { name, instance, link } => {
                greeting.link_secret(verifier.link_secret(&name, instance, link));
            }
            ServerEvent::Preview { .. } => greeting.preview(None),
            ServerEvent::Decide(grant) => match verifier.decide(&grant, peer).await {
                Ok(terms) => match greeting.accept(&terms) {
                    Some(accepted) => return Outcome::Accepted(Box::new(grant), accepted),
                    None => return Outcome::Failed(GreetingError::Refused(Refusal::Malformed)),
                },
                Err(refusal) => greeting.refuse(refusal),
            },
            ServerEvent::Failed(error) => return Outcome::Failed(error),
        }
    }
    Outcome::Pending
}

pub(crate) async fn write(lane: &mut dyn Lane, output: Bytes) -> io::Result<()> {
    let mut frames = VecDeque::from([output]);
    while !frames.is_empty() {
        poll_fn(|cx| lane.poll_write(cx, &mut frames)).await?;
    }
    poll_fn(|cx| lane.poll_flush(cx)).await
}

async fn read(lane: &mut dyn Lane, input: &mut BytesMut) -> io::Result<()> {
    // The machine refuses what is longer before it has all arrived, so this is bounded.
    input.reserve(GREETING_MAX);
    match poll_fn(|cx| lane.poll_read(cx, input)).await? {
        0 => {
            let text = "the other side closed the connection";
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, text))
        }
        _ => Ok(()),
    }
}
