//! The messages of the server and the client of a private service about a WebRTC offer. The server
//! opens the stream as for a visitor; the first byte of a visitor is that of TLS (22).
//!
//! ```text
//!   server:  1  proof (32)  length (2)  offer
//!   client:  1  signature (32)  length (2)  answer      or: 0  reason (1)
//!   server:  2, and its end: the program requests the end of the connection
//!   client:  its end: the connection has ended
//! ```
//!
//! Numbers are big-endian. A lost stream does not end the connection, which does not need the
//! server.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;

use bytes::{Bytes, BytesMut};
use transport::Lane;

/// The first byte of an offer.
pub(crate) const OFFER: u8 = 1;

/// Requests the end of the connection.
pub const END: u8 = 2;

/// The maximum length of a session description, in bytes.
pub const DESCRIPTION: usize = 16 << 10;

/// The reply of the client to an offer.
#[derive(Debug, PartialEq, Eq)]
pub enum Reply {
    Answer([u8; 32], String),
    Refused(Why),
}

/// Why an offer is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The proof is wrong, or the visitor may not visit.
    Proof,
    /// The offer cannot be used, or a limit is reached.
    Unable,
    /// The client was built without WebRTC.
    Without,
}

/// The bytes of an offer.
pub fn offer(proof: &[u8; 32], text: &str) -> Vec<u8> {
    said(proof, text)
}

/// The bytes of a reply.
pub fn bytes(reply: &Reply) -> Vec<u8> {
    match reply {
        Reply::Answer(signature, text) => said(signature, text),
        Reply::Refused(why) => vec![
            0,
            match why {
                Why::Proof => 0,
                Why::Unable => 1,
                Why::Without => 2,
            },
        ],
    }
}

fn said(code: &[u8; 32], text: &str) -> Vec<u8> {
    let mut out = vec![OFFER];
    out.extend(code);
    // A description is never longer than `DESCRIPTION`.
    out.extend(u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend(text.as_bytes());
    out
}

/// Reads what follows the first byte of an offer.
pub(crate) async fn read_offer(lane: &mut dyn Lane) -> io::Result<([u8; 32], String)> {
    let mut code = [0; 32];
    fill(lane, &mut code).await?;
    let mut length = [0; 2];
    fill(lane, &mut length).await?;
    let length = usize::from(u16::from_be_bytes(length));
    if length > DESCRIPTION {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length];
    fill(lane, &mut text).await?;
    let text = String::from_utf8(text).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok((code, text))
}

/// Reads a reply.
pub async fn reply(lane: &mut dyn Lane) -> io::Result<Reply> {
    match byte(lane).await? {
        Some(OFFER) => {
            let (signature, text) = read_offer(lane).await?;
            Ok(Reply::Answer(signature, text))
        }
        Some(0) => Ok(Reply::Refused(match byte(lane).await? {
            Some(0) => Why::Proof,
            Some(2) => Why::Without,
            _ => Why::Unable,
        })),
        Some(_) => Err(io::ErrorKind::InvalidData.into()),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// The next byte; `None`: the end. Cancel-safe.
pub async fn byte(lane: &mut dyn Lane) -> io::Result<Option<u8>> {
    // At most the spare capacity arrives.
    let mut one = BytesMut::with_capacity(1);
    poll_fn(|cx| lane.poll_read(cx, &mut one)).await?;
    Ok(one.first().copied())
}

async fn fill(lane: &mut dyn Lane, room: &mut [u8]) -> io::Result<()> {
    let mut at = 0;
    while at < room.len() {
        let mut part = BytesMut::with_capacity(room.len() - at);
        if poll_fn(|cx| lane.poll_read(cx, &mut part)).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        room[at..at + part.len()].copy_from_slice(&part);
        at += part.len();
    }
    Ok(())
}

/// Writes all of `bytes`.
pub async fn write(lane: &mut dyn Lane, bytes: &[u8]) -> io::Result<()> {
    let mut frames = VecDeque::from([Bytes::copy_from_slice(bytes)]);
    while !frames.is_empty() {
        poll_fn(|cx| lane.poll_write(cx, &mut frames)).await?;
    }
    poll_fn(|cx| lane.poll_flush(cx)).await
}

/// Waits until the far end has ended its direction, or the stream is lost.
pub async fn over(lane: &mut dyn Lane) {
    while let Ok(Some(_)) = byte(lane).await {}
}

#[cfg(test)]
mod tests {
    use transport::memory;

    use super::*;

    #[tokio::test]
    async fn what_is_said_is_read() {
        let text = "v=0\r\n".repeat(100);
        for reply in [
            Reply::Answer([7; 32], text.clone()),
            Reply::Refused(Why::Proof),
            Reply::Refused(Why::Unable),
            Reply::Refused(Why::Without),
        ] {
            let (mut near, mut far) = memory::pair(memory::Faults::default());
            write(&mut near, &bytes(&reply)).await.unwrap();
            assert_eq!(super::reply(&mut far).await.unwrap(), reply);
        }
        let (mut near, mut far) = memory::pair(memory::Faults::default());
        write(&mut near, &offer(&[9; 32], &text)).await.unwrap();
        assert_eq!(byte(&mut far).await.unwrap(), Some(OFFER));
        assert_eq!(read_offer(&mut far).await.unwrap(), ([9; 32], text));
        drop(near);
        over(&mut far).await;
    }

    #[tokio::test]
    async fn a_description_that_is_too_long_or_no_text_is_refused() {
        for (length, first) in [(DESCRIPTION + 1, b'v'), (4, 0xff)] {
            let (mut near, mut far) = memory::pair(memory::Faults::default());
            let mut said = [0; 32].to_vec();
            said.extend(u16::try_from(length).unwrap().to_be_bytes());
            said.extend(std::iter::repeat_n(first, 4));
            write(&mut near, &said).await.unwrap();
            let error = read_offer(&mut far).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }
}
