//! The part of a server's greeting that comes before the handshake is done; see
//! `greeting/early.rs`.

use bytes::BytesMut;

use super::{ServerEvent, ServerGreeting, ServerSetup, State, Terms};
use crate::greeting::keys::{self, LinkSecret};
use crate::greeting::message::{self, Hello, Message};
use crate::greeting::transcript::Transcript;
use crate::greeting::{Attach, AttachMode, Binding, EarlyBinding, GreetingError};

/// What a greeting that began early keeps.
#[derive(Debug)]
pub(super) struct Early {
    binding: EarlyBinding,
    /// Hello and Early, which enter the transcript when its binding is known.
    said: BytesMut,
    is_over: bool,
    has_answered: bool,
}

/// What the client said early.
#[derive(Debug)]
pub(super) struct EarlyClaim {
    hello: Hello,
    version: u16,
    attach: Attach,
    /// What its MAC covers.
    hash: [u8; 32],
    mac: [u8; 32],
}

impl ServerGreeting {
    /// Starts a greeting before the handshake is done. The setup's binding and the name in the
    /// certificate come with [`ServerGreeting::handshake_done`]; no proof is looked at before.
    #[must_use]
    pub fn early(setup: ServerSetup, binding: EarlyBinding) -> Self {
        let said = BytesMut::new();
        // Nothing but the nonce has been said, and a bound greeting's transcript does not begin by
        // it.
        let setup = ServerSetup { binding: Binding::None, ..setup };
        let early = Early { binding, said, is_over: false, has_answered: false };
        Self { early: Some(early), ..Self::new(setup) }
    }

    /// Whether nothing is read before the handshake is done.
    #[must_use]
    pub fn awaits_handshake(&self) -> bool {
        self.early.as_ref().is_some_and(|early| !early.is_over)
            && matches!(self.state, State::Proof(..))
    }

    /// The handshake is done: give the input again after this.
    pub fn handshake_done(&mut self, binding: Binding, certificate_name: Option<String>) {
        let Some(early) = self.early.as_mut().filter(|early| !early.is_over) else { return };
        early.is_over = true;
        self.transcript = Transcript::new(&binding);
        self.transcript.push(&early.said);
        self.setup.binding = binding;
        self.setup.certificate_name = certificate_name;
    }

    /// Answers [`ServerEvent::Preview`]. With terms, the RESUME of the link is to follow what
    /// [`ServerGreeting::poll_output`] has next; `None`: there is nothing to see, and the greeting
    /// goes on when the handshake is done.
    pub fn preview(&mut self, terms: Option<&Terms>) {
        let waits = |state: &State| matches!(state, State::Preview(..));
        let State::Preview(claim, secret) = self.take_state(waits) else { return };
        let EarlyClaim { hello, version, attach, .. } = *claim;
        if let Some(terms) = terms {
            let accept = self.answer(&hello, version, (attach.link, attach.carrier), terms);
            let mut out = BytesMut::new();
            accept.write(&mut out);
            if let Some(early) = &mut self.early {
                let mut transcript = Transcript::early_answer(&early.binding.server);
                transcript.push(&early.said);
                transcript.push(&self.nonce);
                transcript.push(&out);
                let mac = secret.early_signature(&transcript.hash());
                message::write_mac(message::EARLY_SIGNATURE, &mac, &mut out);
                early.has_answered = true;
                self.output.unsplit(out);
            }
        }
        self.state = State::Proof(Box::new(hello), version);
    }

    /// What follows Hello.
    pub(super) fn after_hello(&self, hello: Hello, version: u16) -> Result<State, GreetingError> {
        if !hello.early {
            return Ok(State::Proof(Box::new(hello), version));
        }
        if self.early.is_none() {
            return Err(GreetingError::Malformed("an early hello on a connection without"));
        }
        match hello.attach {
            Some(Attach { mode: AttachMode::Replaces(_), .. }) => {
                Ok(State::Early(Box::new(hello), version))
            }
            Some(_) | None => Err(GreetingError::Malformed("an early hello that replaces nothing")),
        }
    }

    /// Enters what both sides' proofs cover.
    pub(super) fn hear(&mut self, message: &[u8]) {
        match &mut self.early {
            Some(early) => {
                early.said.extend_from_slice(message);
                if early.is_over {
                    self.transcript.push(message);
                }
            }
            None => self.transcript.push(message),
        }
    }

    pub(super) fn handle_early(
        &mut self,
        hello: Hello,
        version: u16,
        message: &Message,
    ) -> Result<(), GreetingError> {
        let mac = message::read_mac(message.body())?;
        let (Some(early), Some(attach)) = (&self.early, hello.attach) else {
            return Err(GreetingError::Malformed("a message out of turn"));
        };
        let mut transcript = Transcript::early(&early.binding.client);
        transcript.push(&early.said);
        let hash = transcript.hash();
        self.hear(&message.bytes);
        let (name, instance) = (hello.name.clone(), hello.instance);
        self.event = Some(ServerEvent::LinkSecret { name, instance, link: attach.link });
        let claim = EarlyClaim { hello, version, attach, hash, mac };
        self.state = State::EarlyLink(Box::new(claim));
        Ok(())
    }

    /// A wrong claim costs nothing and gets nothing: the proof is still to come.
    pub(super) fn early_link_secret(&mut self, secret: Option<LinkSecret>) {
        let waits = |state: &State| matches!(state, State::EarlyLink(_));
        let State::EarlyLink(claim) = self.take_state(waits) else { return };
        let known = secret.is_some();
        let secret = secret.unwrap_or_else(|| LinkSecret::decoy(claim.hash));
        if keys::same(&claim.mac, &secret.early_proof(&claim.hash)) && known {
            let EarlyClaim { hello, attach, .. } = &*claim;
            let (name, instance, attach) = (hello.name.clone(), hello.instance, *attach);
            self.event = Some(ServerEvent::Preview { name, instance, attach });
            self.state = State::Preview(claim, secret);
        } else {
            let EarlyClaim { hello, version, .. } = *claim;
            self.state = State::Proof(Box::new(hello), version);
        }
    }

    /// Whether frames have followed already.
    pub(super) fn has_answered_early(&self) -> bool {
        self.early.as_ref().is_some_and(|early| early.has_answered)
    }
}
