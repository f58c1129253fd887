//! A visitor that is connected with a target of this machine's side, without a stream.

use std::time::Duration;

use net::resolve::Lookups;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional_with_sizes};

use crate::dial::{DialError, TargetAddr, dial};
use crate::{Room, Socket};

/// Bytes that are copied at once, in each direction.
const PIECE: usize = 64 << 10;

/// Dials `target` within `patience` and carries the bytes of a visitor until both directions have
/// ended. A visitor whose target cannot be reached, or breaks, is reset.
///
/// # Errors
/// The dial failed.
pub async fn serve_straight(
    visitor: Socket,
    target: &TargetAddr,
    lookups: &Lookups,
    room: Room,
    patience: Duration,
) -> Result<(), DialError> {
    let dialled = dial(target, None, patience, room, lookups).await.inspect_err(|_| {
        visitor.reset_on_close();
    })?;
    let mut target = dialled.keep();
    let mut visitor = visitor;
    visitor.prepare();
    target.prepare();
    let carried = match (&mut visitor, &mut target) {
        (Socket::Tcp(a), Socket::Tcp(b)) => carry(a, b).await,
        (Socket::Tcp(a), Socket::Unix(b)) => carry(a, b).await,
        (Socket::Unix(a), Socket::Tcp(b)) => carry(a, b).await,
        (Socket::Unix(a), Socket::Unix(b)) => carry(a, b).await,
    };
    if carried.is_err() {
        visitor.reset_on_close();
        target.reset_on_close();
    }
    Ok(())
}

async fn carry(
    a: &mut (impl AsyncRead + AsyncWrite + Unpin),
    b: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> std::io::Result<()> {
    copy_bidirectional_with_sizes(a, b, PIECE, PIECE).await.map(drop)
}
