//! The two pipes between the ends of a connection, and their faults.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes, BytesMut};

use super::{CAPACITY, killed};

/// See [`super::Faults`].
pub(super) type Fuse = Arc<AtomicU64>;

/// One direction.
#[derive(Debug, Default)]
struct Pipe {
    bytes: BytesMut,
    /// The writer has ended the direction: end of stream once `bytes` is empty.
    finished: bool,
    /// The reader was dropped: a write kills the connection, as a RST would.
    deserted: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
    /// The number of bytes until the connection fails, counted over all its lanes.
    fuse: Option<Fuse>,
}

/// A connection. The dialing end writes to pipe 0.
#[derive(Debug)]
pub(super) struct Wire {
    pipes: [Pipe; 2],
    read_at_most: usize,
    dead: bool,
    black_hole: bool,
}

impl Wire {
    pub(super) fn new(fuses: [Option<Fuse>; 2], read_at_most: usize) -> Self {
        let mut wire = Self {
            pipes: fuses.map(|fuse| Pipe { fuse, ..Pipe::default() }),
            read_at_most: if read_at_most == 0 { usize::MAX } else { read_at_most },
            dead: false,
            black_hole: false,
        };
        if wire.is_burnt() {
            wire.kill();
        }
        wire
    }

    /// Whether the connection must now fail, with all its lanes.
    pub(super) fn is_burnt(&self) -> bool {
        let fuses = self.pipes.iter().filter_map(|pipe| pipe.fuse.as_ref());
        fuses.into_iter().any(|fuse| fuse.load(Relaxed) == 0)
    }

    pub(super) fn alive(&self) -> io::Result<()> {
        if self.dead { Err(killed()) } else { Ok(()) }
    }

    pub(super) fn read(
        &mut self,
        pipe: usize,
        buf: &mut BytesMut,
        cx: &Context<'_>,
    ) -> (Poll<io::Result<usize>>, Option<Waker>) {
        if let Err(error) = self.alive() {
            return (Poll::Ready(Err(error)), None);
        }
        let limit = self.read_at_most;
        let pipe = &mut self.pipes[pipe];
        if pipe.bytes.is_empty() && !pipe.finished {
            pipe.reader = Some(cx.waker().clone());
            return (Poll::Pending, None);
        }
        let n = pipe.bytes.len().min(buf.capacity() - buf.len()).min(limit);
        buf.extend_from_slice(&pipe.bytes[..n]);
        pipe.bytes.advance(n);
        if pipe.bytes.is_empty() {
            pipe.bytes = BytesMut::new();
        }
        (Poll::Ready(Ok(n)), pipe.writer.take())
    }

    pub(super) fn write(
        &mut self,
        index: usize,
        frames: &mut VecDeque<Bytes>,
        cx: &Context<'_>,
    ) -> (Poll<io::Result<usize>>, Vec<Waker>) {
        if let Err(error) = self.alive() {
            return (Poll::Ready(Err(error)), Vec::new());
        }
        let black_hole = self.black_hole;
        let pipe = &mut self.pipes[index];
        if pipe.finished {
            return (Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())), Vec::new());
        }
        if pipe.deserted {
            return (Poll::Ready(Err(killed())), self.kill());
        }
        let mut room = CAPACITY - pipe.bytes.len().min(CAPACITY);
        if let Some(fuse) = &pipe.fuse {
            room = room.min(usize::try_from(fuse.load(Relaxed)).unwrap_or(usize::MAX));
        }
        if room == 0 {
            pipe.writer = Some(cx.waker().clone());
            return (Poll::Pending, Vec::new());
        }
        let mut taken = 0;
        while let Some(front) = frames.front_mut() {
            let n = front.len().min(room - taken);
            if !black_hole {
                pipe.bytes.extend_from_slice(&front[..n]);
            }
            taken += n;
            if n < front.len() {
                front.advance(n);
                break;
            }
            frames.pop_front();
        }
        if let Some(fuse) = &pipe.fuse
            && fuse.fetch_sub(taken as u64, Relaxed) == taken as u64
        {
            return (Poll::Ready(Ok(taken)), self.kill());
        }
        (Poll::Ready(Ok(taken)), pipe.reader.take().into_iter().collect())
    }

    pub(super) fn finish(&mut self, index: usize) -> Option<Waker> {
        if self.black_hole {
            return None;
        }
        self.pipes[index].finished = true;
        self.pipes[index].reader.take()
    }

    /// Handles the drop of an end. As with TCP, this is a close if the end had finished and left no
    /// bytes unread, and its written bytes are still delivered; otherwise it is an abort.
    pub(super) fn abandon(&mut self, index: usize) -> Vec<Waker> {
        if self.black_hole {
            return Vec::new();
        }
        let finished = self.pipes[index].finished;
        let incoming = &mut self.pipes[1 - index];
        if !finished || !incoming.bytes.is_empty() {
            return self.kill();
        }
        incoming.deserted = true;
        incoming.writer.take().into_iter().collect()
    }

    pub(super) fn kill(&mut self) -> Vec<Waker> {
        self.dead = true;
        self.pipes.iter_mut().for_each(|pipe| pipe.bytes = BytesMut::new());
        self.wakers()
    }

    pub(super) fn black_hole(&mut self) -> Vec<Waker> {
        self.black_hole = true;
        self.pipes.iter_mut().for_each(|pipe| pipe.bytes = BytesMut::new());
        // Writers that waited for room now have it.
        self.wakers()
    }

    fn wakers(&mut self) -> Vec<Waker> {
        let each = self.pipes.iter_mut();
        each.flat_map(|pipe| [pipe.reader.take(), pipe.writer.take()]).flatten().collect()
    }
}
