//! Programs that use a visit while its path changes: a transfer over an echo service, and an
//! interactive session, over an echo service or by `ssh`.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use testkit::stage::{LONG, bytes, wait};

/// The pause after each block of a transfer: it shall last as long as the path has to change.
const PAUSE: Duration = Duration::from_millis(5);
const BLOCK: u64 = 64 << 10;

/// The pause of a person between two keys.
const KEYS: Duration = Duration::from_millis(20);

/// Sends bytes whose value depends on their offset, and compares those that come back.
pub(crate) struct Transfer {
    back: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    threads: [JoinHandle<u64>; 2],
}

impl Transfer {
    /// Begins a transfer of at least so many bytes each way.
    pub(crate) fn start(stream: TcpStream, least: u64) -> Self {
        let (back, ends) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (sending, is_over) = (stream.try_clone().unwrap(), Arc::clone(&ends));
        let send = thread::spawn(move || {
            let mut pattern = bytes::Pattern::default();
            while pattern.offset() < least || !is_over.load(Ordering::Relaxed) {
                pattern.send(&sending, BLOCK).unwrap();
                thread::sleep(PAUSE);
            }
            sending.shutdown(Shutdown::Write).unwrap();
            pattern.offset()
        });
        let counted = Arc::clone(&back);
        let receive = thread::spawn(move || {
            let mut pattern = bytes::Pattern::default();
            while pattern.expect(&stream, BLOCK).unwrap() {
                counted.store(pattern.offset(), Ordering::Relaxed);
            }
            pattern.offset()
        });
        Self { back, ends, threads: [send, receive] }
    }

    /// Waits until so many bytes more have come back.
    pub(crate) fn passes(&self, more: u64) {
        let goal = self.back.load(Ordering::Relaxed) + more;
        wait("more bytes of the transfer", LONG, || {
            assert!(!self.threads[1].is_finished(), "the transfer has ended");
            (self.back.load(Ordering::Relaxed) >= goal).then_some(())
        });
    }

    /// Ends the transfer. Returns the number of bytes, all of which came back.
    pub(crate) fn end(self) -> u64 {
        self.ends.store(true, Ordering::Relaxed);
        let [sent, back] = self.threads.map(|thread| thread.join().unwrap());
        assert_eq!(sent, back);
        sent
    }
}

/// Sends a byte, waits for it, sends the next one.
pub(crate) struct Session {
    count: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Duration>,
}

impl Session {
    pub(crate) fn start(stream: TcpStream) -> Self {
        let reader = stream.try_clone().unwrap();
        Self::over(reader, stream, || ())
    }

    /// A session of `ssh`, whose remote command gives each byte back.
    pub(crate) fn by_ssh(mut ssh: Command) -> Self {
        let mut ssh = ssh.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (reader, writer) = (ssh.stdout.take().unwrap(), ssh.stdin.take().unwrap());
        Self::over(reader, writer, move || {
            let status = ssh.wait().unwrap();
            assert!(status.success(), "{status}");
        })
    }

    /// `ended` is called after the end of what the session writes.
    fn over(
        mut reader: impl Read + Send + 'static,
        mut writer: impl Write + Send + 'static,
        ended: impl FnOnce() + Send + 'static,
    ) -> Self {
        let (count, ends) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
        let (counted, is_over) = (Arc::clone(&count), Arc::clone(&ends));
        let thread = thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !is_over.load(Ordering::Relaxed) {
                let key = [counted.fetch_add(1, Ordering::Relaxed) as u8];
                let (begin, mut echo) = (Instant::now(), [0]);
                writer.write_all(&key).unwrap();
                writer.flush().unwrap();
                reader.read_exact(&mut echo).unwrap();
                assert_eq!(echo, key);
                longest = longest.max(begin.elapsed());
                thread::sleep(KEYS);
            }
            drop(writer);
            ended();
            longest
        });
        Self { count, ends, thread }
    }

    /// Waits for some echoes more.
    pub(crate) fn passes(&self) {
        let goal = self.count.load(Ordering::Relaxed) + 10;
        wait("more echoes", LONG, || {
            assert!(!self.thread.is_finished(), "the session has ended");
            (self.count.load(Ordering::Relaxed) >= goal).then_some(())
        });
    }

    /// Ends the session. Returns the longest time that an echo took.
    pub(crate) fn end(self) -> Duration {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}
