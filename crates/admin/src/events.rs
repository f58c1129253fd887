//! `GET /api/v1/events`: changes in the daemon, as server-sent events (HTML, section 9.2).

use std::fmt::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_TYPE, HeaderName};
use axum::response::{IntoResponse, Response};
use hyper::body::{Body as HttpBody, Frame};
use ops::command::News;
use ops::events::Changed;
use tokio::sync::mpsc;

/// The response whose body carries the events of `inbox`, and ends with it.
pub(super) fn answer(inbox: mpsc::Receiver<News>) -> Response {
    let fields = [(CONTENT_TYPE, "text/event-stream"), UNBUFFERED];
    (fields, Body::new(Stream(inbox))).into_response()
}

/// Asks nginx and compatible proxies to forward each event at once: a buffer would hold events back
/// until it is full.
pub(super) const UNBUFFERED: (HeaderName, &str) =
    (HeaderName::from_static("x-accel-buffering"), "no");

#[derive(Debug)]
struct Stream(mpsc::Receiver<News>);

impl HttpBody for Stream {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(cx).map(|next| next.map(|next| Ok(Frame::data(text(&next).into()))))
    }
}

/// One event of the stream. A line that begins with a colon is a comment, which keeps the
/// connection alive.
fn text(news: &News) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = match news {
        News::Event(event) => {
            let name = match &event.change {
                Changed::Link { .. } => "link",
                Changed::Service { .. } => "service",
                Changed::Client { .. } => "client",
                Changed::Certificate { .. } => "certificate",
                Changed::Refusal { .. } => "refusal",
            };
            let data = serde_json::to_string(event).unwrap_or_default();
            write!(text, "event: {name}\ndata: {data}\n\n")
        }
        News::Lost(count) => write!(text, "event: lost\ndata: {{\"count\":{count}}}\n\n"),
        // Among events only `Ok` occurs, at the start of the stream and while nothing changes.
        News::Ok | News::Shared(_) | News::Visit(_) | News::Progress(_) => write!(text, ":\n\n"),
    };
    text
}
