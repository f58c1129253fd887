//! A stream to a target that a visitor named: this end opens it, the far end reports the
//! connection, the visitor gets its answer, and then the stream is an ordinary stream.
//!
//! ```text
//!   open ──> waiting ──byte 0─────> answer: success ──> pump
//!               │ ────reset────────> answer: reason, clean end
//!               │ ────time-out─────> answer: time-out, clean end
//!               └─────disconnect───> end
//! ```
//!
//! An HTTP request waits for the connection, and then passes through the HTTP guard.
//!
//! If the far end does not report, the target counts as connected at once, and a refusal is a
//! reset.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use h1::Tracker;
use net::pool;
use proto::{HEAD_ROOM, Open, Priority, ResetCode, Target};
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;
use transport::Inlet;

use super::Connectors;
use super::handshake::Speech;
use super::substitute::Substitute;
use crate::pipe::{Http, Pipe, Pump};
use crate::stats::open_error_code;
use crate::{End, Permit, Settings, Socket};

/// The time that the report may take in addition to the dial: usually enough to replace a failed
/// carrier.
const REPORT: Duration = Duration::from_secs(20);

/// A visitor that has named its target.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) socket: Socket,
    pub(crate) speech: Speech,
    /// The target, in the form of [`Target::Forward`].
    pub(crate) target: String,
    /// Bytes that the visitor sent after its request.
    pub(crate) rest: BytesMut,
    pub(crate) visitor: Option<SocketAddr>,
    pub(crate) priority: Priority,
    pub(crate) settings: Rc<Settings>,
    pub(crate) permit: Option<Permit>,
}

/// Why a stream is not connected.
enum Unconnected {
    Refused(ResetCode),
    /// The visitor has disconnected.
    Gone,
}

impl Opening {
    /// Opens the stream over `connectors` and spawns its pump once the target is connected.
    /// `connectors` is `None` if there is no link.
    ///
    /// # Errors
    /// Why the target is not connected. The visitor has got its answer already.
    pub(crate) async fn connect(
        mut self,
        connectors: Option<&Connectors>,
    ) -> Result<(), ResetCode> {
        let code = match connectors {
            None => {
                self.settings.stats.count_refused(ResetCode::Shutdown);
                ResetCode::Shutdown
            }
            Some(connectors) => match self.open(connectors).await {
                Ok((pipe, inlet)) => {
                    self.carry(pipe, inlet).await;
                    return Ok(());
                }
                Err(Unconnected::Refused(code)) => code,
                Err(Unconnected::Gone) => return Err(ResetCode::Aborted),
            },
        };
        tracing::debug!(target = self.target, reason = %code, "the target cannot be reached");
        let refusal = self.speech.refusal(code);
        if !refusal.is_empty() && self.socket.write_all(&refusal).await.is_ok() {
            self.speech.farewell(&mut self.socket).await;
        }
        Err(code)
    }

    /// Opens the stream and waits until the target is connected.
    async fn open(
        &mut self,
        connectors: &Connectors,
    ) -> Result<(Rc<Pipe>, Box<dyn Inlet>), Unconnected> {
        let target = self.target.clone();
        let target = match connectors.reports {
            true => Target::Reported(target),
            false => Target::Forward(target),
        };
        let open = Open { target, visitor: self.visitor, priority: self.priority, fields: None };
        let pipe = Pipe::new(Rc::clone(&self.settings), self.visitor);
        let inlet = match connectors.streams.open(open, Rc::<Pipe>::clone(&pipe)) {
            Ok(inlet) => inlet,
            Err(error) => {
                let code = open_error_code(error);
                self.settings.stats.count_refused(code);
                pipe.note_end(End::Refused(code));
                return Err(Unconnected::Refused(code));
            }
        };
        let patience = self.settings.timeouts.dial + REPORT;
        // On an error the inlet is dropped, which aborts open directions.
        let outcome = timeout(patience, self.connected(&pipe, &*inlet, connectors.reports)).await;
        match outcome {
            Ok(Ok(())) => Ok((pipe, inlet)),
            Ok(Err(unconnected)) => {
                // The pipe has recorded and counted a refusal already.
                pipe.note_end(End::Socket);
                pipe.close(true);
                Err(unconnected)
            }
            Err(_) => {
                self.settings.stats.count_refused(ResetCode::Timeout);
                pipe.note_end(End::Refused(ResetCode::Timeout));
                pipe.close(true);
                Err(Unconnected::Refused(ResetCode::Timeout))
            }
        }
    }

    /// Sends the bytes that the visitor has sent already, and waits for the report.
    async fn connected(
        &mut self,
        pipe: &Pipe,
        inlet: &dyn Inlet,
        reports: bool,
    ) -> Result<(), Unconnected> {
        // A request must pass through the guard, which is made later.
        let mut rest = match self.speech {
            Speech::Answer { .. } => BytesMut::new(),
            Speech::Socks5 | Speech::Http | Speech::Ready(_) => std::mem::take(&mut self.rest),
        };
        let (socket, rest) = (&self.socket, &mut rest);
        let mut gone = pin!(socket.failed());
        let mut is_connected = !reports;
        poll_fn(|cx: &mut Context<'_>| {
            pipe.park(cx.waker());
            if let Some(code) = pipe.reset_code() {
                return Poll::Ready(Err(Unconnected::Refused(code)));
            }
            if !is_connected {
                match pipe.take_report() {
                    Some(0) => {
                        inlet.consumed(1);
                        is_connected = true;
                    }
                    // A report that this version does not know.
                    Some(_) => return Poll::Ready(Err(Unconnected::Refused(ResetCode::Internal))),
                    None if pipe.is_finished() => {
                        return Poll::Ready(Err(Unconnected::Refused(ResetCode::Aborted)));
                    }
                    None => {}
                }
            }
            send(pipe, inlet, rest);
            if is_connected && rest.is_empty() {
                return Poll::Ready(Ok(()));
            }
            gone.as_mut().poll(cx).map(|()| Err(Unconnected::Gone))
        })
        .await
    }

    /// Answers the visitor and spawns the pump.
    async fn carry(mut self, pipe: Rc<Pipe>, inlet: Box<dyn Inlet>) {
        // A new socket has room for the answer.
        if self.socket.write_all(&self.speech.success()).await.is_err() {
            pipe.note_end(End::Socket);
            return pipe.close(true);
        }
        if matches!(self.speech, Speech::Answer { .. }) {
            let onward = Rc::new(Substitute { speech: self.speech, stream: None });
            let tracker = Some(Tracker::new(None));
            let http = Http { tracker, first: std::mem::take(&mut self.rest), onward };
            let early = pipe.guard_from_now(http, self.visitor);
            if early > 0 {
                inlet.consumed(early);
            }
        }
        pipe.connect(self.socket);
        tokio::task::spawn_local(Pump::new(pipe, inlet, self.permit));
    }
}

/// Sends bytes of `rest` as far as the link has room.
fn send(pipe: &Pipe, inlet: &dyn Inlet, rest: &mut BytesMut) {
    while !rest.is_empty() {
        let size = rest.len().min(inlet.room());
        if size == 0 {
            return;
        }
        let mut frame = pool::take(HEAD_ROOM + size);
        frame.resize(HEAD_ROOM, 0);
        frame.extend_from_slice(&rest[..size]);
        rest.advance(size);
        pipe.count_in(size);
        inlet.send(&mut frame);
        pool::give(frame);
    }
    *rest = BytesMut::new();
}
