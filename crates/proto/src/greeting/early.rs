//! The greeting in early data (0-RTT, RFC 8446 section 2.3), and its binding to the connection.
//!
//! ```text
//!   client                                              server
//!     |  ---- ClientHello, TNL1 Hello Early ------------>  |  reads the link, changes no state
//!     |  <--- ServerHello..Finished, TNL1 Nonce Accept --  |
//!     |       EarlySignature RESUME                        |
//!     |  ---- Finished, Proof RESUME DATA -------------->  |  verifies Proof, attaches the carrier
//!     |  <------------------------------ DATA -----------  |
//! ```
//!
//! The first flight can be replayed. It holds only the request to resume a link, with a MAC by the
//! link's secret over this ClientHello. The answer is a preview of the link, encrypted for the
//! sender of the ClientHello, and the server changes no state. Proof authenticates the client and
//! is bound to the complete handshake, as in every greeting. The server's EarlySignature covers the
//! handshake up to its own Finished. So the client sends its bytes only to a server that holds the
//! link's secret.
//!
//! A server that cannot answer early data sends nothing early, and the greeting continues normally.

use bytes::{Bytes, BytesMut};

use super::message::{self, Hello};
use super::transcript::Transcript;
use super::{LinkSecret, MAGIC};

/// Binds early data to its connection: TLS secrets that only its two ends have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EarlyBinding {
    /// Covers the ClientHello, with its ticket, random and key share.
    pub client: [u8; 32],
    /// Covers the handshake up to the server's Finished.
    pub server: [u8; 32],
}

impl std::fmt::Debug for EarlyBinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EarlyBinding(..)")
    }
}

/// Encodes magic, Hello and Early. Nothing else may be sent early.
pub(super) fn flight(hello: &Hello, secret: &LinkSecret, client: &[u8; 32]) -> Bytes {
    let mut out = BytesMut::from(&MAGIC[..]);
    hello.write(&mut out);
    let mut transcript = Transcript::early(client);
    transcript.push(&out[MAGIC.len()..]);
    message::write_mac(message::EARLY, &secret.early_proof(&transcript.hash()), &mut out);
    out.freeze()
}
