//! Before the handshake is done: what a client may say with its first packet and a server answer with
//! its own (0-RTT, RFC 8446 section 2.3), on transports that can. Everybody may send such a packet
//! again; what is said and answered is the greeting's to choose.

use std::fmt;
use std::rc::Rc;

use bytes::Bytes;
use proto::greeting::EarlyBinding;

use crate::{Carrier, CarrierError, LocalFuture, Peer};

/// Makes what a client says early of [`EarlyBinding::client`]; called for each connection that is
/// tried. Nothing goes early where it makes nothing.
pub type Say = Rc<dyn Fn(&[u8; 32]) -> Option<Bytes>>;

/// What dialling led to: with a binding, what was said early was taken, and stands in front of
/// everything else on the first lane.
pub type Dialled = Result<(Carrier, Option<EarlyBinding>), CarrierError>;

/// What accepting led to: with [`Early`], the handshake is not done yet.
pub type Begun = Result<(Carrier, Option<Early>), CarrierError>;

/// The rest of a handshake whose client may have said something early. Of the carrier only the first
/// lane is to be used, and of its peer only the address is known.
pub struct Early {
    /// What ties what is said to the connection.
    pub binding: EarlyBinding,
    /// The end of the handshake, and who the peer is.
    pub done: LocalFuture<'static, Result<Peer, CarrierError>>,
}

impl fmt::Debug for Early {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Early(..)")
    }
}
