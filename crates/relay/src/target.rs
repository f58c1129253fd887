//! The accepting end of streams: a stream of a link becomes a connection to a target.

use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use proto::{HEAD_ROOM, ResetCode};
use transport::{Inlet, LocalFuture, Outlet};

use crate::dial::{self, Allow, DialError, Dialled, TargetAddr};
use crate::pipe::{ByteEnd, Layered, Pipe, Pump, Spectator, StreamInlet};
use crate::{End, Permit, Settings, Socket, Visitor};

/// The far end of an incoming stream.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// The rule for the target. It checks every resolved address. Without a rule every target is
    /// permitted.
    pub allow: Option<Allow>,
    /// The visitor.
    pub visitor: Visitor,
    /// The bytes that the target gets before all bytes of the stream. No counter and no credit
    /// includes them.
    pub header: Option<Bytes>,
    /// The report of the connection to the far side, before all bytes of the target.
    pub report: Report,
}

/// The report to the opener of a stream once the target is connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Report {
    /// Nothing.
    #[default]
    Nothing,
    /// The success of the dial: a byte 0 ([`proto::Target::Reported`]).
    Connected,
    /// The selected target: [`Targets::mark`] ([`proto::Target::Marked`]).
    Mark,
}

/// A layer above the socket of a target, such as TLS.
pub trait Layer: fmt::Debug {
    /// Whether the layer depends on the first bytes of the stream and must wait for them.
    fn asks_first_bytes(&self) -> bool {
        true
    }

    /// Makes the layer. `is_http2`: the stream begins with the HTTP/2 connection preface (RFC 9113
    /// section 3.4).
    fn wrap(
        &self,
        socket: Socket,
        is_http2: bool,
    ) -> LocalFuture<'static, Result<Layered, LayerError>>;
}

/// Why a layer could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerError {
    /// The reason as text, which continues a sentence after "the target".
    pub reason: String,
    /// Whether the target only lacks the protocol of this visitor, and may serve other visitors.
    pub is_of_visitor: bool,
}

impl From<String> for LayerError {
    fn from(reason: String) -> Self {
        Self { reason, is_of_visitor: false }
    }
}

/// The targets of one stream, in the order in which they are dialled. A [`TargetAddr`] is the only
/// target of its streams. Each dial has the full [`Timeouts::dial`](crate::Timeouts::dial), and
/// only the last dial is reported to the watcher of the stream.
pub trait Targets: 'static {
    /// The first target to dial.
    fn first(&self) -> TargetAddr;

    /// The target to dial after the targets of `failed`, the last of which has just failed. `None`:
    /// the stream is refused with the last reason.
    fn next(&self, failed: &[DialError]) -> Option<TargetAddr>;

    /// The mark of the target that was dialled last.
    fn mark(&self) -> u64 {
        0
    }

    /// Records the time of the connection to the target that was dialled last.
    fn connected(&self, took: Duration) {
        let _ = took;
    }

    /// Records whether a flow to the target that was dialled last is answered, or has been silent
    /// for long. Returns whether a flow without an answer should move to another target.
    fn note_answers(&self, answers: bool) -> bool {
        let _ = answers;
        false
    }

    /// The layer between the socket of this target and the bytes of the stream.
    fn layer(&self, target: &TargetAddr) -> Option<Rc<dyn Layer>> {
        let _ = target;
        None
    }

    /// The spectator of the bytes of a stream that is connected with a target.
    fn spectator(&self) -> Option<Box<dyn Spectator>> {
        None
    }
}

impl<T: Targets + ?Sized> Targets for Rc<T> {
    fn first(&self) -> TargetAddr {
        (**self).first()
    }

    fn next(&self, failed: &[DialError]) -> Option<TargetAddr> {
        (**self).next(failed)
    }

    fn mark(&self) -> u64 {
        (**self).mark()
    }

    fn connected(&self, took: Duration) {
        (**self).connected(took);
    }

    fn note_answers(&self, answers: bool) -> bool {
        (**self).note_answers(answers)
    }

    fn layer(&self, target: &TargetAddr) -> Option<Rc<dyn Layer>> {
        (**self).layer(target)
    }

    fn spectator(&self) -> Option<Box<dyn Spectator>> {
        (**self).spectator()
    }
}

impl Targets for TargetAddr {
    fn first(&self) -> TargetAddr {
        self.clone()
    }

    fn next(&self, _failed: &[DialError]) -> Option<TargetAddr> {
        None
    }
}

/// Dials the targets until one of them is connected, and pumps bytes between the target and the
/// stream. Returns the outlet at once, which queues the bytes that arrive during the dial. If every
/// dial fails, the stream is reset with the last reason.
pub fn connect_stream(
    targets: impl Targets,
    caller: Caller,
    inlet: impl Into<StreamInlet>,
    settings: &Rc<Settings>,
    permit: Option<Permit>,
) -> Rc<dyn Outlet> {
    let Caller { allow, visitor, header, report } = caller;
    let pipe = Pipe::new(Rc::clone(settings), visitor);
    // Cloning the `Lookups` would touch a counter that all workers share.
    let (own, first) = (Rc::clone(settings), Rc::clone(&pipe));
    let dial = Box::pin(async move {
        let (mut target, mut failed) = (targets.first(), Vec::new());
        loop {
            let connecting = connect(&own, target, allow.as_ref(), header.as_deref());
            let connected = match connecting.await {
                Ok((dialled, target)) => {
                    targets.connected(dialled.took());
                    match targets.layer(&target) {
                        Some(layer) => wrap(&*layer, dialled, target, &first, &own).await,
                        None => Ok(dialled.keep().into()),
                    }
                }
                Err(error) => Err(error),
            };
            match connected {
                Ok(dialled) => {
                    return Ok((observed(dialled, targets.spectator()), targets.mark()));
                }
                Err(error) => failed.push(error),
            }
            match targets.next(&failed) {
                Some(next) => target = next,
                None => return Err(failed.swap_remove(failed.len() - 1)),
            }
        }
    });
    let outlet = Rc::<Pipe>::clone(&pipe);
    tokio::task::spawn_local(Dialling { pipe, dial, report, rest: Some((inlet.into(), permit)) });
    outlet
}

fn observed(end: ByteEnd, spectator: Option<Box<dyn Spectator>>) -> ByteEnd {
    match spectator {
        Some(spectator) => end.observed(spectator),
        None => end,
    }
}

/// Makes the layer above a connection to a target, within the dial time-out. A layer that depends
/// on the first bytes of the stream waits for them.
async fn wrap(
    layer: &dyn Layer,
    dialled: Dialled,
    target: TargetAddr,
    first: &Pipe,
    settings: &Settings,
) -> Result<ByteEnd, DialError> {
    // The pipe wakes the task with each byte.
    let looking = poll_fn(|_| match first.begins_with(h1::PREFACE) {
        Some(is_http2) => Poll::Ready(is_http2),
        None => Poll::Pending,
    });
    let is_http2 = layer.asks_first_bytes()
        && tokio::time::timeout(settings.timeouts.dial, looking).await.unwrap_or(false);
    let socket = dialled.keep();
    socket.begin(&settings.socket.below_layer());
    let wrapping = layer.wrap(socket, is_http2);
    match tokio::time::timeout(settings.timeouts.dial, wrapping).await {
        Ok(Ok(layered)) => Ok(layered.into()),
        Ok(Err(LayerError { reason, is_of_visitor: true })) => {
            Err(DialError::Protocol { target, reason })
        }
        Ok(Err(LayerError { reason, .. })) => Err(DialError::Layer { target, reason }),
        Err(_) => Err(DialError::Timeout(target)),
    }
}

/// Dials a target and writes the header to it.
async fn connect(
    settings: &Settings,
    target: TargetAddr,
    allow: Option<&Allow>,
    header: Option<&[u8]>,
) -> Result<(Dialled, TargetAddr), DialError> {
    let dialled = dial::dial_for(settings, &target, allow).await?;
    if let Some(header) = header {
        let writing = dialled.write_all(header);
        let Ok(written) = tokio::time::timeout(settings.timeouts.dial, writing).await else {
            return Err(DialError::Timeout(target));
        };
        if let Err(source) = written {
            return Err(DialError::Connect { target, source });
        }
    }
    Ok((dialled, target))
}

/// Refuses a stream that the far side opened, and discards its bytes.
pub fn refuse_stream(
    inlet: &dyn Inlet,
    settings: Option<&Settings>,
    code: ResetCode,
) -> Rc<dyn Outlet> {
    if let Some(settings) = settings {
        settings.stats.count_refused(code);
    }
    inlet.refuse(code);
    Rc::new(Refused)
}

/// The task of a stream until its socket is connected. The pump is a separate task, so that the
/// memory of the dial is freed when the dial ends.
struct Dialling {
    pipe: Rc<Pipe>,
    /// The connection, and the mark of its target.
    dial: LocalFuture<'static, Result<(ByteEnd, u64), DialError>>,
    report: Report,
    rest: Option<(StreamInlet, Option<Permit>)>,
}

impl Future for Dialling {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        this.pipe.park(cx.waker());
        if this.pipe.is_reset() {
            // The far side has aborted the stream. Dropping the dial closes its sockets.
            if let Some((inlet, _)) = this.rest.take() {
                inlet.reset(ResetCode::Aborted);
            }
            this.pipe.close(true);
            return Poll::Ready(());
        }
        let outcome = ready!(this.dial.as_mut().poll(cx));
        let Some((inlet, permit)) = this.rest.take() else { return Poll::Ready(()) };
        match outcome {
            Ok((end, mark)) => {
                if let Some(watcher) = &this.pipe.settings().watcher {
                    watcher.dialled(Ok(()));
                }
                let mark = mark.to_be_bytes();
                let report: &[u8] = match this.report {
                    Report::Nothing => &[],
                    Report::Connected => &[0],
                    Report::Mark => &mark,
                };
                if !report.is_empty() {
                    // A new stream has room for more than these bytes.
                    let mut frame = BytesMut::zeroed(HEAD_ROOM);
                    frame.extend_from_slice(report);
                    inlet.send(&mut frame);
                }
                this.pipe.connect_target(end);
                let StreamInlet { inlet, slot } = inlet;
                Pump::new(Rc::clone(&this.pipe), inlet, permit).start(slot);
            }
            Err(error) => {
                let code = error.code();
                let Settings { stats, watcher, .. } = &**this.pipe.settings();
                stats.count_refused(code);
                this.pipe.note_end(End::Refused(code));
                tracing::debug!(%error, "the target cannot be reached");
                if let Some(watcher) = watcher {
                    watcher.dialled(Err(&error));
                    // The code that denied the target has logged the denial, with the missing
                    // right.
                    if !matches!(error, DialError::Denied(_)) && stats.complaints.ready() {
                        watcher.complain_of_dial(&error, stats.refused(code));
                    }
                }
                inlet.refuse(code);
                this.pipe.close(true);
            }
        }
        Poll::Ready(())
    }
}

impl fmt::Debug for Dialling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dialling").field("pipe", &self.pipe).finish_non_exhaustive()
    }
}

/// The outlet of a refused stream.
#[derive(Debug)]
struct Refused;

impl Outlet for Refused {
    fn deliver(&self, pieces: &mut VecDeque<Bytes>) -> usize {
        pieces.drain(..).map(|piece| piece.len()).sum()
    }

    fn finish(&self) {}

    fn reset(&self, _code: ResetCode) {}

    fn stop(&self, _code: ResetCode) {}

    fn room(&self) {}
}
