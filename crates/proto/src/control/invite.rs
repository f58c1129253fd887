//! The messages by which a client requests that its server admit a visitor to one of the client's
//! private services: a new client by a one-time code, or an existing client. The secret of the
//! service itself is shared by the two clients only and is in none of these messages.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};

use super::decode::once;
use super::message::{self, invite};
use super::{ControlError, TEXT_MAX};
use crate::greeting::Name;
use crate::text::escaped;
use crate::wire::{Reader, put_tlv};

/// The request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invite {
    /// Identifies the request in its response. The client chooses it.
    pub request: u32,
    /// The name of the visitor, a client of the same server.
    pub visitor: Name,
    /// The service of the requesting client.
    pub service: Name,
    /// The requested action.
    pub action: InviteAction,
}

/// What the server does with the visitor's rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InviteAction {
    /// Creates a client, by a one-time code, with the right to visit this service and no other
    /// right.
    New,
    /// Grants an existing client the right to visit this service.
    Existing,
    /// Revokes the visitor's right to visit this service.
    Revoke,
}

impl InviteAction {
    const fn raw(self) -> u8 {
        match self {
            Self::New => 0,
            Self::Existing => 1,
            Self::Revoke => 2,
        }
    }

    const fn from_raw(raw: u8) -> Option<Self> {
        match raw {
            0 => Some(Self::New),
            1 => Some(Self::Existing),
            2 => Some(Self::Revoke),
            _ => None,
        }
    }
}

/// The response to an [`Invite`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invited {
    /// The id of the request.
    pub request: u32,
    /// The outcome of the request.
    pub outcome: InviteOutcome,
}

/// The outcome of an [`Invite`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InviteOutcome {
    /// Done. For a new client: the secret of its one-time code.
    Done(Option<OneTimeSecret>),
    /// Not done; the reason, for the user. A text that is too long is truncated.
    Refused(String),
}

/// The secret of a one-time code. `Debug` never prints it.
#[derive(Clone, PartialEq, Eq)]
pub struct OneTimeSecret(pub String);

impl fmt::Debug for OneTimeSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OneTimeSecret")
    }
}

impl Invite {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        put_tlv(&mut out, message::INVITE, |out| {
            put_tlv(out, invite::REQUEST, |out| out.put_u32(self.request));
            put_tlv(out, invite::VISITOR, |out| out.put_slice(self.visitor.as_str().as_bytes()));
            put_tlv(out, invite::SERVICE, |out| out.put_slice(self.service.as_str().as_bytes()));
            put_tlv(out, invite::ACTION, |out| out.put_u8(self.action.raw()));
        });
        out.freeze()
    }

    pub(super) fn decode(body: &[u8]) -> Result<Self, ControlError> {
        let mut body = Reader::new(body);
        let (mut request, mut visitor, mut service, mut action) = (None, None, None, None);
        while let Some((kind, mut value)) = body.tlv()? {
            match kind {
                invite::REQUEST => once(&mut request, value.u32()?)?,
                invite::VISITOR => once(&mut visitor, name(value)?)?,
                invite::SERVICE => once(&mut service, name(value)?)?,
                invite::ACTION => {
                    let known = InviteAction::from_raw(value.u8()?);
                    once(&mut action, known.ok_or(ControlError::Malformed("no such action"))?)?;
                }
                _ => {}
            }
        }
        let missing = ControlError::Malformed("an invitation lacks a field");
        Ok(Self {
            request: request.ok_or(missing)?,
            visitor: visitor.ok_or(missing)?,
            service: service.ok_or(missing)?,
            action: action.ok_or(missing)?,
        })
    }
}

impl Invited {
    pub(super) fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        put_tlv(&mut out, message::INVITED, |out| {
            put_tlv(out, invite::REQUEST, |out| out.put_u32(self.request));
            let (kind, text) = match &self.outcome {
                InviteOutcome::Done(None) => return,
                InviteOutcome::Done(Some(OneTimeSecret(secret))) => (invite::SECRET, secret),
                InviteOutcome::Refused(why) => (invite::REFUSED, why),
            };
            let text = escaped(text);
            let text = &text[..text.floor_char_boundary(TEXT_MAX)];
            put_tlv(out, kind, |out| out.put_slice(text.as_bytes()));
        });
        out.freeze()
    }

    pub(super) fn decode(body: &[u8]) -> Result<Self, ControlError> {
        let mut body = Reader::new(body);
        let (mut request, mut secret, mut refused) = (None, None, None);
        while let Some((kind, mut value)) = body.tlv()? {
            match kind {
                invite::REQUEST => once(&mut request, value.u32()?)?,
                invite::SECRET => once(&mut secret, value.text(TEXT_MAX)?.to_owned())?,
                invite::REFUSED => once(&mut refused, value.text(TEXT_MAX)?.to_owned())?,
                _ => {}
            }
        }
        let request = request.ok_or(ControlError::Malformed("an answer without its request"))?;
        let outcome = match (refused, secret) {
            (Some(why), None) => InviteOutcome::Refused(why),
            (None, secret) => InviteOutcome::Done(secret.map(OneTimeSecret)),
            (Some(_), Some(_)) => {
                return Err(ControlError::Malformed("a refusal with a secret"));
            }
        };
        Ok(Self { request, outcome })
    }
}

fn name(value: Reader<'_>) -> Result<Name, ControlError> {
    Name::new(value.text(TEXT_MAX)?).map_err(|_| ControlError::Malformed("a name is not a name"))
}
