//! The client's half of the greeting.
//!
//! ```text
//!   bound:    Hello and Proof sent at once -> Nonce ------------> Answer -> Signature -> Over
//!   unbound:  magic sent at once -> Nonce, Hello and Proof sent -> Answer -> Signature -> Over
//! ```
//!
//! A client that sent Hello as early data ([`ClientGreeting::after_early`]) sends Proof at once.
//! After Accept it expects EarlySignature instead of Signature.
//!
//! A bound client with [`Identity::Introducing`] sends its Introduction once if the server requests
//! it, and waits for the reply.

use std::fmt;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::early;
use super::keys::{self, ClientKeys, StoredCredential};
use super::message::{self, Accept, Hello, Inbound, Macs, Message};
use super::transcript::Transcript;
use super::{
    Attach, AttachMode, Binding, EarlyBinding, EnrolledToken, Features, GreetingError, LinkSecret,
    MAGIC, NONCE_LENGTH, Name, Token, Versions,
};
use crate::{CarrierNumber, InstanceId, LinkId};

/// The first carrier of a link.
pub(super) const FIRST_CARRIER: CarrierNumber = CarrierNumber(1);

/// Longest time that a client accepts from a server, in seconds: a day. The field has room for a
/// century, for which a dead link would go undetected.
const SECONDS_MAX: u32 = 24 * 60 * 60;

/// How a client proves its name.
#[derive(Clone, Debug)]
pub enum Identity {
    /// By a token that the server knows.
    Token(Token),
    /// By a token. A server that does not know the token receives its stored credential and keeps
    /// it for later log-ins. Together with the proof, the stored credential is as valuable as the
    /// token, so the client must trust the server by its certificate.
    Introducing(Token),
    /// By a one-time code. The client gets a token in exchange, and no link.
    Code(Token),
    /// By the certificate of its TLS session alone. Needs [`Binding::Exporter`].
    Certificate,
}

/// The parameters of a client's greeting.
#[derive(Clone, Debug)]
pub struct ClientSetup {
    /// The TLS session of the connection, if there is one end to end.
    pub binding: Binding,
    /// The name of the client.
    pub name: Name,
    /// The proof of the name.
    pub identity: Identity,
    /// Random per process.
    pub instance: InstanceId,
    /// Whether this is the first log-in of the process, which takes over from an older process.
    pub takeover: bool,
    /// The link to attach to, with its secret; `None` starts a new link.
    pub attach: Option<(Attach, LinkSecret)>,
    /// The supported versions: [`Versions::OURS`].
    pub versions: Versions,
    /// The supported features.
    pub features: Features,
    /// Fresh random bytes for this greeting.
    pub nonce: [u8; NONCE_LENGTH],
}

impl ClientSetup {
    /// The early data of a client that has lost the carrier of its link. `client` is the field of
    /// [`EarlyBinding`]. `None` if the setup attaches to no link. The binding of the setup is
    /// ignored, because it is not known before the handshake is complete.
    #[must_use]
    pub fn early_flight(&self, client: &[u8; 32]) -> Option<Bytes> {
        let (attach, secret) = self.attach.as_ref()?;
        let replaces = matches!(attach.mode, AttachMode::Replaces(_));
        let hello = Hello { bound: true, early: true, ..self.hello() };
        (replaces && !hello.enrolls).then(|| early::flight(&hello, secret, client))
    }

    fn hello(&self) -> Hello {
        let enrolls = matches!(self.identity, Identity::Code(_));
        Hello {
            bound: self.binding.is_bound(),
            takeover: self.takeover,
            certificate: matches!(self.identity, Identity::Certificate),
            early: false,
            versions: self.versions,
            features: self.features,
            instance: self.instance,
            nonce: self.nonce,
            name: self.name.clone(),
            attach: self.attach.as_ref().filter(|_| !enrolls).map(|(attach, _)| *attach),
            enrolls,
        }
    }
}

/// The result of a client's greeting after mutual authentication.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientAccepted {
    /// The version in use.
    pub version: u16,
    /// The features in use.
    pub features: Features,
    /// The link.
    pub link: LinkId,
    /// The number of this carrier: 1 on a new link.
    pub carrier: CarrierNumber,
    /// The secret of a new link; `None` after an attach, because the link keeps its secret.
    pub secret: Option<LinkSecret>,
    /// The token for a one-time code ([`Identity::Code`]).
    pub token: Option<EnrolledToken>,
    /// Whether the server has accepted the early data. Its RESUME follows, and this side may send
    /// its own RESUME.
    pub early: bool,
    /// The time for which the server keeps the link without a carrier.
    pub resume_timeout: Duration,
    /// The silence after which either side sends a PING.
    pub keepalive: Duration,
}

/// The client's state machine of the greeting.
///
/// The driver passes arriving bytes to [`ClientGreeting::handle_input`], and sends the bytes of
/// [`ClientGreeting::poll_output`] after each call and once at the start, until
/// [`ClientGreeting::poll_outcome`] returns the outcome. Bytes after the greeting stay in the
/// input.
pub struct ClientGreeting {
    hello: Hello,
    keys: ClientKeys,
    attach_secret: Option<LinkSecret>,
    /// The stored credential of the token, for an Introduction; taken when it is sent.
    introduction: Option<StoredCredential>,
    token: Option<EnrolledToken>,
    inbound: Inbound,
    transcript: Transcript,
    /// The transcript that the reply to an early Hello covers.
    early: Option<Transcript>,
    state: State,
    output: Option<Bytes>,
    outcome: Option<Result<ClientAccepted, GreetingError>>,
}

#[derive(Debug)]
enum State {
    Nonce,
    Answer,
    Signature(Accept),
    Over,
}

impl ClientGreeting {
    /// Starts a greeting. The only error is [`GreetingError::CertificateUnbound`].
    pub fn new(setup: ClientSetup) -> Result<Self, GreetingError> {
        let mut greeting = Self::begin(setup)?;
        // Sent at once, even if the rest waits for the nonce: it identifies the protocol to a TLS
        // port.
        greeting.output = Some(Bytes::from_static(&MAGIC));
        if greeting.hello.bound {
            greeting.say_hello();
        }
        Ok(greeting)
    }

    /// Continues the greeting after the handshake, if [`ClientSetup::early_flight`] of the same
    /// setup was sent and accepted; the binding of the setup is known now.
    pub fn after_early(setup: ClientSetup, binding: &EarlyBinding) -> Result<Self, GreetingError> {
        let Some(flight) = setup.early_flight(&binding.client) else { return Self::new(setup) };
        let mut greeting = Self::begin(setup)?;
        let said = flight.slice(MAGIC.len()..);
        let mut answer = Transcript::early_answer(&binding.server);
        answer.push(&said);
        greeting.early = Some(answer);
        greeting.transcript.push(&said);
        greeting.prove(BytesMut::new());
        Ok(greeting)
    }

    fn begin(setup: ClientSetup) -> Result<Self, GreetingError> {
        let hello = setup.hello();
        let keys = match (&setup.identity, &setup.binding) {
            (Identity::Token(token) | Identity::Introducing(token) | Identity::Code(token), _) => {
                token.keys()
            }
            (Identity::Certificate, Binding::Exporter(exporter)) => ClientKeys::derive(exporter),
            (Identity::Certificate, Binding::None) => {
                return Err(GreetingError::CertificateUnbound);
            }
        };
        let attach_secret = setup.attach.map(|(_, secret)| secret).filter(|_| !hello.enrolls);
        let may_introduce = hello.bound && matches!(setup.identity, Identity::Introducing(_));
        Ok(Self {
            introduction: (may_introduce && hello.attach.is_none()).then(|| keys.stored()),
            hello,
            keys,
            attach_secret,
            token: None,
            inbound: Inbound::new(),
            transcript: Transcript::new(&setup.binding),
            early: None,
            state: State::Nonce,
            output: None,
            outcome: None,
        })
    }

    /// Consumes the greeting's bytes from the front of `input`. An incomplete message stays there:
    /// append to it and call again. Bytes after the greeting are left in place.
    pub fn handle_input(&mut self, input: &mut BytesMut) {
        while !matches!(self.state, State::Over) {
            let step = match self.inbound.poll(input) {
                Ok(Some(message)) => self.handle_message(&message),
                Ok(None) => return,
                Err(error) => Err(error),
            };
            if let Err(error) = step {
                self.end(Err(error));
            }
        }
    }

    /// Bytes to send.
    pub fn poll_output(&mut self) -> Option<Bytes> {
        self.output.take()
    }

    /// The outcome of the greeting, returned once.
    pub fn poll_outcome(&mut self) -> Option<Result<ClientAccepted, GreetingError>> {
        self.outcome.take()
    }

    fn handle_message(&mut self, message: &Message) -> Result<(), GreetingError> {
        match (std::mem::replace(&mut self.state, State::Over), message.kind) {
            (State::Nonce, message::NONCE) => {
                message::read_nonce(message.body())?;
                self.transcript.push(&message.bytes);
                self.early.iter_mut().for_each(|early| early.push(&message.bytes));
                if !self.hello.bound {
                    self.say_hello();
                }
                self.state = State::Answer;
            }
            (State::Answer, message::INTRODUCE) => {
                message::read_introduce(message.body())?;
                let credential = self.introduction.take().ok_or(GreetingError::Introduction)?;
                self.transcript.push(&message.bytes);
                let mut out = BytesMut::new();
                message::write_introduction(&credential, &mut out);
                self.transcript.push(&out);
                self.output = Some(out.freeze());
                self.state = State::Answer;
            }
            (State::Answer, message::ACCEPT) => {
                let accept = Accept::read(message.body())?;
                self.check(&accept)?;
                self.transcript.push(&message.bytes);
                self.early.iter_mut().for_each(|early| early.push(&message.bytes));
                self.state = State::Signature(accept);
            }
            (State::Signature(accept), message::SIGNATURE) => {
                let accepted = self.verify(&accept, message.body())?;
                self.end(Ok(accepted));
            }
            (State::Signature(accept), message::EARLY_SIGNATURE) => {
                let accepted = self.verify_early(&accept, message.body())?;
                self.end(Ok(accepted));
            }
            (State::Nonce | State::Answer, message::REFUSED) => {
                return Err(GreetingError::Refused(message::read_refused(message.body())?));
            }
            _ => return Err(GreetingError::Malformed("a message out of turn")),
        }
        Ok(())
    }

    /// Sends Hello and Proof, which covers the transcript so far.
    fn say_hello(&mut self) {
        let mut out = BytesMut::from(self.output.take().unwrap_or_default());
        let hello_start = out.len();
        self.hello.write(&mut out);
        self.transcript.push(&out[hello_start..]);
        self.prove(out);
    }

    /// Sends `out`, followed by Proof.
    fn prove(&mut self, mut out: BytesMut) {
        let hash = self.transcript.hash();
        self.token = self.hello.enrolls.then(|| self.keys.enrolled_token(&hash));
        let proof = Macs {
            credential: self.keys.proof(&hash),
            link: self.attach_secret.as_ref().map(|secret| secret.attach_proof(&hash)),
        };
        let proof_start = out.len();
        proof.write(message::PROOF, &mut out);
        self.transcript.push(&out[proof_start..]);
        self.output = Some(out.freeze());
    }

    /// Checks that Accept matches our Hello; it is not trusted before the signature.
    fn check(&self, accept: &Accept) -> Result<(), GreetingError> {
        let (carrier, link) = match self.hello.attach {
            None => (FIRST_CARRIER, accept.link),
            Some(attach) => (attach.carrier, attach.link),
        };
        let wrong = if !self.hello.versions.contains(accept.version) {
            "a version that this client does not talk"
        } else if accept.features.common(self.hello.features) != accept.features {
            "a feature that this client does not have"
        } else if accept.carrier != carrier || accept.link != link {
            "another link or carrier"
        } else if accept.resume_timeout > SECONDS_MAX {
            "a resume_timeout beyond a day"
        } else if !(1..=SECONDS_MAX).contains(&accept.keepalive) {
            "a keepalive of nothing or beyond a day"
        } else {
            return Ok(());
        };
        Err(GreetingError::Answer(wrong))
    }

    fn verify(&self, accept: &Accept, signature: &[u8]) -> Result<ClientAccepted, GreetingError> {
        let signature = Macs::read(signature, self.attach_secret.is_some())?;
        let hash = self.transcript.hash();
        let credential = keys::same(&signature.credential, &self.keys.signature(&hash));
        let link = match (&self.attach_secret, &signature.link) {
            (None, None) => true,
            (Some(secret), Some(link)) => keys::same(link, &secret.attach_signature(&hash)),
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !(credential && link) {
            return Err(GreetingError::Unproven);
        }
        let secret = self.attach_secret.is_none().then(|| self.keys.link_secret(&hash));
        Ok(ClientAccepted { secret, token: self.token.clone(), ..accepted(accept, false) })
    }

    /// Verifies that the server holds the link's secret and is the other end of this handshake.
    fn verify_early(&self, accept: &Accept, mac: &[u8]) -> Result<ClientAccepted, GreetingError> {
        let mac = message::read_mac(mac)?;
        let (Some(transcript), Some(secret)) = (&self.early, &self.attach_secret) else {
            return Err(GreetingError::Malformed("an answer to early data that was not sent"));
        };
        if !keys::same(&mac, &secret.early_signature(&transcript.hash())) {
            return Err(GreetingError::Unproven);
        }
        Ok(accepted(accept, true))
    }

    fn end(&mut self, outcome: Result<ClientAccepted, GreetingError>) {
        self.state = State::Over;
        self.outcome = Some(outcome);
    }
}

fn accepted(accept: &Accept, early: bool) -> ClientAccepted {
    ClientAccepted {
        version: accept.version,
        features: accept.features,
        link: accept.link,
        carrier: accept.carrier,
        secret: None,
        token: None,
        early,
        resume_timeout: Duration::from_secs(accept.resume_timeout.into()),
        keepalive: Duration::from_secs(accept.keepalive.into()),
    }
}

/// Omits the pending bytes: a proof together with a stolen stored credential yields the client's
/// key.
impl fmt::Debug for ClientGreeting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientGreeting")
            .field("hello", &self.hello)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// A duration in whole seconds for the wire, limited to what a client accepts.
pub(super) fn seconds(duration: Duration, min: u32) -> u32 {
    u32::try_from(duration.as_secs()).unwrap_or(SECONDS_MAX).clamp(min, SECONDS_MAX)
}
