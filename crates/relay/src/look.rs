//! Peeks at the first bytes of a connection and leaves them in the socket. So an undecided
//! connection costs no buffer, and its handler reads it from the beginning.

use std::cell::RefCell;
use std::io;

use rustix::net::{RecvFlags, recv};
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::Socket;

/// The maximum number of inspected bytes: a header of 32 KiB, and bytes beyond it that reveal a
/// header that is too long.
pub const LOOK_MAX: usize = 33 << 10;

thread_local! {
    /// The copy of the bytes, used only during an inspection.
    static BYTES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Waits until `decide` has a result for the first bytes of the connection. `decide` gets all bytes
/// that have arrived, at most [`LOOK_MAX`], each time more bytes arrive. `None`: the visitor has
/// ended its direction, or has sent [`LOOK_MAX`] bytes, without a result. The caller sets the
/// deadline.
///
/// # Errors
/// The connection has failed, or is no TCP connection.
pub async fn look<T>(
    socket: &Socket,
    mut decide: impl FnMut(&[u8]) -> Option<T>,
) -> io::Result<Option<T>> {
    let Socket::Tcp(socket) = socket else { return Err(io::ErrorKind::Unsupported.into()) };
    let mut seen = 0;
    loop {
        let ready = socket.ready(Interest::READABLE).await?;
        let before = seen;
        match peek(socket, &mut seen, &mut decide) {
            Ok(Some(found)) => return Ok(Some(found)),
            // After the end of the direction, no more bytes arrive.
            Ok(None) if seen >= LOOK_MAX || (ready.is_read_closed() && seen == before) => {
                return Ok(None);
            }
            Ok(None) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if ready.is_read_closed() {
                    return Ok(None);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Inspects the bytes once. Without new bytes since the last call the error is `WouldBlock`, so
/// that the next wait is for new bytes.
fn peek<T>(
    socket: &TcpStream,
    seen: &mut usize,
    decide: &mut impl FnMut(&[u8]) -> Option<T>,
) -> io::Result<Option<T>> {
    BYTES.with_borrow_mut(|bytes| {
        bytes.resize(LOOK_MAX, 0);
        socket.try_io(Interest::READABLE, || {
            let (_, size) = recv(socket, &mut bytes[..], RecvFlags::PEEK)?;
            if size <= *seen {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            *seen = size;
            Ok(decide(&bytes[..size]))
        })
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{Shutdown, TcpListener as StdListener, TcpStream as StdStream};

    use bytes::BytesMut;

    use super::*;

    fn pair() -> (StdStream, Socket) {
        let listener = StdListener::bind("127.0.0.1:0").unwrap();
        let visitor = StdStream::connect(listener.local_addr().unwrap()).unwrap();
        visitor.set_nodelay(true).unwrap();
        let (socket, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        (visitor, TcpStream::from_std(socket).unwrap().into())
    }

    #[tokio::test]
    async fn bytes_are_seen_as_they_come_and_stay_in_the_socket() {
        let (mut visitor, socket) = pair();
        let (seen_is, seen) = std::sync::mpsc::channel();
        let writer = std::thread::spawn(move || {
            // Each byte is sent after the previous byte was inspected.
            for (nth, byte) in b"hello".iter().enumerate() {
                visitor.write_all(&[*byte]).unwrap();
                assert_eq!(seen.recv().unwrap(), nth + 1);
            }
            visitor
        });
        let found = look(&socket, |bytes| {
            seen_is.send(bytes.len()).unwrap();
            (bytes == b"hello").then_some(bytes.len())
        });
        assert_eq!(found.await.unwrap(), Some(5));
        let mut read = BytesMut::with_capacity(100);
        assert_eq!(socket.read(&mut read, 100).unwrap(), Some(5));
        assert_eq!(&read[..], b"hello");
        drop(writer.join().unwrap());
    }

    #[tokio::test]
    async fn an_end_is_found_before_and_after_bytes() {
        for bytes in [&b""[..], b"part"] {
            let (mut visitor, socket) = pair();
            visitor.write_all(bytes).unwrap();
            visitor.shutdown(Shutdown::Write).unwrap();
            let found = look(&socket, |_| None::<()>).await.unwrap();
            assert_eq!(found, None);
        }
    }

    #[tokio::test]
    async fn no_more_than_the_limit_is_looked_at() {
        let (mut visitor, socket) = pair();
        let writer = std::thread::spawn(move || {
            let _ = visitor.write_all(&vec![b'x'; 2 * LOOK_MAX]);
            visitor
        });
        assert_eq!(look(&socket, |_| None::<()>).await.unwrap(), None);
        drop(socket);
        drop(writer.join().unwrap());
    }
}
