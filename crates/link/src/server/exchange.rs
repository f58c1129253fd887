//! Runs the server's half of a greeting over a lane.

use std::collections::VecDeque;
use std::future::poll_fn;

use bytes::{Bytes, BytesMut};
use proto::Preview;
use proto::greeting::{
    GREETING_MAX, GREETING_TIMEOUT, Grant, GreetingError, Name, Refusal, ServerAccepted,
    ServerEvent, ServerGreeting, ServerSetup,
};
use transport::{Carrier, Early, Peer};

use super::verifier::Verifier;
use crate::greet::{GreetError, binding, read, write_all};

/// The outcome of a greeting at a server.
pub(crate) struct Done {
    pub(crate) grant: Grant,
    pub(crate) accepted: ServerAccepted,
    pub(crate) leftover: BytesMut,
    /// The sent preview of the link, which counts as the RESUME of this end.
    pub(crate) preview: Option<Preview>,
}

/// Greets a client. With `early` the greeting begins before the handshake is complete.
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
        let mut replies = VerifierReplies::default();
        loop {
            let outcome = answer(&mut greeting, verifier, peer, &mut replies).await;
            if let (Verdict::Failed(GreetingError::Refused(_)), Some(name)) =
                (&outcome, &replies.claimed)
            {
                tokio::time::sleep(verifier.penalty(name, peer)).await;
            }
            let mut output: VecDeque<Bytes> =
                std::iter::from_fn(|| greeting.poll_output()).collect();
            output.append(&mut std::mem::take(&mut replies.to_show).into());
            write_all(&mut **lane, output).await?;
            match outcome {
                Verdict::Pending => {}
                Verdict::Accepted(grant, accepted) => {
                    let preview = replies.shown.filter(|_| accepted.early);
                    return Ok((*grant, accepted, preview));
                }
                Verdict::Failed(error) => {
                    // The refusal must arrive before the connection closes.
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

/// The replies of the verifier to the events of a greeting.
#[derive(Default)]
struct VerifierReplies {
    /// The name that the client claims.
    claimed: Option<Name>,
    shown: Option<Preview>,
    /// The frames of the preview, until they are sent.
    to_show: Vec<Bytes>,
}

enum Verdict {
    Pending,
    Accepted(Box<Grant>, ServerAccepted),
    Failed(GreetingError),
}

/// Passes the events of a greeting to the verifier, and its replies to the greeting.
async fn answer(
    greeting: &mut ServerGreeting,
    verifier: &dyn Verifier,
    peer: &Peer,
    replies: &mut VerifierReplies,
) -> Verdict {
    while let Some(event) = greeting.poll_event() {
        match event {
            ServerEvent::Credentials { name, certificate, enrolls } => {
                if enrolls {
                    match verifier.code(&name).await {
                        Ok(code) => greeting.credentials(code.as_slice()),
                        Err(refusal) => greeting.refuse(refusal),
                    }
                } else if certificate && verifier.certificate_suffices(&name) {
                    greeting.certificate_suffices();
                } else {
                    match verifier.credentials(&name).await {
                        Ok(credentials) => greeting.credentials(&credentials),
                        Err(refusal) => greeting.refuse(refusal),
                    }
                }
                replies.claimed = Some(name);
            }
            ServerEvent::LinkSecret { name, instance, link } => {
                greeting.link_secret(verifier.link_secret(&name, instance, link));
            }
            ServerEvent::Preview { name, instance, attach } => {
                let shown = verifier.preview(&name, instance, attach).await;
                greeting.preview(shown.as_ref().map(|(terms, _)| terms));
                if let Some((_, preview)) = shown {
                    replies.to_show.clone_from(&preview.frames);
                    replies.shown = Some(preview);
                }
            }
            ServerEvent::Decide(grant) => match verifier.decide(&grant, peer).await {
                Ok(terms) => match greeting.accept(&terms) {
                    Some(accepted) => return Verdict::Accepted(grant, accepted),
                    None => return Verdict::Failed(GreetingError::Refused(Refusal::Malformed)),
                },
                Err(refusal) => greeting.refuse(refusal),
            },
            ServerEvent::Failed(error) => return Verdict::Failed(error),
        }
    }
    Verdict::Pending
}
