//! Runs the server's half of a greeting over a lane.

use std::collections::VecDeque;
use std::future::poll_fn;

use bytes::{Bytes, BytesMut};
use proto::greeting::{
    GREETING_MAX, GREETING_TIMEOUT, Grant, GreetingError, NONCE_LENGTH, Name, PassedGreeting,
    Refusal, ServerAccepted, ServerEvent, ServerGreeting, ServerSetup,
};
use proto::{LinkId, Preview};
use transport::{Carrier, Early, Peer};

use super::verifier::{OtherEnd, Stray, Verifier};
use crate::greet::{GreetError, binding, read, write_all};

/// The outcome of a greeting at a server.
pub(crate) struct Done {
    pub(crate) grant: Grant,
    pub(crate) accepted: ServerAccepted,
    pub(crate) leftover: BytesMut,
    /// The sent preview of the link, which counts as the RESUME of this end.
    pub(crate) preview: Option<Preview>,
}

/// How a greeting begins.
pub(crate) enum Begin {
    /// With the nonce.
    Anew,
    /// With the nonce, before the handshake is complete.
    Early(Early),
    /// Another process has sent the nonce.
    Continued,
}

/// How a greeting ended without an error.
pub(crate) enum GreetingEnd {
    Done(Box<Done>),
    /// Another process continues the greeting.
    Passed(OtherEnd),
}

/// Greets a client.
pub(crate) async fn greet_client(
    carrier: &mut Carrier,
    begin: Begin,
    verifier: &dyn Verifier,
    setup: ServerSetup,
) -> Result<GreetingEnd, GreetError> {
    let nonce = setup.nonce;
    // A carrier with further lanes or datagrams is more than the bytes of one lane, and a
    // connection over UDP stays with its worker. A greeting is passed on once.
    let has_more = carrier.lanes.is_some() || carrier.datagrams.is_some();
    let is_single = !has_more && !carrier.peer.transport.stays();
    let may_pass = is_single && matches!(begin, Begin::Anew);
    let (mut greeting, mut handshake) = match begin {
        Begin::Early(Early { binding, done }) => {
            (ServerGreeting::early(setup, binding), Some(done))
        }
        Begin::Anew => (ServerGreeting::new(setup), None),
        Begin::Continued => (ServerGreeting::continued(setup), None),
    };
    let mut input = BytesMut::with_capacity(GREETING_MAX);
    let Carrier { peer, lane, .. } = carrier;
    let work = async {
        let mut replies = VerifierReplies::default();
        loop {
            let mut outcome = answer(&mut greeting, verifier, peer, &mut replies).await;
            if let Verdict::Stray(name, link) = outcome {
                let said = may_pass.then(|| said(&greeting, nonce, peer, &input)).flatten();
                let other = match said {
                    Some(said) => verifier.pass_on(Stray { name: &name, link, peer, said }).await,
                    None => Ok(None),
                };
                match other {
                    Ok(Some(other)) => return Ok(GreetingEnd::Passed(other)),
                    Ok(None) => greeting.link_secret(None),
                    Err(refusal) => greeting.refuse(refusal),
                }
                outcome = answer(&mut greeting, verifier, peer, &mut replies).await;
            }
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
                Verdict::Pending | Verdict::Stray(..) => {}
                Verdict::Accepted(grant, accepted) => {
                    let preview = replies.shown.filter(|_| accepted.early);
                    let leftover = std::mem::take(&mut input);
                    let done = Done { grant: *grant, accepted, leftover, preview };
                    return Ok(GreetingEnd::Done(Box::new(done)));
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
    tokio::time::timeout(GREETING_TIMEOUT, work).await.map_err(|_| GreetError::Timeout)?
}

/// The greeting for another process, with the bytes of the client behind it.
fn said(
    greeting: &ServerGreeting,
    nonce: [u8; NONCE_LENGTH],
    peer: &Peer,
    input: &BytesMut,
) -> Option<Bytes> {
    let passed = PassedGreeting {
        nonce,
        binding: binding(peer),
        certificate: peer.certificate_name.is_some(),
        transport: peer.transport.name().to_owned(),
    };
    let mut all = BytesMut::from(&passed.encode()?[..]);
    all.extend_from_slice(&greeting.heard()?);
    all.extend_from_slice(input);
    Some(all.freeze())
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
    /// This process does not have the link, and the greeting waits for its secret.
    Stray(Name, LinkId),
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
                let secret = verifier.link_secret(&name, instance, link);
                if secret.is_none() && greeting.heard().is_some() {
                    return Verdict::Stray(name, link);
                }
                greeting.link_secret(secret);
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
