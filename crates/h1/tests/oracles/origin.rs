//! An origin that sends the delivered bytes of a case, with a pause, and answers the next request
//! of a connection with a marker.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::cases::{Case, End};

/// How long the origin holds the rest back. A parser that sees an end sends the next request
/// earlier; on a slow machine a fault might be missed, but none is invented.
const PAUSE: Duration = Duration::from_millis(25);

pub(crate) const MARKER: &str = "marker";

pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    pub(crate) cases: Arc<Vec<Case>>,
    reused: Arc<AtomicUsize>,
}

impl Origin {
    pub(crate) fn start(cases: Arc<Vec<Case>>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let reused = Arc::<AtomicUsize>::default();
        let (all, count) = (Arc::clone(&cases), Arc::clone(&reused));
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let (cases, reused) = (Arc::clone(&all), Arc::clone(&count));
                // The end of a connection has no other effect.
                thread::spawn(move || drop(serve(&socket, &cases, &reused)));
            }
        });
        Self { address, cases, reused }
    }

    /// The number of requests that came over a kept connection.
    pub(crate) fn reused(&self) -> usize {
        self.reused.load(Ordering::Relaxed)
    }
}

fn serve(socket: &TcpStream, cases: &[Case], reused: &AtomicUsize) -> std::io::Result<()> {
    socket.set_nodelay(true)?;
    let mut reader = BufReader::new(socket);
    let mut is_first = true;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if !std::mem::replace(&mut is_first, false) {
            reused.fetch_add(1, Ordering::Relaxed);
        }
        let mut field = String::new();
        while field.trim_end() != "" || field.is_empty() {
            field.clear();
            if reader.read_line(&mut field)? == 0 {
                return Ok(());
            }
        }
        let mut parts = line.split([' ', '/']).filter(|part| !part.is_empty()).skip(1);
        let kind = parts.next().unwrap_or_default();
        let mut number = || parts.next().and_then(|part| part.parse::<usize>().ok());
        let (Some(case), Some(pause), true) = (number(), number(), kind == "case") else {
            let length = MARKER.len();
            let body = if line.starts_with("HEAD") { "" } else { MARKER };
            write!(&*socket, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}")?;
            continue;
        };
        let Case { delivered, pauses, end, .. } = &cases[case];
        let (before, after) = delivered.split_at(pauses[pause]);
        (&*socket).write_all(before)?;
        socket.set_read_timeout(Some(PAUSE))?;
        match reader.fill_buf() {
            Ok([]) => return Ok(()),
            Ok(_) => {}
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(e) => return Err(e),
        }
        socket.set_read_timeout(None)?;
        (&*socket).write_all(after)?;
        match end {
            End::Keep => {}
            End::Fin => {
                socket.shutdown(Shutdown::Write)?;
                std::io::copy(&mut reader, &mut std::io::sink())?;
                return Ok(());
            }
            End::Reset => {
                testkit::wire::reset_on_drop(socket);
                return Ok(());
            }
        }
    }
}
