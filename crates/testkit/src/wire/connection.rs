//! One connection on a wire: a socket on either side and a thread for each direction.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use std::{io, slice};

use super::{CHUNK, Shared, Way, reset_on_drop};

/// The interval at which a thread that waits for a socket checks whether its connection was killed.
const LOOK: Duration = Duration::from_millis(50);

/// How a connection is ended from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Death {
    Reset,
    Close,
}

/// The sockets are closed when both threads have ended, and not before: the kernel answers packets
/// for a closed socket with RST, and a path that swallows packets lets no RST through.
#[derive(Debug)]
pub(super) struct Connection {
    near: TcpStream,
    far: TcpStream,
    swallows_up: AtomicBool,
    swallows_down: AtomicBool,
    ended: AtomicBool,
}

impl Connection {
    pub(super) fn between(near: TcpStream, far: TcpStream) -> io::Result<Self> {
        for stream in [&near, &far] {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(LOOK))?;
            stream.set_write_timeout(Some(LOOK))?;
        }
        let [swallows_up, swallows_down, ended] = [const { AtomicBool::new(false) }; 3];
        Ok(Self { near, far, swallows_up, swallows_down, ended })
    }

    /// Ends the connection now, as its two ends see it.
    pub(super) fn end(&self, death: Death) {
        self.ended.store(true, Ordering::SeqCst);
        for stream in [&self.near, &self.far] {
            // The peer may have ended already.
            match death {
                Death::Reset => {
                    reset_on_drop(stream);
                    // Wakes the reader; a shutdown of the other half would send FIN before RST.
                    drop(stream.shutdown(Shutdown::Read));
                }
                Death::Close => drop(stream.shutdown(Shutdown::Both)),
            }
        }
    }

    pub(super) fn swallow(&self, way: Way) {
        self.swallows_up.fetch_or(way != Way::Down, Ordering::SeqCst);
        self.swallows_down.fetch_or(way != Way::Up, Ordering::SeqCst);
    }

    /// Whether the connection neither ended nor swallows bytes.
    pub(super) fn is_sound(&self) -> bool {
        ![&self.ended, &self.swallows_up, &self.swallows_down]
            .iter()
            .any(|flag| flag.load(Ordering::SeqCst))
    }

    /// Forwards one direction until its end.
    pub(super) fn carry(&self, up: bool, shared: &Shared) {
        let (mut from, to, swallows) = if up {
            (&self.near, &self.far, &self.swallows_up)
        } else {
            (&self.far, &self.near, &self.swallows_down)
        };
        let mut buffer = vec![0; CHUNK];
        while !self.is_ended() {
            let size = match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(size) => size,
                Err(e) if is_patience(&e) => continue,
                Err(_) => {
                    if !swallows.load(Ordering::SeqCst) {
                        // A reset is forwarded as a reset.
                        self.end(Death::Reset);
                    }
                    return;
                }
            };
            let mut rest = &buffer[..size];
            while !rest.is_empty() {
                if !self.wait_out_stall(shared) {
                    return;
                }
                if swallows.load(Ordering::SeqCst) {
                    break;
                }
                match write_some(to, rest, shared) {
                    Ok(sent) => rest = &rest[sent..],
                    Err(e) if is_patience(&e) => {}
                    Err(_) => return drop(from.shutdown(Shutdown::Both)),
                }
            }
            shared.count(size - rest.len());
        }
        if !swallows.load(Ordering::SeqCst) && self.wait_out_stall(shared) {
            drop(to.shutdown(Shutdown::Write));
        }
    }

    /// Returns false when the connection was ended meanwhile.
    fn wait_out_stall(&self, shared: &Shared) -> bool {
        while !self.is_ended() {
            let now = Instant::now();
            match shared.weather().stalled.and_then(|until| until.checked_duration_since(now)) {
                None | Some(Duration::ZERO) => return true,
                Some(left) => thread::sleep(left.min(LOOK)),
            }
        }
        false
    }

    fn is_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }
}

/// Writes as many bytes as the weather allows.
fn write_some(mut to: &TcpStream, bytes: &[u8], shared: &Shared) -> io::Result<usize> {
    let trickles = shared.weather().trickles.is_some_and(|until| until > Instant::now());
    if trickles {
        return to.write(slice::from_ref(&bytes[0]));
    }
    let most = shared.chunk.load(Ordering::SeqCst);
    to.write(&bytes[..bytes.len().min(most)])
}

/// Whether the error only means that nothing happened within [`LOOK`].
fn is_patience(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}
