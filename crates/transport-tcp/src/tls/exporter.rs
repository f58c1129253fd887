//! The keying material of a session (RFC 8446 section 7.5).
//!
//! rustls exports it from its buffered connections only. The unbuffered ones hand the exporter
//! secret to the key log, so each handshake gets a key log of its own that keeps that one secret
//! until the material is derived; a test compares the result with rustls' own.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::crypto::tls13::{Hkdf, HkdfExpander, OkmBlock};
use rustls::{KeyLog, SupportedCipherSuite};

/// Catches the exporter secret of one handshake.
#[derive(Default)]
pub(super) struct Secret(Mutex<Option<OkmBlock>>);

impl Secret {
    /// 32 bytes of the exporter for `label` with an empty context. The secret is gone then.
    pub(super) fn export(&self, suite: SupportedCipherSuite, label: &[u8]) -> Option<[u8; 32]> {
        let secret = self.0.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let suite = suite.tls13()?;
        let empty = suite.common.hash_provider.start().finish();
        let derived = expand(suite.hkdf_provider, &secret, label, empty.as_ref())?;
        let mut out = [0; 32];
        let expander = suite.hkdf_provider.expander_for_okm(&derived);
        fill(expander.as_ref(), b"exporter", empty.as_ref(), &mut out)?;
        Some(out)
    }
}

impl KeyLog for Secret {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        if label == "EXPORTER_SECRET" && secret.len() <= OkmBlock::MAX_LEN {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(OkmBlock::new(secret));
        }
    }

    fn will_log(&self, label: &str) -> bool {
        label == "EXPORTER_SECRET"
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

pub(super) fn key_log() -> Arc<Secret> {
    Arc::default()
}

/// HKDF-Expand-Label to the length of the hash.
fn expand(hkdf: &dyn Hkdf, secret: &OkmBlock, label: &[u8], context: &[u8]) -> Option<OkmBlock> {
    let expander = hkdf.expander_for_okm(secret);
    let mut block = [0; OkmBlock::MAX_LEN];
    let block = block.get_mut(..expander.hash_len())?;
    fill(expander.as_ref(), label, context, block)?;
    Some(OkmBlock::new(block))
}

/// HKDF-Expand-Label (RFC 8446 section 7.1).
fn fill(expander: &dyn HkdfExpander, label: &[u8], context: &[u8], out: &mut [u8]) -> Option<()> {
    const PREFIX: &[u8] = b"tls13 ";
    let length = u16::try_from(out.len()).ok()?.to_be_bytes();
    let label_length = [u8::try_from(PREFIX.len() + label.len()).ok()?];
    let context_length = [u8::try_from(context.len()).ok()?];
    let info: [&[u8]; 6] = [&length, &label_length, PREFIX, label, &context_length, context];
    expander.expand_slice(&info, out).ok()
}
