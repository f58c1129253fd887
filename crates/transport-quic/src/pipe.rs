//! Moves bytes into and out of a stream of quinn, for the lanes of both kinds.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use net::gather;
use quinn::{ReadError, RecvStream, SendStream, WriteError};
use tokio::io::AsyncReadExt;

/// Frames below this size are joined with their neighbours. For each packet quinn iterates over all
/// unacknowledged buffers. A megabyte of tiny buffers would cost ten thousand steps per packet.
const SMALL: usize = 512;

/// The size of a joined buffer, in bytes.
const JOINED: usize = 4 << 10;

/// Writes bytes from the front of `frames`, as many as the windows allow. Only small frames are
/// copied.
pub(crate) fn write(
    stream: &mut SendStream,
    cx: &mut Context<'_>,
    frames: &mut VecDeque<Bytes>,
) -> Poll<Result<usize, WriteError>> {
    gather::advance(frames, 0, drop);
    if frames.is_empty() {
        return Poll::Ready(Ok(0));
    }
    let mut chunks = [const { Bytes::new() }; gather::MOST];
    let filled = pack(frames, &mut chunks);
    let written = ready!(pin!(stream.write_chunks(&mut chunks[..filled])).poll(cx))?;
    gather::advance(frames, written.bytes, drop);
    Poll::Ready(Ok(written.bytes))
}

/// Fills `chunks` from the front of `frames`; returns the number of chunks.
fn pack(frames: &VecDeque<Bytes>, chunks: &mut [Bytes]) -> usize {
    let mut frames = frames.iter().peekable();
    let mut filled = 0;
    for chunk in chunks {
        let Some(first) = frames.next() else { break };
        let neighbours =
            first.len() < SMALL && frames.peek().is_some_and(|next| next.len() < SMALL);
        *chunk = if neighbours {
            let mut joined = BytesMut::from(&first[..]);
            let room = |joined: &BytesMut, next: &Bytes| {
                next.len() < SMALL && joined.len() + next.len() <= JOINED
            };
            while let Some(next) = frames.next_if(|next| room(&joined, next)) {
                joined.extend_from_slice(next);
            }
            joined.freeze()
        } else {
            first.clone()
        };
        filled += 1;
    }
    filled
}

/// Appends the bytes that have arrived in order to `buf`, within its spare capacity. `Ok(0)` is the
/// end.
pub(crate) fn read(
    stream: &mut RecvStream,
    cx: &mut Context<'_>,
    buf: &mut BytesMut,
) -> Poll<Result<usize, ReadError>> {
    let spare = buf.spare_capacity_mut().len();
    let mut limited = buf.limit(spare);
    let done = ready!(pin!(stream.read_buf(&mut limited)).poll(cx));
    Poll::Ready(done.map_err(|error| of_tokio(&error)))
}

/// Unwraps quinn's error, which Tokio's trait returns inside an [`io::Error`].
fn of_tokio(error: &io::Error) -> ReadError {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<ReadError>());
    inner.cloned().unwrap_or(ReadError::ClosedStream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_frames_are_joined_and_large_ones_are_not_copied() {
        let large = Bytes::from(vec![7; 100_000]);
        let small = |byte: u8| Bytes::from(vec![byte; 100]);
        let frames: VecDeque<Bytes> = [
            vec![small(1), small(2), large.clone(), small(3), large.clone()],
            (0..100).map(small).collect(),
        ]
        .concat()
        .into();
        let mut chunks = [const { Bytes::new() }; 64];
        let filled = pack(&frames, &mut chunks);
        let lengths: Vec<_> = chunks[..filled].iter().map(Bytes::len).collect();
        assert_eq!(lengths, [200, 100_000, 100, 100_000, 4_000, 4_000, 2_000]);
        assert_eq!(chunks[1].as_ptr(), large.as_ptr());
        assert_eq!(chunks[..filled].concat(), frames.iter().flatten().copied().collect::<Vec<_>>());
    }
}
