//! Early data: bytes that a client sends with its first packet and a server answers with its first
//! packet, before the end of the handshake (0-RTT, RFC 8446 section 2.3). An attacker can replay
//! such a packet, so the greeting decides which bytes are safe to send early.

use std::fmt;
use std::rc::Rc;

use bytes::Bytes;
use proto::greeting::EarlyBinding;

use crate::{Carrier, CarrierError, LocalFuture, Peer};

/// Makes the early data of a client from [`EarlyBinding::client`]. The dialer calls it once per
/// connection. With `None` the dialer sends no early data.
pub type EarlyDataFn = Rc<dyn Fn(&[u8; 32]) -> Option<Bytes>>;

/// The result of a dial. A binding means that the server accepted the early data, which precedes
/// all other bytes on the first lane.
pub type Dialled = Result<(Carrier, Option<EarlyBinding>), CarrierError>;

/// The result of an accept. With [`Early`] the handshake is not finished.
pub type AcceptResult = Result<(Carrier, Option<Early>), CarrierError>;

/// The remainder of a handshake whose client may have sent early data. Until the handshake ends,
/// the caller must use only the first lane of the carrier, and only the address of the peer is
/// known.
pub struct Early {
    /// Binds the early data to the connection.
    pub binding: EarlyBinding,
    /// A future that is ready at the end of the handshake and returns the peer.
    pub done: LocalFuture<'static, Result<Peer, CarrierError>>,
}

impl fmt::Debug for Early {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Early(..)")
    }
}
