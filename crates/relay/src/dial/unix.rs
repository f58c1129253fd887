//! Connecting to a Unix socket: nothing to resolve, nothing to race.

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use proto::UnixAddr;
use tokio::net::UnixStream;
use tokio::time::sleep;

/// A listener whose queue is full refuses with EAGAIN and wakes nobody when there is room again
/// (connect(2)); TCP would retransmit. Short beside the time a busy service takes for a request.
const FULL_PAUSE: Duration = Duration::from_millis(20);

/// The caller has a deadline.
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
