//! Payload in pages of the system, from the first byte and in payloads of every size, over real
//! sockets: both directions, half-closed, reset, stopped, over carriers that are cut, and where the
//! system or the outlet takes no more pages. One test does not force pages: it measures which share
//! of a bulk stream moves as pages.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::thread;

use bytes::{Bytes, BytesMut};
use net::pages::{self, Pages};
use proto::ResetCode;
use transport::{
    Carrier, CarrierError, Dialer, Lane, LocalFuture, PageSink, PageSource, Transport,
};
use transport_tcp::TcpDialer;

use crate::rig::{
    Appetite, Client, Cut, Killer, Rules, Server, Tls, open, path, plan, really, until, web_socket,
};

/// Sizes around headers, read sizes, and the payloads that move as pages by the default rules.
const SIZES: [usize; 16] =
    [1, 2, 3, 11, 12, 13, 255, 1000, 4095, 4096, 4097, 16_383, 16_384, 65_536, 100_000, 262_144];

/// The carriers of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Tcp,
    /// Pages go from the server to the client alone: the other direction is masked.
    WebSocket,
}

const WAYS: [Way; 2] = [Way::Tcp, Way::WebSocket];

/// A server, and the relay in front of it.
struct Far {
    way: Way,
    server: Server,
    dialer: Rc<dyn Dialer>,
    port: u16,
    killer: Killer,
}

impl Far {
    /// Payload of every size moves as pages.
    async fn start(way: Way) -> Self {
        pages::force();
        Self::of_bulk(way).await
    }

    /// Payload of bulk streams moves as pages.
    async fn of_bulk(way: Way) -> Self {
        let (listener, dialer, port): (_, Rc<dyn Dialer>, _) = match way {
            Way::Tcp => {
                let (listener, port) = Tls::listen_bare();
                (listener, Rc::new(TcpDialer::new(None)), port)
            }
            Way::WebSocket => {
                let (listener, dialer, port) = web_socket();
                (listener, Rc::new(dialer), port)
            }
        };
        let server = Server::start(vec![listener], Rules::default());
        Self { way, server, dialer, port, killer: Killer::start(port).await }
    }

    async fn connect(&self) -> Client {
        self.connect_at(self.killer.port).await
    }

    async fn connect_at(&self, port: u16) -> Client {
        let client = Client::start(plan(vec![path(Rc::clone(&self.dialer), port)]));
        client.live().await;
        until("the server's side", || self.server.links().iter().any(link::Link::is_live)).await;
        client
    }
}

/// A stream with `up` and `down` bytes, whose first direction ends before the other one.
/// Returns how many payloads came as pages.
async fn converse(far: &Far, client: &Client, size: usize, (up, down): (u64, u64)) -> usize {
    let (link, server, way) = (client.live().await, &far.server, far.way);
    let far = server.owner();
    far.paged.set(size);
    let near = open(&link, "a", Appetite::SOME);
    near.paged.set(size);
    let (sent, tap) = tokio::join!(near.send_pattern(up), far.next_tap());
    assert!(sent);
    until("the first end", || tap.is_over()).await;
    assert!(tap.send_pattern(down).await);
    until("the other end", || near.is_over()).await;
    tap.assert_pattern(up);
    near.assert_pattern(down);
    until("both sides forget", || {
        link.stream_count() == 0 && server.links().iter().all(|link| link.stream_count() == 0)
    })
    .await;
    assert!(tap.pages_sent.get() > 0);
    match way {
        Way::Tcp => assert!(near.pages_sent.get() > 0),
        Way::WebSocket => assert_eq!((near.pages_sent.get(), tap.pages_seen.get()), (0, 0)),
    }
    near.pages_seen.get() + tap.pages_seen.get()
}

#[test]
fn pages_of_every_size_cross_both_ways() {
    really(async {
        for way in WAYS {
            let far = Far::start(way).await;
            let client = far.connect().await;
            for size in SIZES {
                let total = (size as u64 * 200).clamp(300, 2_000_000);
                let seen = converse(&far, &client, size, (total, total / 2 + 1)).await;
                assert!(seen > 0, "{way:?}: payloads of {size} bytes came as bytes");
            }
        }
    });
}

async fn cut_carriers_lose_no_page(way: Way) {
    let far = Far::start(way).await;
    let (mut cuts, mut seen) = (0, 0);
    for (n, size) in SIZES.into_iter().cycle().take(6 * SIZES.len()).enumerate() {
        for kind in [Cut::Sent as fn(usize) -> Cut, Cut::Received as fn(usize) -> Cut] {
            // After the greeting: at headers, inside payloads, at their ends.
            far.killer.cut(kind(1200 + 150 * n + n * n));
            let client = far.connect().await;
            let total = (size as u64 * 20).clamp(400, 60_000);
            seen += converse(&far, &client, size, (total, total)).await;
            drop(client);
            far.server.forget();
            cuts += usize::from(far.killer.has_fired());
        }
    }
    assert!(cuts >= 100, "{cuts}");
    assert!(seen > 1000, "{seen}");
}

#[test]
fn carriers_cut_at_any_byte_lose_no_page() {
    really(cut_carriers_lose_no_page(Way::Tcp));
}

#[test]
fn web_sockets_cut_at_any_byte_lose_no_page() {
    really(cut_carriers_lose_no_page(Way::WebSocket));
}

#[test]
fn resets_and_stops_amid_pages_end_their_directions_alone() {
    really(async {
        for way in WAYS {
            resets_and_stops(&Far::start(way).await).await;
        }
    });
}

async fn resets_and_stops(far: &Far) {
    let client = far.connect().await;
    let (link, owner) = (client.live().await, far.server.owner());
    for size in SIZES {
        owner.paged.set(size);
        let begun = (size as u64 * 3).min(100_000);
        let near = open(&link, "a", Appetite::ALL);
        near.paged.set(size);
        let tap = owner.next_tap().await;
        assert!(near.send_some(0, begun).await);
        until("the bytes", || tap.count() == begun).await;
        near.abort(ResetCode::Aborted);
        until("the reset", || tap.reset.get() == Some(ResetCode::Aborted)).await;
        assert!(!tap.finished.get());
        assert!(tap.send_some(0, begun).await);
        near.refuse_more(ResetCode::Denied);
        until("the stop", || tap.stopped.get() == Some(ResetCode::Denied)).await;
        assert!(!tap.send_some(begun, 1).await);
        let streams = || link.stream_count() + far.server.link().stream_count();
        until("forgotten", || streams() == 0).await;
        // The dropped streams left no bytes in the pipes.
        let seen = converse(far, &client, size, (begun + 300, begun + 300)).await;
        assert!(seen > 0);
    }
}

/// The peer takes nothing, so the frames stay for a replay, until the stream ends. No input follows
/// the end: a link that is idle has no turn.
#[test]
fn pages_that_nobody_took_leave_their_pipes_with_their_stream() {
    really(async {
        for is_own in [true, false] {
            let far = Far::start(Way::Tcp).await;
            let (client, owner) = (far.connect().await, far.server.owner());
            owner.appetite.set(Appetite::NONE);
            let near = open(&client.live().await, "a", Appetite::ALL);
            near.paged.set(16_384);
            let tap = owner.next_tap().await;
            assert!(near.send_some(0, 100_000).await);
            until("kept frames", || pages::pipes().0 > 0).await;
            if is_own {
                near.abort(ResetCode::Aborted);
            } else {
                tap.refuse_more(ResetCode::Aborted);
            }
            until("empty pipes", || pages::pipes().0 == 0).await;
        }
    });
}

/// A link keeps 64 payloads of pages. Streams whose bytes nobody takes keep all of them here, and
/// no CREDIT comes that makes room.
#[test]
fn a_stream_beside_others_that_keep_all_pages_sends_bytes() {
    really(async {
        let far = Far::start(Way::Tcp).await;
        let (client, owner) = (far.connect().await, far.server.owner());
        owner.appetite.set(Appetite::NONE);
        let link = client.live().await;
        let mut pages = 0;
        for _ in 0..5 {
            let near = open(&link, "a", Appetite::ALL);
            near.paged.set(1000);
            let tap = owner.next_tap().await;
            assert!(near.send_some(0, 20_000).await);
            until("the bytes", || tap.count() == 20_000).await;
            pages += near.pages_sent.get();
        }
        assert_eq!(pages, 64);
    });
}

/// The rest of a payload that a [`Parted`] lane leaves: less than is worth pages.
const REST: usize = 8 << 10;

/// Its connections hand out no payload in one piece.
#[derive(Debug)]
struct Parting(Rc<dyn Dialer>);

impl Dialer for Parting {
    fn dial(&self, address: SocketAddr) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        let dial = self.0.dial(address);
        Box::pin(async {
            let mut carrier = dial.await?;
            carrier.lane = Box::new(Parted(carrier.lane));
            Ok(carrier)
        })
    }

    fn transport(&self) -> Transport {
        self.0.transport()
    }
}

/// A lane that leaves the end of each payload to the next call, as a socket does that holds a part
/// of it.
#[derive(Debug)]
struct Parted(Box<dyn Lane>);

impl Lane for Parted {
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut BytesMut) -> Poll<io::Result<usize>> {
        self.0.poll_read(cx, buf)
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        frames: &mut VecDeque<Bytes>,
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, frames)
    }

    fn page_source(&mut self) -> Option<&mut dyn PageSource> {
        self.0.page_source()?;
        Some(self)
    }

    fn page_sink(&mut self) -> Option<&mut dyn PageSink> {
        self.0.page_sink()
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_flush(cx)
    }

    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_close(cx)
    }

    fn detach(&mut self) -> io::Result<()> {
        self.0.detach()
    }

    fn attach(&mut self) -> io::Result<()> {
        self.0.attach()
    }
}

impl PageSource for Parted {
    fn poll_read_at_most(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut BytesMut,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        let Some(lane) = self.0.page_source() else { return self.0.poll_read(cx, buf) };
        lane.poll_read_at_most(cx, buf, limit)
    }

    fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        pages: &mut Pages,
        limit: usize,
    ) -> Poll<io::Result<usize>> {
        let Some(lane) = self.0.page_source() else { return Poll::Pending };
        lane.poll_fill(cx, pages, limit - REST)
    }
}

/// With bytes in both directions, a CREDIT comes between the payloads.
#[test]
fn the_rest_of_a_payload_takes_no_further_payload_off_the_way_of_pages() {
    const TOTAL: u64 = 64 << 20;
    for (way, up) in [(Way::Tcp, 0), (Way::WebSocket, 0), (Way::Tcp, TOTAL)] {
        really(async {
            let mut far = Far::of_bulk(way).await;
            far.dialer = Rc::new(Parting(far.dialer));
            let (client, owner) = (far.connect_at(far.port).await, far.server.owner());
            owner.paged.set(256 << 10);
            owner.appetite.set(Appetite::ALL);
            let near = open(&client.live().await, "a", Appetite::ALL);
            near.paged.set(256 << 10);
            let tap = owner.next_tap().await;
            let sent = tokio::join!(tap.send_pattern(TOTAL), near.send_pattern(up));
            assert_eq!(sent, (true, true));
            until("the ends", || near.is_over() && tap.is_over()).await;
            near.assert_pattern(TOTAL);
            tap.assert_pattern(up);
            let (paged, payloads) = (near.paged_in.get(), tap.pages_sent.get());
            println!("{way:?}, {up} B up: {} % of the bytes came as pages", paged * 100 / TOTAL);
            // Before the first pages, the stream shows that it is bulk.
            let rests = (payloads * REST + (1 << 20)) as u64;
            let bytes = TOTAL - paged;
            assert!(bytes <= rests, "{way:?}, {up} B up: {bytes} bytes, {payloads} payloads");
        });
    }
}

#[test]
fn an_outlet_that_wavers_gets_every_byte() {
    for way in WAYS {
        for size in SIZES {
            really(async {
                let far = Far::start(way).await;
                let (client, owner) = (far.connect().await, far.server.owner());
                owner.paged.set(size);
                let near = open(&client.live().await, "a", Appetite::SOME);
                near.paged.set(1);
                near.wavers.set(true);
                let tap = owner.next_tap().await;
                let total = (size as u64 * 20).clamp(300, 1_000_000);
                assert!(tap.send_pattern(total).await);
                until("the end", || near.is_over()).await;
                near.assert_pattern(total);
                assert!(near.pages_seen.get() > 0, "{way:?}: {size}");
            });
        }
    }
}

/// The rest of the payload follows as bytes.
#[test]
fn a_system_that_refuses_the_rest_of_a_payload_loses_no_byte() {
    const TOTAL: u64 = 300_000;
    for way in WAYS {
        for after in [0, 1, 11, 12, 13, 4095, 39_999, 40_000, 40_001, 100_000] {
            // A refusal concerns all pipes of a thread.
            let refused = thread::spawn(move || {
                really(async {
                    let far = Far::start(way).await;
                    let (client, owner) = (far.connect().await, far.server.owner());
                    owner.paged.set(40_000);
                    let near = open(&client.live().await, "a", Appetite::ALL);
                    near.paged.set(1);
                    let tap = owner.next_tap().await;
                    pages::refuse_after(after);
                    assert!(tap.send_pattern(TOTAL).await);
                    until("the end", || near.is_over()).await;
                    near.assert_pattern(TOTAL);
                    assert!(tap.pages_sent.get() > 0);
                    assert!(Pages::take().is_none(), "the system was asked and refused");
                });
            });
            assert!(refused.join().is_ok(), "{way:?}: after {after} bytes");
        }
    }
}
