//! A stream as a byte stream in both directions, for a visitor or a target whose bytes another part
//! of the daemon reads and writes.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use net::pool;
use proto::{HEAD_ROOM, Open, ResetCode};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use transport::{Connector, Inlet, OpenError, Outlet};

use crate::admit::Way;
use crate::pace::{self, Portions};
use crate::pipe::{Layered, Pipe, Pump, Spectator, StreamInlet};
use crate::stats::open_error_code;
use crate::{End, Permit, Settings, Visitor};

/// The far side of a stream, which this end reads and writes. Dropping it aborts the stream, unless
/// both directions have ended. One task at a time may poll it.
pub struct Duplex {
    pipe: Rc<Pipe>,
    /// `None` once another owner has the stream.
    stream: Option<Box<dyn Inlet>>,
    is_finished: bool,
    permit: Option<Permit>,
    /// Bytes that the rates permit: for bytes that this end writes, and for bytes that it reads.
    /// `None` as long as no rate applied.
    portions: Option<Box<[Portions; 2]>>,
    /// Whether this end is the target of the stream.
    is_target: bool,
    /// Observes the bytes of this end, if it is the target.
    spectator: Option<Box<dyn Spectator>>,
}

/// The parts of a stream taken from its [`Duplex`].
pub(crate) type Parts = (Rc<Pipe>, Box<dyn Inlet>, Option<Permit>);

/// Opens a stream.
///
/// # Errors
/// The link takes no more streams. The refusal is counted.
pub fn open_duplex(
    connector: &dyn Connector,
    open: Open,
    settings: &Rc<Settings>,
    permit: Option<Permit>,
) -> Result<Duplex, OpenError> {
    let pipe = Pipe::listed(Rc::clone(settings), open.visitor);
    let inlet = connector.open(open, Rc::<Pipe>::clone(&pipe)).inspect_err(|error| {
        settings.stats.count_refused(open_error_code(*error));
    })?;
    settings.stats.count_opened();
    Ok(Duplex::new(pipe, inlet, permit))
}

/// Accepts a stream that the far side opened, for a target inside this process. Returns the outlet
/// of the stream, too.
#[must_use]
pub fn accept_duplex(
    inlet: impl Into<StreamInlet>,
    visitor: Visitor,
    settings: &Rc<Settings>,
    permit: Option<Permit>,
) -> (Rc<dyn Outlet>, Duplex) {
    let pipe = Pipe::new(Rc::clone(settings), visitor);
    settings.stats.count_opened();
    let outlet = Rc::<Pipe>::clone(&pipe);
    let mut duplex = Duplex::new(pipe, inlet.into().inlet, permit);
    duplex.is_target = true;
    (outlet, duplex)
}

impl Duplex {
    pub(crate) fn new(pipe: Rc<Pipe>, inlet: Box<dyn Inlet>, permit: Option<Permit>) -> Self {
        let (portions, is_target, spectator) = (None, false, None);
        Self {
            pipe,
            stream: Some(inlet),
            is_finished: false,
            permit,
            portions,
            is_target,
            spectator,
        }
    }

    /// Requests a wake-up of the reader when the link falls silent. The reader then calls
    /// [`Self::take_silence`].
    pub fn ask_for_silence(&self) {
        self.pipe.ask_for_silence();
    }

    /// Whether the link has fallen silent since the previous call.
    #[must_use]
    pub fn take_silence(&self) -> bool {
        self.pipe.take_silence()
    }

    /// Lets `spectator` observe the bytes of this end, which is the target of its stream.
    pub fn observe(&mut self, spectator: Option<Box<dyn Spectator>>) {
        self.spectator = spectator;
    }

    /// Moves the stream to another owner, with the unread bytes in its pipe. `None`: this end has
    /// ended its direction.
    pub(crate) fn into_parts(mut self) -> Option<Parts> {
        if self.is_finished {
            return None;
        }
        let inlet = self.stream.take()?;
        Some((Rc::clone(&self.pipe), inlet, self.permit.take()))
    }

    /// Carries the bytes of the stream and of `end`, by the time-outs of the stream, until both
    /// directions have ended.
    pub async fn carry(self, end: Layered) {
        let Some((pipe, inlet, permit)) = self.into_parts() else { return };
        pipe.attach(end.into());
        Pump::new(pipe, inlet, permit).await;
    }

    /// Waits until the far side has aborted the stream. The waiting task must not poll the stream
    /// in another way meanwhile.
    pub(crate) async fn aborted(&self) {
        poll_fn(|cx| {
            self.pipe.park(cx.waker());
            if self.pipe.is_reset() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Refuses the stream before its first byte.
    pub(crate) fn refuse(mut self, code: ResetCode) {
        self.pipe.note_end(End::Refused(code));
        if let Some(inlet) = self.stream.take() {
            inlet.refuse(code);
        }
        self.pipe.close(false);
    }

    pub(crate) fn pipe(&self) -> &Rc<Pipe> {
        &self.pipe
    }

    /// The reset code with which the far side aborted the stream.
    #[must_use]
    pub fn reset_code(&self) -> Option<ResetCode> {
        self.pipe.reset_code()
    }

    /// Returns how many of `wanted` bytes may move by the rates in force. Pending: the task is
    /// woken when bytes may move.
    fn portion(&mut self, is_read: bool, wanted: usize, cx: &mut Context<'_>) -> Poll<usize> {
        let Some(permit) = &self.permit else { return Poll::Ready(wanted) };
        let (gate, way) = (permit.gate(), self.way(is_read));
        if self.portions.is_none() && !pace::is_paced(gate, way) {
            return Poll::Ready(wanted);
        }
        let portions = self.portions.get_or_insert_default();
        portions[usize::from(is_read)].poll(cx, gate, way, wanted)
    }

    /// Records how many bytes of a portion have moved, and refunds the rest.
    fn moved(&mut self, is_read: bool, bytes: usize) {
        let way = self.way(is_read);
        if let (Some(portions), Some(permit)) = (&mut self.portions, &self.permit) {
            let portion = &mut portions[usize::from(is_read)];
            portion.used(bytes);
            portion.settle(permit.gate(), way);
        }
    }

    /// The direction of bytes that this end reads from the stream, or writes to it.
    const fn way(&self, is_read: bool) -> Way {
        if self.is_target == is_read { Way::Up } else { Way::Down }
    }

    fn broken(&self) -> Option<io::Error> {
        self.pipe.is_reset().then(|| io::ErrorKind::ConnectionReset.into())
    }
}

impl AsyncRead for Duplex {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.stream.is_none() {
            return Poll::Ready(Ok(()));
        }
        if this.pipe.has_bytes() {
            let most = ready!(this.portion(true, buf.remaining(), cx));
            let before = buf.filled().len();
            let read = this.pipe.take_into(buf, most);
            this.moved(true, read);
            if let Some(spectator) = &mut this.spectator {
                spectator.taken(buf.filled().get(before..).unwrap_or_default());
            }
            if let Some(inlet) = this.stream.as_ref().filter(|_| read > 0) {
                inlet.consumed(read);
                return Poll::Ready(Ok(()));
            }
        }
        if let Some(error) = this.broken() {
            return Poll::Ready(Err(error));
        }
        if this.pipe.is_finished() {
            return Poll::Ready(Ok(()));
        }
        this.pipe.park(cx.waker());
        Poll::Pending
    }
}

impl AsyncWrite for Duplex {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let Some(error) = this.broken() {
            return Poll::Ready(Err(error));
        }
        let Some(inlet) = this.stream.as_ref().filter(|_| !this.is_finished) else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        if this.pipe.is_stopped() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let wanted: usize = slices.iter().map(|slice| slice.len()).sum();
        if wanted == 0 {
            return Poll::Ready(Ok(0));
        }
        let size = wanted.min(inlet.room());
        if size == 0 {
            this.pipe.park(cx.waker());
            return Poll::Pending;
        }
        let size = ready!(this.portion(false, size, cx));
        let Some(inlet) = &this.stream else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        let mut frame = pool::take(HEAD_ROOM + size);
        frame.resize(HEAD_ROOM, 0);
        let mut left = size;
        for slice in slices {
            let part = left.min(slice.len());
            frame.extend_from_slice(&slice[..part]);
            left -= part;
        }
        if let Some(spectator) = &mut this.spectator {
            spectator.sent(frame.get(HEAD_ROOM..).unwrap_or_default());
        }
        this.pipe.count_in(size);
        inlet.send(&mut frame);
        pool::give(frame);
        this.moved(false, size);
        Poll::Ready(Ok(size))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The link sends frames without a flush.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !std::mem::replace(&mut this.is_finished, true)
            && let Some(inlet) = &this.stream
        {
            inlet.finish();
        }
        Poll::Ready(Ok(()))
    }
}

impl fmt::Debug for Duplex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Duplex").field("pipe", &self.pipe).finish_non_exhaustive()
    }
}

impl Drop for Duplex {
    fn drop(&mut self) {
        if self.stream.is_none() {
            return;
        }
        // If the far side reset the stream, that end was recorded already. Otherwise the owner has
        // finished with the stream.
        self.pipe.note_end(End::Finished);
        self.pipe.close(false);
    }
}
