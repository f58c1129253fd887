//! Runs a greeting over a lane, before any frame. The machines are in `proto::greeting`; here are
//! bytes and the deadline.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;

use bytes::{Bytes, BytesMut};
use proto::Preview;
use proto::greeting::{
    Binding, ClientAccepted, ClientGreeting, ClientSetup, EarlyBinding, GREETING_MAX,
    GREETING_TIMEOUT, Grant, GreetingError, Name, Refusal, ServerAccepted, ServerEvent,
    ServerGreeting, ServerSetup,
};
use transport::{Carrier, CarrierError, Early, Lane, Peer};

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
    /// What was left of the handshake failed.
    #[error(transparent)]
    Handshake(#[from] CarrierError),
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
            Self::Io(_) | Self::Greeting(_) | Self::Handshake(_) | Self::Timeout => None,
        }
    }
}

/// The binding that a peer's connection allows.
pub(crate) fn binding(peer: &Peer) -> Binding {
    peer.exporter.map_or(Binding::None, Binding::Exporter)
}

/// Greets a server, which may have taken something early.
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

/// A greeting that came to its end at a server.
pub(crate) struct Done {
    pub(crate) grant: Grant,
    pub(crate) accepted: ServerAccepted,
    pub(crate) leftover: BytesMut,
    /// What was shown of the link, and counts as our RESUME.
    pub(crate) preview: Option<Preview>,
}

/// Greets a client; with `early`, from before its handshake is done.
pub(crate) async fn greet_client(
    carrier: &mut Carrier,
    early: Option<Early>,
    verifier: &dyn Verifier,
    setup: ServerSetup,
) -> Result<Done, GreetError> {
    let (mut greeting, mut handshake) = match early {
        Some(Early { binding, done }) => (ServerGreeting::early(setup, binding), Some(done)),
        None => (ServerGreeting::new(setup), None),
    };
    let mut input = BytesMut::with_capacity(GREETING_MAX);
    let Carrier { peer, lane, .. } = carrier;
    let work = async {
        let mut asked = Asked::default();
        loop {
            let outcome = answer(&mut greeting, verifier, peer, &mut asked).await;
            if let (Outcome::Failed(GreetingError::Refused(_)), Some(name)) =
                (&outcome, &asked.claimed)
            {
                tokio::time::sleep(verifier.penalty(name, peer)).await;
            }
            let mut output: VecDeque<Bytes> =
                std::iter::from_fn(|| greeting.poll_output()).collect();
            output.append(&mut std::mem::take(&mut asked.to_show).into());
            write_all(&mut **lane, output).await?;
            match outcome {
                Outcome::Pending => {}
                Outcome::Accepted(grant, accepted) => {
                    let preview = asked.shown.filter(|_| accepted.early);
                    return Ok((*grant, accepted, preview));
                }
                Outcome::Failed(error) => {
                    // The refusal shall arrive before the connection closes.
                    poll_fn(|cx| lane.poll_close(cx)).await.ok();
                    return Err(error.into());
                }
            }
            let Some(done) = &mut handshake else {
                read(&mut **lane, &mut input).await?;
                greeting.handle_input(&mut input);
                continue;
            };
            tokio::select! {
                biased;
                known = done => {
                    handshake = None;
                    *peer = known?;
                    greeting.handshake_done(binding(peer), peer.certificate_name.clone());
                }
                heard = read(&mut **lane, &mut input), if !greeting.awaits_handshake() => heard?,
            }
            greeting.handle_input(&mut input);
        }
    };
    let done: Result<_, GreetError> =
        tokio::time::timeout(GREETING_TIMEOUT, work).await.map_err(|_| GreetError::Timeout)?;
    let (grant, accepted, preview) = done?;
    Ok(Done { grant, accepted, leftover: input, preview })
}

/// What was said to a greeting's questions.
#[derive(Default)]
struct Asked {
    /// Whom the client claims to be.
    claimed: Option<Name>,
    shown: Option<Preview>,
    /// The frames of that, until they are sent.
    to_show: Vec<Bytes>,
}

enum Outcome {
    Pending,
    Accepted(Box<Grant>, ServerAccepted),
    Failed(GreetingError),
}

/// Answers what the greeting asks.
async fn answer(
    greeting: &mut ServerGreeting,
    verifier: &dyn Verifier,
    peer: &Peer,
    asked: &mut Asked,
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
                asked.claimed = Some(name);
            }
            ServerEvent::LinkSecret { name, instance, link } => {
                greeting.link_secret(verifier.link_secret(&name, instance, link));
            }
            ServerEvent::Preview { name, instance, attach } => {
                let shown = verifier.preview(&name, instance, attach).await;
                greeting.preview(shown.as_ref().map(|(terms, _)| terms));
                if let Some((_, preview)) = shown {
                    asked.to_show.clone_from(&preview.frames);
                    asked.shown = Some(preview);
                }
            }
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
    write_all(lane, VecDeque::from([output])).await
}

async fn write_all(lane: &mut dyn Lane, mut frames: VecDeque<Bytes>) -> io::Result<()> {
    if frames.is_empty() {
        return Ok(());
    }
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
