//! A site of services whose targets are the tests themselves.

use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    collections::VecDeque,
    io,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use proto::{Budget, HttpOptions, Unlimited};
use tokio::{
    io::{
        AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf,
        copy_bidirectional, duplex,
    },
    sync::Notify,
    task::{JoinHandle, LocalSet, spawn_local},
};
use web::{
    Account, Asked, ByteStream, Cookies, Found, HeaderMap, Identity, LocalFuture, OpenFailed,
    Place, Protocol, Record, Rules, Sender, Service, Services, Settings, Stream, Verdict, Visitor,
    Wants,
};

/// What a socket may hold.
pub(crate) const BUFFER: usize = 64 * 1024;

/// Runs a test on a worker.
pub(crate) fn on_worker(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        // Longer than every time-out of the proxy.
        tokio::time::timeout(Duration::from_secs(3600), test).await.expect("the test hangs");
    });
}

/// Time for all tasks to do what they can.
pub(crate) async fn settle() {
    tokio::time::sleep(Duration::from_millis(10)).await;
}

/// The services of a test.
#[derive(Default)]
pub(crate) struct Site {
    services: RefCell<Vec<(String, Rc<Target>)>>,
    pub(crate) settings: RefCell<Arc<Settings>>,
    pub(crate) trusted: Cell<bool>,
    pub(crate) uncovered: RefCell<Option<String>>,
    /// The number of lookups that find an unknown name later.
    pub(crate) late: Cell<u32>,
    pub(crate) refused: RefCell<Option<web::Refusal>>,
    /// Which parts of heads the records have.
    pub(crate) wants: Cell<Option<Wants>>,
    /// The records of requests that were for no service.
    pub(crate) records: RefCell<Vec<Record>>,
    /// Visitors over HTTP are sent to this address.
    pub(crate) redirect: RefCell<Option<proto::Redirect>>,
    /// The answer in the place of a service.
    pub(crate) answer: RefCell<Option<Bytes>>,
    /// The visitors that asked for a service.
    pub(crate) senders: RefCell<Vec<Sender>>,
    pub(crate) away: RefCell<Option<web::Unavailable>>,
    /// The budget of the visitors that a reverse proxy names.
    pub(crate) budget: RefCell<Option<Rc<dyn Budget>>>,
}

impl Site {
    pub(crate) fn new() -> Rc<Self> {
        Rc::default()
    }

    pub(crate) fn add(&self, host: &str, options: &HttpOptions) -> Rc<Target> {
        let mut services = self.services.borrow_mut();
        let target = Rc::new(Target {
            identity: Cell::new(services.len() as u64),
            wrong_passwords: Cell::new(0),
            busy: Cell::new(false),
            excess: Cell::new(None),
            rules: Rules::new(options).unwrap(),
            opened: RefCell::default(),
            arrival: Notify::new(),
            refusal: RefCell::default(),
            dial: Cell::default(),
            count: Cell::new(0),
            records: RefCell::default(),
            cookies: RefCell::default(),
            places: RefCell::default(),
            leads_to: Cell::default(),
        });
        services.push((host.to_owned(), Rc::clone(&target)));
        target
    }

    /// A service without options.
    pub(crate) fn plain(&self, host: &str) -> Rc<Target> {
        self.add(host, &HttpOptions::default())
    }
}

impl Services for Site {
    fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.borrow())
    }

    fn trusts(&self) -> bool {
        self.trusted.get()
    }

    /// A trusted proxy names its visitor in `X-Test-Visitor`.
    fn sender(&self, visitor: &Visitor, fields: &HeaderMap) -> Sender {
        let named = fields.get("x-test-visitor").filter(|_| self.trusts());
        let address = match named {
            Some(named) => named.to_str().unwrap().parse().ok(),
            None => visitor.address,
        };
        address.map_or(Sender::Hidden, Sender::Known)
    }

    fn budget_of(&self, _: Sender) -> Option<Rc<dyn Budget>> {
        self.budget.borrow().clone()
    }

    fn find(&self, asked: &Asked<'_>) -> Found {
        let Asked { host, path, sender, is_secure, .. } = *asked;
        if let Some(bytes) = &*self.answer.borrow() {
            return Found::Answer(bytes.clone());
        }
        if let Some(to) = self.redirect.borrow().as_ref().filter(|_| !is_secure) {
            return Found::Redirect(to.clone());
        }
        self.senders.borrow_mut().push(sender);
        if let Some(refusal) = &*self.refused.borrow() {
            return Found::Refused(refusal.clone());
        }
        if let Some(away) = &*self.away.borrow() {
            return Found::Unavailable(away.clone());
        }
        let services = self.services.borrow();
        let of_host = services.iter().filter(|(name, _)| name == host);
        let entries = of_host.map(|(_, target)| (target.rules.path(), target));
        if let Some(target) = web::longest(entries, path) {
            return Found::Service(Rc::new(Visited(Rc::clone(target), sender)));
        }
        if self.late.get() > 0 {
            self.late.set(self.late.get() - 1);
            let found = services.first().map(|(_, target)| Visited(Rc::clone(target), sender));
            return Found::Later(Box::pin(async move {
                tokio::time::sleep(Duration::from_secs(3)).await;
                found.map_or(Found::Unknown, |found| Found::Service(Rc::new(found)))
            }));
        }
        Found::Unknown
    }

    fn wants(&self) -> Option<Wants> {
        self.wants.get()
    }

    fn answered(&self, record: &Record) {
        self.records.borrow_mut().push(record.clone());
    }

    fn covers(&self, host: &str) -> bool {
        self.uncovered.borrow().as_deref() != Some(host)
    }
}

/// A service, and its target as the test sees it.
pub(crate) struct Target {
    pub(crate) identity: Cell<u64>,
    pub(crate) wrong_passwords: Cell<u32>,
    /// No password is judged.
    pub(crate) busy: Cell<bool>,
    /// The delay before the next request, where a request is one too many.
    pub(crate) excess: Cell<Option<u32>>,
    rules: Rules,
    opened: RefCell<VecDeque<Remote>>,
    arrival: Notify,
    /// The next stream is not opened.
    pub(crate) refusal: RefCell<Option<OpenFailed>>,
    /// The time after which a stream is refused.
    pub(crate) dial: Cell<Duration>,
    /// Streams that were opened.
    pub(crate) count: Cell<u32>,
    /// The records of its requests.
    pub(crate) records: RefCell<Vec<Record>>,
    /// The cookies by which its visitors stay; they are there for the whole test.
    pub(crate) cookies: RefCell<Option<&'static Cookies>>,
    /// The places that streams were asked for.
    pub(crate) places: RefCell<Vec<Option<Place>>>,
    /// Where new streams lead.
    pub(crate) leads_to: Cell<Option<Place>>,
}

impl Target {
    /// The next stream that was opened.
    pub(crate) async fn accept(&self) -> Remote {
        loop {
            let arrived = self.opened.borrow_mut().pop_front();
            match arrived {
                Some(remote) => return remote,
                None => self.arrival.notified().await,
            }
        }
    }
}

/// A service for one visitor.
struct Visited(Rc<Target>, Sender);

impl Service for Visited {
    fn identity(&self) -> Identity {
        Identity { edition: self.0.identity.get(), visitor: self.1.address(), place: None }
    }

    fn excess(&self) -> Option<u32> {
        self.0.excess.get()
    }

    fn judge(&self, is_right: bool) -> Option<LocalFuture<Verdict>> {
        let Self(target, _) = self;
        if target.busy.get() {
            return Some(Box::pin(std::future::ready(Verdict::Busy)));
        }
        if is_right {
            return None;
        }
        target.wrong_passwords.set(target.wrong_passwords.get() + 1);
        Some(Box::pin(async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            Verdict::Judged
        }))
    }

    fn rules(&self) -> &Rules {
        &self.0.rules
    }

    fn answered(&self, record: &Record) {
        self.0.records.borrow_mut().push(record.clone());
    }

    fn cookies(&self) -> Option<&Cookies> {
        *self.0.cookies.borrow()
    }

    fn open(&self, place: Option<Place>) -> LocalFuture<Result<Box<dyn Stream>, OpenFailed>> {
        let Self(target, _) = self;
        target.places.borrow_mut().push(place);
        let dial = target.dial.get();
        if let Some(refusal) = target.refusal.take() {
            return Box::pin(async move {
                if !dial.is_zero() {
                    tokio::time::sleep(dial).await;
                }
                Err(refusal)
            });
        }
        let (near, far) = duplex(BUFFER);
        let failure = Rc::new(RefCell::new(None));
        target.opened.borrow_mut().push_back(Remote { io: far, failure: Rc::clone(&failure) });
        target.count.set(target.count.get() + 1);
        target.arrival.notify_one();
        let place = target.leads_to.get();
        Box::pin(async move { Ok(Box::new(Near { io: near, failure, place }) as Box<dyn Stream>) })
    }
}

/// The far end of a stream.
pub(crate) struct Remote {
    pub(crate) io: DuplexStream,
    failure: Rc<RefCell<Option<&'static str>>>,
}

impl Remote {
    /// Breaks the stream with a reason.
    pub(crate) fn fail(self, reason: &'static str) {
        *self.failure.borrow_mut() = Some(reason);
    }

    /// Reads a head and answers it.
    pub(crate) async fn serve(&mut self, answer: &str) -> String {
        let head = head(&mut self.io).await;
        send(&mut self.io, answer).await;
        head
    }
}

struct Near {
    io: DuplexStream,
    failure: Rc<RefCell<Option<&'static str>>>,
    place: Option<Place>,
}

impl Stream for Near {
    fn failure(&self) -> Option<Cow<'static, str>> {
        self.failure.borrow().map(Cow::Borrowed)
    }

    fn place(&self) -> Option<Place> {
        self.place
    }

    fn carry(
        mut self: Box<Self>,
        first: Bytes,
        mut visitor: Box<dyn ByteStream>,
    ) -> LocalFuture<()> {
        Box::pin(async move {
            if visitor.write_all(&first).await.is_ok() {
                let _ = copy_bidirectional(&mut visitor, &mut self.io).await;
            }
        })
    }
}

impl AsyncRead for Near {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Near {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// A connection of a visitor.
pub(crate) struct Client {
    pub(crate) io: DuplexStream,
    pub(crate) served: JoinHandle<bool>,
    stop: Rc<Notify>,
}

impl Client {
    /// Asks the server to end the connection in order.
    pub(crate) fn stop(&self) {
        self.stop.notify_one();
    }

    pub(crate) async fn send(&mut self, text: &str) {
        send(&mut self.io, text).await;
    }

    pub(crate) async fn head(&mut self) -> String {
        head(&mut self.io).await
    }

    /// An answer with `Content-Length`: head and body.
    pub(crate) async fn answer(&mut self) -> (String, String) {
        let head = self.head().await;
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("Content-Length: "))
            .expect(&head)
            .parse()
            .unwrap();
        let mut body = vec![0; length];
        self.io.read_exact(&mut body).await.unwrap();
        (head, String::from_utf8(body).unwrap())
    }

    /// The status code of the next answer, whose body is read.
    pub(crate) async fn status(&mut self) -> u16 {
        status(&self.answer().await.0)
    }

    /// Everything until the server ends the connection.
    pub(crate) async fn rest(&mut self) -> String {
        rest(&mut self.io).await
    }
}

pub(crate) fn visitor() -> Visitor {
    Visitor {
        address: Some("192.0.2.7:50000".parse().unwrap()),
        secure: false,
        protocol: Protocol::Either,
        most_unsent: 0,
    }
}

pub(crate) fn connect(site: &Rc<Site>) -> Client {
    connect_as(site, visitor(), Settings::default())
}

pub(crate) fn connect_as(site: &Rc<Site>, visitor: Visitor, settings: Settings) -> Client {
    let account = Account::open(Rc::new(Unlimited), 0).unwrap();
    connect_at(site, visitor, settings, account)
}

/// A connection whose memory is charged to an account.
pub(crate) fn connect_at(
    site: &Rc<Site>,
    visitor: Visitor,
    settings: Settings,
    account: Rc<Account>,
) -> Client {
    let (io, server) = duplex(BUFFER);
    let stop = Rc::new(Notify::new());
    let stopped = Rc::clone(&stop);
    *site.settings.borrow_mut() = Arc::new(settings);
    let services = Rc::clone(site) as Rc<dyn Services>;
    let served = spawn_local(async move {
        web::serve(server, visitor, services, account, stopped.notified()).await.is_some()
    });
    Client { io, served, stop }
}

pub(crate) fn status(head: &str) -> u16 {
    head.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)).expect(head).parse().unwrap()
}

/// A field of a head, in any case.
pub(crate) fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().find_map(|line| {
        let (field, value) = line.split_once(": ")?;
        field.eq_ignore_ascii_case(name).then_some(value)
    })
}

/// Reads byte by byte until the end of a head.
pub(crate) async fn head(io: &mut DuplexStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match io.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(error) => panic!("{error} after {}", head.escape_ascii()),
        }
    }
    String::from_utf8(head).unwrap()
}

pub(crate) async fn send(io: &mut DuplexStream, text: &str) {
    io.write_all(text.as_bytes()).await.unwrap();
}

/// Reads exactly this text.
pub(crate) async fn expect(io: &mut DuplexStream, text: &str) {
    let mut seen = vec![0; text.len()];
    io.read_exact(&mut seen).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&seen), text);
}

pub(crate) async fn rest(io: &mut DuplexStream) -> String {
    let mut rest = Vec::new();
    io.read_to_end(&mut rest).await.unwrap();
    String::from_utf8(rest).unwrap()
}

/// Whether the other side is silent for a while.
pub(crate) async fn silent(io: &mut DuplexStream, time: Duration) -> bool {
    tokio::time::timeout(time, io.read_u8()).await.is_err()
}

/// An answer of a target.
pub(crate) fn ok(body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nDate: today\r\nContent-Length: {length}\r\n\r\n{body}")
}
