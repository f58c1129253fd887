//! Two streams of two workers. A task of each worker owns the inlet of its stream and exchanges
//! messages with the other task over two bounded channels.
//!
//! A task passes its bytes on as they arrive, and is notified later how many of them the other
//! stream has taken. Only then does it report them to its own link as consumed. So the window of a
//! stream bounds the bytes in transit to the other worker, whatever the channel could hold.
//!
//! The task with the account of the stream, on the side of the service, delays bytes of both
//! directions according to the rates.
//!
//! A stream waits for its worker with the outlet of its half. If this is its own worker, there are
//! no tasks: the outlet passes all calls on to that of a joint ([`Carried::bridge`]).

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use net::pages::Pages;
use proto::{Open, ResetCode};
use tokio::sync::{Notify, mpsc};
use tokio::task::spawn_local;
use transport::{Connector, Inlet, Outlet, deliver_copy};

use super::Crossing;
use super::joint::End;
use crate::admit::Way;
use crate::pace::{self, Portions};
use crate::pipe::{Queue, throw_away};
use crate::stats::open_error_code;

/// Capacity of the channel of one direction, in messages. A message is a frame of up to 512 KiB or
/// a signal. When the channel is full, the sender waits and its link keeps the bytes.
const UNDER_WAY: usize = 16;

/// The messages from one task to the other.
#[derive(Debug)]
enum Message {
    /// The next bytes of the stream.
    Bytes(Bytes),
    /// The number of bytes that the stream of the sender has taken.
    Consumed(usize),
    /// No more bytes follow.
    Finish,
    /// The stream takes no more bytes.
    Stop(ResetCode),
    /// Both directions were aborted.
    Reset(ResetCode),
}

/// One end of a connection between two workers. It may move to another thread.
#[derive(Debug)]
pub struct Span {
    messages: mpsc::Sender<Message>,
    heard: mpsc::Receiver<Message>,
}

/// Makes a connection. Each end is for one stream: [`Span::carry`].
#[must_use]
pub fn span() -> (Span, Span) {
    let (here, there) = (mpsc::channel(UNDER_WAY), mpsc::channel(UNDER_WAY));
    let near = Span { messages: here.0, heard: there.1 };
    let far = Span { messages: there.0, heard: here.1 };
    (near, far)
}

impl Span {
    /// Makes the outlet of a stream of this worker, before there is an inlet. [`Carried::join`]
    /// then starts the task. `crossing` counts the bytes of this stream as those of the visitor.
    /// The crossing of a stream that may be bridged has no counters and no rates.
    #[must_use]
    pub fn carry(self, crossing: Crossing) -> Carried {
        let half = Half { crossing, ..Half::default() };
        Carried { half: Rc::new(half), span: self }
    }
}

/// A stream that continues on another worker.
#[derive(Debug)]
pub struct Carried {
    half: Rc<Half>,
    span: Span,
}

impl Carried {
    /// The outlet of the stream.
    #[must_use]
    pub fn outlet(&self) -> Rc<dyn Outlet> {
        Rc::<Half>::clone(&self.half)
    }

    /// Refuses the stream, which was not joined with another stream.
    pub fn refuse(self, inlet: &dyn Inlet, code: ResetCode) {
        self.half.is_deaf.set(true);
        self.half.queue.take();
        inlet.refuse(code);
    }

    /// Whether the peer or its link has ended the stream meanwhile.
    #[must_use]
    pub fn is_reset(&self) -> bool {
        self.half.reset.get().is_some()
    }

    /// Opens a stream at `connector`, which is of this worker, and joins it with this stream as
    /// [`bridge`](super::bridge) does. The joint gets all that this stream has received meanwhile.
    /// A stream that the connector does not take is refused.
    pub fn bridge(
        self,
        inlet: Box<dyn Inlet>,
        connector: &dyn Connector,
        open: Open,
        crossing: Crossing,
    ) {
        if self.is_reset() {
            // The drop of the inlet ends this side.
            return;
        }
        let end = match End::join(inlet, connector, open, crossing) {
            Ok(end) => self.half.joined.get_or_init(|| end),
            Err((inlet, error)) => return self.refuse(&*inlet, open_error_code(error)),
        };
        end.take_over(self.half.queue.take());
        if self.half.is_finished.get() {
            end.finish();
        }
        if let Some(code) = self.half.stop.take() {
            end.stop(code);
        }
    }

    /// Starts the task that carries the bytes of the stream. It ends with the stream.
    pub fn join(self, inlet: Box<dyn Inlet>) {
        let Self { half, span } = self;
        let (outgoing, incoming) = (Outgoing::default(), Incoming::default());
        let (to_service, to_visitor) = (Turn::new(Way::Up), Turn::new(Way::Down));
        spawn_local(Task { half, inlet, span, outgoing, incoming, to_service, to_visitor }.run());
    }
}

/// The link's calls to the outlet, recorded for the task.
#[derive(Debug, Default)]
struct Half {
    /// Bytes of the peer that the task has not sent to the other task yet.
    queue: RefCell<Queue>,
    is_finished: Cell<bool>,
    stop: Cell<Option<ResetCode>>,
    reset: Cell<Option<ResetCode>>,
    /// The other stream takes no more bytes.
    is_deaf: Cell<bool>,
    changed: Notify,
    crossing: Crossing,
    /// The outlet that gets all calls, where the other stream is of the same worker.
    joined: OnceCell<End>,
}

impl Outlet for Half {
    fn deliver(&self, pieces: &mut VecDeque<Bytes>) -> usize {
        if let Some(end) = self.joined.get() {
            return end.deliver(pieces);
        }
        if self.is_deaf.get() {
            return throw_away(pieces);
        }
        self.crossing.count_in(pieces.iter().map(Bytes::len).sum());
        let mut queue = self.queue.borrow_mut();
        pieces.drain(..).for_each(|piece| queue.push(piece));
        self.changed.notify_one();
        0
    }

    fn takes_pages(&self) -> bool {
        self.joined.get().is_some_and(Outlet::takes_pages)
    }

    fn deliver_pages(&self, pages: Pages) -> usize {
        match self.joined.get() {
            Some(end) => end.deliver_pages(pages),
            None => deliver_copy(self, pages),
        }
    }

    fn finish(&self) {
        if let Some(end) = self.joined.get() {
            return end.finish();
        }
        self.is_finished.set(true);
        self.changed.notify_one();
    }

    fn reset(&self, code: ResetCode) {
        if let Some(end) = self.joined.get() {
            return end.reset(code);
        }
        self.reset.set(Some(code));
        self.is_deaf.set(true);
        self.queue.take();
        self.changed.notify_one();
    }

    fn stop(&self, code: ResetCode) {
        if let Some(end) = self.joined.get() {
            return end.stop(code);
        }
        self.stop.set(Some(code));
        self.changed.notify_one();
    }

    fn room(&self) {
        if let Some(end) = self.joined.get() {
            return end.room();
        }
        self.changed.notify_one();
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.joined.get().map_or_else(|| self.crossing.visitor(), Outlet::peer)
    }

    fn counted_in(&self) -> *const () {
        self.joined.get().map_or_else(|| self.crossing.identity(), Outlet::counted_in)
    }
}

/// The state of the bytes that were sent to the other task.
#[derive(Debug, Default)]
struct Outgoing {
    /// Bytes sent to the other task that the other stream has not taken yet.
    unconsumed: usize,
    /// The other task was notified that nothing more follows, or takes nothing more.
    is_over: bool,
}

/// The bytes of the other stream that wait for room on this stream.
#[derive(Debug, Default)]
struct Incoming {
    queue: Queue,
    is_finished: bool,
    /// Bytes that this stream took and that were not reported to the other task yet.
    consumed: usize,
    /// This stream takes no more bytes.
    is_over: bool,
}

/// The pacing of the bytes of one direction by the rates of the crossing.
///
/// Another thread sets the rates. So the task checks once per iteration of its loop whether there
/// is a rate, and the result applies to the whole iteration. With two checks, a rate could hold
/// back bytes that then have no rate to wait for: the task would sleep, and no event would wake it.
#[derive(Debug)]
struct Turn {
    way: Way,
    /// Whether there was a rate when the current iteration of the loop began.
    is_paced: bool,
    portions: Portions,
    /// Bytes that may move now.
    due: usize,
}

impl Turn {
    fn new(way: Way) -> Self {
        Self { way, is_paced: false, portions: Portions::default(), due: 0 }
    }

    /// Checks whether there are rates.
    fn ask(&mut self, crossing: &Crossing) {
        self.is_paced = crossing.gate().is_some_and(|gate| pace::is_paced(gate, self.way));
    }

    /// Returns how many bytes may move now.
    const fn may(&self) -> usize {
        if self.is_paced { self.due } else { usize::MAX }
    }

    /// Returns how many of the `ready` bytes must wait for the rates.
    const fn waits(&self, ready: usize) -> usize {
        if self.may() == 0 { ready } else { 0 }
    }

    /// Waits until some of the `wanted` bytes may move.
    async fn come(&mut self, crossing: &Crossing, wanted: usize) {
        let Some(gate) = crossing.gate() else { return };
        self.due = poll_fn(|cx| self.portions.poll(cx, gate, self.way, wanted)).await;
    }

    /// Records that this number of bytes has moved. `is_idle`: no more bytes are ready, so unused
    /// tokens are refunded.
    fn moved(&mut self, crossing: &Crossing, bytes: usize, is_idle: bool) {
        self.portions.used(bytes);
        self.due = self.due.saturating_sub(bytes);
        if is_idle && !self.portions.is_idle() {
            self.due = 0;
            if let Some(gate) = crossing.gate() {
                self.portions.settle(gate, self.way);
            }
        }
    }
}

struct Task {
    half: Rc<Half>,
    inlet: Box<dyn Inlet>,
    span: Span,
    outgoing: Outgoing,
    incoming: Incoming,
    /// For the bytes that the inlet takes, where this task has the account.
    to_service: Turn,
    /// For the bytes to the other task, likewise.
    to_visitor: Turn,
}

impl Task {
    async fn run(mut self) {
        loop {
            self.to_service.ask(&self.half.crossing);
            self.to_visitor.ask(&self.half.crossing);
            self.send_on();
            if self.is_over() {
                return;
            }
            let has_message = self.has_message();
            let crossing = &self.half.crossing;
            let incoming = self.to_service.waits(self.ready_to_send());
            let outgoing = self.to_visitor.waits(self.half.queue.borrow().len());
            tokio::select! {
                biased;
                permit = self.span.messages.clone().reserve_owned(), if has_message => {
                    let Ok(permit) = permit else { return self.abort(ResetCode::Aborted) };
                    let Some(message) = self.take() else { continue };
                    let is_last = matches!(message, Message::Reset(_));
                    permit.send(message);
                    if is_last {
                        // The drop of the inlet ends this side.
                        return;
                    }
                }
                heard = self.span.heard.recv() => match heard {
                    None => return self.abort(ResetCode::Aborted),
                    Some(Message::Reset(code)) => return self.abort(code),
                    Some(message) => self.hear(message),
                },
                () = self.half.changed.notified() => {}
                () = self.to_service.come(crossing, incoming), if incoming > 0 => {}
                () = self.to_visitor.come(crossing, outgoing), if outgoing > 0 => {}
            }
        }
    }

    /// Whether both directions have ended, and each task knows what the other stream has taken.
    const fn is_over(&self) -> bool {
        let Self { outgoing, incoming, .. } = self;
        outgoing.is_over && outgoing.unconsumed == 0 && incoming.is_over && incoming.consumed == 0
    }

    /// Whether there is a message for the other task.
    fn has_message(&self) -> bool {
        let half = &self.half;
        let has_bytes = !half.queue.borrow().is_empty();
        half.reset.get().is_some()
            || half.stop.get().is_some()
            || self.incoming.consumed > 0
            || (has_bytes && self.to_visitor.may() > 0)
            || (!has_bytes && half.is_finished.get() && !self.outgoing.is_over)
    }

    /// The bytes of the other stream for which there is room.
    fn ready_to_send(&self) -> usize {
        let Incoming { queue, is_over, .. } = &self.incoming;
        if *is_over { 0 } else { queue.len().min(self.inlet.room()) }
    }

    /// Takes the most urgent message.
    fn take(&mut self) -> Option<Message> {
        let half = &self.half;
        if let Some(code) = half.reset.take() {
            return Some(Message::Reset(code));
        }
        if let Some(code) = half.stop.take() {
            // Nothing more is sent to the peer of this stream.
            self.inlet.reset(code);
            self.incoming.queue.clear();
            self.incoming.is_over = true;
            self.incoming.consumed = 0;
            return Some(Message::Stop(code));
        }
        if self.incoming.consumed > 0 {
            return Some(Message::Consumed(std::mem::take(&mut self.incoming.consumed)));
        }
        let mut queue = half.queue.borrow_mut();
        if !queue.is_empty() {
            let bytes = match self.to_visitor.may() {
                0 => return None,
                usize::MAX => queue.pop()?,
                may => {
                    let mut part = BytesMut::with_capacity(may.min(queue.len()));
                    queue.take_front(may, &mut part);
                    part.freeze()
                }
            };
            self.to_visitor.moved(&half.crossing, bytes.len(), queue.is_empty());
            self.outgoing.unconsumed += bytes.len();
            return Some(Message::Bytes(bytes));
        }
        drop(queue);
        let is_end = half.is_finished.get() && !std::mem::replace(&mut self.outgoing.is_over, true);
        is_end.then_some(Message::Finish)
    }

    /// Handles a message from the other task.
    fn hear(&mut self, message: Message) {
        match message {
            Message::Bytes(bytes) if self.incoming.is_over => drop(bytes),
            Message::Bytes(bytes) => {
                self.half.crossing.count_out(bytes.len());
                self.incoming.queue.push(bytes);
            }
            Message::Finish => self.incoming.is_finished = true,
            Message::Consumed(bytes) => {
                self.outgoing.unconsumed = self.outgoing.unconsumed.saturating_sub(bytes);
                self.inlet.consumed(bytes);
            }
            Message::Stop(code) => {
                self.half.is_deaf.set(true);
                let thrown = self.half.queue.take().clear();
                if thrown > 0 {
                    self.inlet.consumed(thrown);
                }
                self.inlet.stop(code);
                self.outgoing = Outgoing { unconsumed: 0, is_over: true };
            }
            Message::Reset(code) => self.abort(code),
        }
    }

    /// Sends bytes of the other stream as far as there is room, and then their end.
    fn send_on(&mut self) {
        let Incoming { queue, is_finished, consumed, is_over } = &mut self.incoming;
        if *is_over {
            return;
        }
        let crossing = &self.half.crossing;
        let sent = super::send_queued(queue, &*self.inlet, self.to_service.may());
        let is_idle = queue.is_empty() || self.inlet.room() == 0;
        self.to_service.moved(crossing, sent, is_idle);
        *consumed += sent;
        if *is_finished && queue.is_empty() {
            *is_over = true;
            self.inlet.finish();
        }
    }

    fn abort(&self, code: ResetCode) {
        self.half.is_deaf.set(true);
        self.half.queue.take();
        self.inlet.refuse(code);
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("incoming", &self.incoming).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use proto::{Bounds, Limits};

    use super::*;
    use crate::Gate;

    #[tokio::test]
    async fn bytes_that_found_a_rate_wait_although_it_has_gone_meanwhile() {
        let gate = Gate::new(None);
        let crossing = Crossing::new(Rc::default(), vec![gate.admit().unwrap()]);
        let mut turn = Turn::new(Way::Up);
        for rates in [false, true, true, false, true] {
            let up = NonZeroU64::new(1 << 30).filter(|_| rates);
            gate.set(&Limits { all: Bounds { up, ..Bounds::default() }, ..Limits::default() });
            turn.ask(&crossing);
            // Another thread changes the rates after the check.
            for later in [true, false] {
                let up = NonZeroU64::new(1 << 30).filter(|_| later);
                gate.set(&Limits { all: Bounds { up, ..Bounds::default() }, ..Limits::default() });
                assert_eq!(turn.may() == 0, rates);
                assert_eq!(turn.waits(100), if rates { 100 } else { 0 });
            }
            if rates {
                turn.come(&crossing, 100).await;
                assert_eq!((turn.may(), turn.waits(100)), (100, 0));
                turn.moved(&crossing, 100, true);
            }
        }
    }

    #[test]
    fn the_list_of_streams_has_the_address_of_the_client_that_visits() {
        let visitor = Some("192.0.2.7:4000".parse().unwrap());
        let (here, there) = span();
        for (half, expected) in [(here, visitor), (there, None)] {
            let carried = half.carry(Crossing::default().of_visitor(expected));
            assert_eq!(carried.outlet().peer(), expected);
        }
    }
}
