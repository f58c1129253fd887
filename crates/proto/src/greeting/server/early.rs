//! The part of a server's greeting before the handshake is complete; see `greeting/early.rs`.

use bytes::BytesMut;

use super::{ServerEvent, ServerGreeting, ServerSetup, State, Terms};
use crate::greeting::keys::{self, LinkSecret};
use crate::greeting::message::{self, Hello, Message};
use crate::greeting::transcript::Transcript;
use crate::greeting::{Attach, AttachMode, Binding, EarlyBinding, GreetingError};

/// The state of a greeting that began in early data.
#[derive(Debug)]
pub(super) struct Early {
    binding: EarlyBinding,
    /// Hello and Early, which enter the transcript when the binding is known.
    said: BytesMut,
    is_over: bool,
    has_answered: bool,
}

/// The claims of the client in early data.
#[derive(Debug)]
pub(super) struct EarlyClaim {
    hello: Hello,
    version: u16,
    attach: Attach,
    /// The hash that its MAC covers.
    hash: [u8; 32],
    mac: [u8; 32],
}

impl ServerGreeting {
    /// Starts a greeting before the handshake is complete. The setup's binding and the name in the
    /// certificate are set by [`ServerGreeting::handshake_done`]; no proof is verified before.
    #[must_use]
    pub fn early(setup: ServerSetup, binding: EarlyBinding) -> Self {
        let said = BytesMut::new();
        // Only the nonce has been sent, and a bound greeting's transcript does not begin with it.
        let setup = ServerSetup { binding: Binding::None, ..setup };
        let early = Early { binding, said, is_over: false, has_answered: false };
        Self { early: Some(early), ..Self::new(setup) }
    }

    /// Whether the greeting reads no input until the handshake is complete.
    #[must_use]
    pub fn awaits_handshake(&self) -> bool {
        self.early.as_ref().is_some_and(|early| !early.is_over)
            && matches!(self.state, State::Proof(..))
    }

    /// Records that the handshake is complete. The driver passes the input again after this.
    pub fn handshake_done(&mut self, binding: Binding, certificate_name: Option<String>) {
        let Some(early) = self.early.as_mut().filter(|early| !early.is_over) else { return };
        early.is_over = true;
        self.transcript = Transcript::new(&binding);
        self.transcript.push(&early.said);
        self.setup.binding = binding;
        self.setup.certificate_name = certificate_name;
    }

    /// Answers [`ServerEvent::Preview`]. With terms, the driver sends the RESUME of the link after
    /// the next [`ServerGreeting::poll_output`]; `None`: there is no preview, and the greeting
    /// continues after the handshake.
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

    /// The state after Hello.
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

    /// Adds a message to the transcript of both sides' proofs.
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

    /// A wrong claim has no effect: Proof still follows.
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

    /// Whether the early data was answered, so that frames have followed.
    pub(super) fn has_answered_early(&self) -> bool {
        self.early.as_ref().is_some_and(|early| early.has_answered)
    }
}
