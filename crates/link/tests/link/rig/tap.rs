//! The pump of a test: one end of a stream that records its events and takes bytes at a configured
//! rate.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io::Write as _;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use link::Link;
use net::pages::Pages;
use proto::{HEAD_ROOM, Open, Priority, ResetCode, Target};
use testkit::origins::Pattern;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use transport::{Connector, Inlet, Outlet};

/// How fast an end takes bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Appetite {
    /// Of each delivery at once.
    pub(crate) inline: usize,
    /// Of what was refused, per millisecond.
    pub(crate) later: usize,
}

impl Appetite {
    pub(crate) const ALL: Self = Self { inline: usize::MAX, later: 0 };
    pub(crate) const SOME: Self = Self { inline: 700, later: 5000 };
    pub(crate) const NONE: Self = Self { inline: 0, later: 0 };
}

/// One end of a stream.
#[derive(Debug)]
pub(crate) struct Tap {
    inlet: RefCell<Option<Rc<dyn Inlet>>>,
    /// Counts and compares instead of keeping: for streams of many bytes.
    pub(crate) counted: Cell<u64>,
    pub(crate) keeps: Cell<bool>,
    /// How often bytes were handed on.
    pub(crate) deliveries: Cell<usize>,
    pub(crate) finished: Cell<bool>,
    pub(crate) reset: Cell<Option<ResetCode>>,
    pub(crate) stopped: Cell<Option<ResetCode>>,
    /// Whether there was a call after the end, a repeated end, or a byte that does not match the
    /// pattern.
    pub(crate) wrong: Cell<bool>,
    pub(crate) panics: Cell<bool>,
    /// The maximum payload of pages that it sends and takes, in bytes; 0: no pages.
    pub(crate) paged: Cell<usize>,
    /// The numbers of payloads sent and received as pages.
    pub(crate) pages_sent: Cell<usize>,
    pub(crate) pages_seen: Cell<usize>,
    /// The number of bytes received as pages.
    pub(crate) paged_in: Cell<u64>,
    /// Whether each query for `takes_pages` returns another answer.
    pub(crate) wavers: Cell<bool>,
    queued: Cell<usize>,
    /// Highest queue ever.
    pub(crate) queued_most: Cell<usize>,
    appetite: Appetite,
    turned: Notify,
    fed: Rc<Notify>,
}

impl Tap {
    pub(crate) fn new(appetite: Appetite) -> Rc<Self> {
        let fed = Rc::new(Notify::new());
        let tap = Rc::new(Self {
            inlet: RefCell::default(),
            counted: Cell::new(0),
            keeps: Cell::new(true),
            deliveries: Cell::new(0),
            finished: Cell::new(false),
            reset: Cell::new(None),
            stopped: Cell::new(None),
            wrong: Cell::new(false),
            panics: Cell::new(false),
            paged: Cell::new(0),
            pages_sent: Cell::new(0),
            pages_seen: Cell::new(0),
            paged_in: Cell::new(0),
            wavers: Cell::new(false),
            queued: Cell::new(0),
            queued_most: Cell::new(0),
            appetite,
            turned: Notify::new(),
            fed: Rc::clone(&fed),
        });
        if appetite.later > 0 {
            let weak = Rc::downgrade(&tap);
            tokio::task::spawn_local(async move {
                loop {
                    let Some(tap) = weak.upgrade() else { return };
                    let part = tap.queued.get().min(appetite.later);
                    if part > 0 {
                        tap.queued.set(tap.queued.get() - part);
                        tap.with(|inlet| inlet.consumed(part));
                        drop(tap);
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    } else if tap.inlet.borrow().is_none() && tap.is_over() {
                        return;
                    } else {
                        drop(tap);
                        fed.notified().await;
                    }
                }
            });
        }
        tap
    }

    pub(crate) fn join(&self, inlet: Box<dyn Inlet>) {
        *self.inlet.borrow_mut() = Some(Rc::from(inlet));
    }

    fn with(&self, call: impl FnOnce(&dyn Inlet)) {
        let inlet = self.inlet.borrow().clone();
        if let Some(inlet) = inlet {
            call(&*inlet);
        }
    }

    /// Sends bytes. Returns false when the stream was aborted meanwhile.
    pub(crate) async fn send(&self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            if self.reset.get() == Some(ResetCode::Shutdown) || self.stopped.get().is_some() {
                return false;
            }
            let room = Cell::new(0);
            self.with(|inlet| room.set(inlet.room()));
            let n = room.get().min(bytes.len());
            if n == 0 {
                self.turned.notified().await;
                continue;
            }
            let mut frame = BytesMut::zeroed(HEAD_ROOM);
            frame.extend_from_slice(&bytes[..n]);
            self.with(|inlet| inlet.send(&mut frame));
            bytes = &bytes[n..];
        }
        true
    }

    /// As [`Self::send`]: what a socket brings is sent as pages while the link takes them.
    async fn send_pages(&self, socket: &mut Socket, bytes: &[u8]) -> bool {
        for piece in bytes.chunks(self.paged.get()) {
            socket.far.write_all(piece).unwrap();
            let mut left = piece.len();
            while left > 0 {
                socket.near.readable().await.unwrap();
                if self.reset.get() == Some(ResetCode::Shutdown) || self.stopped.get().is_some() {
                    return false;
                }
                let inlet = self.inlet.borrow().clone().unwrap();
                let room = inlet.pages().map_or_else(|| inlet.room(), |pages| pages.page_room());
                if room == 0 {
                    self.turned.notified().await;
                    continue;
                }
                let most = room.min(left);
                if let Some(inlet) = inlet.pages()
                    && let Some(mut pages) = Pages::take()
                {
                    let Some(n) = pages.fill(&socket.near, most).unwrap() else { continue };
                    left -= n;
                    self.pages_sent.set(self.pages_sent.get() + 1);
                    inlet.send_pages(pages);
                } else {
                    let mut frame = BytesMut::zeroed(HEAD_ROOM + most);
                    let Ok(n) = socket.near.try_read(&mut frame[HEAD_ROOM..]) else { continue };
                    left -= n;
                    frame.truncate(HEAD_ROOM + n);
                    inlet.send(&mut frame);
                }
            }
        }
        true
    }

    /// Sends `total` bytes of the pattern, then ends the direction.
    pub(crate) async fn send_pattern(&self, total: u64) -> bool {
        let is_sent = self.send_some(0, total).await;
        if is_sent {
            self.finish();
        }
        is_sent
    }

    /// Sends `count` bytes of the pattern from `start` on.
    pub(crate) async fn send_some(&self, start: u64, count: u64) -> bool {
        let mut socket = if self.paged.get() > 0 { Some(Socket::new().await) } else { None };
        let (mut at, end) = (start, start + count);
        while at < end {
            let piece = Pattern.at(at, end - at);
            let is_sent = match &mut socket {
                Some(socket) => self.send_pages(socket, piece).await,
                None => self.send(piece).await,
            };
            if !is_sent {
                return false;
            }
            at += piece.len() as u64;
        }
        true
    }

    pub(crate) fn finish(&self) {
        self.with(|inlet| inlet.finish());
    }

    pub(crate) fn abort(&self, code: ResetCode) {
        self.with(|inlet| inlet.reset(code));
    }

    pub(crate) fn refuse_more(&self, code: ResetCode) {
        self.with(|inlet| inlet.stop(code));
    }

    /// What waits leaves at once.
    pub(crate) fn take_queued(&self) {
        let queued = self.queued.take();
        self.with(|inlet| inlet.consumed(queued));
    }

    pub(crate) fn leave(&self) {
        *self.inlet.borrow_mut() = None;
        self.fed.notify_one();
    }

    /// The peer's direction has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.finished.get() || self.reset.get().is_some()
    }

    pub(crate) fn count(&self) -> u64 {
        self.counted.get()
    }

    /// Checks that exactly `total` bytes of the pattern and the end have arrived.
    pub(crate) fn assert_pattern(&self, total: u64) {
        assert!(!self.wrong.get(), "{self:?}");
        assert!(self.finished.get() && self.reset.get().is_none(), "{self:?}");
        assert_eq!(self.count(), total);
    }
}

impl Tap {
    fn take(&self, data: &Bytes) -> usize {
        assert!(!self.panics.get(), "a defect, on purpose");
        if self.is_over() || data.is_empty() {
            self.wrong.set(true);
        }
        let mut rest = &data[..];
        let mut at = self.counted.get();
        while !rest.is_empty() && self.keeps.get() {
            let known = Pattern.at(at, rest.len() as u64);
            if known != &rest[..known.len()] {
                self.wrong.set(true);
            }
            at += known.len() as u64;
            rest = &rest[known.len()..];
        }
        self.counted.set(self.counted.get() + data.len() as u64);
        // Queued bytes precede: no byte after them is taken inline.
        let taken = if self.queued.get() > 0 { 0 } else { data.len().min(self.appetite.inline) };
        self.queued.set(self.queued.get() + data.len() - taken);
        self.queued_most.set(self.queued_most.get().max(self.queued.get()));
        self.fed.notify_one();
        taken
    }
}

impl Outlet for Tap {
    fn deliver(&self, pieces: &mut VecDeque<Bytes>) -> usize {
        self.deliveries.set(self.deliveries.get() + 1);
        pieces.drain(..).map(|data| self.take(&data)).sum()
    }

    fn takes_pages(&self) -> bool {
        let paged = self.paged.get();
        if self.wavers.get() {
            self.paged.set(usize::from(paged == 0));
        }
        paged > 0
    }

    fn deliver_pages(&self, pages: Pages) -> usize {
        self.pages_seen.set(self.pages_seen.get() + 1);
        self.paged_in.set(self.paged_in.get() + pages.len() as u64);
        let mut bytes = BytesMut::new();
        pages.copy_out(&mut bytes).unwrap();
        self.take(&bytes.freeze())
    }

    fn finish(&self) {
        self.wrong.set(self.wrong.get() || self.is_over());
        self.finished.set(true);
    }

    fn reset(&self, code: ResetCode) {
        self.wrong.set(self.wrong.get() || self.reset.get().is_some());
        self.reset.set(Some(code));
        if code == ResetCode::Shutdown {
            // As a pump does whose socket is reset.
            self.leave();
        }
        self.turned.notify_one();
    }

    fn stop(&self, code: ResetCode) {
        self.wrong.set(self.wrong.get() || self.stopped.get().is_some());
        self.stopped.set(Some(code));
        self.turned.notify_one();
    }

    fn room(&self) {
        self.turned.notify_one();
    }
}

/// Where pages come from.
struct Socket {
    far: std::net::TcpStream,
    near: TcpStream,
}

impl Socket {
    async fn new() -> Self {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (far, _) = listener.accept().unwrap();
        far.set_nodelay(true).unwrap();
        Self { far, near }
    }
}

/// Opens a stream to a service.
pub(crate) fn open(link: &Link, service: &str, appetite: Appetite) -> Rc<Tap> {
    let tap = Tap::new(appetite);
    let target = Target::Service(service.to_owned());
    let open = Open { target, visitor: None, priority: Priority::Normal, fields: None };
    tap.join(link.open(open, Rc::clone(&tap) as Rc<dyn Outlet>).expect("an open link"));
    tap
}
