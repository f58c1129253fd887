//! What may be said before the handshake is done (0-RTT, RFC 8446 section 2.3), and what ties it to
//! the connection.
//!
//! ```text
//!   client                                              server
//!     |  ---- ClientHello, TNL1 Hello Early ------------>  |  looks at the link, changes nothing
//!     |  <--- ServerHello..Finished, TNL1 Nonce Accept --  |
//!     |       EarlySignature RESUME                        |
//!     |  ---- Finished, Proof RESUME DATA -------------->  |  verifies Proof, attaches the carrier
//!     |  <------------------------------ DATA -----------  |
//! ```
//!
//! Anybody can send the first flight again. It holds no more than the wish to go on with a link,
//! proved by the link's secret over this very ClientHello; all that it gets is a look at the link,
//! sealed for who made the ClientHello. What counts is Proof, bound to the finished handshake as
//! that of every greeting. The server's EarlySignature covers the handshake up to its own Finished:
//! the client's bytes go to nobody who does not hold the link's secret at the end of this
//! connection.
//!
//! A server that has no such answer says nothing early, and the greeting goes on as any other.

use bytes::{Bytes, BytesMut};

use super::message::{self, Hello};
use super::transcript::Transcript;
use super::{LinkSecret, MAGIC};

/// What ties early data to its connection: secrets of TLS that only its two ends have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct EarlyBinding {
    /// Of the ClientHello, with its ticket, random and key share.
    pub client: [u8; 32],
    /// Of the handshake up to the server's Finished.
    pub server: [u8; 32],
}

impl std::fmt::Debug for EarlyBinding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EarlyBinding(..)")
    }
}

/// Magic, Hello and Early. Nothing else may be said early.
pub(super) fn flight(hello: &Hello, secret: &LinkSecret, client: &[u8; 32]) -> Bytes {
    let mut out = BytesMut::from(&MAGIC[..]);
    hello.write(&mut out);
    let mut transcript = Transcript::early(client);
    transcript.push(&out[MAGIC.len()..]);
    message::write_mac(message::EARLY, &secret.early_proof(&transcript.hash()), &mut out);
    out.freeze()
}
