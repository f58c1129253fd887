//! The two tasks of a data channel: bytes of its lane become messages, and messages bytes.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};
use webrtc::data_channel::{DataChannel, DataChannelEvent, RTCDataChannelState};

use crate::connection::{Core, Hold};
use crate::error::End;
use crate::lane::ChannelLane;
use crate::sdp::MAX_MESSAGE;
use crate::shared::{Shared, Work};

/// How long bytes of a lane that was closed and dropped may take to arrive.
const LINGER: Duration = Duration::from_secs(10);

/// How often a lingering channel is looked at; the library tells nobody that a stream is empty.
const LOOK: Duration = Duration::from_millis(10);

/// What a data channel carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// The one lane of a carrier. It ends by its end mark alone.
    Carrier,
    /// A stream of a program that is no tunnel. The program may end it by closing the channel.
    Stream,
}

/// Starts the tasks of an open channel and returns its lane.
pub(crate) fn lane(
    dc: Arc<dyn DataChannel>,
    core: &Arc<Core>,
    hold: Arc<Hold>,
    used: Use,
) -> ChannelLane {
    let shared = Arc::new(Shared::new());
    if used == Use::Stream {
        // A stranger among programs is turned away before there is a channel.
        shared.lock().authenticated();
    }
    let sender = Sender { dc: Arc::clone(&dc), core: Arc::clone(core), hold: Arc::clone(&hold) };
    spawn_local(sender.run(Arc::clone(&shared), used));
    let receiver = Receiver { dc, core: Arc::clone(core), shared: Arc::clone(&shared), used };
    spawn_local(receiver.run());
    ChannelLane::new(shared, hold, used == Use::Carrier)
}

/// Keeps the connection until the bytes of its channel are delivered.
struct Sender {
    dc: Arc<dyn DataChannel>,
    core: Arc<Core>,
    hold: Arc<Hold>,
}

impl Sender {
    async fn run(self, shared: Arc<Shared>, used: Use) {
        let is_clean = loop {
            let message = match shared.next().await {
                Work::Send(message) => message,
                Work::Finish => BytesMut::new(),
                Work::Leave { is_clean } => break is_clean,
            };
            let length = message.len();
            let sent = tokio::select! {
                biased;
                () = shared.given_up() => break false,
                sent = self.dc.send(message) => sent,
            };
            if sent.is_err() {
                shared.die(self.core.end().unwrap_or(End::Closed));
                break false;
            }
            self.core.touch();
            if length == 0 {
                shared.finished();
            } else {
                shared.sent(length);
            }
        };
        if is_clean {
            // The time is for a peer that reads no more.
            let _ = timeout(LINGER, self.deliver()).await;
        } else if used == Use::Stream {
            let _ = self.dc.close().await;
        }
        drop(self.hold);
    }

    /// Waits until the peer has acknowledged all bytes, and closes the channel behind them.
    async fn deliver(&self) {
        while self.dc.outstanding_bytes().await.is_ok_and(|bytes| bytes > 0) {
            sleep(LOOK).await;
        }
        // The channel closes behind the end mark (RFC 8831 section 6.7).
        let _ = self.dc.close().await;
        while self.dc.ready_state().await.is_ok_and(|state| state != RTCDataChannelState::Closed) {
            sleep(LOOK).await;
        }
    }
}

struct Receiver {
    dc: Arc<dyn DataChannel>,
    core: Arc<Core>,
    shared: Arc<Shared>,
    used: Use,
}

impl Drop for Receiver {
    /// A lane on another thread hears of the end of this runtime.
    fn drop(&mut self) {
        self.shared.die(End::Driver);
    }
}

impl Receiver {
    async fn run(self) {
        while self.shared.wait_for_room().await {
            let event = tokio::select! {
                biased;
                () = self.shared.left() => return,
                event = self.dc.poll() => event,
            };
            match event {
                Some(DataChannelEvent::OnMessage(message)) => {
                    self.core.touch();
                    if let Err(end) = self.message(message.data) {
                        self.shared.die(end);
                        return;
                    }
                }
                Some(DataChannelEvent::OnClose) => return self.closed().await,
                Some(_) => {}
                None => return self.shared.die(self.core.end().unwrap_or(End::Closed)),
            }
        }
    }

    fn message(&self, data: BytesMut) -> Result<(), End> {
        if data.len() > MAX_MESSAGE {
            return Err(End::Long);
        }
        self.shared.arrive(data)
    }

    async fn closed(&self) {
        if self.used == Use::Stream && self.core.is_connected().await {
            self.shared.end_of_peer();
        }
        self.shared.die(self.core.end().unwrap_or(End::Closed));
    }
}
