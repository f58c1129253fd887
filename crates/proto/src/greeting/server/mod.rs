//! The server's half of the greeting. It queries its driver for credentials, verifies the proofs,
//! and queries the driver for the decision.
//!
//! ```text
//!   Nonce sent -> Hello -> Proof -> Credentials? --new link---------> Decision? -> Over
//!                                     |  \-------attach-> Link? ------/
//!                                     \--unknown-> Introduction ------/
//! ```
//!
//!   Hello that is early -> Early -> Link? -> Preview? -> Proof, when the handshake is done
//!
//! States with a question mark wait for the driver. A refusal may lead from every state to `Over`.

mod driver;
mod early;

use std::fmt;

use bytes::{Bytes, BytesMut};

pub use driver::{Grant, ServerAccepted, ServerEvent, ServerSetup, Terms};
use early::{Early, EarlyClaim};

use super::client::{FIRST_CARRIER, seconds};
use super::keys::{self, ClientKeys, LinkSecret, StoredCredential};
use super::message::{self, Accept, Hello, Inbound, Macs, Message};
use super::transcript::Transcript;
use super::{Binding, Features, GreetingError, MAGIC, Refusal};
use crate::{CarrierNumber, LinkId};

/// The server's state machine of the greeting.
///
/// The driver passes arriving bytes to [`ServerGreeting::handle_input`]. After each call of it or
/// of a reply method, and once at the start, the driver sends the bytes of
/// [`ServerGreeting::poll_output`] and handles [`ServerGreeting::poll_event`]. Bytes after the
/// greeting stay in the input. A reply without a query is ignored.
pub struct ServerGreeting {
    setup: ServerSetup,
    nonce: Bytes,
    inbound: Inbound,
    transcript: Transcript,
    early: Option<Early>,
    /// The messages of a client that attaches a carrier, for a process that continues the greeting.
    heard: Vec<Bytes>,
    state: State,
    output: BytesMut,
    event: Option<ServerEvent>,
}

#[derive(Debug)]
enum State {
    Hello,
    Early(Box<Hello>, u16),
    EarlyLink(Box<EarlyClaim>),
    Preview(Box<EarlyClaim>, LinkSecret),
    Proof(Box<Hello>, u16),
    Credentials(Box<Claim>),
    Introduction(Box<Claim>),
    Link(Box<Claim>, ClientKeys),
    Decision(Box<Claim>, ClientKeys, Option<LinkSecret>),
    Over,
}

/// The claims of a client that is not authenticated yet.
#[derive(Debug)]
struct Claim {
    hello: Hello,
    version: u16,
    /// The hash of the transcript that its proofs cover.
    hash: [u8; 32],
    proof: Macs,
    introduced: Option<StoredCredential>,
}

impl ServerGreeting {
    /// Starts a greeting.
    #[must_use]
    pub fn new(setup: ServerSetup) -> Self {
        let mut nonce = BytesMut::new();
        message::write_nonce(&setup.nonce, &mut nonce);
        let nonce = nonce.freeze();
        let mut output = BytesMut::from(&MAGIC[..]);
        output.extend_from_slice(&nonce);
        let mut transcript = Transcript::new(&setup.binding);
        if !setup.binding.is_bound() {
            transcript.push(&nonce);
        }
        Self {
            setup,
            nonce,
            inbound: Inbound::new(),
            transcript,
            early: None,
            heard: Vec::new(),
            state: State::Hello,
            output,
            event: None,
        }
    }

    /// Continues a greeting that another process has begun: the nonce of `setup` is sent already,
    /// and the input begins with [`ServerGreeting::heard`] of that process.
    #[must_use]
    pub fn continued(setup: ServerSetup) -> Self {
        Self { output: BytesMut::new(), ..Self::new(setup) }
    }

    /// All that the client has sent, while [`ServerEvent::LinkSecret`] waits for its answer. The
    /// client is authenticated; its proof of the link's secret is among the bytes. `None` in every
    /// other state, and in a greeting that began in early data.
    #[must_use]
    pub fn heard(&self) -> Option<Bytes> {
        if !matches!(self.state, State::Link(..)) || self.early.is_some() {
            return None;
        }
        let mut all = BytesMut::from(&MAGIC[..]);
        self.heard.iter().for_each(|message| all.extend_from_slice(message));
        Some(all.freeze())
    }

    /// Consumes the greeting's bytes from the front of `input`. An incomplete message stays there:
    /// append to it and call again. Bytes after the greeting are left in place.
    pub fn handle_input(&mut self, input: &mut BytesMut) {
        while self.listens() {
            let step = match self.inbound.poll(input) {
                Ok(Some(message)) => self.handle_message(&message),
                Ok(None) => return,
                Err(error) => Err(error),
            };
            if let Err(error) = step {
                self.fail(error);
            }
        }
    }

    fn listens(&self) -> bool {
        match self.state {
            State::Hello | State::Early(..) | State::Introduction(_) => true,
            // Nothing sent as early data may count as proof.
            State::Proof(..) => !self.awaits_handshake(),
            State::EarlyLink(_)
            | State::Preview(..)
            | State::Credentials(_)
            | State::Link(..)
            | State::Decision(..)
            | State::Over => false,
        }
    }

    /// Bytes to send.
    pub fn poll_output(&mut self) -> Option<Bytes> {
        (!self.output.is_empty()).then(|| self.output.split().freeze())
    }

    /// The next query to answer, or the failure.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        self.event.take()
    }

    /// Answers [`ServerEvent::Credentials`] with the credentials of the name: none if it is
    /// unknown, at most [`super::CREDENTIALS_MAX`] (more are ignored). The work is the same for any
    /// reply.
    pub fn credentials(&mut self, credentials: &[StoredCredential]) {
        if let Some(claim) = self.asked_for_credentials() {
            self.authenticate(claim, credentials);
        }
    }

    /// Answers [`ServerEvent::Credentials`]: the client's certificate suffices without a token.
    /// Refuses a client that presented no certificate.
    pub fn certificate_suffices(&mut self) {
        let Some(claim) = self.asked_for_credentials() else { return };
        match &self.setup.binding {
            Binding::Exporter(exporter) if claim.hello.certificate => {
                let credential = ClientKeys::derive(exporter).stored();
                self.authenticate(claim, &[credential]);
            }
            Binding::Exporter(_) | Binding::None => self.authenticate(claim, &[]),
        }
    }

    /// Answers [`ServerEvent::LinkSecret`]; `None` if this client has no such link.
    pub fn link_secret(&mut self, secret: Option<LinkSecret>) {
        if matches!(self.state, State::EarlyLink(_)) {
            return self.early_link_secret(secret);
        }
        let waits = |state: &State| matches!(state, State::Link(..));
        let State::Link(claim, keys) = self.take_state(waits) else { return };
        let known = secret.is_some();
        let secret = secret.unwrap_or_else(|| LinkSecret::decoy(claim.hash));
        let expected = secret.attach_proof(&claim.hash);
        let proved = claim.proof.link.is_some_and(|proof| keys::same(&proof, &expected));
        if known && proved {
            self.ask_for_decision(claim, keys, Some(secret));
        } else {
            self.fail(GreetingError::Refused(Refusal::UnknownLink));
        }
    }

    /// Accepts after [`ServerEvent::Decide`]. Returns `None` if no decision was pending.
    pub fn accept(&mut self, terms: &Terms) -> Option<ServerAccepted> {
        let waits = |state: &State| matches!(state, State::Decision(..));
        let State::Decision(claim, keys, attach_secret) = self.take_state(waits) else {
            return None;
        };
        let (link, carrier) = match claim.hello.attach {
            None => (terms.new_link, FIRST_CARRIER),
            Some(attach) => (attach.link, attach.carrier),
        };
        let accept = self.answer(&claim.hello, claim.version, (link, carrier), terms);
        let mut done = ServerAccepted {
            version: accept.version,
            features: accept.features,
            link,
            carrier,
            secret: None,
            early: self.has_answered_early(),
        };
        if done.early {
            return Some(done);
        }
        let mut out = BytesMut::new();
        accept.write(&mut out);
        self.transcript.push(&out);
        let hash = self.transcript.hash();
        let signature = Macs {
            credential: keys.signature(&hash),
            link: attach_secret.as_ref().map(|secret| secret.attach_signature(&hash)),
        };
        signature.write(message::SIGNATURE, &mut out);
        self.output.unsplit(out);
        done.secret = attach_secret.is_none().then(|| keys.link_secret(&hash));
        Some(done)
    }

    fn answer(
        &self,
        hello: &Hello,
        version: u16,
        (link, carrier): (LinkId, CarrierNumber),
        terms: &Terms,
    ) -> Accept {
        Accept {
            version,
            features: self.setup.features.common(hello.features),
            link,
            carrier,
            resume_timeout: seconds(terms.resume_timeout, 0),
            keepalive: seconds(terms.keepalive, 1),
        }
    }

    /// Refuses the greeting, at any time before it is over. [`ServerEvent::Failed`] follows as for
    /// every other failure, so that a driver closes in one place.
    pub fn refuse(&mut self, refusal: Refusal) {
        if !matches!(self.state, State::Over) {
            self.fail(GreetingError::Refused(refusal));
        }
    }

    fn handle_message(&mut self, message: &Message) -> Result<(), GreetingError> {
        match (std::mem::replace(&mut self.state, State::Over), message.kind) {
            (State::Hello, message::HELLO) => {
                let hello = Hello::read(message.body())?;
                let is_bound = self.early.is_some() || self.setup.binding.is_bound();
                if hello.bound != is_bound {
                    return Err(GreetingError::Refused(Refusal::Binding));
                }
                let version = (self.setup.versions.common(hello.versions))
                    .ok_or(GreetingError::Refused(Refusal::Version))?;
                self.hear(&message.bytes);
                if hello.attach.is_some() {
                    self.heard.push(message.bytes.clone());
                }
                self.state = self.after_hello(hello, version)?;
            }
            (State::Early(hello, version), message::EARLY) => {
                self.handle_early(*hello, version, message)?;
            }
            (State::Proof(hello, version), message::PROOF) => {
                let hello = *hello;
                let proof = Macs::read(message.body(), hello.attach.is_some())?;
                let named = self.setup.certificate_name.as_deref();
                if named.is_some_and(|named| named != hello.name.as_str()) {
                    return Err(GreetingError::Refused(Refusal::CertificateName));
                }
                let is_shown =
                    named.is_some() || self.setup.links_suffice && hello.attach.is_some();
                // A client that has only a certificate has no code.
                let provable = hello.bound && is_shown && !hello.enrolls;
                if hello.certificate && !provable {
                    return Err(GreetingError::Refused(Refusal::BadCredential));
                }
                let hash = self.transcript.hash();
                self.transcript.push(&message.bytes);
                if hello.attach.is_some() {
                    self.heard.push(message.bytes.clone());
                }
                if hello.bound {
                    // The position of the nonce for the client, which did not wait for it.
                    self.transcript.push(&self.nonce);
                }
                self.event = Some(ServerEvent::Credentials {
                    name: hello.name.clone(),
                    certificate: hello.certificate,
                    enrolls: hello.enrolls,
                });
                self.state = State::Credentials(Box::new(Claim {
                    hello,
                    version,
                    hash,
                    proof,
                    introduced: None,
                }));
            }
            (State::Introduction(mut claim), message::INTRODUCTION) => {
                let credential = message::read_introduction(message.body())?;
                self.transcript.push(&message.bytes);
                let credentials = std::slice::from_ref(&credential);
                let keys = keys::verify(credentials, &claim.hash, &claim.proof.credential)
                    .ok_or(GreetingError::Refused(Refusal::BadCredential))?;
                claim.introduced = Some(credential);
                self.ask_for_decision(claim, keys, None);
            }
            _ => return Err(GreetingError::Malformed("a message out of turn")),
        }
        Ok(())
    }

    fn asked_for_credentials(&mut self) -> Option<Box<Claim>> {
        let waits = |state: &State| matches!(state, State::Credentials(_));
        let State::Credentials(claim) = self.take_state(waits) else { return None };
        Some(claim)
    }

    /// Takes the state if it matches `wanted`; otherwise returns `Over` and leaves the state
    /// unchanged.
    fn take_state(&mut self, wanted: fn(&State) -> bool) -> State {
        if wanted(&self.state) {
            std::mem::replace(&mut self.state, State::Over)
        } else {
            State::Over
        }
    }

    fn authenticate(&mut self, claim: Box<Claim>, credentials: &[StoredCredential]) {
        let keys = keys::verify(credentials, &claim.hash, &claim.proof.credential);
        match (keys, claim.hello.attach) {
            (None, attach) => self.handle_stranger(claim, attach.is_some()),
            (Some(keys), None) => self.ask_for_decision(claim, keys, None),
            (Some(keys), Some(attach)) => {
                self.event = Some(ServerEvent::LinkSecret {
                    name: claim.hello.name.clone(),
                    instance: claim.hello.instance,
                    link: attach.link,
                });
                self.state = State::Link(claim, keys);
            }
        }
    }

    /// Handles a client without a matching credential. Known and unknown names get the same reply.
    fn handle_stranger(&mut self, claim: Box<Claim>, attaches: bool) {
        let hello = &claim.hello;
        let has_token = !hello.certificate && !hello.enrolls;
        if !(self.setup.introductions && hello.bound && has_token) {
            self.fail(GreetingError::Refused(Refusal::BadCredential));
        } else if attaches {
            // Its link ended with the process that knew it; a new link begins with an introduction.
            self.fail(GreetingError::Refused(Refusal::UnknownLink));
        } else {
            let sent = self.output.len();
            message::write_introduce(&mut self.output);
            self.transcript.push(&self.output[sent..]);
            self.state = State::Introduction(claim);
        }
    }

    fn ask_for_decision(&mut self, claim: Box<Claim>, keys: ClientKeys, link: Option<LinkSecret>) {
        let hello = &claim.hello;
        self.event = Some(ServerEvent::Decide(Box::new(Grant {
            name: hello.name.clone(),
            instance: hello.instance,
            takeover: hello.takeover,
            beside: hello.features.common(self.setup.features).have(Features::BESIDE),
            certificate: hello.certificate,
            credential: keys.stored(),
            attach: hello.attach,
            enrolled: hello.enrolls.then(|| keys.enrolled_token(&claim.hash).stored()),
            introduced: claim.introduced.clone(),
        })));
        self.state = State::Decision(claim, keys, link);
    }

    fn fail(&mut self, error: GreetingError) {
        self.state = State::Over;
        match error.refusal() {
            // After an early answer only frames may follow.
            Some(_) if self.has_answered_early() => self.output.clear(),
            Some(refusal) => message::write_refused(refusal, &mut self.output),
            // Drops even a nonce that is not sent yet: the peer uses another protocol.
            None => self.output.clear(),
        }
        self.event = Some(ServerEvent::Failed(error));
    }
}

/// Omits the pending bytes: a proof together with a stolen stored credential yields the client's
/// key.
impl fmt::Debug for ServerGreeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerGreeting")
            .field("setup", &self.setup)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}
