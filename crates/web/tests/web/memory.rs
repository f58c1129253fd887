//! What visitors cost, as the budget of the process sees it: every state of a connection is
//! charged, a used-up budget refuses the newest, and everything comes back.

use std::{cell::Cell, rc::Rc, time::Duration};

use proto::{Budget, HttpOptions};
use tokio::io::AsyncWriteExt as _;
use web::{Account, Protocol, Settings, Visitor};

use crate::{
    frames::frame,
    rig::{
        Client, Remote, Site, Target, connect_at, head, ok, on_worker, send, settle, status,
        visitor,
    },
};

pub(crate) const KIB: u64 = 1 << 10;
pub(crate) const MIB: u64 = 1 << 20;

/// A budget that knows the most that was taken of it.
#[derive(Debug)]
pub(crate) struct Purse {
    total: u64,
    used: Cell<u64>,
    pub(crate) peak: Cell<u64>,
}

impl Purse {
    pub(crate) fn new(total: u64) -> Rc<Self> {
        Rc::new(Self { total, used: Cell::new(0), peak: Cell::new(0) })
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.get()
    }
}

impl Budget for Purse {
    fn draw(&self, bytes: u64) -> bool {
        let fits = bytes <= self.left();
        if fits {
            self.charge(bytes);
        }
        fits
    }

    fn charge(&self, bytes: u64) {
        self.used.set(self.used.get() + bytes);
        self.peak.set(self.peak.get().max(self.used.get()));
    }

    fn release(&self, bytes: u64) {
        self.used.set(self.used.get().checked_sub(bytes).expect("more came back than was taken"));
    }

    fn left(&self) -> u64 {
        self.total.saturating_sub(self.used.get())
    }

    fn total(&self) -> u64 {
        self.total
    }
}

/// Visitors of one site, whose memory is charged to a purse.
pub(crate) struct Crowd {
    site: Rc<Site>,
    pub(crate) target: Rc<Target>,
    pub(crate) purse: Rc<Purse>,
    pub(crate) refused: Rc<Cell<u32>>,
}

impl Crowd {
    pub(crate) fn new(budget: u64) -> Self {
        Self::of(&HttpOptions::default(), budget)
    }

    /// Visitors of a service with these options.
    pub(crate) fn of(options: &HttpOptions, budget: u64) -> Self {
        let site = Site::new();
        let target = site.add("a.example", options);
        Self { site, target, purse: Purse::new(budget), refused: Rc::default() }
    }

    /// A further visitor; `None`: the budget has no memory for it.
    pub(crate) fn visitor(&self, protocol: Protocol) -> Option<Client> {
        let account = Account::open(Rc::<Purse>::clone(&self.purse), 0)?;
        let refused = Rc::clone(&self.refused);
        account.on_refusal(Rc::new(move || refused.set(refused.get() + 1)));
        let visitor = Visitor { protocol, ..visitor() };
        Some(connect_at(&self.site, visitor, Settings::default(), account))
    }

    /// A newcomer gets an answer of its target.
    pub(crate) async fn serves_a_newcomer(&self) -> bool {
        let Some(mut client) = self.visitor(Protocol::H1) else { return false };
        if client.io.write_all(GET.as_bytes()).await.is_err() {
            return false;
        }
        let before = self.target.count.get();
        settle().await;
        if self.target.count.get() == before {
            return false;
        }
        let mut remote = self.target.accept().await;
        remote.serve(&ok("new")).await;
        client.answer().await.1 == "new"
    }
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n";

/// An endless answer, as far as it is taken.
fn flood(mut remote: Remote) {
    tokio::task::spawn_local(async move {
        head(&mut remote.io).await;
        send(&mut remote.io, "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n").await;
        while remote.io.write_all(&[7; 16 << 10]).await.is_ok() {}
    });
}

/// The fields of a request over HTTP/2: a GET, or a POST with a body.
fn fields(has_body: bool) -> Vec<u8> {
    // `:method`, `:scheme: http` and `:path: /` of the static table, `:authority` as a literal.
    let mut fields = vec![if has_body { 0x83 } else { 0x82 }, 0x86, 0x84, 0x41, 9];
    fields.extend_from_slice(b"a.example");
    fields
}

/// The begin of a connection of HTTP/2 whose streams have windows of 0.
fn deaf() -> Vec<u8> {
    let mut begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    begin.extend(frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]));
    begin
}

#[test]
fn each_state_of_a_connection_is_charged_and_everything_comes_back() {
    on_worker(async {
        let crowd = Crowd::new(64 * MIB);
        let purse = Rc::clone(&crowd.purse);
        let mut client = crowd.visitor(Protocol::Either).unwrap();
        settle().await;
        let idle = purse.used();
        assert!(idle >= 20 * KIB, "{idle}");

        client.send("GET / HTTP/1.1\r\nX: ").await;
        client.send(&"x".repeat(20 << 10)).await;
        settle().await;
        let in_head = purse.used();
        assert!(in_head >= idle + 20 * KIB, "{in_head}");

        client.send("\r\nHost: a.example\r\n\r\n").await;
        let mut remote = crowd.target.accept().await;
        settle().await;
        assert!(purse.used() >= idle + 2 * 20 * KIB, "{}", purse.used());
        remote.serve(&ok("")).await;
        assert_eq!(client.status().await, 200);
        settle().await;
        let kept = purse.used();
        assert!(kept > idle && kept <= in_head + 64 * KIB, "the idle connection to the target");

        client.send(GET).await;
        flood(remote);
        settle().await;
        assert!(purse.used() >= kept + 128 * KIB, "{}", purse.used());
        drop(client);
        settle().await;
        assert_eq!(purse.used(), 0);
    });
}

#[test]
fn an_upgraded_connection_costs_little_and_its_carrier_charges_what_waits() {
    on_worker(async {
        let crowd = Crowd::new(64 * MIB);
        let purse = Rc::clone(&crowd.purse);
        let mut client = crowd.visitor(Protocol::H1).unwrap();
        let upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\n\r\n";
        client.send(&format!("GET / HTTP/1.1\r\nHost: a.example\r\n{upgrade}")).await;
        let mut remote = crowd.target.accept().await;
        remote.serve(&format!("HTTP/1.1 101 Switching Protocols\r\n{upgrade}")).await;
        assert_eq!(status(&client.head().await), 101);
        settle().await;
        let idle = purse.used();
        assert!((4 * KIB..32 * KIB).contains(&idle), "{idle}");
        tokio::task::spawn_local(async move {
            while remote.io.write_all(&[7; 16 << 10]).await.is_ok() {}
        });
        settle().await;
        assert_eq!(purse.used(), idle);
        drop(client);
        settle().await;
        assert_eq!(purse.used(), 0);
    });
}

/// Fills the budget by visitors of one kind, then looks for a newcomer.
async fn never_more_than_the_budget(
    crowd: &Crowd,
    count: usize,
    protocol: Protocol,
    mut hostile: impl AsyncFnMut(&mut Client),
) {
    let mut clients = Vec::new();
    for _ in 0..count {
        let Some(mut client) = crowd.visitor(protocol) else { break };
        hostile(&mut client).await;
        clients.push(client);
    }
    settle().await;
    let (peak, total) = (crowd.purse.peak.get(), crowd.purse.total);
    assert!(peak >= total / 8, "{peak} bytes of {} visitors do not press", clients.len());
    assert!(peak <= total, "{peak} bytes with a budget of {total}");
    let used = crowd.purse.used();
    assert!(crowd.serves_a_newcomer().await, "{used} bytes are in use");
    drop((clients, hostile));
    settle().await;
    assert_eq!(crowd.purse.used(), 0);
}

#[test]
fn visitors_that_read_nothing_share_the_budget() {
    on_worker(async {
        let crowd = Crowd::new(16 * MIB);
        let target = Rc::clone(&crowd.target);
        never_more_than_the_budget(&crowd, 25, Protocol::H1, async |client| {
            let before = target.count.get();
            client.send(GET).await;
            settle().await;
            if target.count.get() > before {
                flood(target.accept().await);
            }
        })
        .await;
    });
}

#[test]
fn streams_without_a_window_share_the_budget_and_the_newest_get_503() {
    on_worker(async {
        let crowd = Crowd::new(16 * MIB);
        let target = Rc::clone(&crowd.target);
        never_more_than_the_budget(&crowd, 15, Protocol::H2, async |client| {
            let mut bytes = deaf();
            for nth in 0..100 {
                bytes.extend(frame(1, 5, 2 * nth + 1, &fields(false)));
            }
            let before = target.count.get();
            let _ = client.io.write_all(&bytes).await;
            settle().await;
            for _ in before..target.count.get() {
                flood(target.accept().await);
            }
        })
        .await;
        assert!(crowd.refused.get() > 200, "{} were refused", crowd.refused.get());
    });
}

#[test]
fn bodies_that_no_target_reads_share_the_budget() {
    on_worker(async {
        for protocol in [Protocol::H1, Protocol::H2] {
            let crowd = Crowd::new(10 * MIB);
            let mut remotes = Vec::new();
            let target = Rc::clone(&crowd.target);
            never_more_than_the_budget(&crowd, 20, protocol, async move |client| {
                if protocol == Protocol::H1 {
                    client
                        .send(
                            "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 9000000\r\n\r\n",
                        )
                        .await;
                } else {
                    let _ = client.io.write_all(&deaf()).await;
                    for stream in (1..40).step_by(2) {
                        let _ = client.io.write_all(&frame(1, 4, stream, &fields(true))).await;
                    }
                }
                settle().await;
                while target.count.get() > u32::try_from(remotes.len()).unwrap() {
                    remotes.push(target.accept().await);
                }
                for nth in 0..120 {
                    let piece = if protocol == Protocol::H1 {
                        vec![b'z'; 16 << 10]
                    } else {
                        frame(0, 0, 2 * (nth / 6) + 1, &[b'z'; 10_000])
                    };
                    let sent = client.io.write_all(&piece);
                    if tokio::time::timeout(Duration::from_millis(1), sent).await.is_err() {
                        break;
                    }
                }
            })
            .await;
        }
    });
}

#[test]
fn a_visitor_that_asks_and_does_not_read_gathers_no_heads() {
    on_worker(async {
        let crowd = Crowd::new(16 * MIB);
        let mut client = crowd.visitor(Protocol::H1).unwrap();
        let long = "x".repeat(30 << 10);
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: {long}\r\n\r\n");
        for _ in 0..100 {
            client.send("HEAD / HTTP/1.1\r\nHost: a.example\r\n\r\n").await;
        }
        let mut remote = crowd.target.accept().await;
        let mut answered = 0;
        while tokio::time::timeout(Duration::from_secs(1), remote.serve(&answer)).await.is_ok() {
            answered += 1;
        }
        assert!((2..10).contains(&answered), "{answered} answers wait");
        for _ in 0..answered {
            assert_eq!(status(&client.head().await), 200);
        }
        // The visitor reads: the next requests go on.
        remote.serve(&answer).await;
        assert_eq!(status(&client.head().await), 200);
    });
}

#[test]
fn a_long_head_is_refused_when_memory_is_short() {
    on_worker(async {
        let crowd = Crowd::new(MIB);
        let mut client = crowd.visitor(Protocol::H1).unwrap();
        settle().await;
        let left = crowd.purse.left();
        crowd.purse.charge(left - 140 * KIB);
        client.send(&format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(12 << 10))).await;
        client.send(&"x".repeat(12 << 10)).await;
        assert_eq!(client.status().await, 503);
        assert_eq!(crowd.refused.get(), 1);
    });
}

/// A budget that the visitors of a reverse proxy see.
#[derive(Debug)]
struct Named(Rc<Purse>, u64);

impl Budget for Named {
    fn draw(&self, bytes: u64) -> bool {
        self.0.draw(bytes)
    }

    fn charge(&self, bytes: u64) {
        self.0.charge(bytes);
    }

    fn release(&self, bytes: u64) {
        self.0.release(bytes);
    }

    fn left(&self) -> u64 {
        self.1.min(self.0.left())
    }

    fn total(&self) -> u64 {
        self.0.total()
    }
}

#[test]
fn a_connection_of_a_reverse_proxy_is_charged_to_the_visitor_that_it_names() {
    on_worker(async {
        let crowd = Crowd::new(64 * MIB);
        crowd.site.trusted.set(true);
        let named = Purse::new(64 * MIB);
        *crowd.site.budget.borrow_mut() = Some(Rc::new(Named(Rc::clone(&named), u64::MAX)));
        let mut client = crowd.visitor(Protocol::H1).unwrap();
        settle().await;
        assert_eq!(named.used(), 0);
        let held = crowd.purse.used();
        let get = "GET / HTTP/1.1\r\nHost: a.example\r\nX-Test-Visitor: 192.0.2.9:1\r\n\r\n";
        client.send(get).await;
        let mut remote = crowd.target.accept().await;
        remote.serve(&ok("one")).await;
        assert_eq!(client.answer().await.1, "one");
        assert!(held > 0 && crowd.purse.used() == 0 && named.used() >= held, "{}", named.used());
        // A visitor with its share gets an answer that says so.
        *crowd.site.budget.borrow_mut() = Some(Rc::new(Named(Rc::clone(&named), 8 * MIB)));
        client.send(get).await;
        assert_eq!(client.status().await, 503);
        assert_eq!(crowd.refused.get(), 1);
        drop((client, remote));
        settle().await;
        assert_eq!((named.used(), crowd.purse.used()), (0, 0));
    });
}
