//! Two streams of one worker. There is no task between the streams: each call of a link about one
//! stream leads to calls to the link of the other stream. Only bytes that a rate delays have a
//! task, which sends them when they are due.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use net::pool;
use proto::{HEAD_ROOM, Open, ResetCode};
use tokio::task::spawn_local;
use tokio::time::sleep;
use transport::{Connector, Inlet, OpenError, Outlet};

use super::Crossing;
use crate::admit::{Gate, Way};
use crate::pace;
use crate::pipe::{Queue, throw_away};

/// One of the two streams.
#[derive(Default)]
struct Half {
    /// `None` while the stream is being opened, and after an abort.
    inlet: RefCell<Option<Box<dyn Inlet>>>,
    /// Bytes of the peer that wait for room on the other stream.
    queue: RefCell<Queue>,
    /// The peer has ended its direction.
    is_finished: Cell<bool>,
    /// The other stream takes no more bytes: bytes of this peer are discarded.
    is_deaf: Cell<bool>,
    /// Bytes that the rates permit now.
    due: Cell<usize>,
    /// A task waits until bytes are due by the rates.
    is_paced: Cell<bool>,
}

/// Two joined streams. The outlets of both streams keep the joint alive.
struct Joint {
    halves: [Half; 2],
    crossing: Crossing,
}

/// The outlet of one of the two streams.
struct End {
    joint: Rc<Joint>,
    /// The index of the half of the stream.
    side: usize,
}

/// Opens a stream at `connector` and joins it with the accepted stream of the visitor. Returns the
/// outlet of the accepted stream.
///
/// # Errors
/// The connector takes no more streams. The accepted stream is returned, and the caller must refuse
/// it.
pub fn bridge(
    accepted: Box<dyn Inlet>,
    connector: &dyn Connector,
    open: Open,
    crossing: Crossing,
) -> Result<Rc<dyn Outlet>, (Box<dyn Inlet>, OpenError)> {
    let joint = Rc::new(Joint { halves: Default::default(), crossing });
    let opened = connector.open(open, Rc::new(End { joint: Rc::clone(&joint), side: 1 }));
    let inlet = match opened {
        Ok(inlet) => inlet,
        Err(error) => return Err((accepted, error)),
    };
    *joint.halves[0].inlet.borrow_mut() = Some(accepted);
    *joint.halves[1].inlet.borrow_mut() = Some(inlet);
    // The link of the opened stream may have called its outlet meanwhile.
    let first = End { joint, side: 0 };
    first.forward();
    End { joint: Rc::clone(&first.joint), side: 1 }.forward();
    Ok(Rc::new(first))
}

impl Half {
    fn with_inlet(&self, command: impl FnOnce(&dyn Inlet)) {
        if let Some(inlet) = &*self.inlet.borrow() {
            command(&**inlet);
        }
    }
}

impl End {
    fn mine(&self) -> &Half {
        &self.joint.halves[self.side]
    }

    fn other(&self) -> &Half {
        &self.joint.halves[1 - self.side]
    }

    /// Forwards queued bytes of this stream, and reports to the peer that they are consumed.
    fn forward(&self) {
        let sent = self.send_on();
        if sent > 0 {
            self.mine().with_inlet(|inlet| inlet.consumed(sent));
        }
    }

    /// Forwards queued bytes of this stream, as far as the other stream has room and the rates
    /// permit, and then the end of the direction. Returns the number of bytes.
    fn send_on(&self) -> usize {
        let mine = self.mine();
        let mut sent = 0;
        self.other().with_inlet(|inlet| {
            let mut queue = mine.queue.borrow_mut();
            loop {
                let may = self.may(queue.len().min(inlet.room()));
                let moved = super::send_queued(&mut queue, inlet, may);
                if moved == 0 {
                    break;
                }
                mine.due.set(mine.due.get().saturating_sub(moved));
                sent += moved;
            }
            if mine.is_finished.get() && queue.is_empty() && !mine.is_deaf.replace(true) {
                inlet.finish();
            }
        });
        // A stream without bytes or room returns its unused tokens.
        let left = mine.due.take();
        if let Some(gate) = self.joint.crossing.gate() {
            pace::refund(gate, self.way(), left);
        }
        sent
    }

    /// The direction of the bytes of this stream.
    const fn way(&self) -> Way {
        match self.side {
            0 => Way::Up,
            _ => Way::Down,
        }
    }

    /// The gate with the rates of these bytes, if there are any now.
    fn rates(&self) -> Option<&Arc<Gate>> {
        self.joint.crossing.gate().filter(|gate| pace::is_paced(gate, self.way()))
    }

    /// Returns how many of the `wanted` bytes may move now. A task sends the rest when it is due.
    fn may(&self, wanted: usize) -> usize {
        let Some(gate) = self.rates() else { return wanted };
        let mine = self.mine();
        if wanted == 0 || mine.due.get() > 0 {
            return mine.due.get().min(wanted);
        }
        if mine.is_paced.get() {
            return 0;
        }
        let (bytes, wait) = pace::claim(gate, self.way(), wanted);
        if wait.is_zero() {
            mine.due.set(bytes);
            return bytes;
        }
        mine.is_paced.set(true);
        let (joint, gate) = (Rc::downgrade(&self.joint), Arc::clone(gate));
        let (side, way) = (self.side, self.way());
        spawn_local(async move {
            sleep(wait).await;
            let Some(joint) = joint.upgrade() else { return pace::refund(&gate, way, bytes) };
            let end = Self { joint, side };
            end.mine().is_paced.set(false);
            end.mine().due.set(bytes);
            end.forward();
        });
        0
    }

    /// Ends both directions of both streams.
    fn abort(&self, code: ResetCode) {
        for half in &self.joint.halves {
            half.is_deaf.set(true);
            half.queue.take();
        }
        let (mine, other) = (self.mine().inlet.take(), self.other().inlet.take());
        if let Some(inlet) = other {
            inlet.refuse(code);
        }
        drop(mine);
    }
}

impl Outlet for End {
    fn deliver(&self, pieces: &mut VecDeque<Bytes>) -> usize {
        let mine = self.mine();
        let bytes = pieces.iter().map(Bytes::len).sum();
        match self.side {
            0 => self.joint.crossing.count_in(bytes),
            _ => self.joint.crossing.count_out(bytes),
        }
        if mine.is_deaf.get() {
            return throw_away(pieces);
        }
        let is_first = mine.queue.borrow().is_empty();
        let is_paced = self.rates().is_some();
        let mut sent = 0;
        if is_first && !is_paced {
            self.other().with_inlet(|inlet| sent = send_on(inlet, pieces));
        }
        let mut queue = mine.queue.borrow_mut();
        pieces.drain(..).for_each(|piece| queue.push(piece));
        drop(queue);
        // Bytes behind queued bytes move with them, when there is room or they are due.
        if is_first && is_paced { self.send_on() } else { sent }
    }

    fn finish(&self) {
        self.mine().is_finished.set(true);
        self.forward();
    }

    fn reset(&self, code: ResetCode) {
        self.abort(code);
    }

    fn stop(&self, code: ResetCode) {
        let other = self.other();
        self.mine().with_inlet(|inlet| inlet.reset(code));
        if other.is_deaf.replace(true) {
            return;
        }
        let thrown = other.queue.take().clear();
        other.with_inlet(|inlet| {
            if thrown > 0 {
                inlet.consumed(thrown);
            }
            inlet.stop(code);
        });
    }

    fn room(&self) {
        Self { joint: Rc::clone(&self.joint), side: 1 - self.side }.forward();
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.joint.crossing.visitor()
    }

    fn counted_in(&self) -> *const () {
        self.joint.crossing.identity()
    }
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "End({} of a bridge)", self.side)
    }
}

/// Sends bytes from the front of `pieces`, as far as there is room. Returns their number.
fn send_on(inlet: &dyn Inlet, pieces: &mut VecDeque<Bytes>) -> usize {
    let mut sent = 0;
    loop {
        let waiting: usize = pieces.iter().map(Bytes::len).sum();
        let size = waiting.min(inlet.room());
        if size == 0 {
            return sent;
        }
        let mut frame = pool::take(HEAD_ROOM + size);
        frame.resize(HEAD_ROOM, 0);
        let mut left = size;
        while let Some(front) = pieces.front_mut().filter(|_| left > 0) {
            let part = front.len().min(left);
            frame.extend_from_slice(&front[..part]);
            front.advance(part);
            left -= part;
            if front.is_empty() {
                pieces.pop_front().into_iter().for_each(pool::recycle);
            }
        }
        inlet.send(&mut frame);
        pool::give(frame);
        sent += size;
    }
}
