//! A link in memory: credit, frames and one ordered carrier, nothing else. The streams of both ends
//! live on the thread of the test. Events arrive one turn of the runtime later, as over a real
//! link.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::rc::{Rc, Weak};

use bytes::{Bytes, BytesMut};
use proto::{HEAD_ROOM, Open, ResetCode};
use tokio::sync::Notify;
use transport::{Connector, Inlet, OpenError, Outlet};

/// Events handled before other tasks run.
const BATCH: usize = 64;

pub(crate) type Accept = Box<dyn Fn(Open, Box<dyn Inlet>) -> Rc<dyn Outlet>>;

enum Event {
    Open(Open),
    Data(Bytes),
    Finish,
    Reset(ResetCode),
    Stop(ResetCode),
    Credit(usize),
}

/// One side of a stream. Side 0 opened it.
#[derive(Default)]
struct End {
    outlet: RefCell<Option<Rc<dyn Outlet>>>,
    credit: Cell<usize>,
    stalled: Cell<bool>,
    send_ended: Cell<bool>,
    receive_ended: Cell<bool>,
    queued: Cell<usize>,
}

pub(crate) struct Stream {
    ends: [End; 2],
}

pub(crate) struct Link {
    window: usize,
    frame: usize,
    accept: Accept,
    events: RefCell<VecDeque<(Rc<Stream>, usize, Event)>>,
    ready: Notify,
    streams: RefCell<Vec<Weak<Stream>>>,
    max_queued: Cell<usize>,
    pub(crate) refuse: Cell<bool>,
}

impl Link {
    /// Makes a link with `window` bytes of credit per direction and frames of at most `frame`
    /// bytes.
    pub(crate) fn new(window: usize, frame: usize, accept: Accept) -> Rc<Self> {
        let link = Rc::new(Self {
            window,
            frame,
            accept,
            events: RefCell::default(),
            ready: Notify::new(),
            streams: RefCell::default(),
            max_queued: Cell::new(0),
            refuse: Cell::new(false),
        });
        tokio::task::spawn_local(carrier(Rc::clone(&link)));
        link
    }

    /// The largest number of bytes that any outlet's queue has held.
    pub(crate) fn max_queued(&self) -> usize {
        self.max_queued.get()
    }

    /// Ends the link while its streams live.
    pub(crate) fn kill(&self) {
        let streams: Vec<_> = self.streams.take().iter().filter_map(Weak::upgrade).collect();
        for stream in streams {
            for end in &stream.ends {
                end.send_ended.set(true);
                end.receive_ended.set(true);
                let outlet = end.outlet.borrow().clone();
                outlet.into_iter().for_each(|outlet| outlet.reset(ResetCode::Shutdown));
            }
        }
    }

    fn push(&self, stream: &Rc<Stream>, side: usize, event: Event) {
        self.events.borrow_mut().push_back((Rc::clone(stream), side, event));
        self.ready.notify_one();
    }

    fn inlet(self: &Rc<Self>, stream: &Rc<Stream>, side: usize) -> Box<dyn Inlet> {
        Box::new(FakeInlet { link: Rc::clone(self), stream: Rc::clone(stream), side })
    }

    fn handle(self: &Rc<Self>, stream: &Rc<Stream>, side: usize, event: Event) {
        let end = &stream.ends[side];
        if let Event::Open(open) = event {
            let outlet = (self.accept)(open, self.inlet(stream, side));
            *end.outlet.borrow_mut() = Some(outlet);
            return;
        }
        let Some(outlet) = end.outlet.borrow().clone() else { return };
        match event {
            Event::Open(_) => {}
            Event::Data(_) | Event::Finish | Event::Reset(_) if end.receive_ended.get() => {}
            Event::Data(data) => {
                let len = data.len();
                end.queued.set(end.queued.get() + len);
                let taken = outlet.deliver(&mut VecDeque::from([data]));
                assert!(taken <= len);
                self.consumed(stream, side, taken);
                self.max_queued.set(self.max_queued.get().max(end.queued.get()));
            }
            Event::Finish => {
                end.receive_ended.set(true);
                outlet.finish();
            }
            Event::Reset(code) => {
                end.receive_ended.set(true);
                outlet.reset(code);
            }
            Event::Stop(code) => outlet.stop(code),
            Event::Credit(n) => {
                end.credit.set(end.credit.get() + n);
                if end.stalled.take() {
                    outlet.room();
                }
            }
        }
    }

    fn consumed(&self, stream: &Rc<Stream>, side: usize, bytes: usize) {
        let end = &stream.ends[side];
        assert!(bytes <= end.queued.get(), "more consumed than delivered");
        end.queued.set(end.queued.get() - bytes);
        if bytes > 0 {
            self.push(stream, 1 - side, Event::Credit(bytes));
        }
    }
}

async fn carrier(link: Rc<Link>) {
    loop {
        for _ in 0..BATCH {
            let next = link.events.borrow_mut().pop_front();
            let Some((stream, side, event)) = next else { break };
            link.handle(&stream, side, event);
        }
        if link.events.borrow().is_empty() {
            link.ready.notified().await;
        } else {
            tokio::task::yield_now().await;
        }
    }
}

/// The opening side of a [`Link`].
pub(crate) struct Opener(pub(crate) Rc<Link>);

impl Connector for Opener {
    fn open(&self, open: Open, outlet: Rc<dyn Outlet>) -> Result<Box<dyn Inlet>, OpenError> {
        if self.0.refuse.get() {
            return Err(OpenError::Closed);
        }
        let stream = Rc::new(Stream { ends: [End::default(), End::default()] });
        stream.ends.iter().for_each(|end| end.credit.set(self.0.window));
        *stream.ends[0].outlet.borrow_mut() = Some(outlet);
        self.0.streams.borrow_mut().push(Rc::downgrade(&stream));
        self.0.push(&stream, 1, Event::Open(open));
        Ok(self.0.inlet(&stream, 0))
    }
}

struct FakeInlet {
    link: Rc<Link>,
    stream: Rc<Stream>,
    side: usize,
}

impl FakeInlet {
    fn end(&self) -> &End {
        &self.stream.ends[self.side]
    }

    fn report(&self, event: Event) {
        self.link.push(&self.stream, 1 - self.side, event);
    }
}

impl Inlet for FakeInlet {
    fn room(&self) -> usize {
        let end = self.end();
        let room = if end.send_ended.get() { 0 } else { end.credit.get().min(self.link.frame) };
        end.stalled.set(room == 0);
        room
    }

    fn send(&self, frame: &mut BytesMut) {
        let payload = frame.split().freeze().slice(HEAD_ROOM..);
        assert!(!payload.is_empty() && payload.len() <= self.room(), "{}", payload.len());
        let end = self.end();
        end.credit.set(end.credit.get() - payload.len());
        self.report(Event::Data(payload));
    }

    fn finish(&self) {
        if !self.end().send_ended.replace(true) {
            self.report(Event::Finish);
        }
    }

    fn reset(&self, code: ResetCode) {
        if !self.end().send_ended.replace(true) {
            // A reset makes the bytes worthless that are on their way.
            let is_mine = |stream: &Rc<Stream>, side: usize, event: &Event| {
                Rc::ptr_eq(stream, &self.stream)
                    && side != self.side
                    && matches!(event, Event::Data(_))
            };
            let mut events = self.link.events.borrow_mut();
            events.retain(|(stream, side, event)| !is_mine(stream, *side, event));
            drop(events);
            self.report(Event::Reset(code));
        }
    }

    fn stop(&self, code: ResetCode) {
        if !self.end().receive_ended.replace(true) {
            self.report(Event::Stop(code));
        }
    }

    fn is_untaken(&self) -> bool {
        self.end().credit.get() < self.link.window
    }

    fn consumed(&self, bytes: usize) {
        self.link.consumed(&self.stream, self.side, bytes);
    }
}

impl Drop for FakeInlet {
    fn drop(&mut self) {
        self.reset(ResetCode::Aborted);
        self.stop(ResetCode::Aborted);
        self.end().outlet.take();
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link")
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Opener")
    }
}

impl fmt::Debug for FakeInlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FakeInlet")
    }
}
