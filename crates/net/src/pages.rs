//! Zero-copy transfer between two TCP sockets: the kernel moves the pages with the bytes into a
//! pipe and out of it (splice(2)).
//!
//! The capacity of a pipe is counted in page fragments, not in bytes, so a pipe of 1 MiB may be
//! full with less. Therefore only an empty pipe is filled here: if nothing can be read then, the
//! socket has no data.
//!
//! Each thread has a pool of pipes. A stream has a pipe only while the pipe holds its bytes, so an
//! idle stream has none.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Once;
#[cfg(debug_assertions)]
use std::sync::OnceLock;
use std::thread;

use bytes::BytesMut;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice, tee};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::pool;

/// The size of a pipe in bytes. An unprivileged user may request up to 1 MiB (pipe(7),
/// `pipe-max-size`).
const SIZE: usize = 256 << 10;

/// The minimum useful size of a pipe, in bytes. The kernel grants less to a user whose pipes have
/// more than `pipe-user-pages-soft` pages.
const SIZE_LEAST: usize = 128 << 10;

/// The maximum number of pipes of a thread, in use and idle: 192 descriptors. A pipe of 256 KiB
/// counts 64 of the 16,384 pages that an unprivileged user may have, so two threads use at most
/// three quarters of them, and additional threads get smaller pipes or none.
const MOST: usize = 96;

/// After a pipe was refused, the thread retries after this number of requests.
const PAUSE: u32 = 1024;

/// The rule for when bytes move as pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Never.
    Never,
    /// On streams that are known to be bulk.
    Bulk,
    /// Always, for tests.
    Always,
}

/// The rule in force, between two sockets and for the payload of a carrier: bulk streams. Tests
/// override it by [`force`], and in a build with debug assertions by the environment variable
/// `TUNNEL_PAGES` (`never`, `always`).
pub fn rule() -> Rule {
    if FORCED.get() { Rule::Always } else { of_process() }
}

#[cfg(debug_assertions)]
fn of_process() -> Rule {
    static RULE: OnceLock<Rule> = OnceLock::new();
    *RULE.get_or_init(|| match std::env::var_os("TUNNEL_PAGES") {
        Some(value) if value == "never" => Rule::Never,
        Some(value) if value == "always" => Rule::Always,
        _ => Rule::Bulk,
    })
}

#[cfg(not(debug_assertions))]
const fn of_process() -> Rule {
    Rule::Bulk
}

/// Makes all bytes of this thread move as pages from now on, for tests.
pub fn force() {
    FORCED.set(true);
}

/// Simulates a refusal of the kernel in this thread after `bytes` more have moved to sockets, for
/// tests.
pub fn refuse_after(bytes: usize) {
    UNTIL_REFUSAL.set(Some(bytes));
}

thread_local! {
    static FORCED: Cell<bool> = const { Cell::new(false) };
    static UNTIL_REFUSAL: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The part of `limit` that may move before the refusal that a test has set.
fn until_refusal(limit: usize) -> io::Result<usize> {
    match UNTIL_REFUSAL.get() {
        None => Ok(limit),
        Some(0) => Err(Errno::INVAL.into()),
        Some(left) => Ok(limit.min(left)),
    }
}

#[derive(Debug)]
struct Pipe {
    output: OwnedFd,
    input: OwnedFd,
}

impl Pipe {
    fn new() -> io::Result<Self> {
        let (output, input) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let mut size = SIZE;
        loop {
            match fcntl_setpipe_size(&input, size) {
                Ok(_) => return Ok(Self { output, input }),
                Err(Errno::PERM) if size > SIZE_LEAST => size /= 2,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[derive(Default)]
struct Pool {
    idle: Vec<Pipe>,
    /// The number of pipes that hold bytes of streams.
    used: usize,
    /// The minimum number of idle pipes since the last `tidy`.
    fewest: usize,
    /// The remaining requests to refuse before the thread tries the kernel again.
    pause: u32,
}

thread_local! {
    static POOL: RefCell<Pool> = RefCell::default();
    /// The sink of discarded bytes; `None` if there is no such device.
    static NULL: Option<OwnedFd> =
        rustix::fs::open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).ok();
}

impl Pool {
    fn take(&mut self) -> Option<Pipe> {
        if self.pause > 0 {
            self.pause -= 1;
            return None;
        }
        let pipe = match self.idle.pop() {
            Some(pipe) => pipe,
            None if self.used >= MOST => return None,
            None => match Pipe::new() {
                Ok(pipe) => pipe,
                Err(error) => {
                    self.refuse(&error);
                    return None;
                }
            },
        };
        self.fewest = self.fewest.min(self.idle.len());
        self.used += 1;
        Some(pipe)
    }

    fn refuse(&mut self, error: &io::Error) {
        static REPORTED: Once = Once::new();
        REPORTED
            .call_once(|| tracing::debug!("the system moves no pages, bytes are copied: {error}"));
        self.pause = PAUSE;
    }
}

/// Closes the pipes of this thread that were not used since the last call, as [`pool::tidy`] frees
/// buffers.
pub fn tidy() {
    POOL.with_borrow_mut(|pool| {
        let idle = pool.fewest;
        pool.idle.drain(..idle);
        pool.fewest = pool.idle.len();
    });
}

/// The number of pipes of this thread that hold bytes of streams, and of idle pipes.
#[must_use]
pub fn pipes() -> (usize, usize) {
    POOL.with_borrow(|pool| (pool.used, pool.idle.len()))
}

/// Whether this thread has pipes for retained bytes in addition to moving bytes: at least a third
/// of the pipes is free. Retained bytes need a second pipe when they are sent.
#[must_use]
pub fn may_keep() -> bool {
    POOL.with_borrow(|pool| pool.used < MOST * 2 / 3)
}

/// Whether a call failed because the kernel cannot move pages between these sockets, or a sandbox
/// forbids it. Then the bytes must be copied.
#[must_use]
pub fn is_refusal(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    let refused = matches!(
        errno,
        Some(Errno::INVAL | Errno::NOSYS | Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP)
    );
    if refused {
        POOL.with_borrow_mut(|pool| pool.refuse(error));
    }
    refused
}

/// Bytes in a pipe.
///
/// The pipe has the only copy of bytes read from a socket, so a drop would lose them. They are
/// moved to a socket, copied into memory, become the [copy for a replay](Self::for_replay), or are
/// [discarded](Self::discard) when their stream was reset or its end accepts no more bytes. A build
/// with debug assertions panics if bytes are dropped in another way.
#[derive(Debug)]
pub struct Pages {
    /// `None` only after the drop.
    pipe: Option<Pipe>,
    len: usize,
    /// Whether the bytes may be dropped without loss for a stream.
    is_copy: bool,
}

impl Pages {
    /// An empty pipe. `None`: the thread has reached its limit, or the kernel refuses a pipe. Then
    /// the bytes must be copied.
    #[must_use]
    pub fn take() -> Option<Self> {
        let pipe = POOL.with_borrow_mut(Pool::take)?;
        Some(Self { pipe: Some(pipe), len: 0, is_copy: false })
    }

    /// The number of bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no byte.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Fills the empty pipe with at most `limit` bytes of a socket. `None` means that no byte has
    /// arrived, `Some(0)` that the stream has ended.
    ///
    /// # Errors
    /// Those of splice(2); see [`is_refusal`].
    pub fn fill(&mut self, stream: &TcpStream, limit: usize) -> io::Result<Option<usize>> {
        let Some(pipe) = self.pipe.as_ref().filter(|_| self.len == 0) else { return Ok(None) };
        let moved =
            unless_blocked(stream.try_io(Interest::READABLE, || part(stream, &pipe.input, limit)))?;
        self.len = moved.unwrap_or(0);
        Ok(moved)
    }

    /// Moves at most `limit` bytes to a socket in one call, as many as the socket accepts. Returns
    /// their number.
    ///
    /// # Errors
    /// Those of splice(2); see [`is_refusal`]. Then no byte has moved: a call that moves bytes
    /// before an error returns their number, and the next call returns the error.
    pub fn drain(&mut self, stream: &TcpStream, limit: usize) -> io::Result<usize> {
        let limit = limit.min(self.len);
        let Some(pipe) = self.pipe.as_ref().filter(|_| limit > 0) else { return Ok(0) };
        let limit = until_refusal(limit)?;
        let call = || part(&pipe.output, stream, limit);
        match unless_blocked(stream.try_io(Interest::WRITABLE, call))? {
            None => Ok(0),
            Some(0) => Err(io::ErrorKind::WriteZero.into()),
            Some(n) => {
                self.len = self.len.saturating_sub(n);
                if let Some(left) = UNTIL_REFUSAL.get() {
                    UNTIL_REFUSAL.set(Some(left.saturating_sub(n)));
                }
                Ok(n)
            }
        }
    }

    /// A second reference to the same bytes. `None`: no pipe could hold it.
    #[must_use]
    pub fn again(&self) -> Option<Self> {
        let mut other = Self::take()?.for_replay();
        let (from, to) = (self.pipe.as_ref()?, other.pipe.as_ref()?);
        let len = match tee(&from.output, &to.input, self.len, SpliceFlags::NONBLOCK) {
            Ok(len) => len,
            Err(error) => {
                let _ = is_refusal(&error.into());
                return None;
            }
        };
        other.len = len;
        (len == self.len).then_some(other)
    }

    /// Splits off the first `len` bytes. `None`: no pipe could hold them, or all bytes were asked
    /// for.
    #[must_use]
    pub fn split_front(&mut self, len: usize) -> Option<Self> {
        if len == 0 || len >= self.len {
            return None;
        }
        let mut front = Self::take()?;
        front.is_copy = self.is_copy;
        let (from, to) = (self.pipe.as_ref()?, front.pipe.as_ref()?);
        let moved = match part(&from.output, &to.input, len) {
            Ok(moved) => moved,
            Err(error) => {
                let _ = is_refusal(&error);
                return None;
            }
        };
        front.len = moved;
        self.len = self.len.saturating_sub(moved);
        (moved > 0).then_some(front)
    }

    /// Discards all bytes except the last `len`. False: not all of them could be discarded.
    #[must_use]
    pub fn keep_last(&mut self, len: usize) -> bool {
        let Some(pipe) = &self.pipe else { return false };
        self.len -= throw_away(pipe, self.len.saturating_sub(len));
        self.len <= len
    }

    /// Marks the bytes as the retained copy of sent bytes ([`Self::again`]). They may be dropped:
    /// the owner keeps them until the peer has acknowledged them.
    #[must_use]
    pub const fn for_replay(mut self) -> Self {
        self.is_copy = true;
        self
    }

    /// Discards the bytes, because their stream was reset or its end accepts no more bytes.
    pub fn discard(self) {
        drop(self.for_replay());
    }

    /// Copies the bytes from the pipe to the end of `buffer`.
    ///
    /// # Errors
    /// Those of read(2). The unread bytes are lost, so their stream must be reset.
    pub fn copy_out(self, buffer: &mut BytesMut) -> io::Result<()> {
        let mut this = self.for_replay();
        this.read_out(buffer)
    }

    fn read_out(&mut self, buffer: &mut BytesMut) -> io::Result<()> {
        buffer.reserve(self.len);
        while let Some(pipe) = self.pipe.as_ref().filter(|_| self.len > 0) {
            let mut chunk = pool::take(self.len.min(64 << 10));
            chunk.resize(self.len.min(64 << 10), 0);
            match rustix::io::read(&pipe.output, &mut chunk[..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => {
                    buffer.extend_from_slice(&chunk[..n]);
                    self.len = self.len.saturating_sub(n);
                }
            }
            pool::give(chunk);
        }
        Ok(())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        debug_assert!(
            self.len == 0 || self.is_copy || thread::panicking(),
            "{} bytes of a stream are lost in a pipe",
            self.len
        );
        let Some(pipe) = self.pipe.take() else { return };
        let is_empty = throw_away(&pipe, self.len) == self.len;
        // The pool is destroyed when its thread ends.
        let _ = POOL.try_with(|pool| {
            let pool = &mut *pool.borrow_mut();
            pool.used = pool.used.saturating_sub(1);
            // Closing a pipe frees the pages in it.
            pool.idle.extend(Some(pipe).filter(|_| is_empty));
        });
    }
}

/// Discards bytes from the front of a pipe. Returns their number.
fn throw_away(pipe: &Pipe, bytes: usize) -> usize {
    let mut left = bytes;
    while left > 0 {
        let thrown =
            NULL.try_with(|null| part(&pipe.output, null.as_ref()?, left).ok()).ok().flatten();
        match thrown {
            None | Some(0) => break,
            Some(n) => left = left.saturating_sub(n),
        }
    }
    bytes - left
}

fn part(from: impl AsFd, to: impl AsFd, limit: usize) -> io::Result<usize> {
    let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
    loop {
        match splice(&from, None, &to, None, limit, flags) {
            Err(Errno::INTR) => {}
            outcome => return Ok(outcome?),
        }
    }
}

fn unless_blocked(outcome: io::Result<usize>) -> io::Result<Option<usize>> {
    match outcome {
        Ok(n) => Ok(Some(n)),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    /// A socket of the runtime, and its peer.
    fn pair() -> (TcpStream, std::net::TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let far = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (near, _) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        (TcpStream::from_std(near).unwrap(), far)
    }

    fn counts() -> (usize, usize) {
        let (used, idle) = pipes();
        (idle, used)
    }

    async fn filled(pages: &mut Pages, from: &TcpStream, limit: usize) -> usize {
        loop {
            from.readable().await.unwrap();
            if let Some(n) = pages.fill(from, limit).unwrap() {
                return n;
            }
        }
    }

    #[tokio::test]
    async fn bytes_pass_whole_and_the_end_is_told() {
        let ((source, mut sender), (target, mut receiver)) = (pair(), pair());
        let sent: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
        let bytes = sent.clone();
        let sending = thread::spawn(move || sender.write_all(&bytes).unwrap());
        let reading = thread::spawn(move || {
            let mut seen = Vec::new();
            receiver.read_to_end(&mut seen).unwrap();
            seen
        });
        let mut moved = 0;
        loop {
            let mut pages = Pages::take().unwrap();
            let n = filled(&mut pages, &source, 100_000).await;
            if n == 0 {
                break;
            }
            assert_eq!(pages.len(), n);
            while !pages.is_empty() {
                target.writable().await.unwrap();
                moved += pages.drain(&target, usize::MAX).unwrap();
            }
        }
        sending.join().unwrap();
        drop(target);
        assert_eq!(moved, sent.len());
        assert!(reading.join().unwrap() == sent);
        assert_eq!(counts(), (1, 0), "each turn took the same pipe");
    }

    #[tokio::test]
    async fn a_socket_without_bytes_leaves_the_pipe_empty() {
        let (source, mut sender) = pair();
        let mut pages = Pages::take().unwrap();
        assert_eq!(pages.fill(&source, 1000).unwrap(), None);
        sender.write_all(b"abc").unwrap();
        assert_eq!(filled(&mut pages, &source, 2).await, 2);
        assert_eq!(pages.fill(&source, 1000).unwrap(), None, "the pipe is not empty");
        let mut bytes = BytesMut::from(&b"x"[..]);
        pages.copy_out(&mut bytes).unwrap();
        assert_eq!(&bytes[..], b"xab");
    }

    #[tokio::test]
    async fn a_pipe_is_emptied_and_used_again() {
        let (source, mut sender) = pair();
        sender.write_all(b"secret").unwrap();
        let mut pages = Pages::take().unwrap();
        assert_eq!(filled(&mut pages, &source, 1000).await, 6);
        assert_eq!(counts(), (0, 1));
        pages.discard();
        assert_eq!(counts(), (1, 0));
        let mut pages = Pages::take().unwrap();
        sender.write_all(b"public").unwrap();
        assert_eq!(filled(&mut pages, &source, 1000).await, 6);
        let mut seen = BytesMut::new();
        pages.copy_out(&mut seen).unwrap();
        assert_eq!(&seen[..], b"public", "nothing was left in the pipe");
        assert_eq!(counts(), (1, 0));
        tidy();
        assert_eq!(counts(), (1, 0), "it was taken since the last call");
        tidy();
        assert_eq!(counts(), (0, 0));
    }

    #[tokio::test]
    async fn bytes_are_kept_by_reference_and_cut_at_any_place() {
        let (source, mut sender) = pair();
        sender.write_all(b"abcdefgh").unwrap();
        let mut pages = Pages::take().unwrap();
        while pages.fill(&source, 8).unwrap().is_none() {
            source.readable().await.unwrap();
        }
        for keep in (0..=pages.len()).rev() {
            assert!(pages.keep_last(keep));
            let other = pages.again();
            let mut seen = BytesMut::new();
            if keep > 0 {
                other.unwrap().copy_out(&mut seen).unwrap();
            }
            assert_eq!(&seen[..], &b"abcdefgh"[8 - keep..]);
        }
    }

    #[tokio::test]
    async fn bytes_are_split_at_any_place() {
        let (source, mut sender) = pair();
        for at in 1..8 {
            sender.write_all(b"abcdefgh").unwrap();
            let mut pages = Pages::take().unwrap();
            assert_eq!(filled(&mut pages, &source, 8).await, 8);
            assert!(pages.split_front(0).is_none() && pages.split_front(8).is_none());
            let front = pages.split_front(at).unwrap();
            for (part, expected) in [(front, &b"abcdefgh"[..at]), (pages, &b"abcdefgh"[at..])] {
                let mut seen = BytesMut::new();
                part.copy_out(&mut seen).unwrap();
                assert_eq!(&seen[..], expected);
            }
        }
        assert_eq!(counts(), (2, 0));
    }

    #[tokio::test]
    async fn what_moved_before_a_refusal_is_counted_and_the_rest_stays() {
        let ((source, mut sender), (target, mut receiver)) = (pair(), pair());
        sender.write_all(b"abcdefgh").unwrap();
        let mut pages = Pages::take().unwrap();
        assert_eq!(filled(&mut pages, &source, 8).await, 8);
        target.writable().await.unwrap();
        refuse_after(3);
        assert_eq!((pages.drain(&target, 2).unwrap(), pages.len()), (2, 6), "a limit");
        assert_eq!((pages.drain(&target, 6).unwrap(), pages.len()), (1, 5), "up to the refusal");
        assert!(is_refusal(&pages.drain(&target, 6).unwrap_err()));
        assert_eq!(pages.len(), 5);
        let mut rest = BytesMut::new();
        pages.copy_out(&mut rest).unwrap();
        let mut moved = [0; 3];
        receiver.read_exact(&mut moved).unwrap();
        assert_eq!([&moved[..], &rest[..]].concat(), b"abcdefgh");
    }

    #[cfg(debug_assertions)]
    #[tokio::test]
    #[should_panic(expected = "3 bytes of a stream are lost in a pipe")]
    async fn bytes_that_nobody_took_are_not_dropped_unnoticed() {
        let (source, mut sender) = pair();
        sender.write_all(b"abc").unwrap();
        let mut pages = Pages::take().unwrap();
        assert_eq!(filled(&mut pages, &source, 8).await, 3);
        drop(pages.again());
        drop(pages);
    }

    #[tokio::test]
    async fn a_thread_has_a_bounded_number_of_pipes() {
        let all: Vec<_> = std::iter::from_fn(Pages::take).take(2 * MOST).collect();
        assert_eq!((all.len(), counts()), (MOST, (0, MOST)));
        drop(all);
        assert_eq!(counts(), (MOST, 0));
    }

    #[tokio::test]
    async fn a_refusal_stops_the_attempts_for_a_while() {
        assert!(!is_refusal(&io::ErrorKind::ConnectionReset.into()));
        assert!(Pages::take().is_some());
        assert!(is_refusal(&Errno::INVAL.into()));
        for _ in 0..PAUSE {
            assert!(Pages::take().is_none());
        }
        assert!(Pages::take().is_some());
    }
}
