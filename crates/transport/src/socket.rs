//! Reads and writes of a TCP socket that save the system call which only says "no more".
//!
//! Tokio clears a socket's readiness when a call returns `WouldBlock`. With edge-triggered epoll a
//! short read or write says the same (epoll(7), question 9), so readiness is cleared right then:
//! one system call less for every request and every answer.

use std::io;

use bytes::{BufMut, BytesMut};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Reads at most `limit` bytes into the spare capacity of `buf`; `None` when nothing is there.
/// `Some(0)` is the end of the stream.
pub fn read(stream: &TcpStream, buf: &mut BytesMut, limit: usize) -> io::Result<Option<usize>> {
    let wanted = limit.min(buf.spare_capacity_mut().len());
    transfer(stream, Interest::READABLE, wanted, || stream.try_read_buf(&mut buf.limit(wanted)))
}

/// Writes from `slices`, a gathered write of `total` bytes; `None` when the socket is full.
pub fn write(
    stream: &TcpStream,
    slices: &[io::IoSlice<'_>],
    total: usize,
) -> io::Result<Option<usize>> {
    transfer(stream, Interest::WRITABLE, total, || match slices {
        [one] => stream.try_write(one),
        many => stream.try_write_vectored(many),
    })
}

fn transfer(
    stream: &TcpStream,
    interest: Interest,
    wanted: usize,
    call: impl FnOnce() -> io::Result<usize>,
) -> io::Result<Option<usize>> {
    let mut done = None;
    // The readiness is taken before the call: an event that arrives during it is kept.
    let outcome = stream.try_io(interest, || {
        let n = call()?;
        done = Some(n);
        if n < wanted && n > 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
    });
    match outcome {
        Err(e) if e.kind() != io::ErrorKind::WouldBlock => Err(e),
        Ok(()) | Err(_) => Ok(done),
    }
}
