//! The exported keying material of a session (RFC 8446 section 7.5).
//!
//! rustls exports keying material only from its buffered connections. An unbuffered connection
//! passes the exporter secret to the key log. So each handshake has its own key log, which keeps
//! that secret until the material is derived. A test compares the result with rustls' own export.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::crypto::tls13::{Hkdf, HkdfExpander, OkmBlock};
use rustls::{KeyLog, SupportedCipherSuite};

/// The key log that catches the exporter secret of one handshake.
pub(super) struct Secret {
    exporter: Mutex<Option<OkmBlock>>,
    /// The key log of the configuration, which gets every secret as well.
    next: Arc<dyn KeyLog>,
}

impl Secret {
    /// Derives 32 bytes of keying material for `label` with an empty context, and erases the
    /// secret.
    pub(super) fn export(&self, suite: SupportedCipherSuite, label: &[u8]) -> Option<[u8; 32]> {
        let secret = self.exporter.lock().unwrap_or_else(PoisonError::into_inner).take()?;
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
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        self.next.log(label, client_random, secret);
        if label == "EXPORTER_SECRET" && secret.len() <= OkmBlock::MAX_LEN {
            *self.exporter.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(OkmBlock::new(secret));
        }
    }

    fn will_log(&self, label: &str) -> bool {
        label == "EXPORTER_SECRET" || self.next.will_log(label)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The key log of one handshake, in front of that of the configuration.
pub(super) fn key_log(next: &Arc<dyn KeyLog>) -> Arc<Secret> {
    Arc::new(Secret { exporter: Mutex::default(), next: Arc::clone(next) })
}

/// HKDF-Expand-Label with the length of the hash.
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
