//! Two streams of one worker. There is no task between the streams: each call of a link about one
//! stream leads to calls to the link of the other stream. Only bytes that a rate delays have a
//! task, which sends them when they are due.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::iter;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use net::pages::Pages;
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
pub(super) struct End {
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
    let first = End::join(accepted, connector, open, crossing)?;
    Ok(Rc::new(first))
}

/// Pages that wait when both links end are those of a stream that was reset.
impl Drop for Half {
    fn drop(&mut self) {
        self.queue.get_mut().clear();
    }
}

impl Half {
    fn with_inlet(&self, command: impl FnOnce(&dyn Inlet)) {
        if let Some(inlet) = &*self.inlet.borrow() {
            command(&**inlet);
        }
    }
}

impl End {
    /// As [`bridge`].
    pub(super) fn join(
        accepted: Box<dyn Inlet>,
        connector: &dyn Connector,
        open: Open,
        crossing: Crossing,
    ) -> Result<Self, (Box<dyn Inlet>, OpenError)> {
        let joint = Rc::new(Joint { halves: Default::default(), crossing });
        let opened = connector.open(open, Rc::new(Self { joint: Rc::clone(&joint), side: 1 }));
        let inlet = match opened {
            Ok(inlet) => inlet,
            Err(error) => return Err((accepted, error)),
        };
        *joint.halves[0].inlet.borrow_mut() = Some(accepted);
        *joint.halves[1].inlet.borrow_mut() = Some(inlet);
        // The link of the opened stream may have called its outlet meanwhile.
        let first = Self { joint, side: 0 };
        first.forward();
        Self { joint: Rc::clone(&first.joint), side: 1 }.forward();
        Ok(first)
    }

    /// Takes bytes that the link delivered to another outlet, which queued all of them.
    pub(super) fn take_over(&self, mut queue: Queue) {
        let mut pieces: VecDeque<Bytes> = iter::from_fn(|| queue.pop()).collect();
        let sent = self.deliver(&mut pieces);
        if sent > 0 {
            self.mine().with_inlet(|inlet| inlet.consumed(sent));
        }
    }

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

    /// Counts bytes that the peer has sent.
    fn count(&self, bytes: usize) {
        match self.side {
            0 => self.joint.crossing.count_in(bytes),
            _ => self.joint.crossing.count_out(bytes),
        }
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
            half.queue.take().clear();
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
        self.count(pieces.iter().map(Bytes::len).sum());
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

    fn takes_pages(&self) -> bool {
        let mine = self.mine();
        let is_welcome = !mine.is_deaf.get()
            && self.rates().is_none()
            && !mine.queue.borrow().is_full_of_pages();
        let other = self.other().inlet.borrow();
        is_welcome && other.as_ref().is_some_and(|inlet| inlet.pages().is_some())
    }

    fn deliver_pages(&self, pages: Pages) -> usize {
        let (mine, size) = (self.mine(), pages.len());
        self.count(size);
        if mine.is_deaf.get() {
            pages.discard();
            return size;
        }
        let is_first = mine.queue.borrow().is_empty();
        mine.queue.borrow_mut().push_pages(pages);
        // Pages behind queued bytes move with them.
        if is_first { self.send_on() } else { 0 }
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

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use proto::{Priority, Target};
    use transport::PageInlet;

    use super::*;
    use crate::pipe::paged;
    use crate::{Carried, Stats, span};

    /// What a link got of its stream.
    #[derive(Clone, Debug, PartialEq, Eq)]
    enum Got {
        Bytes(Vec<u8>),
        Pages(Vec<u8>),
        Consumed(usize),
        Ended,
    }

    /// One of two links, in memory.
    #[derive(Debug, Default)]
    struct Line {
        got: RefCell<Vec<Got>>,
        room: Cell<usize>,
        takes_pages: Cell<bool>,
        outlet: RefCell<Option<Rc<dyn Outlet>>>,
    }

    impl Line {
        fn got(&self) -> Vec<Got> {
            self.got.take()
        }
    }

    #[derive(Debug)]
    struct LineInlet(Rc<Line>);

    impl Inlet for LineInlet {
        fn room(&self) -> usize {
            self.0.room.get()
        }

        fn send(&self, frame: &mut BytesMut) {
            let payload = frame.split_off(HEAD_ROOM).to_vec();
            frame.clear();
            self.0.room.set(self.0.room.get() - payload.len());
            self.0.got.borrow_mut().push(Got::Bytes(payload));
        }

        fn pages(&self) -> Option<&dyn PageInlet> {
            self.0.takes_pages.get().then_some(self)
        }

        fn finish(&self) {
            self.0.got.borrow_mut().push(Got::Ended);
        }

        fn reset(&self, _: ResetCode) {
            self.0.got.borrow_mut().push(Got::Ended);
        }

        fn stop(&self, _: ResetCode) {}

        fn consumed(&self, bytes: usize) {
            self.0.got.borrow_mut().push(Got::Consumed(bytes));
        }
    }

    impl PageInlet for LineInlet {
        fn page_room(&self) -> usize {
            self.0.room.get()
        }

        fn send_pages(&self, pages: Pages) {
            let mut seen = BytesMut::new();
            pages.copy_out(&mut seen).unwrap();
            self.0.room.set(self.0.room.get() - seen.len());
            self.0.got.borrow_mut().push(Got::Pages(seen.to_vec()));
        }
    }

    #[derive(Debug)]
    struct Opens(Rc<Line>);

    impl Connector for Opens {
        fn open(&self, _: Open, outlet: Rc<dyn Outlet>) -> Result<Box<dyn Inlet>, OpenError> {
            self.0.outlet.replace(Some(outlet));
            Ok(Box::new(LineInlet(Rc::clone(&self.0))))
        }
    }

    /// A link without room for another stream.
    #[derive(Debug)]
    struct Full;

    impl Connector for Full {
        fn open(&self, _: Open, _: Rc<dyn Outlet>) -> Result<Box<dyn Inlet>, OpenError> {
            Err(OpenError::Limit)
        }
    }

    fn open() -> Open {
        Open {
            target: Target::Service("a".to_owned()),
            visitor: None,
            priority: Priority::Bulk,
            fields: None,
        }
    }

    /// The link from which the bytes come, and the link of the other stream, which takes pages and
    /// has room for these bytes.
    fn lines(room: usize) -> (Rc<Line>, Rc<Line>) {
        let (from, to) = (Rc::<Line>::default(), Rc::<Line>::default());
        to.room.set(room);
        to.takes_pages.set(true);
        (from, to)
    }

    /// As [`lines`], with the outlet of the stream from which the bytes come.
    fn joined(room: usize) -> (Rc<Line>, Rc<dyn Outlet>, Rc<Line>) {
        let (from, to) = lines(room);
        let accepted = Box::new(LineInlet(Rc::clone(&from)));
        let opens = Opens(Rc::clone(&to));
        let outlet = bridge(accepted, &opens, open(), Crossing::default()).unwrap();
        (from, outlet, to)
    }

    /// A stream that waits, and its outlet.
    fn waiting() -> (Carried, Rc<dyn Outlet>) {
        let carried = span().0.carry(Crossing::default());
        let outlet = carried.outlet();
        (carried, outlet)
    }

    /// Joins a stream that waited with a stream of the other link.
    fn join_late(carried: Carried, from: &Rc<Line>, to: &Rc<Line>) {
        let accepted = Box::new(LineInlet(Rc::clone(from)));
        carried.bridge(accepted, &Opens(Rc::clone(to)), open(), Crossing::default());
    }

    /// Delivers bytes, as the link does.
    fn deliver(outlet: &dyn Outlet, bytes: &'static [u8]) -> usize {
        outlet.deliver(&mut VecDeque::from([Bytes::from_static(bytes)]))
    }

    fn bytes(bytes: &[u8]) -> Got {
        Got::Bytes(bytes.to_vec())
    }

    fn pages(bytes: &[u8]) -> Got {
        Got::Pages(bytes.to_vec())
    }

    #[tokio::test]
    async fn pages_pass_as_pages_and_are_split_where_there_is_less_room() {
        let (from, outlet, to) = joined(6);
        assert!(outlet.takes_pages());
        assert_eq!(outlet.deliver_pages(paged(b"abcd").await), 4);
        assert_eq!(to.got(), [pages(b"abcd")]);
        assert_eq!(outlet.deliver_pages(paged(b"efgh").await), 2, "the rest waits");
        assert_eq!(outlet.deliver(&mut VecDeque::from([Bytes::from_static(b"ij")])), 0);
        assert_eq!(outlet.deliver_pages(paged(b"kl").await), 0);
        assert_eq!(to.got(), [pages(b"ef")]);
        outlet.finish();
        let far = to.outlet.borrow().clone().unwrap();
        for (room, expected) in [
            (1, vec![pages(b"g")]),
            (2, vec![pages(b"h"), bytes(b"i")]),
            (9, vec![bytes(b"j"), pages(b"kl"), Got::Ended]),
        ] {
            to.room.set(room);
            far.room();
            assert_eq!(to.got(), expected);
        }
        assert_eq!(from.got(), [1, 2, 3].map(Got::Consumed));
        assert_eq!(net::pages::pipes().0, 0);
    }

    #[tokio::test]
    async fn pages_are_copied_where_the_other_stream_has_stopped_to_take_them() {
        let (_, outlet, to) = joined(2);
        assert_eq!(outlet.deliver_pages(paged(b"abcd").await), 2);
        to.takes_pages.set(false);
        assert!(!outlet.takes_pages());
        assert_eq!(outlet.deliver_pages(paged(b"ef").await), 0, "it was on its way");
        to.room.set(9);
        to.outlet.borrow().clone().unwrap().room();
        assert_eq!(to.got(), [pages(b"ab"), bytes(b"cd"), bytes(b"ef")]);
    }

    #[tokio::test]
    async fn a_stream_holds_few_pipes_and_gives_them_back_when_it_is_reset() {
        let (_, outlet, to) = joined(0);
        let mut held = 0;
        while outlet.takes_pages() {
            assert_eq!(outlet.deliver_pages(paged(b"a").await), 0);
            held += 1;
        }
        assert_eq!((held, net::pages::pipes().0), (4, 4));
        outlet.reset(ResetCode::Aborted);
        assert_eq!(net::pages::pipes().0, 0);
        assert_eq!(outlet.deliver_pages(paged(b"a").await), 1, "nobody takes it any more");
        assert_eq!(to.got(), [Got::Ended]);
        let (_, outlet, to) = joined(0);
        assert_eq!(outlet.deliver_pages(paged(b"a").await), 0);
        // Both links end without a reset, as when their worker stops.
        drop((outlet, to.outlet.take()));
        assert_eq!(net::pages::pipes().0, 0);
    }

    #[tokio::test]
    async fn a_stream_that_waited_passes_what_it_received_and_then_pages() {
        let (carried, outlet) = waiting();
        assert_eq!((deliver(&*outlet, b"abcd"), deliver(&*outlet, b"efgh")), (0, 0));
        assert!(!outlet.takes_pages());
        let (from, to) = lines(6);
        from.takes_pages.set(true);
        let stats = Rc::<Stats>::default();
        let crossing = Crossing::new(Rc::clone(&stats), Vec::new());
        let accepted = Box::new(LineInlet(Rc::clone(&from)));
        carried.bridge(accepted, &Opens(Rc::clone(&to)), open(), crossing);
        assert_eq!((to.got(), from.got()), (vec![bytes(b"abcdef")], vec![Got::Consumed(6)]));
        assert!(outlet.takes_pages());
        assert_eq!(outlet.deliver_pages(paged(b"ij").await), 0, "bytes are before them");
        let far = to.outlet.borrow().clone().unwrap();
        to.room.set(9);
        far.room();
        assert_eq!(to.got(), [bytes(b"gh"), pages(b"ij")]);
        assert_eq!(from.got(), [Got::Consumed(4)]);
        from.room.set(9);
        assert_eq!(deliver(&*far, b"no"), 2);
        assert!(far.takes_pages());
        assert_eq!(far.deliver_pages(paged(b"pq").await), 2);
        assert_eq!(from.got(), [bytes(b"no"), pages(b"pq")]);
        assert_eq!((stats.opened(), stats.bytes_in(), stats.bytes_out()), (1, 10, 4));
        assert_eq!(outlet.counted_in(), stats.identity());
        outlet.finish();
        far.finish();
        assert_eq!((to.got(), from.got()), (vec![Got::Ended], vec![Got::Ended]));
        drop((outlet, far, to.outlet.take()));
        assert_eq!((stats.live(), net::pages::pipes().0), (0, 0));
    }

    #[test]
    fn an_end_or_a_stop_that_came_while_a_stream_waited_passes_the_joint() {
        let (carried, outlet) = waiting();
        assert_eq!(deliver(&*outlet, b"abcd"), 0);
        outlet.finish();
        let (from, to) = lines(2);
        join_late(carried, &from, &to);
        assert_eq!(to.got(), [bytes(b"ab")]);
        let far = to.outlet.borrow().clone().unwrap();
        to.room.set(9);
        far.room();
        assert_eq!(to.got(), [bytes(b"cd"), Got::Ended]);
        from.room.set(9);
        assert_eq!(deliver(&*far, b"e"), 1, "the other direction continues");
        assert_eq!(from.got(), [Got::Consumed(2), Got::Consumed(2), bytes(b"e")]);

        let (carried, outlet) = waiting();
        outlet.stop(ResetCode::Aborted);
        let (from, to) = lines(9);
        join_late(carried, &from, &to);
        let far = to.outlet.borrow().clone().unwrap();
        from.room.set(9);
        assert_eq!(deliver(&*far, b"e"), 1, "it is discarded");
        assert_eq!((from.got(), deliver(&*outlet, b"ab")), (vec![Got::Ended], 2));
        assert_eq!(to.got(), [bytes(b"ab")]);
    }

    #[test]
    fn a_stream_that_was_reset_while_it_waited_opens_no_stream() {
        let (carried, outlet) = waiting();
        assert_eq!(deliver(&*outlet, b"abcd"), 0);
        outlet.reset(ResetCode::Aborted);
        let (from, to) = lines(9);
        join_late(carried, &from, &to);
        assert!(to.outlet.borrow().is_none() && to.got().is_empty());
        assert_eq!(deliver(&*outlet, b"ef"), 2);
    }

    #[test]
    fn a_reset_after_the_wait_reaches_the_other_stream() {
        for by_visitor in [true, false] {
            let (carried, outlet) = waiting();
            let (from, to) = lines(9);
            join_late(carried, &from, &to);
            let far = to.outlet.borrow().clone().unwrap();
            let (resets, other) = if by_visitor { (&outlet, &to) } else { (&far, &from) };
            resets.reset(ResetCode::Aborted);
            assert_eq!(other.got(), [Got::Ended], "by the visitor: {by_visitor}");
        }
    }

    #[test]
    fn a_stream_that_waited_is_refused_where_the_link_takes_no_more() {
        let (carried, outlet) = waiting();
        let (from, _) = lines(0);
        let accepted = Box::new(LineInlet(Rc::clone(&from)));
        carried.bridge(accepted, &Full, open(), Crossing::default());
        assert_eq!((from.got(), deliver(&*outlet, b"ab")), (vec![Got::Ended], 2));
    }
}
