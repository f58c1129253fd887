//! An open file as `ServeDir` of tower-http reads it.

use std::fs::File;
use std::future::{Future, Ready, ready};
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use tokio::io::{AsyncRead, AsyncSeek, ReadBuf};
use tokio::sync::Semaphore;
use tower_http::services::fs::{Backend, File as BackendFile, Metadata};

use super::beneath::on_thread;
use crate::account::{Account, SMALL};

/// The maximum size of one read, in bytes.
const PIECE: usize = 64 << 10;

/// The size of one read of a file of `length` bytes. A file takes the memory of the reader and the
/// block that becomes a piece of the body: while memory is short, both are small.
pub(super) fn piece(length: u64, account: &Account) -> usize {
    let most = if account.may_grow(2 * PIECE as u64) { PIECE } else { SMALL };
    // At least 1: an empty file is read, too.
    usize::try_from(length).unwrap_or(most).clamp(1, most)
}

type Later<T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send + Sync>>;

/// The metadata of a file or a directory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) is_dir: bool,
    pub(super) length: u64,
    pub(super) modified: Option<SystemTime>,
}

/// The times that an HTTP date can represent, in seconds: 1970 to 9999 (RFC 9110 section 5.6.7).
const TOLD: Range<u64> = 0..253_402_300_800;

impl Facts {
    pub(super) fn of(metadata: &std::fs::Metadata) -> Self {
        let is_representable = |time: &SystemTime| {
            let since = time.duration_since(SystemTime::UNIX_EPOCH);
            since.is_ok_and(|since| TOLD.contains(&since.as_secs()))
        };
        Self {
            is_dir: metadata.is_dir(),
            length: metadata.len(),
            modified: metadata.modified().ok().filter(is_representable),
        }
    }

    /// The facts of another coding of a file. Its tag is derived from time and length, and two
    /// codings must not share a tag (RFC 9110 section 8.8.3.3): `nth`, below 4, replaces the lowest
    /// bits of the time.
    pub(super) fn with_mark(self, nth: u32) -> Self {
        let marked = |time: SystemTime| {
            let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
            let nanos = (since.subsec_nanos() & !3) | (nth & 3);
            SystemTime::UNIX_EPOCH.checked_add(Duration::new(since.as_secs(), nanos))
        };
        Self { modified: self.modified.and_then(marked), ..self }
    }
}

impl Metadata for Facts {
    fn is_dir(&self) -> bool {
        self.is_dir
    }

    fn modified(&self) -> io::Result<SystemTime> {
        self.modified.ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    fn len(&self) -> u64 {
        self.length
    }
}

/// An open file as the backend of `ServeDir`. So the response has the file that was checked, and
/// each request looks the file up once.
#[derive(Clone, Debug)]
pub(super) struct Opened {
    pub(super) file: Arc<File>,
    pub(super) facts: Facts,
    /// The maximum size of one read, in bytes.
    pub(super) most: usize,
    pub(super) calls: Arc<Semaphore>,
}

impl Backend for Opened {
    type File = Reader;
    type Metadata = Facts;
    type OpenFuture = Ready<io::Result<Reader>>;
    type MetadataFuture = Ready<io::Result<Facts>>;

    fn open(&self, _: PathBuf) -> Self::OpenFuture {
        let Self { file, facts, most, calls } = self.clone();
        let (at, piece, taken, reading) = (0, Vec::new(), 0, None);
        ready(Ok(Reader { file, facts, most, at, piece, taken, reading, calls }))
    }

    fn metadata(&self, _: PathBuf) -> Self::MetadataFuture {
        ready(Ok(self.facts))
    }
}

/// An open file. It is read up to its length at the time of opening, which the response announces.
pub(super) struct Reader {
    file: Arc<File>,
    facts: Facts,
    most: usize,
    /// The offset of the next read.
    at: u64,
    /// The last piece that was read, and how many of its bytes were consumed.
    piece: Vec<u8>,
    taken: usize,
    reading: Option<Later<Vec<u8>>>,
    calls: Arc<Semaphore>,
}

impl Reader {
    /// Reads the next piece into the memory of the last piece.
    fn read(&mut self) -> Later<Vec<u8>> {
        let left = self.facts.length.saturating_sub(self.at);
        let size = usize::try_from(left).unwrap_or(self.most).min(self.most);
        let (file, calls, at) = (Arc::clone(&self.file), Arc::clone(&self.calls), self.at);
        let mut piece = std::mem::take(&mut self.piece);
        Box::pin(on_thread(calls, move || {
            use std::os::unix::fs::FileExt as _;
            piece.resize(size, 0);
            let size = loop {
                match file.read_at(&mut piece, at) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    outcome => break outcome?,
                }
            };
            piece.truncate(size);
            // The response announces the length, so an earlier end is an error.
            if size == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(piece) }
        }))
    }
}

impl AsyncRead for Reader {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.reading.is_none() && this.taken == this.piece.len() {
            if this.at >= this.facts.length {
                return Poll::Ready(Ok(()));
            }
            this.taken = 0;
            this.reading = Some(this.read());
        }
        if let Some(reading) = &mut this.reading {
            let outcome = std::task::ready!(reading.as_mut().poll(cx));
            this.reading = None;
            this.piece = outcome?;
            this.at += this.piece.len() as u64;
        }
        let rest = &this.piece[this.taken..];
        let size = rest.len().min(buf.remaining());
        buf.put_slice(&rest[..size]);
        this.taken += size;
        Poll::Ready(Ok(()))
    }
}

impl AsyncSeek for Reader {
    fn start_seek(self: Pin<&mut Self>, position: io::SeekFrom) -> io::Result<()> {
        let io::SeekFrom::Start(at) = position else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        let this = self.get_mut();
        *this = Self {
            file: Arc::clone(&this.file),
            facts: this.facts,
            most: this.most,
            at,
            piece: Vec::new(),
            taken: 0,
            reading: None,
            calls: Arc::clone(&this.calls),
        };
        Ok(())
    }

    fn poll_complete(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<u64>> {
        Poll::Ready(Ok(self.at))
    }
}

impl BackendFile for Reader {
    type Metadata = Facts;
    type MetadataFuture<'a> = Ready<io::Result<Facts>>;

    fn metadata(&self) -> Self::MetadataFuture<'_> {
        ready(Ok(self.facts))
    }
}
