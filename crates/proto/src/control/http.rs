//! The options of a service that is published by HTTP name, as a field of the service.
//!
//! A receiver that ignored an option could admit a visitor whom the option excludes. So kinds below
//! [`IGNORABLE`] are mandatory: an unknown one ends the link.

use std::num::NonZeroU32;

use bytes::{BufMut, BytesMut};

use super::decode::{ControlError, once};
use super::message::service;
use super::{IGNORABLE, TEXT_MAX};
use crate::wire::{Reader, TLV_HEAD, put_tlv, text};
use crate::{
    CREDENTIALS_MAX, Compress, EDITS_MAX, FieldEdits, HASHES_MAX, HttpOptionError, HttpOptions,
    PORTS_MAX, Redirect, Sticky, TargetProtocol,
};

const FLAGS: u8 = 1;
const CREDENTIAL: u8 = 2;
const HOST: u8 = 3;
const PATH: u8 = 4;
const REQUEST_SET: u8 = 5;
const REQUEST_REMOVE: u8 = 6;
const RESPONSE_SET: u8 = 7;
const RESPONSE_REMOVE: u8 = 8;
const REDIRECT: u8 = 9;
const HSTS: u8 = 10;
const STRIP_PREFIX: u8 = 11;
const CREDENTIAL_HASH: u8 = 12;
const TARGET_PROTOCOL: u8 = 13;

const PROTOCOL_HTTPS: u8 = 1;
const PROTOCOL_H2C: u8 = 2;
/// A server that does not know this field sends every response uncompressed, which is correct.
const COMPRESS: u8 = IGNORABLE | 90;
/// A server that does not know this field routes each request independently.
const STICKY: u8 = IGNORABLE | 91;
/// A server that does not know this field leaves addresses in responses unchanged.
const PORTS: u8 = IGNORABLE | 92;
/// A server that does not know this field forwards every request.
const REQUESTS_PER_SECOND: u8 = IGNORABLE | 93;

const FLAG_PASS_THROUGH: u8 = 1;
const FLAG_FORWARDED: u8 = 2;
const FLAG_PREFLIGHT_PASS: u8 = 4;
const FLAG_NO_HTTPS_REDIRECT: u8 = 8;

const COMPRESS_PUBLIC: u8 = 1;
const COMPRESS_ALWAYS: u8 = 2;

const STICKY_CLIENT: u8 = 1;
const STICKY_TARGET: u8 = 2;

impl HttpOptions {
    /// Encoded length of the options in a Register message, in bytes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        if self.is_default() { 0 } else { TLV_HEAD + self.fields_len() }
    }

    fn flags(&self) -> u8 {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        flag(self.pass_through, FLAG_PASS_THROUGH)
            | flag(self.forwarded, FLAG_FORWARDED)
            | flag(self.preflight_pass, FLAG_PREFLIGHT_PASS)
            | flag(self.no_https_redirect, FLAG_NO_HTTPS_REDIRECT)
    }

    const fn compress_code(&self) -> Option<u8> {
        match self.compress {
            Compress::Off => None,
            Compress::Public => Some(COMPRESS_PUBLIC),
            Compress::Always => Some(COMPRESS_ALWAYS),
        }
    }

    const fn sticky_code(&self) -> Option<u8> {
        match self.sticky {
            Sticky::Off => None,
            Sticky::Client => Some(STICKY_CLIENT),
            Sticky::Target => Some(STICKY_TARGET),
        }
    }

    fn fields_len(&self) -> usize {
        let flags = if self.flags() == 0 { 0 } else { TLV_HEAD + 1 };
        let hsts = if self.hsts.is_some() { TLV_HEAD + 4 } else { 0 };
        let redirect = self.redirect.as_ref().map_or(0, |to| TLV_HEAD + to.as_str().len());
        let compress = self.compress_code().map_or(0, |_| TLV_HEAD + 1);
        let sticky = self.sticky_code().map_or(0, |_| TLV_HEAD + 1);
        let requests = self.requests_per_second.map_or(0, |_| TLV_HEAD + 4);
        let ports = if self.ports.is_empty() { 0 } else { TLV_HEAD + 2 * self.ports.len() };
        let edits = [&self.request, &self.response];
        let set = edits.iter().flat_map(|edits| &edits.set);
        let set: usize = set.map(|(name, value)| TLV_HEAD + 1 + name.len() + value.len()).sum();
        let removed = edits.iter().flat_map(|edits| &edits.remove);
        let pairs = self.basic_auth.iter().chain(&self.hashes);
        let texts = pairs.chain(&self.host_rewrite).chain(&self.path).chain(removed);
        let texts = texts.chain(&self.strip_prefix);
        let target = if self.target == TargetProtocol::Http { 0 } else { TLV_HEAD + 1 };
        let texts = texts.map(|text| TLV_HEAD + text.len()).sum::<usize>();
        flags + compress + sticky + requests + ports + target + hsts + redirect + set + texts
    }

    /// Appends the field if an option differs from its default.
    pub(super) fn put(&self, out: &mut BytesMut) {
        if self.is_default() {
            return;
        }
        put_tlv(out, service::HTTP, |out| {
            let text = |out: &mut BytesMut, kind, text: &str| {
                put_tlv(out, kind, |out| out.put_slice(text.as_bytes()));
            };
            if self.flags() != 0 {
                put_tlv(out, FLAGS, |out| out.put_u8(self.flags()));
            }
            self.basic_auth.iter().for_each(|pair| text(out, CREDENTIAL, pair));
            self.hashes.iter().for_each(|pair| text(out, CREDENTIAL_HASH, pair));
            self.host_rewrite.iter().for_each(|host| text(out, HOST, host));
            self.path.iter().for_each(|path| text(out, PATH, path));
            if let Some(to) = &self.redirect {
                text(out, REDIRECT, to.as_str());
            }
            if let Some(seconds) = self.hsts {
                put_tlv(out, HSTS, |out| out.put_u32(seconds));
            }
            self.strip_prefix.iter().for_each(|path| text(out, STRIP_PREFIX, path));
            let lists = [
                (&self.request, REQUEST_SET, REQUEST_REMOVE),
                (&self.response, RESPONSE_SET, RESPONSE_REMOVE),
            ];
            for (edits, set, remove) in lists {
                for (name, value) in &edits.set {
                    put_tlv(out, set, |out| {
                        // `check` bounds the name.
                        out.put_u8(u8::try_from(name.len()).unwrap_or(u8::MAX));
                        out.put_slice(name.as_bytes());
                        out.put_slice(value.as_bytes());
                    });
                }
                edits.remove.iter().for_each(|name| text(out, remove, name));
            }
            match self.target {
                TargetProtocol::Http => {}
                TargetProtocol::Https => {
                    put_tlv(out, TARGET_PROTOCOL, |out| out.put_u8(PROTOCOL_HTTPS))
                }
                TargetProtocol::H2c => {
                    put_tlv(out, TARGET_PROTOCOL, |out| out.put_u8(PROTOCOL_H2C))
                }
            }
            if let Some(code) = self.compress_code() {
                put_tlv(out, COMPRESS, |out| out.put_u8(code));
            }
            if let Some(code) = self.sticky_code() {
                put_tlv(out, STICKY, |out| out.put_u8(code));
            }
            if let Some(most) = self.requests_per_second {
                put_tlv(out, REQUESTS_PER_SECOND, |out| out.put_u32(most.get()));
            }
            if !self.ports.is_empty() {
                put_tlv(out, PORTS, |out| self.ports.iter().for_each(|port| out.put_u16(*port)));
            }
        });
    }

    /// Decodes the field of the service.
    pub(super) fn decode(mut body: Reader<'_>) -> Result<Self, ControlError> {
        let mut options = Self::default();
        let (mut flags, mut target, mut compress, mut sticky) = (None, None, None, None);
        while let Some((kind, mut value)) = body.tlv()? {
            match kind {
                FLAGS => {
                    once(&mut flags, value.u8()?)?;
                    value.finish()?;
                }
                CREDENTIAL => push(&mut options.basic_auth, CREDENTIALS_MAX, owned(value)?)?,
                CREDENTIAL_HASH => push(&mut options.hashes, HASHES_MAX, owned(value)?)?,
                HOST => once(&mut options.host_rewrite, owned(value)?)?,
                PATH => once(&mut options.path, owned(value)?)?,
                REDIRECT => once(&mut options.redirect, Redirect::new(&owned(value)?)?)?,
                HSTS => {
                    once(&mut options.hsts, value.u32()?)?;
                    value.finish()?;
                }
                STRIP_PREFIX => once(&mut options.strip_prefix, owned(value)?)?,
                REQUEST_SET => push_set(&mut options.request, value)?,
                REQUEST_REMOVE => push(&mut options.request.remove, EDITS_MAX, owned(value)?)?,
                RESPONSE_SET => push_set(&mut options.response, value)?,
                RESPONSE_REMOVE => push(&mut options.response.remove, EDITS_MAX, owned(value)?)?,
                TARGET_PROTOCOL => {
                    once(&mut target, protocol(value.u8()?)?)?;
                    value.finish()?;
                }
                COMPRESS => {
                    once(&mut compress, value.u8()?)?;
                    value.finish()?;
                }
                STICKY => {
                    once(&mut sticky, value.u8()?)?;
                    value.finish()?;
                }
                REQUESTS_PER_SECOND => {
                    let most = NonZeroU32::new(value.u32()?);
                    let most = most.ok_or(ControlError::Malformed("a limit of no request"))?;
                    once(&mut options.requests_per_second, most)?;
                    value.finish()?;
                }
                PORTS => {
                    while !value.is_empty() {
                        push(&mut options.ports, PORTS_MAX, value.u16()?)?;
                    }
                }
                kind if kind & IGNORABLE == 0 => {
                    return Err(ControlError::Malformed("an unknown option of HTTP"));
                }
                _ => {}
            }
        }
        let flags = flags.unwrap_or_default();
        let known =
            FLAG_PASS_THROUGH | FLAG_FORWARDED | FLAG_PREFLIGHT_PASS | FLAG_NO_HTTPS_REDIRECT;
        if flags & !known != 0 {
            return Err(ControlError::Malformed("an unknown flag of HTTP"));
        }
        options.target = target.unwrap_or_default();
        options.pass_through = flags & FLAG_PASS_THROUGH != 0;
        options.forwarded = flags & FLAG_FORWARDED != 0;
        options.preflight_pass = flags & FLAG_PREFLIGHT_PASS != 0;
        options.no_https_redirect = flags & FLAG_NO_HTTPS_REDIRECT != 0;
        options.compress = match compress {
            None => Compress::Off,
            Some(COMPRESS_PUBLIC) => Compress::Public,
            Some(COMPRESS_ALWAYS) => Compress::Always,
            Some(_) => return Err(ControlError::Malformed("an unknown kind of compression")),
        };
        options.sticky = match sticky {
            None => Sticky::Off,
            Some(STICKY_CLIENT) => Sticky::Client,
            Some(STICKY_TARGET) => Sticky::Target,
            Some(_) => return Err(ControlError::Malformed("an unknown place of visitors")),
        };
        options.check()?;
        Ok(options)
    }
}

impl From<HttpOptionError> for ControlError {
    fn from(_: HttpOptionError) -> Self {
        Self::Malformed("an option of HTTP has a value that is not permitted")
    }
}

fn protocol(number: u8) -> Result<TargetProtocol, ControlError> {
    match number {
        PROTOCOL_HTTPS => Ok(TargetProtocol::Https),
        PROTOCOL_H2C => Ok(TargetProtocol::H2c),
        _ => Err(ControlError::Malformed("an unknown protocol of a target")),
    }
}

fn owned(value: Reader<'_>) -> Result<String, ControlError> {
    Ok(value.text(TEXT_MAX)?.to_owned())
}

fn push<T>(list: &mut Vec<T>, most: usize, entry: T) -> Result<(), ControlError> {
    if list.len() == most {
        return Err(ControlError::Malformed("too many options of HTTP"));
    }
    list.push(entry);
    Ok(())
}

fn push_set(edits: &mut FieldEdits, mut value: Reader<'_>) -> Result<(), ControlError> {
    let length = usize::from(value.u8()?);
    let name = text(value.take(length)?)?.to_owned();
    push(&mut edits.set, EDITS_MAX, (name, owned(value)?))
}
