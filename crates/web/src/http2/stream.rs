//! One request of an HTTP/2 visitor, and its response.

use std::{
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Buf as _;
use h2::{Reason, RecvStream, SendStream, server::SendResponse};
use hyper::{
    Method, Request, Response,
    body::Body as _,
    header::{self, HeaderValue},
};
use tokio::{sync::oneshot, time::timeout};

use super::{Inflow, Tunnel, Upload, chunk::Chunk};
use crate::{
    account::{Piece, Share},
    body::{AnswerBody, VisitorBody},
    date, fields,
    interim::{Queue, Sink},
    multiplex,
    proxy::Connection,
};

/// If a visitor still sends after its response is complete, the stream is reset after this time
/// (RFC 9113 section 8.1). Programs that get the reset together with the response, such as curl
/// 7.88, treat the request as failed. Meanwhile the window of the stream bounds what the visitor
/// sends.
const FAREWELL: Duration = Duration::from_secs(1);

/// Serves a stream that a request has opened.
pub(super) fn serve(
    connection: Rc<Connection>,
    inflow: &Rc<Inflow>,
    request: Request<RecvStream>,
    respond: SendResponse<Chunk>,
) -> impl Future<Output = ()> + 'static {
    let (mut parts, incoming) = request.into_parts();
    fields::join_cookies(&mut parts.headers);
    let id = respond.stream_id().as_u32();
    // The body is received from now on: frames of it may follow in this turn.
    let (mut tunnel, mut is_over) = (None, None);
    let body = if parts.method == Method::CONNECT {
        let (give, take) = oneshot::channel();
        tunnel = Some((Upload::new(inflow, id, incoming, None), give));
        VisitorBody::Tunnel(take)
    } else if incoming.is_end_stream() {
        VisitorBody::Empty
    } else {
        let length = parts.headers.get(header::CONTENT_LENGTH);
        let length = length.and_then(|value| value.to_str().ok()?.parse().ok());
        let upload = Upload::new(inflow, id, incoming, length);
        is_over = Some(upload.is_over());
        VisitorBody::Stream(upload)
    };
    let inflow = Rc::clone(inflow);
    async move {
        let request = Request::from_parts(parts, body);
        match answer(connection, request, respond, tunnel).await {
            Ok(stream) => {
                inflow.calm.served();
                if let Some(mut stream) = stream
                    && is_over.is_some_and(|is_over| !is_over.get())
                {
                    // No wait if the visitor resets the stream itself.
                    let reset = std::future::poll_fn(|cx| stream.poll_reset(cx));
                    let _ = timeout(FAREWELL, reset).await;
                }
            }
            Err(Ended::Visitor(error)) => {
                tracing::debug!(%error, "a visitor has cancelled a request");
                inflow.cancelled();
            }
            Err(Ended::Target(reason)) => {
                tracing::debug!(%reason, "the target has ended a stream of a visitor");
            }
        }
    }
}

/// Why a request has no complete response.
enum Ended {
    /// The visitor has reset the stream, or made h2 reset it.
    Visitor(h2::Error),
    /// The stream was reset because of the target.
    Target(Reason),
}

impl From<h2::Error> for Ended {
    fn from(error: h2::Error) -> Self {
        Self::Visitor(error)
    }
}

/// The upload of a tunnel, and the channel by which its stream is handed over.
type Offer = (Upload, oneshot::Sender<Tunnel>);

/// Returns the stream after a complete response.
async fn answer(
    connection: Rc<Connection>,
    request: Request<VisitorBody>,
    mut respond: SendResponse<Chunk>,
    tunnel: Option<Offer>,
) -> Result<Option<SendStream<Chunk>>, Ended> {
    let account = Rc::clone(&connection.account);
    // For a stream that was reset before it was accepted, no stream to a target is opened.
    if let Poll::Ready(reset) = std::future::poll_fn(|cx| Poll::Ready(respond.poll_reset(cx))).await
    {
        return Err(reset.map_or_else(|error| error, h2::Error::from).into());
    }
    let response = {
        let interim = Rc::<Queue>::default();
        let mut handled = pin!(connection.handle(request, Sink::Stream(Rc::clone(&interim))));
        let response = std::future::poll_fn(|cx| {
            let handled = handled.as_mut().poll(cx);
            while let Some(head) = interim.next(cx) {
                if let Err(error) = respond.send_informational(head) {
                    return Poll::Ready(Err(Ended::Visitor(error)));
                }
            }
            if let Poll::Ready(handled) = handled {
                return Poll::Ready(handled.map_err(|_| Ended::Target(Reason::REFUSED_STREAM)));
            }
            // A visitor that resets the stream does not wait for the response.
            let reset = respond.poll_reset(cx);
            reset.map(|reset| Err(reset.map_or_else(|error| error, h2::Error::from).into()))
        });
        response.await
    };
    let response = match response {
        Ok(response) => response,
        Err(ended) => {
            // Over HTTP/2, REFUSED_STREAM signals a request that was not processed (RFC 9113
            // section 8.7).
            if let Ended::Target(reason) = ended {
                respond.send_reset(reason);
            }
            return Err(ended);
        }
    };
    let (parts, body) = response.into_parts();
    let mut head = Response::from_parts(parts, ());
    fields::strip_hop_by_hop(head.headers_mut());
    head.headers_mut().entry(header::DATE).or_insert_with(date::now);
    if let Some((upload, give)) = tunnel
        && head.status().is_success()
        && !give.is_closed()
    {
        head.headers_mut().remove(header::CONTENT_LENGTH);
        let stream = respond.send_response(head, false)?;
        let _ = give.send(Tunnel::new(upload, stream, Share::new(&account)));
        return Ok(None);
    }
    if body.is_end_stream() {
        return Ok(Some(respond.send_response(head, true)?));
    }
    if let Some(length) = body.size_hint().exact() {
        let length = || HeaderValue::from(length);
        head.headers_mut().entry(header::CONTENT_LENGTH).or_insert_with(length);
    }
    let stream = respond.send_response(head, false)?;
    let mut sending = Sending { stream, body: pin!(body), next: None };
    std::future::poll_fn(|cx| sending.poll(cx)).await?;
    Ok(Some(sending.stream))
}

/// The body of a response on its way to h2.
struct Sending<'b> {
    stream: SendStream<Chunk>,
    body: Pin<&'b mut AnswerBody>,
    /// A piece that is blocked by the visitor's window, and whether it is the last piece.
    next: Option<(Piece, bool)>,
}

impl Sending<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        loop {
            if let Poll::Ready(reset) = self.stream.poll_reset(cx) {
                return Poll::Ready(Err(reset.map_or_else(|error| error, h2::Error::from).into()));
            }
            if self.next.is_some() {
                while self.stream.capacity() == 0 {
                    match ready!(self.stream.poll_capacity(cx)) {
                        Some(capacity) => drop(capacity?),
                        // The stream has ended.
                        None => {
                            return Poll::Ready(Err(h2::Error::from(Reason::CANCEL).into()));
                        }
                    }
                }
                if let Some((piece, is_last)) = self.next.take() {
                    self.stream.send_data(Chunk::Piece(piece), is_last)?;
                    if is_last {
                        return Poll::Ready(Ok(()));
                    }
                }
            }
            // A piece is fetched before a byte of the connection window is reserved: otherwise an
            // idle stream would withhold the byte from the others.
            match ready!(self.body.as_mut().poll_frame(cx)) {
                None => {
                    self.stream.send_data(Chunk::Empty, true)?;
                    return Poll::Ready(Ok(()));
                }
                Some(Err(error)) => {
                    tracing::debug!(%error, "the body of an answer broke off");
                    // A target over HTTP/2 has sent the reason.
                    let reason = multiplex::reason(&error).unwrap_or(Reason::INTERNAL_ERROR);
                    self.stream.send_reset(reason);
                    return Poll::Ready(Err(Ended::Target(reason)));
                }
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(piece) => {
                        let is_last = self.body.is_end_stream();
                        // h2 reserves the rest when it gets the piece.
                        self.stream.reserve_capacity(1);
                        if piece.has_remaining() {
                            self.next = Some((piece, is_last));
                        } else if is_last {
                            self.stream.send_data(Chunk::Empty, true)?;
                            return Poll::Ready(Ok(()));
                        }
                    }
                    Err(frame) => {
                        self.stream.reserve_capacity(0);
                        let trailers = frame.into_trailers().unwrap_or_default();
                        self.stream.send_trailers(trailers)?;
                        return Poll::Ready(Ok(()));
                    }
                },
            }
        }
    }
}
