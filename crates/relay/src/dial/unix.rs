//! Connects to a Unix socket, which needs no resolution and no race.

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use proto::UnixAddr;
use tokio::net::UnixStream;
use tokio::time::sleep;

/// The pause before connecting again to a listener whose queue is full. The system returns EAGAIN
/// and sends no wake-up when the queue has room again (connect(2)); TCP would retransmit. The pause
/// is short compared with the time that a busy service takes for a request.
const FULL_PAUSE: Duration = Duration::from_millis(20);

/// Connects to `address`. The caller sets the deadline.
pub(super) async fn connect(address: &UnixAddr) -> io::Result<UnixStream> {
    let path = match address.abstract_name() {
        Some(name) => OsString::from(format!("\0{name}")),
        None => address.place().into(),
    };
    loop {
        match UnixStream::connect(&path).await {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => sleep(FULL_PAUSE).await,
            outcome => return outcome,
        }
    }
}
