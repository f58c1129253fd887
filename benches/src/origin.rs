//! `load origin`: the servers at the far end, with one thread each.
//!
//! * `echo` sends back the received bytes. An idle connection holds no buffer, so that 18,000 of
//!   them measure the tunnel's memory and not the echo's.
//! * `sink` reads, and every [`TELL`] it sends the number of received bytes, as 8 bytes big endian;
//!   it sends the number once more at the end.
//! * `source` reads 4 bytes big endian, the size of its writes, and writes until the other end
//!   closes.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::coop::consume_budget;

/// The interval at which a sink sends its count. A rate over seconds is then exact to a percent,
/// and the reports cost nothing compared with the data.
pub const TELL: Duration = Duration::from_millis(20);

/// Largest write of a source.
pub const WRITE_MAX: usize = 1 << 20;

/// The most bytes of one read: the bytes that a socket holds at a high rate.
pub(crate) const READ: usize = 256 << 10;

/// A burst of new connections waits in the kernel, not at the clients.
const BACKLOG: u32 = 4096;

/// The pause after a failed accept; the usual cause is a lack of descriptors.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);

/// The behaviour of an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Sends back the received bytes.
    Echo,
    /// Reads and counts bytes.
    Sink,
    /// Writes bytes.
    Source,
}

/// The names on the command line.
pub const KINDS: [(&str, Kind); 3] =
    [("echo", Kind::Echo), ("sink", Kind::Sink), ("source", Kind::Source)];

/// Listens on `address`; port 0 lets the kernel choose a port.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Serves every connection until it is dropped. Needs a local runtime.
pub async fn serve(listener: TcpListener, kind: Kind) {
    let shared = Rc::new(RefCell::new(vec![0; READ]));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let shared = Rc::clone(&shared);
        tokio::task::spawn_local(async move {
            let _ = stream.set_nodelay(true);
            // A visitor that goes away is no failure of the origin.
            let _ = match kind {
                Kind::Echo => echo(stream, &shared).await,
                Kind::Sink => sink(stream).await,
                Kind::Source => source(stream).await,
            };
        });
    }
}

async fn echo(mut stream: TcpStream, shared: &RefCell<Vec<u8>>) -> io::Result<()> {
    loop {
        stream.readable().await?;
        let rest = {
            let mut buffer = shared.borrow_mut();
            let n = match stream.try_read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(n) => n,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => return Err(error),
            };
            let written = match stream.try_write(&buffer[..n]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                written => written?,
            };
            (written < n).then(|| buffer[written..n].to_vec())
        };
        if let Some(rest) = rest {
            stream.write_all(&rest).await?;
        }
        // Neither `readable` nor the attempts yield to other tasks.
        consume_budget().await;
    }
}

async fn sink(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = vec![0; READ];
    let (mut count, mut reported) = (0u64, Instant::now());
    loop {
        let n = stream.read(&mut buffer).await?;
        count += n as u64;
        if n == 0 {
            stream.write_all(&count.to_be_bytes()).await?;
            return stream.shutdown().await;
        }
        if reported.elapsed() >= TELL {
            reported = Instant::now();
            stream.write_all(&count.to_be_bytes()).await?;
        }
    }
}

async fn source(mut stream: TcpStream) -> io::Result<()> {
    let size = stream.read_u32().await?;
    let size = usize::try_from(size).unwrap_or(usize::MAX).clamp(1, WRITE_MAX);
    let bytes = vec![b's'; size];
    loop {
        stream.write_all(&bytes).await?;
    }
}
