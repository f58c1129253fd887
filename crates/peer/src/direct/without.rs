//! Direct paths over data channels in a build without WebRTC: there are none.

use std::io;
use std::sync::Arc;

use ::link::Link;
use bytes::Bytes;
use punch::Decline;
use tokio::sync::mpsc;
use transport::{Carrier, CarrierError};

use super::failed::{Declined, Failed};
use crate::home::Home;

/// An offer, which is declined.
#[derive(Debug)]
pub(super) enum Offered {}

fn unsupported() -> Failed {
    let text = "this program was built without WebRTC (`p2p: webrtc`)";
    Failed::Channels(io::Error::new(io::ErrorKind::Unsupported, text).into())
}

#[expect(clippy::unused_async, reason = "as in a build with WebRTC")]
pub(super) async fn dial(
    _: &Arc<dyn Home>,
    _: &Link,
    _: (&str, u32),
    _: &mut mpsc::Receiver<Bytes>,
) -> Result<Carrier, Failed> {
    Err(unsupported())
}

#[expect(clippy::unused_async, reason = "as in a build with WebRTC")]
pub(super) async fn answer(_: &Arc<dyn Home>, _: &str, _: &str) -> Result<Offered, Declined> {
    Err(Declined { why: Decline::Without, failed: unsupported() })
}

impl Offered {
    pub(super) fn answer(&self) -> &str {
        match *self {}
    }

    #[expect(clippy::unused_async, reason = "as in a build with WebRTC")]
    pub(super) async fn carrier(self) -> Result<Carrier, CarrierError> {
        match self {}
    }
}
