//! The body of a request to which the server itself responds ([`Own`](crate::Own)): bounded in
//! length and time.

use std::{future::poll_fn, pin::Pin, time::Duration};

use bytes::{Bytes, BytesMut};
use hyper::body::Body as _;
use tokio::time::timeout;

use crate::{Refusal, body::VisitorBody};

/// The time for the whole body.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads a body of at most `longest` bytes.
pub(crate) async fn whole(body: VisitorBody, longest: usize) -> Result<Bytes, Refusal> {
    let read = timeout(PATIENCE, read(body, longest)).await;
    read.unwrap_or(Err(Refusal::new(408, "The body of the request did not come in time.")))
}

async fn read(mut body: VisitorBody, longest: usize) -> Result<Bytes, Refusal> {
    const LONG: Refusal = Refusal::new(413, "The body of the request is too long.");
    if body.size_hint().lower() > longest as u64 {
        return Err(LONG);
    }
    let mut whole = BytesMut::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let frame = frame.map_err(|_| Refusal::new(400, "The body of the request broke off."))?;
        // Trailers are ignored.
        let Ok(piece) = frame.into_data() else { continue };
        if whole.len() + piece.len() > longest {
            return Err(LONG);
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}
