//! The data that a visitor sends with a request, by protocol.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::sync::oneshot;

use super::Broken;
use crate::http2::{Tunnel, Upload};

#[derive(Debug)]
pub(crate) enum VisitorBody {
    /// Nothing.
    Empty,
    /// Over HTTP/1.
    Incoming(Incoming),
    /// Over HTTP/2.
    Stream(Upload),
    /// An extended CONNECT of HTTP/2: the stream of the visitor, once the response is sent.
    Tunnel(oneshot::Receiver<Tunnel>),
}

impl VisitorBody {
    /// Whether a byte is known to have arrived. For HTTP/1, hyper does not report that.
    pub(super) fn has_begun(&self) -> bool {
        matches!(self, Self::Stream(upload) if upload.has_begun())
    }

    /// Whether memory is too short for the body.
    pub(crate) const fn is_starved(&self) -> bool {
        matches!(self, Self::Stream(upload) if upload.is_starved())
    }
}

impl Body for VisitorBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match self.get_mut() {
            Self::Empty | Self::Tunnel(_) => Poll::Ready(None),
            Self::Incoming(incoming) => {
                let frame = ready!(Pin::new(incoming).poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map_err(Broken::Message)))
            }
            Self::Stream(upload) => upload.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty | Self::Tunnel(_) => true,
            Self::Incoming(incoming) => incoming.is_end_stream(),
            Self::Stream(upload) => upload.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty | Self::Tunnel(_) => SizeHint::with_exact(0),
            Self::Incoming(incoming) => incoming.size_hint(),
            Self::Stream(upload) => upload.size_hint(),
        }
    }
}
