//! The log of requests: one line per request of a visitor of HTTP, in the combined format of Apache
//! and nginx or as JSON. It is off by default.
//!
//! A worker formats the line and adds it to a queue of a bounded size. One thread writes the queue
//! to the file, many lines at a time, so that neither a slow disk nor a flood of requests stops a
//! worker. A line that does not fit the queue, or that the file does not accept, is lost; lost
//! lines are counted and reported.

mod format;

use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use config::{RequestFormat, RequestLog};

pub use format::Request;

use crate::file::LogFile;

/// The largest size of queued lines, in bytes: about 5,000 lines, which a busy server writes while
/// its disk stalls for 100 ms. The writer may hold as many at a time.
const QUEUE: usize = 1 << 20;

/// The writer collects lines for this time after the first line, so that one write carries many of
/// them. The delay is too short to be noticed.
const GATHER: Duration = Duration::from_millis(50);

/// From this size, in bytes, the writer does not wait for further lines, and it is the largest size
/// of one write.
const PIECE: usize = 64 << 10;

/// When the log changes, queued lines have this time to reach their file. A slower disk must not
/// delay a reload.
const CHANGE: Duration = Duration::from_secs(1);

const ON: u8 = 1;
const JSON: u8 = 2;
const QUERY: u8 = 4;
const USER: u8 = 8;

/// The wanted parts of a request; 0: no log. A request checks this once, at its start.
static WANTS: AtomicU8 = AtomicU8::new(0);

/// The file, and whether its writer thread was started.
static FILE: Mutex<(Option<Arc<LogFile>>, bool)> = Mutex::new((None, false));

/// The queued lines of this process.
static LINES: Queue = Queue::new(QUEUE);

/// The lines that were lost since the start of the process, and how many of them were reported.
static LOST: AtomicU64 = AtomicU64::new(0);
static TOLD: AtomicU64 = AtomicU64::new(0);

/// The parts of a request that the log includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The query of the URL, which may contain secrets.
    pub query: bool,
    /// The user name.
    pub user: bool,
}

/// The parts of a request that the log includes; `None`: there is no log of requests.
#[must_use]
pub fn wanted() -> Option<Wanted> {
    let wants = WANTS.load(Ordering::Relaxed);
    (wants & ON != 0).then_some(Wanted { query: wants & QUERY != 0, user: wants & USER != 0 })
}

/// The number of lines that were lost since the start of the process, because the queue was full or
/// the file accepted none.
#[must_use]
pub fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Logs the number of lost lines since the last call; without such lines it logs nothing.
pub(crate) fn tell_lost() {
    let lost = lost();
    let more = lost - TOLD.swap(lost, Ordering::Relaxed).min(lost);
    if more > 0 {
        tracing::warn!(
            lost = more,
            "{more} lines of the log of requests were lost: its file takes none, or takes them too \
             slowly"
        );
    }
}

/// Starts, redirects or stops the log of requests. A file that another program has renamed is
/// reopened. Queued lines go to the previous file; blocks at most a second for them.
///
/// # Errors
/// The file cannot be opened. The log is unchanged in this case.
pub fn follow(wanted: Option<&RequestLog>) -> anyhow::Result<()> {
    let Some(RequestLog { file: settings, format, query, user }) = wanted else {
        WANTS.store(0, Ordering::Relaxed);
        // The writer needs the lock of the file.
        LINES.flush(CHANGE);
        lock(&FILE).0 = None;
        return Ok(());
    };
    // Done before the file is opened, which measures its size: it may be the same file.
    LINES.flush(CHANGE);
    let mut file = lock(&FILE);
    let place = || format!("log.requests {}", settings.path.display());
    let open = LogFile::open(settings.clone()).with_context(place)?;
    if !file.1 {
        let thread = thread::Builder::new().name("tunnel-requests".to_owned());
        thread.spawn(|| LINES.write(&|lines| write(lines))).with_context(place)?;
        file.1 = true;
    }
    file.0 = Some(Arc::new(open));
    let flag = |is_so, flag| if is_so { flag } else { 0 };
    let wants =
        ON | flag(*format == RequestFormat::Json, JSON) | flag(*query, QUERY) | flag(*user, USER);
    WANTS.store(wants, Ordering::Relaxed);
    Ok(())
}

/// Adds the line about a request that received a response. Never blocks for the file.
pub fn request(request: &Request<'_>) {
    thread_local! {
        static LINE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    let wants = WANTS.load(Ordering::Relaxed);
    if wants & ON == 0 {
        return;
    }
    LINE.with_borrow_mut(|line| {
        line.clear();
        if wants & JSON != 0 {
            request.json(line);
        } else {
            request.combined(line);
        }
        if !LINES.add(line) {
            LOST.fetch_add(1, Ordering::Relaxed);
        }
    });
}

/// Waits until the lines of all requests so far are in the file, at most for `limit`.
pub fn flush(limit: Duration) {
    LINES.flush(limit);
}

/// Writes whole lines to the file. Lines that arrive after the end of the log are lost.
fn write(lines: &[u8]) {
    let file = lock(&FILE).0.clone();
    for piece in pieces(lines, PIECE) {
        let is_written = file.as_ref().is_some_and(|file| append(file, piece).is_ok());
        if !is_written {
            let count = piece.iter().filter(|&&byte| byte == b'\n').count();
            LOST.fetch_add(count as u64, Ordering::Relaxed);
        }
    }
}

/// Appends whole lines. A piece is not larger than the size limit of a file.
fn append(file: &LogFile, lines: &[u8]) -> io::Result<()> {
    let most = usize::try_from(file.most()).unwrap_or(PIECE);
    pieces(lines, most.min(PIECE)).try_for_each(|piece| file.append(piece))
}

/// Splits whole lines into pieces of at most `most` bytes, or of a single longer line.
fn pieces(mut lines: &[u8], most: usize) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let end = |bytes: &[u8]| bytes.iter().rposition(|&byte| byte == b'\n');
        let first = || lines.iter().position(|&byte| byte == b'\n');
        let at = match lines.len() {
            0 => return None,
            length if length <= most => length,
            length => end(&lines[..most]).or_else(first).map_or(length, |at| at + 1),
        };
        let (piece, rest) = lines.split_at(at);
        lines = rest;
        Some(piece)
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The queue of lines from the workers to the writer thread.
struct Queue {
    most: usize,
    state: Mutex<State>,
    /// Signals the first line, or that the writer should hurry.
    some: Condvar,
    /// Signals that lines were written.
    less: Condvar,
}

struct State {
    lines: Vec<u8>,
    /// The numbers of bytes that were added and written since the start of the process.
    added: u64,
    written: u64,
    is_hurried: bool,
}

impl Queue {
    const fn new(most: usize) -> Self {
        let state = State { lines: Vec::new(), added: 0, written: 0, is_hurried: false };
        Self { most, state: Mutex::new(state), some: Condvar::new(), less: Condvar::new() }
    }

    /// Adds a line. Returns false if there is no room.
    fn add(&self, line: &[u8]) -> bool {
        let mut state = lock(&self.state);
        let before = state.lines.len();
        if before + line.len() > self.most {
            return false;
        }
        state.lines.extend_from_slice(line);
        state.added += line.len() as u64;
        // The writer sleeps before the first line, and while it collects lines.
        if before == 0 || (before < PIECE && state.lines.len() >= PIECE) {
            self.some.notify_one();
        }
        true
    }

    /// Waits until the present lines are written. Lines that arrive later are not waited for.
    fn flush(&self, limit: Duration) {
        let end = Instant::now() + limit;
        let mut state = lock(&self.state);
        let goal = state.added;
        state.is_hurried = true;
        self.some.notify_one();
        while state.written < goal {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.less.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.is_hurried = false;
    }

    /// Passes the lines to `write` as they arrive, forever.
    fn write(&self, write: &dyn Fn(&[u8])) {
        let mut batch = Vec::new();
        loop {
            self.take(&mut batch);
            write(&batch);
            lock(&self.state).written += batch.len() as u64;
            self.less.notify_all();
            batch.clear();
            batch.shrink_to(PIECE);
        }
    }

    /// Waits for lines, collects the following lines, and takes all of them.
    fn take(&self, batch: &mut Vec<u8>) {
        let mut state = lock(&self.state);
        while state.lines.is_empty() {
            state = self.some.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let end = Instant::now() + GATHER;
        while state.lines.len() < PIECE && !state.is_hurried {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.some.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        std::mem::swap(&mut state.lines, batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_is_bounded_and_gives_many_lines_at_once() {
        static QUEUE: Queue = Queue::new(100);
        static BATCHES: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
        let taken: Vec<bool> = (0..15).map(|_| QUEUE.add(b"123456789\n")).collect();
        assert_eq!(taken.iter().filter(|&&taken| taken).count(), 10, "{taken:?}");
        thread::spawn(|| QUEUE.write(&|lines| lock(&BATCHES).push(lines.to_vec())));
        QUEUE.flush(Duration::from_secs(60));
        assert!(QUEUE.add(b"next\n"), "there is room again");
        QUEUE.flush(Duration::from_secs(60));
        let batches = lock(&BATCHES).clone();
        assert_eq!(batches.concat(), [&b"123456789\n".repeat(10)[..], b"next\n"].concat());
        assert_eq!(batches.len(), 2, "one write has all lines that wait");
    }

    #[test]
    fn a_flush_does_not_wait_for_lines_that_come_during_it() {
        static QUEUE: Queue = Queue::new(100);
        assert!(QUEUE.add(b"first\n"));
        // Each write meets the next line.
        thread::spawn(|| QUEUE.write(&|_| assert!(QUEUE.add(b"next\n"))));
        let begin = Instant::now();
        QUEUE.flush(Duration::from_secs(60));
        assert!(begin.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn lines_are_cut_into_pieces_at_their_ends() {
        let lines = b"one\ntwo\nlonger than a piece\nend\n";
        let cut: Vec<_> = pieces(lines, 8).collect();
        let wanted: [&[u8]; 3] = [b"one\ntwo\n", b"longer than a piece\n", b"end\n"];
        assert_eq!(cut, wanted);
        assert_eq!(pieces(b"", 8).count(), 0);
    }

    #[test]
    fn the_log_begins_moves_ends_and_counts_what_it_loses() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("requests.log");
        let log = |path: &std::path::Path, format, query| {
            let (size, keep) = ("1MiB".parse().unwrap(), 1);
            let file = config::LogFile { path: path.to_owned(), size, keep };
            RequestLog { file, format, query, user: false }
        };
        let line = Request { status: 200, method: Some(b"GET"), ..Request::default() };
        assert_eq!(wanted(), None);
        request(&line);
        follow(Some(&log(&path, RequestFormat::Combined, false))).unwrap();
        assert_eq!(wanted(), Some(Wanted { query: false, user: false }));
        request(&line);
        flush(Duration::from_secs(60));
        // A file that another program has renamed is opened anew.
        std::fs::rename(&path, dir.path().join("old")).unwrap();
        follow(Some(&log(&path, RequestFormat::Json, true))).unwrap();
        assert_eq!(wanted(), Some(Wanted { query: true, user: false }));
        request(&line);
        flush(Duration::from_secs(60));
        let nowhere = dir.path().join("none/requests.log");
        assert!(follow(Some(&log(&nowhere, RequestFormat::Json, false))).is_err());
        assert!(wanted().is_some(), "the log is as before");
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(read("old").contains("] \"GET - -\" 200 "), "{}", read("old"));
        assert!(read("requests.log").starts_with("{\"timestamp\":"), "{}", read("requests.log"));
        // The lines that wait go where the log was when their requests ended.
        let moved = dir.path().join("moved.log");
        request(&line);
        follow(Some(&log(&moved, RequestFormat::Json, false))).unwrap();
        request(&line);
        follow(None).unwrap();
        assert_eq!(read("requests.log").lines().count(), 2);
        assert_eq!(read("moved.log").lines().count(), 1);
        // Lines that came too late for the file are lost, and count.
        let before = lost();
        write(b"one\ntwo\n");
        assert_eq!(lost() - before, 2);
        let before = lost();
        follow(Some(&log("/dev/full".as_ref(), RequestFormat::Json, false))).unwrap();
        for _ in 0..3 {
            request(&line);
        }
        flush(Duration::from_secs(60));
        assert_eq!(lost() - before, 3);
        tell_lost();
        assert_eq!(TOLD.load(Ordering::Relaxed), lost());
        follow(None).unwrap();
        assert_eq!(wanted(), None);
    }
}
