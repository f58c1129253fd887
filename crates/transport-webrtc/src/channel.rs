//! The two tasks of a data channel: they convert the bytes of its lane to messages, and messages to
//! bytes.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep, timeout};
use webrtc::data_channel::{DataChannel, DataChannelEvent, RTCDataChannelMessage};

use crate::ahead::Ahead;
use crate::connection::{Core, Hold};
use crate::error::End;
use crate::lane::ChannelLane;
use crate::sdp::MAX_MESSAGE;
use crate::shared::{Shared, Work};

/// The timeout for delivering the bytes of a closed and dropped lane.
const LINGER: Duration = Duration::from_secs(10);

/// The polling interval of a lingering channel; the library does not report that a stream is empty.
const LOOK: Duration = Duration::from_millis(10);

/// The polling interval of a slow path, which delivers about one message in this time.
const STEP: Duration = Duration::from_millis(5);

/// The end mark of a carrier.
const END: &str = "end";

/// The message of a carrier's reader after it has seen the end mark. The library of the other end
/// drops received but unread data when the connection closes, so only a receipt of the reader shows
/// that the connection may close.
const RECEIPT: &str = "received";

/// The use of a data channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// The one lane of a carrier: bytes in binary messages; [`END`] and [`RECEIPT`] are text.
    Carrier,
    /// A stream of a program without a tunnel. An empty message is the end mark.
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
        // An unauthenticated program is refused before there is a channel.
        shared.lock().authenticated();
    }
    let sender = Sender {
        dc: Arc::clone(&dc),
        core: Arc::clone(core),
        shared: Arc::clone(&shared),
        used,
        hold: Arc::clone(&hold),
        ahead: RefCell::new(Ahead::new(core.window())),
        taken: Cell::new(0),
    };
    spawn_local(sender.run());
    let receiver = Receiver { dc, core: Arc::clone(core), shared: Arc::clone(&shared), used };
    spawn_local(receiver.run());
    ChannelLane::new(shared, hold, used == Use::Carrier)
}

/// Keeps the connection until the bytes of its channel are delivered.
struct Sender {
    dc: Arc<dyn DataChannel>,
    core: Arc<Core>,
    shared: Arc<Shared>,
    used: Use,
    hold: Arc<Hold>,
    ahead: RefCell<Ahead>,
    /// The number of bytes that the library has accepted since the start.
    taken: Cell<u64>,
}

impl Sender {
    async fn run(self) {
        let is_clean = self.send_all().await;
        if is_clean {
            // The timeout covers a peer that no longer reads.
            let _ = timeout(LINGER, self.deliver()).await;
        }
        if self.used == Use::Stream {
            let _ = self.dc.close().await;
        }
        drop(self.hold);
    }

    /// Sends the bytes of the lane until the lane is dropped. Returns whether the lane had ended.
    async fn send_all(&self) -> bool {
        loop {
            let work = self.shared.next().await;
            if let Work::Leave { is_clean } = work {
                return is_clean;
            }
            let sent = tokio::select! {
                biased;
                () = self.shared.given_up() => return false,
                sent = self.send(work) => sent,
            };
            if sent.is_err() {
                self.shared.die(self.core.end().unwrap_or(End::Closed));
                return false;
            }
            self.core.touch();
        }
    }

    async fn send(&self, work: Work) -> webrtc::error::Result<()> {
        match (work, self.used) {
            (Work::Send(message), _) => {
                let length = message.len();
                self.may_send().await?;
                self.dc.send(message).await?;
                self.taken.set(self.taken.get() + length as u64);
                self.shared.sent(length);
            }
            (Work::Finish, used) => {
                match used {
                    Use::Carrier => self.dc.send_text(END).await?,
                    Use::Stream => self.dc.send(BytesMut::new()).await?,
                }
                self.shared.finished();
            }
            (Work::Receipt, Use::Carrier) => self.dc.send_text(RECEIPT).await?,
            (Work::Receipt, Use::Stream) | (Work::Leave { .. }, _) => {}
        }
        Ok(())
    }

    /// Waits until the library holds less than the bound of this path.
    async fn may_send(&self) -> webrtc::error::Result<()> {
        loop {
            let waiting = self.dc.outstanding_bytes().await?;
            let acknowledged = self.taken.get().saturating_sub(waiting as u64);
            let allowed = self.ahead.borrow_mut().allowed(Instant::now().into_std(), acknowledged);
            // With a full window the library itself waits, and wakes when an acknowledgement
            // arrives.
            if waiting < allowed || allowed >= self.core.window() {
                return Ok(());
            }
            sleep(STEP).await;
        }
    }

    /// Waits until the peer has all bytes.
    async fn deliver(&self) {
        match self.used {
            Use::Carrier => self.shared.received().await,
            // The channel closes after the end mark (RFC 8831 section 6.7).
            Use::Stream => {
                while self.dc.outstanding_bytes().await.is_ok_and(|bytes| bytes > 0) {
                    sleep(LOOK).await;
                }
            }
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
    /// A lane on another thread is notified of the end of this runtime.
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
                    if let Err(end) = self.message(message) {
                        self.shared.die(end);
                        return;
                    }
                }
                Some(DataChannelEvent::OnClose) | None => {
                    return self.shared.die(self.core.end().unwrap_or(End::Closed));
                }
                Some(_) => {}
            }
        }
    }

    fn message(&self, message: RTCDataChannelMessage) -> Result<(), End> {
        let RTCDataChannelMessage { is_string, data } = message;
        if data.len() > MAX_MESSAGE {
            return Err(End::Long);
        }
        match (self.used, is_string) {
            (Use::Carrier, true) if *data == *END.as_bytes() => self.shared.end_of_peer(),
            (Use::Carrier, true) if *data == *RECEIPT.as_bytes() => {
                self.shared.receipt();
                Ok(())
            }
            (Use::Carrier, true) => Err(End::Foreign),
            (Use::Stream, _) if data.is_empty() => self.shared.end_of_peer(),
            _ => self.shared.arrive(data),
        }
    }
}
