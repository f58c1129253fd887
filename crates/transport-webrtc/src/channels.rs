//! The channels of a connection with a program without a tunnel: one for each stream.

use std::fmt;
use std::io;
use std::sync::Arc;

use tokio::sync::mpsc;
use transport::{CarrierError, Lane, Peer};
use webrtc::data_channel::{DataChannel, DataChannelEvent, RTCDataChannelInit};

use crate::channel::{Use, lane};
use crate::connection::{Core, Hold};
use crate::error::{End, SignalError};
use crate::stream::ChannelStream;

/// The subprotocol of the channel of a carrier. Other channels are streams.
pub(crate) const PROTOCOL: &str = "tunnel/1";

/// The maximum length of a label, in bytes.
const MAX_LABEL: usize = 255;

/// An open channel.
#[derive(Debug)]
pub struct Channel {
    /// The label from the opener: for a stream, the name of the service.
    pub label: String,
    /// The bytes.
    pub lane: Box<dyn Lane>,
    pub(crate) used: Use,
}

impl Channel {
    /// The bytes as a Tokio stream.
    #[must_use]
    pub fn into_stream(self) -> ChannelStream {
        ChannelStream::new(self.lane)
    }
}

/// Opens and accepts channels. Dropping it ends the connection once the lanes of all channels are
/// dropped.
pub struct Channels {
    peer: Peer,
    core: Arc<Core>,
    hold: Arc<Hold>,
    accepted: mpsc::Receiver<Arc<dyn DataChannel>>,
    /// The channel that [`Channels::accept`] currently examines.
    pending: Option<Arc<dyn DataChannel>>,
    /// A channel that was already accepted.
    ready: Option<Channel>,
}

impl Channels {
    pub(crate) const fn new(
        peer: Peer,
        core: Arc<Core>,
        hold: Arc<Hold>,
        accepted: mpsc::Receiver<Arc<dyn DataChannel>>,
    ) -> Self {
        Self { peer, core, hold, accepted, pending: None, ready: None }
    }

    /// Returns the channel with the next call of [`Channels::accept`].
    pub(crate) fn put_back(&mut self, channel: Channel) {
        self.ready = Some(channel);
    }

    /// The far end.
    #[must_use]
    pub const fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The next channel that the peer opens. Cancel-safe. A channel that may lose or reorder
    /// messages is closed instead.
    ///
    /// # Errors
    ///
    /// The connection has ended.
    pub async fn accept(&mut self) -> Result<Channel, CarrierError> {
        if let Some(channel) = self.ready.take() {
            return Ok(channel);
        }
        loop {
            let dc = match &self.pending {
                Some(dc) => Arc::clone(dc),
                None => {
                    let arrived = tokio::select! {
                        end = self.core.ended() => return Err(end.error().into()),
                        arrived = self.accepted.recv() => arrived,
                    };
                    let arrived = arrived.ok_or_else(|| End::Closed.error())?;
                    Arc::clone(self.pending.insert(arrived))
                }
            };
            let kind = kind(&*dc).await;
            self.pending = None;
            match kind {
                Some((label, used)) => {
                    self.core.opened();
                    let lane = lane(dc, &self.core, Arc::clone(&self.hold), used);
                    return Ok(Channel { label, lane: Box::new(lane), used });
                }
                None => drop(dc.close().await),
            }
        }
    }

    /// Opens a stream to a program without a tunnel.
    ///
    /// # Errors
    ///
    /// The label is too long, or the connection has ended.
    pub async fn open(&self, label: &str) -> Result<Channel, CarrierError> {
        let dc = create(&self.core, label, "").await?;
        opened(&self.core, &*dc).await?;
        let lane = lane(dc, &self.core, Arc::clone(&self.hold), Use::Stream);
        Ok(Channel { label: label.to_owned(), lane: Box::new(lane), used: Use::Stream })
    }
}

/// Creates an ordered and reliable channel.
pub(crate) async fn create(
    core: &Core,
    label: &str,
    protocol: &str,
) -> Result<Arc<dyn DataChannel>, SignalError> {
    if label.len() > MAX_LABEL {
        return Err(SignalError::Local("a label has at most 255 bytes".to_owned()));
    }
    let init = RTCDataChannelInit {
        ordered: true,
        protocol: protocol.to_owned(),
        ..RTCDataChannelInit::default()
    };
    core.pc.create_data_channel(label, Some(init)).await.map_err(SignalError::local)
}

/// Waits until the peer knows a channel that was created here.
pub(crate) async fn opened(core: &Core, dc: &dyn DataChannel) -> Result<(), CarrierError> {
    loop {
        let event = tokio::select! {
            end = core.ended() => return Err(end.error().into()),
            event = dc.poll() => event,
        };
        match event {
            Some(DataChannelEvent::OnOpen) => {
                core.opened();
                return Ok(());
            }
            Some(DataChannelEvent::OnClose) | None => {
                let text = "the peer refused the channel";
                return Err(io::Error::new(io::ErrorKind::ConnectionRefused, text).into());
            }
            Some(_) => {}
        }
    }
}

/// The label of a channel and its use. `None`: the channel is unordered or unreliable, or closed.
async fn kind(dc: &dyn DataChannel) -> Option<(String, Use)> {
    let label = dc.label().await.ok()?;
    let is_ordered = dc.ordered().await.ok()?;
    let lifetime = dc.max_packet_life_time().await.ok()?;
    let repeats = dc.max_retransmits().await.ok()?;
    let protocol = dc.protocol().await.ok()?;
    if !is_ordered || lifetime.is_some() || repeats.is_some() || label.len() > MAX_LABEL {
        return None;
    }
    let used = if protocol == PROTOCOL { Use::Carrier } else { Use::Stream };
    Some((label, used))
}

impl fmt::Debug for Channels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channels").field("peer", &self.peer).finish_non_exhaustive()
    }
}
