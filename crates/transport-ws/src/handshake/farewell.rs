//! The last answer on a connection that becomes no WebSocket.

use std::future::poll_fn;

use bytes::Bytes;
use net::pool;
use transport::{CarrierError, Lane};

use super::head::{self, HEAD};

/// The largest number of bytes that the server still reads from a refused client, so that the
/// answer reaches the client.
const DISCARD: usize = 64 << 10;

/// Sends the answer, ends our direction, and waits until the client ends its own. Closing the
/// socket with unread bytes would send a reset, and the reset could destroy the answer.
pub(super) async fn send_away(lane: &mut dyn Lane, answer: Bytes) -> Result<(), CarrierError> {
    head::write(lane, answer).await?;
    poll_fn(|cx| lane.poll_close(cx)).await?;
    let (mut seen, mut buf) = (0, pool::take(HEAD));
    while seen < DISCARD {
        buf.clear();
        match poll_fn(|cx| lane.poll_read(cx, &mut buf)).await? {
            0 => break,
            size => seen += size,
        }
    }
    pool::give(buf);
    Ok(())
}
