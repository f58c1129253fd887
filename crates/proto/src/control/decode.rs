//! Decodes messages from bytes that arrive in pieces of any size.

use bytes::{Buf, Bytes, BytesMut};

use super::message::{self, field, service};
use super::terms::Reading;
use super::{
    ADDRESSES_MAX, IGNORABLE, MESSAGE_MAX, NODE_MAX, SERVICES_MAX, SIGNAL_MAX, STUN_PORTS_MAX,
    TEXT_MAX,
};
use super::{
    ControlMessage, FlowClose, FlowOpen, Homes, Invite, Invited, RefusedAddress, Register,
    Registered, ServiceError, ServiceErrorCode, ServiceResult, ServiceSpec, Strained, StunPorts,
};
use crate::frame::decode_request;
use crate::greeting::Name;
use crate::wire::{Reader, TLV_HEAD, WireError, head};
use crate::{FlowId, ResetCode};

/// A violation on the control stream. It ends the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// A message beyond [`MESSAGE_MAX`], a signal beyond [`SIGNAL_MAX`], or a message
    /// between nodes beyond [`NODE_MAX`]; detected from its
    /// header.
    #[error("a control message of {0} bytes")]
    TooLong(usize),
    /// A kind that is unknown and must not be skipped.
    #[error("a control message of unknown kind {0}")]
    UnknownKind(u8),
    /// The content is malformed.
    #[error("malformed control message: {0}")]
    Malformed(&'static str),
}

impl From<WireError> for ControlError {
    fn from(error: WireError) -> Self {
        Self::Malformed(match error {
            WireError::Truncated => "a field ends too early",
            WireError::Trailing => "there are bytes behind the last field",
            WireError::Text => "a text is not UTF-8",
            WireError::TextLength => "a text is longer than allowed",
            WireError::Control => "a text has a control character",
        })
    }
}

/// Reassembles messages from the bytes of the control stream. Buffers at most one message, and only
/// bytes that have arrived.
#[derive(Debug, Default)]
pub struct ControlDecoder {
    partial: BytesMut,
    /// Remaining bytes of a message that is skipped.
    skip: usize,
    failed: Option<ControlError>,
}

impl ControlDecoder {
    /// A decoder at the start of the stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Consumes bytes from the front of `data` until a message is complete. Callers repeat the call
    /// until it returns `None`, when `data` is empty. After an error no more bytes are consumed,
    /// and every call returns the error.
    pub fn decode(&mut self, data: &mut Bytes) -> Result<Option<ControlMessage>, ControlError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.advance(data).inspect_err(|&error| {
            self.failed = Some(error);
            self.partial = BytesMut::new();
        })
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.partial.capacity()
    }

    fn advance(&mut self, data: &mut Bytes) -> Result<Option<ControlMessage>, ControlError> {
        loop {
            let skipped = self.skip.min(data.len());
            data.advance(skipped);
            self.skip -= skipped;
            if self.skip > 0 {
                return Ok(None);
            }
            match head(&self.partial) {
                None => {
                    if !self.gather(TLV_HEAD, data) {
                        return Ok(None);
                    }
                    self.judge_head()?;
                }
                Some((kind, length)) => {
                    if !self.gather(TLV_HEAD + length, data) {
                        return Ok(None);
                    }
                    let whole = self.partial.split();
                    let body = |whole: BytesMut| whole.freeze().slice(TLV_HEAD..);
                    return match kind {
                        message::SIGNAL => Ok(Some(ControlMessage::Signal(body(whole)))),
                        message::NODE => Ok(Some(ControlMessage::Node(body(whole)))),
                        kind => decode_message(kind, &whole[TLV_HEAD..]).map(Some),
                    };
                }
            }
        }
    }

    /// Refuses or skips a message before a byte of its body is kept.
    fn judge_head(&mut self) -> Result<(), ControlError> {
        let Some((kind, length)) = head(&self.partial) else { return Ok(()) };
        if length > MESSAGE_MAX {
            return Err(ControlError::TooLong(length));
        }
        match kind {
            message::REGISTER
            | message::REGISTERED
            | message::STRAINED
            | message::STUN
            | message::HOMES
            | message::FLOW_OPEN
            | message::FLOW_CLOSE
            | message::INVITE
            | message::INVITED => {}
            message::SIGNAL if length > SIGNAL_MAX => return Err(ControlError::TooLong(length)),
            message::NODE if length > NODE_MAX => return Err(ControlError::TooLong(length)),
            message::SIGNAL | message::NODE => {}
            kind if kind & IGNORABLE == 0 => return Err(ControlError::UnknownKind(kind)),
            _ => {
                self.skip = length;
                self.partial.clear();
            }
        }
        Ok(())
    }

    /// Moves bytes until `total` are buffered. Returns whether they are.
    fn gather(&mut self, total: usize, data: &mut Bytes) -> bool {
        let wanted = total - self.partial.len();
        self.partial.extend_from_slice(&data.split_to(wanted.min(data.len())));
        self.partial.len() == total
    }
}

fn decode_message(kind: u8, body: &[u8]) -> Result<ControlMessage, ControlError> {
    match kind {
        message::REGISTER => {
            let (generation, services, Flags { leaving, standby }) = decode_set(body, decode_spec)?;
            Ok(ControlMessage::Register(Register { generation, services, leaving, standby }))
        }
        message::REGISTERED => {
            let (generation, results, _) = decode_set(body, decode_result)?;
            Ok(ControlMessage::Registered(Registered { generation, results }))
        }
        message::STRAINED => decode_strained(body).map(ControlMessage::Strained),
        message::STUN => decode_stun(body).map(ControlMessage::Stun),
        message::HOMES => Homes::decode(body).map(ControlMessage::Homes),
        message::FLOW_OPEN => decode_flow_open(body).map(ControlMessage::FlowOpen),
        message::FLOW_CLOSE => decode_flow_close(body).map(ControlMessage::FlowClose),
        message::INVITE => Invite::decode(body).map(ControlMessage::Invite),
        message::INVITED => Invited::decode(body).map(ControlMessage::Invited),
        kind => Err(ControlError::UnknownKind(kind)),
    }
}

fn decode_stun(body: &[u8]) -> Result<StunPorts, ControlError> {
    let mut ports = None;
    let mut body = Reader::new(body);
    while let Some((kind, mut value)) = body.tlv()? {
        if kind == field::PORTS {
            let mut list = Vec::new();
            while !value.is_empty() {
                list.push(value.u16()?);
            }
            if list.len() > STUN_PORTS_MAX {
                return Err(ControlError::Malformed("too many ports of STUN"));
            }
            once(&mut ports, list)?;
        }
    }
    Ok(StunPorts(ports.ok_or(ControlError::Malformed("no ports of STUN"))?))
}

fn decode_strained(body: &[u8]) -> Result<Strained, ControlError> {
    let mut body = Reader::new(body);
    let mut rate = None;
    while let Some((kind, mut value)) = body.tlv()? {
        if kind == field::RATE {
            once(&mut rate, value.u64()?)?;
            value.finish()?;
        }
    }
    Ok(Strained { rate: rate.ok_or(ControlError::Malformed("no rate"))? })
}

fn decode_flow_open(mut body: &[u8]) -> Result<FlowOpen, ControlError> {
    let flow = FlowId::new(body.try_get_u32().map_err(|_| WireError::Truncated)?);
    let open = decode_request(body).ok_or(ControlError::Malformed("no request of a flow"))?;
    Ok(FlowOpen { flow, open })
}

fn decode_flow_close(body: &[u8]) -> Result<FlowClose, ControlError> {
    let mut body = Reader::new(body);
    let flow = FlowId::new(body.u32()?);
    // Bytes after the code belong to a newer version.
    Ok(FlowClose { flow, code: ResetCode::from_raw(body.u16()?) })
}

/// The flags of a set of services. An answer has none.
#[derive(Clone, Copy, Debug, Default)]
struct Flags {
    leaving: bool,
    standby: bool,
}

fn decode_set<T>(
    body: &[u8],
    decode: fn(Reader<'_>) -> Result<T, ControlError>,
) -> Result<(u64, Vec<T>, Flags), ControlError> {
    let mut body = Reader::new(body);
    let (mut generation, mut leaving, mut standby) = (None, None, None);
    let mut entries = Vec::new();
    while let Some((kind, mut value)) = body.tlv()? {
        match kind {
            field::GENERATION => {
                once(&mut generation, value.u64()?)?;
                value.finish()?;
            }
            field::LEAVING => once(&mut leaving, value.u8()? & 1 != 0)?,
            field::STANDBY => once(&mut standby, value.u8()? & 1 != 0)?,
            field::SERVICE if entries.len() == SERVICES_MAX => {
                return Err(ControlError::Malformed("too many services"));
            }
            field::SERVICE => entries.push(decode(value)?),
            _ => {}
        }
    }
    let generation = generation.ok_or(ControlError::Malformed("no generation"))?;
    let flags = Flags { leaving: leaving.unwrap_or(false), standby: standby.unwrap_or(false) };
    Ok((generation, entries, flags))
}

fn decode_spec(mut body: Reader<'_>) -> Result<ServiceSpec, ControlError> {
    let (mut name, mut public, mut terms) = (None, Vec::new(), Reading::default());
    while let Some((kind, value)) = body.tlv()? {
        match kind {
            service::NAME => once(&mut name, decode_name(value)?)?,
            service::ADDRESS => push_address(&mut public, value)?,
            kind => terms.field(kind, value)?,
        }
    }
    Ok(ServiceSpec { name: name.ok_or(NO_NAME)?, public, terms: terms.finish() })
}

fn decode_result(mut body: Reader<'_>) -> Result<ServiceResult, ControlError> {
    let (mut name, mut addresses, mut error) = (None, Vec::new(), None);
    let mut refused = Vec::new();
    while let Some((kind, value)) = body.tlv()? {
        match kind {
            service::NAME => once(&mut name, decode_name(value)?)?,
            service::ADDRESS => push_address(&mut addresses, value)?,
            service::ERROR => once(&mut error, decode_error(value)?)?,
            service::REFUSED if refused.len() == ADDRESSES_MAX => return Err(TOO_MANY_ADDRESSES),
            service::REFUSED => refused.push(decode_refused(value)?),
            _ => {}
        }
    }
    let outcome = match error {
        None => Ok(addresses),
        Some(error) if addresses.is_empty() => Err(error),
        Some(_) => return Err(ControlError::Malformed("a result with addresses and an error")),
    };
    Ok(ServiceResult { name: name.ok_or(NO_NAME)?, outcome, refused })
}

fn decode_error(mut value: Reader<'_>) -> Result<ServiceError, ControlError> {
    let code = ServiceErrorCode::from_raw(value.u16()?);
    Ok(ServiceError { code, text: value.text(TEXT_MAX)?.to_owned() })
}

fn decode_refused(mut value: Reader<'_>) -> Result<RefusedAddress, ControlError> {
    let length = usize::from(value.u16()?);
    let address = decode_address(Reader::new(value.take(length)?))?;
    Ok(RefusedAddress { address, error: decode_error(value)? })
}

const NO_NAME: ControlError = ControlError::Malformed("a service without a name");
const TOO_MANY_ADDRESSES: ControlError =
    ControlError::Malformed("too many addresses of one service");

pub(super) fn once<T>(slot: &mut Option<T>, value: T) -> Result<(), ControlError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(ControlError::Malformed("a field that may occur once occurs twice")),
    }
}

fn decode_name(value: Reader<'_>) -> Result<Name, ControlError> {
    Name::new(value.text(TEXT_MAX)?)
        .map_err(|_| ControlError::Malformed("the name of a service is not a name"))
}

fn push_address(addresses: &mut Vec<String>, value: Reader<'_>) -> Result<(), ControlError> {
    let address = decode_address(value)?;
    if addresses.len() == ADDRESSES_MAX {
        return Err(TOO_MANY_ADDRESSES);
    }
    addresses.push(address);
    Ok(())
}

fn decode_address(value: Reader<'_>) -> Result<String, ControlError> {
    match value.text(TEXT_MAX)? {
        "" => Err(ControlError::Malformed("an empty address")),
        text => Ok(text.to_owned()),
    }
}
