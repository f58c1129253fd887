//! The encoding of the messages of a greeting. Each is `kind u8 | length u24 | body`; the magic
//! precedes the first message of each direction. The fields below are the same in every version; a
//! newer version adds TLVs after them, which older ends skip.

use std::fmt;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::keys::StoredCredential;
use super::{GREETING_MAX, GreetingError, MAGIC, NONCE_LENGTH, Name, Refusal};
use crate::wire::{Reader, TLV_HEAD, head, put_tlv};
use crate::{CarrierNumber, InstanceId, LinkId};

pub(super) const NONCE: u8 = 1;
pub(super) const HELLO: u8 = 2;
pub(super) const PROOF: u8 = 3;
pub(super) const ACCEPT: u8 = 4;
pub(super) const SIGNATURE: u8 = 5;
pub(super) const REFUSED: u8 = 6;
pub(super) const INTRODUCE: u8 = 7;
pub(super) const INTRODUCTION: u8 = 8;
pub(super) const EARLY: u8 = 9;
pub(super) const EARLY_SIGNATURE: u8 = 10;

/// First bytes of a peer that is configured for `tls://` while we are configured for `tcp://`: the
/// record types with which a TLS handshake may begin (RFC 8446 section 5.1).
const TLS_ALERT: u8 = 21;
const TLS_HANDSHAKE: u8 = 22;

const FLAG_BOUND: u8 = 1;
const FLAG_TAKEOVER: u8 = 2;
const FLAG_CERTIFICATE: u8 = 4;
const FLAG_EARLY: u8 = 8;

const INTENT_NEW: u8 = 0;
const INTENT_ADDS: u8 = 1;
const INTENT_REPLACES: u8 = 2;
const INTENT_ENROLLS: u8 = 3;

/// The inclusive range of protocol versions that a side supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The oldest version.
    pub min: u16,
    /// The newest version.
    pub max: u16,
}

impl Versions {
    /// The versions that this implementation supports.
    pub const OURS: Self = Self { min: 1, max: 1 };

    /// The newest version that both sides support.
    #[must_use]
    pub fn common(self, other: Self) -> Option<u16> {
        let version = self.max.min(other.max);
        (version >= self.min.max(other.min)).then_some(version)
    }

    pub(super) const fn contains(self, version: u16) -> bool {
        self.min <= version && version <= self.max
    }
}

/// Optional features, one bit each. A feature is in use if both sides have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Features(pub u64);

impl Features {
    /// The server restricts the visitors of a service: it obeys `allow_from` and `deny_from` of a
    /// Register.
    pub const VISITORS: Self = Self(1);

    /// The peer supports flows: FlowOpen and FlowClose on the control stream, DATAGRAM frames, and
    /// [`Target::Reported`](crate::Target::Reported).
    pub const FLOWS: Self = Self(2);

    /// The peer supports private services: the field `visitors` of a Register, and
    /// [`Target::Private`](crate::Target::Private).
    pub const PRIVATE: Self = Self(4);

    /// The server lets several clients share an address: it obeys the flag `shared` of a Register.
    pub const SHARED: Self = Self(8);

    /// The client has a shared service: its process runs beside other such processes of the same
    /// name and takes over from none of them.
    pub const BESIDE: Self = Self(16);

    /// The links of the client have different paths: each end chooses the link of a stream by the
    /// priority of the stream.
    pub const SPREADS: Self = Self(32);

    /// The server leads to other servers: [`Target::Detour`](crate::Target::Detour).
    pub const DETOURS: Self = Self(64);

    /// Both ends are nodes of one cluster: [`Target::Hop`](crate::Target::Hop). No client and no
    /// server has the feature on a link of a client.
    pub const NODES: Self = Self(128);

    /// The features of a client without a shared service, whose links have one path.
    pub const ALONE: Self =
        Self(Self::VISITORS.0 | Self::FLOWS.0 | Self::PRIVATE.0 | Self::SHARED.0)
            .with(Self::DETOURS);

    /// The features of this program.
    pub const OURS: Self = Self::ALONE.with(Self::BESIDE).with(Self::SPREADS);

    /// The features of a node of a cluster towards another node.
    pub const OF_NODE: Self = Self::FLOWS.with(Self::NODES);

    /// The features of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all features of `other` are included.
    #[must_use]
    pub const fn have(self, other: Self) -> bool {
        self.common(other).0 == other.0
    }

    /// The features that both sides have.
    #[must_use]
    pub const fn common(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// How a carrier joins an existing link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachMode {
    /// In addition to the others.
    Adds,
    /// Instead of this carrier, which is closed and whose unread bytes are dropped.
    Replaces(CarrierNumber),
}

/// A carrier's claim to an existing link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attach {
    /// The id of the link.
    pub link: LinkId,
    /// The number of the new carrier: larger than all previous numbers.
    pub carrier: CarrierNumber,
    /// In addition to or instead of another carrier.
    pub mode: AttachMode,
}

/// The client's Hello: its name, process and request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hello {
    pub(super) bound: bool,
    pub(super) takeover: bool,
    pub(super) certificate: bool,
    /// Sent before the handshake is complete; [`EARLY`] follows.
    pub(super) early: bool,
    pub(super) versions: Versions,
    pub(super) features: Features,
    pub(super) instance: InstanceId,
    pub(super) nonce: [u8; NONCE_LENGTH],
    pub(super) name: Name,
    /// `None` starts a new link.
    pub(super) attach: Option<Attach>,
    /// Requests a token in exchange for a code, instead of a link.
    pub(super) enrolls: bool,
}

impl Hello {
    pub(super) fn write(&self, out: &mut BytesMut) {
        let flag = |set, bit| if set { bit } else { 0 };
        put_tlv(out, HELLO, |out| {
            out.put_u16(self.versions.min);
            out.put_u16(self.versions.max);
            out.put_u64(self.features.0);
            out.put_u8(
                flag(self.bound, FLAG_BOUND)
                    | flag(self.takeover, FLAG_TAKEOVER)
                    | flag(self.certificate, FLAG_CERTIFICATE)
                    | flag(self.early, FLAG_EARLY),
            );
            out.put_slice(&self.instance.0);
            out.put_slice(&self.nonce);
            let name = self.name.as_str().as_bytes();
            let [.., length] = name.len().to_be_bytes();
            out.put_u8(length);
            out.put_slice(name);
            match &self.attach {
                None if self.enrolls => out.put_u8(INTENT_ENROLLS),
                None => out.put_u8(INTENT_NEW),
                Some(Attach { link, carrier, mode }) => {
                    let (intent, replaced) = match mode {
                        AttachMode::Adds => (INTENT_ADDS, None),
                        AttachMode::Replaces(replaced) => (INTENT_REPLACES, Some(replaced)),
                    };
                    out.put_u8(intent);
                    out.put_slice(&link.0);
                    out.put_u32(carrier.0);
                    if let Some(replaced) = replaced {
                        out.put_u32(replaced.0);
                    }
                }
            }
        });
    }

    pub(super) fn read(body: &[u8]) -> Result<Self, GreetingError> {
        let mut body = Reader::new(body);
        let versions = Versions { min: body.u16()?, max: body.u16()? };
        if versions.min > versions.max {
            return Err(GreetingError::Malformed("the version range is empty"));
        }
        let features = Features(body.u64()?);
        let flags = body.u8()?;
        let instance = InstanceId(body.array()?);
        let nonce = body.array()?;
        let length = body.u8()?;
        let name = Name::from_bytes(body.take(length.into())?)
            .map_err(|_| GreetingError::Malformed("the client name is not a name"))?;
        let intent = body.u8()?;
        let attach = if matches!(intent, INTENT_NEW | INTENT_ENROLLS) {
            None
        } else {
            let link = LinkId(body.array()?);
            let carrier = CarrierNumber(body.u32()?);
            let mode = match intent {
                INTENT_ADDS => AttachMode::Adds,
                INTENT_REPLACES => AttachMode::Replaces(CarrierNumber(body.u32()?)),
                _ => return Err(GreetingError::Malformed("unknown link intent")),
            };
            Some(Attach { link, carrier, mode })
        };
        body.skip_tlvs()?;
        Ok(Self {
            bound: flags & FLAG_BOUND != 0,
            takeover: flags & FLAG_TAKEOVER != 0,
            certificate: flags & FLAG_CERTIFICATE != 0,
            early: flags & FLAG_EARLY != 0,
            versions,
            features,
            instance,
            nonce,
            name,
            attach,
            enrolls: intent == INTENT_ENROLLS,
        })
    }
}

/// The server's Accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Accept {
    pub(super) version: u16,
    pub(super) features: Features,
    pub(super) link: LinkId,
    pub(super) carrier: CarrierNumber,
    /// Seconds.
    pub(super) resume_timeout: u32,
    /// Seconds.
    pub(super) keepalive: u32,
}

impl Accept {
    pub(super) fn write(&self, out: &mut BytesMut) {
        put_tlv(out, ACCEPT, |out| {
            out.put_u16(self.version);
            out.put_u64(self.features.0);
            out.put_slice(&self.link.0);
            out.put_u32(self.carrier.0);
            out.put_u32(self.resume_timeout);
            out.put_u32(self.keepalive);
        });
    }

    pub(super) fn read(body: &[u8]) -> Result<Self, GreetingError> {
        let mut body = Reader::new(body);
        let accept = Self {
            version: body.u16()?,
            features: Features(body.u64()?),
            link: LinkId(body.array()?),
            carrier: CarrierNumber(body.u32()?),
            resume_timeout: body.u32()?,
            keepalive: body.u32()?,
        };
        body.skip_tlvs()?;
        Ok(accept)
    }
}

/// The body of `Proof` and `Signature`: a MAC with the credential, and a MAC with the link secret
/// if the carrier attaches.
#[derive(Clone, Copy)]
pub(super) struct Macs {
    pub(super) credential: [u8; 32],
    pub(super) link: Option<[u8; 32]>,
}

impl fmt::Debug for Macs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Macs(..)")
    }
}

impl Macs {
    pub(super) fn write(&self, kind: u8, out: &mut BytesMut) {
        put_tlv(out, kind, |out| {
            out.put_slice(&self.credential);
            if let Some(link) = &self.link {
                out.put_slice(link);
            }
        });
    }

    pub(super) fn read(body: &[u8], attaches: bool) -> Result<Self, GreetingError> {
        let mut body = Reader::new(body);
        let credential = body.array()?;
        let link = if attaches { Some(body.array()?) } else { None };
        body.finish()?;
        Ok(Self { credential, link })
    }
}

/// The body of `Early` and `EarlySignature`.
pub(super) fn write_mac(kind: u8, mac: &[u8; 32], out: &mut BytesMut) {
    put_tlv(out, kind, |out| out.put_slice(mac));
}

pub(super) fn read_mac(body: &[u8]) -> Result<[u8; 32], GreetingError> {
    let mut body = Reader::new(body);
    let mac = body.array()?;
    body.finish()?;
    Ok(mac)
}

pub(super) fn write_nonce(nonce: &[u8; NONCE_LENGTH], out: &mut BytesMut) {
    put_tlv(out, NONCE, |out| out.put_slice(nonce));
}

pub(super) fn read_nonce(body: &[u8]) -> Result<[u8; NONCE_LENGTH], GreetingError> {
    let mut body = Reader::new(body);
    let nonce = body.array()?;
    body.finish()?;
    Ok(nonce)
}

/// Sent if the server does not know the client, and accepts introductions of unknown clients.
pub(super) fn write_introduce(out: &mut BytesMut) {
    put_tlv(out, INTRODUCE, |_| ());
}

pub(super) fn read_introduce(body: &[u8]) -> Result<(), GreetingError> {
    Ok(Reader::new(body).skip_tlvs()?)
}

/// Writes the credential that verifies the client's proof.
pub(super) fn write_introduction(credential: &StoredCredential, out: &mut BytesMut) {
    put_tlv(out, INTRODUCTION, |out| {
        out.put_slice(&credential.stored_key);
        out.put_slice(&credential.server_key);
    });
}

pub(super) fn read_introduction(body: &[u8]) -> Result<StoredCredential, GreetingError> {
    let mut body = Reader::new(body);
    let credential = StoredCredential { stored_key: body.array()?, server_key: body.array()? };
    body.skip_tlvs()?;
    Ok(credential)
}

pub(super) fn write_refused(refusal: Refusal, out: &mut BytesMut) {
    put_tlv(out, REFUSED, |out| out.put_u16(refusal.raw()));
}

pub(super) fn read_refused(body: &[u8]) -> Result<Refusal, GreetingError> {
    let mut body = Reader::new(body);
    let refusal = Refusal::from_raw(body.u16()?);
    body.skip_tlvs()?;
    Ok(refusal)
}

/// Splits messages off the driver's buffer and counts their bytes against [`GREETING_MAX`].
#[derive(Debug)]
pub(super) struct Inbound {
    magic_seen: bool,
    left: usize,
}

impl Inbound {
    pub(super) const fn new() -> Self {
        Self { magic_seen: false, left: GREETING_MAX }
    }

    /// The next complete message, including its header; `None` while more bytes are needed. A wrong
    /// magic is detected at its first wrong byte, an oversize message at its header.
    pub(super) fn poll(&mut self, input: &mut BytesMut) -> Result<Option<Message>, GreetingError> {
        if !self.magic_seen {
            let arrived = input.len().min(MAGIC.len());
            if input[..arrived] != MAGIC[..arrived] {
                return Err(match input[0] {
                    TLS_ALERT | TLS_HANDSHAKE => GreetingError::Tls,
                    _ => GreetingError::Magic,
                });
            }
            if arrived < MAGIC.len() {
                return Ok(None);
            }
            input.advance(MAGIC.len());
            self.left -= MAGIC.len();
            self.magic_seen = true;
        }
        let Some((kind, length)) = head(input) else { return Ok(None) };
        let whole = TLV_HEAD + length;
        if whole > self.left {
            return Err(GreetingError::TooLong);
        }
        if input.len() < whole {
            return Ok(None);
        }
        self.left -= whole;
        Ok(Some(Message { kind, bytes: input.split_to(whole).freeze() }))
    }
}

/// A message as received.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) kind: u8,
    /// Includes the header, because it enters the transcript.
    pub(super) bytes: Bytes,
}

impl Message {
    pub(super) fn body(&self) -> &[u8] {
        &self.bytes[TLV_HEAD..]
    }
}
