//! The gate in front of hyper's parser for HTTP/1, which passes only unambiguous bytes.
//!
//! The gate checks each header before hyper sees a byte of it. Instead of a header that is refused
//! or took too long, hyper gets a request written by the gate; the proxy recognizes it by its
//! number and responds with the refusal. So earlier requests of the connection get their responses
//! first, and hyper closes the connection after the refusal.
//!
//! Bytes are read into hyper's buffer and checked there. Only an incomplete header is copied.
//!
//! The gate also charges the buffers around it: the block into which hyper reads, the bytes that
//! the gate holds, and the data that TLS buffers for a visitor that does not read. Under memory
//! pressure hyper gets small reads, so its buffer does not grow.
//!
//! Between an HTTP/2 visitor and h2, the gate tracks the received frames, and replaces the windows
//! of h2 by those of [`crate::http2`].

mod frames;
mod progress;
mod target;
mod windows;

#[cfg(test)]
mod tests;

use std::{
    io::{self, IoSlice},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, BytesMut};
use h1::{Method, PREFACE, Requests, Step};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

use frames::{ACK, CONTINUATION, HEADERS, Head, RST_STREAM, SETTINGS};
pub(crate) use frames::{DATA, Frames};
pub(crate) use progress::{Begun, Due, Progress};
use windows::{Filter, Next};

use crate::{
    Protocol, Refusal,
    account::{Account, Hold, SMALL},
    http2::Inflow,
};

/// The maximum number of bytes accepted from a visitor before the response to its upgrade. Few
/// visitors send any; more stays in the socket.
const MOST_EARLY: usize = 16 * 1024;
/// The size of one read of an incomplete header, in bytes.
const PIECE: usize = 4 * 1024;
/// A longer header is refused when memory is short. Browsers send 1 to 4 KiB.
const SHORT_HEAD: usize = 8 * 1024;

/// Writes of at most `SHORT_FRAME` bytes for a visitor are coalesced until `GATHERED` bytes are
/// queued or h2 has nothing more to write.
const SHORT_FRAME: usize = 4 * 1024;
const GATHERED: usize = 16 * 1024;

/// The checked connection of a visitor.
#[derive(Debug)]
pub(crate) struct Gate<T> {
    io: T,
    /// Bytes that were read but have not passed.
    held: BytesMut,
    /// The number of held bytes that may pass.
    released: usize,
    /// Whether held bytes have not been checked.
    unseen: bool,
    /// The replacement for the header at the front of the held bytes, and the length of that
    /// header.
    written: Option<(Vec<u8>, usize)>,
    mode: Mode,
    progress: Rc<Progress>,
    /// The charge for hyper's read blocks and the bytes that the gate holds.
    buffers: Hold,
    /// The size of hyper's read block beyond the smallest.
    block: usize,
    /// The charge for bytes that the layer below buffers for a visitor that does not read.
    unsent: Hold,
    /// The size of `unsent` while a write is pending.
    most_unsent: u64,
}

#[derive(Debug)]
enum Mode {
    /// HTTP/1: checked.
    Checked(Checked),
    /// HTTP/2.
    Framed(Framed),
    /// A header was refused. No later byte is read.
    Refused,
    /// The body is malformed. Reading fails.
    Broken(&'static str),
}

/// The frames from and to an HTTP/2 visitor.
#[derive(Debug)]
struct Framed {
    frames: Frames,
    filter: Filter,
    inflow: Rc<Inflow>,
    /// Whether h2 has written since its last flush.
    has_written: bool,
}

impl Framed {
    /// Tracks the frames that these bytes complete.
    fn note(&mut self, bytes: &[u8]) {
        let Self { frames, inflow, .. } = self;
        inflow.read(bytes.len());
        frames.look(bytes, |Head { length, kind, flags, stream }| match kind {
            DATA => inflow.complete(stream, length),
            HEADERS => {
                inflow.opened();
                inflow.complete(stream, 0);
            }
            CONTINUATION | RST_STREAM => inflow.complete(stream, 0),
            SETTINGS if flags & ACK != 0 => inflow.acknowledged(),
            _ => {}
        });
    }

    /// Adds the windows that are due between two frames.
    fn add_due(&mut self) {
        if self.filter.is_between() {
            self.inflow.take_due(|stream, increment| self.filter.update(stream, increment));
        }
    }
}

/// The requests of a visitor over HTTP/1.
#[derive(Debug)]
struct Checked {
    requests: Requests,
    /// Whether the latest request may switch the protocol and has no response yet.
    may_switch: bool,
}

impl Checked {
    /// Whether the next bytes cannot be interpreted before the response to the latest request.
    const fn is_undecided(&self) -> bool {
        self.may_switch && self.requests.is_between()
    }

    const fn is_in_head(&self) -> bool {
        !self.may_switch && self.requests.is_between()
    }
}

impl<T: AsyncRead + Unpin> Gate<T> {
    /// A gate for `io`, which buffers at most `most_unsent` bytes while a write is pending.
    pub(crate) fn new(
        io: T,
        progress: Rc<Progress>,
        account: &Rc<Account>,
        most_unsent: u64,
    ) -> Self {
        Self {
            io,
            held: BytesMut::new(),
            released: 0,
            unseen: false,
            written: None,
            mode: Mode::Checked(Checked { requests: Requests::new(None), may_switch: false }),
            progress,
            buffers: account.hold(0),
            block: 0,
            unsent: account.hold(0),
            most_unsent,
        }
    }

    /// Detects the protocol of the visitor. Returns whether it is HTTP/2.
    pub(crate) async fn choose(&mut self, protocol: Protocol) -> io::Result<bool> {
        let mut h2 = false;
        // Waits for the preface even if ALPN has chosen HTTP/2: before it hyper has no timeout, and
        // sends no ping.
        while protocol != Protocol::H1 && !h2 {
            let known = self.held.len().min(PREFACE.len());
            if self.held[..known] != PREFACE[..known] {
                break;
            }
            h2 = known == PREFACE.len();
            if !h2 {
                self.held.reserve(PIECE);
                if self.io.read_buf(&mut self.held).await? == 0 {
                    break;
                }
            }
        }
        // hyper refuses any other preface.
        h2 |= protocol == Protocol::H2;
        self.unseen = true;
        Ok(h2)
    }

    /// Switches to HTTP/2: received frames are reported to `inflow`, which controls the windows.
    pub(crate) fn frames(&mut self, inflow: &Rc<Inflow>) {
        let filter = Filter::new(inflow.initial());
        let inflow = Rc::clone(inflow);
        self.mode =
            Mode::Framed(Framed { frames: Frames::new(), filter, inflow, has_written: false });
    }

    /// The connection, and the bytes that hyper has not seen.
    pub(crate) fn into_parts(self) -> (T, BytesMut) {
        (self.io, self.held)
    }

    /// Whether the visitor's bytes end inside a message.
    pub(crate) const fn is_mid_message(&self) -> bool {
        match &self.mode {
            Mode::Checked(checked) => !checked.is_in_head(),
            Mode::Framed(_) => false,
            Mode::Refused | Mode::Broken(_) => true,
        }
    }

    /// Checks bytes that have not passed, and returns how many of them may pass. `is_held`: they
    /// are the held bytes, in which a header may be replaced.
    fn look(&mut self, bytes: &[u8], is_held: bool) -> usize {
        let passed = self.check(bytes, is_held);
        if let Mode::Checked(checked) = &self.mode {
            self.progress.passed(!checked.requests.is_between());
        }
        passed
    }

    fn check(&mut self, bytes: &[u8], is_held: bool) -> usize {
        let Mode::Checked(checked) = &mut self.mode else {
            return 0;
        };
        let mut passed = 0;
        let refusal = loop {
            let rest = &bytes[passed..];
            if rest.is_empty() || checked.is_undecided() {
                return passed;
            }
            match checked.requests.step(rest) {
                Step::Body(length) => passed += length,
                Step::Head(request) if request.method == Method::Connect => break NO_CONNECT,
                Step::Head(request) => {
                    let head = &rest[..request.length];
                    if let Some(written) = target::escaped(head) {
                        if passed > 0 || !is_held {
                            self.unseen = true;
                            return passed;
                        }
                        self.written = Some((written, head.len()));
                    }
                    passed += request.length;
                    checked.may_switch = request.may_switch;
                    checked.requests.begin(request.body);
                    self.progress.head_passed(request.may_switch);
                }
                Step::More => {
                    // An empty line before a request does not begin the request.
                    if !b"\r\n".starts_with(rest) {
                        self.progress.head_begun();
                    }
                    return passed;
                }
                Step::Refused(fault) => break fault.into(),
                Step::Broken(length, fault) => {
                    self.mode = Mode::Broken(fault.reason());
                    return passed + length;
                }
            }
        };
        self.refuse(refusal, bytes[passed..].starts_with(b"HEAD "));
        passed
    }

    /// Replaces the visitor's request by one of the gate.
    fn refuse(&mut self, refusal: Refusal, without_body: bool) {
        self.progress.refuse(refusal);
        self.mode = Mode::Refused;
        self.pending_refusal(without_body);
    }

    fn pending_refusal(&mut self, without_body: bool) {
        let method = if without_body { "HEAD" } else { "GET" };
        self.held = BytesMut::new();
        self.held.extend_from_slice(method.as_bytes());
        self.held.extend_from_slice(b" / HTTP/1.1\r\nHost: -\r\nConnection: close\r\n\r\n");
        self.released = self.held.len();
    }

    /// Charges the bytes that the gate holds, and the two blocks that hyper may use: it reads into
    /// one, and the last piece of a body pins another.
    fn settle(&self) {
        self.buffers.set((self.held.capacity() + 2 * self.block) as u64);
    }

    /// Reads into hyper's buffer.
    fn poll_io(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (result, block) =
            poll_bounded(&mut self.io, cx, buf, self.block, self.buffers.account());
        if block != self.block {
            self.block = block;
            self.settle();
        }
        result
    }
}

/// Reads into a buffer of hyper, of which `block` bytes beyond the smallest size are charged twice.
/// Returns the result and the new number of bytes to charge.
///
/// hyper's buffer grows after a read that fills it, so a small read keeps it small.
pub(crate) fn poll_bounded(
    io: &mut (impl AsyncRead + Unpin),
    cx: &mut Context<'_>,
    buf: &mut ReadBuf<'_>,
    block: usize,
    account: &Account,
) -> (Poll<io::Result<()>>, usize) {
    let size = buf.remaining().max(block + SMALL);
    let beyond = size - SMALL;
    if size <= SMALL || account.may_grow(2 * (beyond - block) as u64) {
        return (Pin::new(io).poll_read(cx, buf), beyond);
    }
    let most = buf.remaining().min(SMALL - 1);
    let mut part = ReadBuf::new(buf.initialize_unfilled_to(most));
    let result = Pin::new(io).poll_read(cx, &mut part);
    let read = part.filled().len();
    buf.advance(read);
    // The buffer keeps its size until hyper takes a new block.
    (result, beyond)
}

impl<T> Gate<T> {
    /// Records whether the written bytes have left.
    fn written<R>(&mut self, result: Poll<R>, is_flush: bool) -> Poll<R> {
        if result.is_pending() {
            self.unsent.set(self.most_unsent);
            self.progress.stuck();
        } else if is_flush {
            self.unsent.set(0);
            // h2 flushes between two frames, and headers may be queued behind frames of other
            // streams.
            let all = match &mut self.mode {
                Mode::Framed(framed) => !std::mem::take(&mut framed.has_written),
                Mode::Checked(_) | Mode::Refused | Mode::Broken(_) => true,
            };
            self.unsent.account().heads_written(all);
            self.progress.flushed();
        }
        result
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Gate<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let gate = &mut *self;
        if gate.buffers.account().is_exhausted() {
            return Poll::Ready(Err(io::ErrorKind::OutOfMemory.into()));
        }
        loop {
            if gate.released > 0 {
                let length = gate.released.min(buf.remaining());
                buf.put_slice(&gate.held[..length]);
                gate.held.advance(length);
                gate.released -= length;
                if gate.held.is_empty() {
                    gate.held = BytesMut::new();
                    gate.settle();
                }
                return Poll::Ready(Ok(()));
            }
            match &mut gate.mode {
                Mode::Checked(checked) => {
                    if checked.is_undecided() && gate.progress.is_decided() {
                        checked.may_switch = false;
                        gate.unseen = true;
                    }
                    if gate.progress.take_timeout() {
                        gate.refuse(
                            Refusal::new(408, "The request did not arrive within 10 seconds."),
                            gate.held.starts_with(b"HEAD "),
                        );
                        continue;
                    }
                }
                Mode::Framed(framed) if gate.held.is_empty() => {
                    framed.inflow.ripen();
                    if !framed.inflow.may_read(cx) {
                        return Poll::Pending;
                    }
                    let before = buf.filled().len();
                    ready!(Pin::new(&mut gate.io).poll_read(cx, buf))?;
                    framed.note(&buf.filled()[before..]);
                    return Poll::Ready(Ok(()));
                }
                Mode::Framed(framed) => {
                    framed.note(&gate.held);
                    gate.released = gate.held.len();
                    continue;
                }
                Mode::Refused => return Poll::Pending,
                Mode::Broken(reason) => {
                    gate.progress.body_broke(reason);
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, *reason)));
                }
            }
            if gate.unseen {
                gate.unseen = false;
                let mut held = std::mem::take(&mut gate.held);
                let mut passed = gate.look(&held, true);
                if let Some((written, length)) = gate.written.take() {
                    passed = passed - length + written.len();
                    held = [&written, &held[length..]].concat().as_slice().into();
                }
                match gate.mode {
                    // The refusal follows the bytes that may pass.
                    Mode::Refused => {
                        let refusal = std::mem::replace(&mut gate.held, held);
                        gate.held.truncate(passed);
                        gate.held.extend_from_slice(&refusal);
                        gate.released = gate.held.len();
                    }
                    Mode::Checked(_) | Mode::Framed(_) | Mode::Broken(_) => {
                        gate.held = held;
                        gate.released = passed;
                    }
                }
                gate.settle();
                continue;
            }
            if gate.held.is_empty() {
                let before = buf.filled().len();
                ready!(gate.poll_io(cx, buf))?;
                let read = &buf.filled()[before..];
                if read.is_empty() {
                    return Poll::Ready(Ok(()));
                }
                let passed = gate.look(read, false);
                if matches!(gate.mode, Mode::Checked(_)) && passed < read.len() {
                    gate.held.extend_from_slice(&read[passed..]);
                    gate.settle();
                }
                buf.set_filled(before + passed);
                if passed > 0 {
                    return Poll::Ready(Ok(()));
                }
            } else {
                if gate.held.len() >= MOST_EARLY
                    && matches!(&gate.mode, Mode::Checked(checked) if checked.is_undecided())
                {
                    return Poll::Pending;
                }
                if gate.held.len() >= SHORT_HEAD
                    && matches!(&gate.mode, Mode::Checked(checked) if checked.is_in_head())
                    && !gate.buffers.account().affords(gate.held.capacity() as u64)
                {
                    gate.buffers.account().count_refusal();
                    let method = gate.held.starts_with(b"HEAD ");
                    gate.refuse(NO_MEMORY, method);
                    gate.settle();
                    continue;
                }
                let mut piece = [0; PIECE];
                let mut piece = ReadBuf::new(&mut piece);
                ready!(Pin::new(&mut gate.io).poll_read(cx, &mut piece))?;
                if piece.filled().is_empty() {
                    return Poll::Ready(Ok(()));
                }
                gate.held.extend_from_slice(piece.filled());
                gate.settle();
                gate.unseen = true;
            }
        }
    }
}

const NO_CONNECT: Refusal =
    Refusal::new(501, "The server is no forward proxy: it refuses CONNECT.");

/// The response to a request for which memory is short.
pub(crate) const NO_MEMORY: Refusal = Refusal::new(503, "The server is short of memory.");

impl<T: AsyncWrite + Unpin> Gate<T> {
    /// Writes the gate's own bytes, before those of hyper or h2.
    fn poll_own(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Mode::Framed(framed) = &mut self.mode else { return self.poll_interim(cx) };
        framed.add_due();
        let own = &mut framed.filter.own;
        while !own.is_empty() {
            let written = ready!(Pin::new(&mut self.io).poll_write(cx, own))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            own.advance(written);
            self.progress.moved();
        }
        // The block is released.
        *own = BytesMut::new();
        Poll::Ready(Ok(()))
    }

    /// Writes the remainder of begun interim responses. Others wait for a flush: before it hyper
    /// may hold the remainder of an earlier response.
    fn poll_begun(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.progress.leaving.is_begun() { self.poll_interim(cx) } else { Poll::Ready(Ok(())) }
    }

    /// Writes interim responses between two messages of hyper.
    fn poll_interim(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let leaving = &self.progress.leaving;
        while !leaving.is_empty() {
            let io = Pin::new(&mut self.io);
            if ready!(leaving.write(|bytes| io.poll_write(cx, bytes)))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Writes bytes of h2.
    fn poll_frames(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Mode::Framed(framed) = &mut self.mode else { return Poll::Pending };
        framed.add_due();
        let pass = match framed.filter.next(slices)? {
            Next::Skip(count) => return Poll::Ready(Ok(count)),
            Next::Pass(pass) => pass,
        };
        framed.has_written = true;
        // Separately, each frame would cost a system call and a TLS record.
        if pass <= SHORT_FRAME && framed.filter.own.len() + pass <= GATHERED {
            framed.filter.gather(slices, pass)?;
            return Poll::Ready(Ok(pass));
        }
        ready!(self.poll_own(cx))?;
        let Mode::Framed(framed) = &mut self.mode else { return Poll::Pending };
        let first = slices.iter().find(|slice| !slice.is_empty()).map_or(&[][..], |slice| slice);
        let all = slices.iter().map(|slice| slice.len()).sum();
        let written = if pass == all && slices.len() > 1 {
            ready!(Pin::new(&mut self.io).poll_write_vectored(cx, slices))?
        } else {
            let length = pass.min(first.len());
            ready!(Pin::new(&mut self.io).poll_write(cx, &first[..length]))?
        };
        framed.filter.passed(slices, written)?;
        self.progress.moved();
        Poll::Ready(Ok(written))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Gate<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = match self.mode {
            Mode::Framed(_) => self.poll_frames(cx, &[IoSlice::new(bytes)]),
            Mode::Checked(_) | Mode::Refused | Mode::Broken(_) => match self.poll_begun(cx) {
                Poll::Ready(Ok(())) => Pin::new(&mut self.io).poll_write(cx, bytes),
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending => Poll::Pending,
            },
        };
        self.written(result, false)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Mode::Framed(framed) = &self.mode
            && !framed.inflow.flushes()
        {
            return Poll::Ready(Ok(()));
        }
        let result = match self.poll_own(cx) {
            Poll::Ready(Ok(())) => Pin::new(&mut self.io).poll_flush(cx),
            pending_or_failed @ (Poll::Pending | Poll::Ready(Err(_))) => pending_or_failed,
        };
        self.written(result, true)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_own(cx))?;
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = match self.mode {
            Mode::Framed(_) => self.poll_frames(cx, slices),
            Mode::Checked(_) | Mode::Refused | Mode::Broken(_) => match self.poll_begun(cx) {
                Poll::Ready(Ok(())) => Pin::new(&mut self.io).poll_write_vectored(cx, slices),
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                Poll::Pending => Poll::Pending,
            },
        };
        self.written(result, false)
    }
}
