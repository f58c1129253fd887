//! A client that comes back over QUIC speaks with its first packet: counted in flights over real
//! sockets, and what somebody gets who sends that packet again.

mod flights;

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use proto::StreamId;
use testkit::origins::Pattern;
use transport::{Carrier, CarrierError, Dialer, LocalFuture, Transport};
use transport_quic::QuicDialer;

use crate::rig::{Appetite, Client, Rules, Server, Tap, open, path, plan, really, until};
use flights::{Flights, Quic};

/// Says nothing before the handshake is done.
#[derive(Debug)]
struct Late(QuicDialer);

impl Dialer for Late {
    fn dial(&self, address: SocketAddr) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        self.0.dial(address)
    }

    fn transport(&self) -> Transport {
        Transport::new("quic")
    }
}

/// The numbers of flights until the server has the bytes of a reconnecting client, and until the
/// client has an answer: 1.5 and 2 round trips, or 2.5 and 3.
const EARLY: [u32; 2] = [3, 4];
const LATE: [u32; 2] = [5, 6];

struct Site {
    server: Server,
    /// The address of the server, and that of a process with the same keys that does not know the
    /// used tickets, as after a restart.
    address: SocketAddr,
    restarted: SocketAddr,
    client: Client,
    flights: Flights,
    /// A stream of the client, at its end and at the server's.
    here: Rc<Tap>,
    there: Rc<Tap>,
}

impl Site {
    async fn start(dialer: impl FnOnce(&Quic) -> Rc<dyn Dialer>) -> Self {
        let quic = Quic::new();
        let (listener, address) = quic.listen();
        let (other, restarted) = quic.listen();
        let server = Server::start(vec![listener, other], Rules::default());
        let flights = Flights::to(address).await;
        let client = Client::start(plan(vec![path(dialer(&quic), flights.port)]));
        let link = client.live().await;
        let next = server.owner().next_tap();
        let here = open(&link, "x", Appetite::ALL);
        assert!(here.send(Pattern.at(0, 6)).await);
        let there = next.await;
        until("the first bytes", || there.count() == 6).await;
        // Tickets arrive after the handshake.
        tokio::time::sleep(Duration::from_millis(500)).await;
        Self { server, address, restarted, client, flights, here, there }
    }

    /// Silently breaks the path of a client with bytes to send. Returns the numbers of flights of
    /// the next connection until the server has the bytes, and until the client has an answer.
    async fn come_back(&self) -> [u32; 2] {
        let (said, answered) = (self.there.count(), self.here.count());
        self.flights.cut();
        assert!(self.here.send(Pattern.at(said, 2)).await);
        until("the client's bytes", || self.there.count() == said + 2).await;
        let up = self.flights.behind()[1];
        assert!(self.there.send(Pattern.at(answered, 4)).await);
        until("the server's bytes", || self.here.count() == answered + 4).await;
        let down = self.flights.behind()[0];
        assert!(!self.here.wrong.get() && !self.there.wrong.get());
        [up, down]
    }

    fn state(&self) -> (Vec<u32>, (u64, u64, u64), usize, Vec<StreamId>) {
        let link = self.server.link();
        let carriers = link.carriers().into_iter().map(|(number, _)| number.0).collect();
        let streams =
            link.streams(0..link.stream_slots()).into_iter().map(|(counts, _)| counts.id).collect();
        (carriers, link.totals(), self.server.state.greeted.get(), streams)
    }
}

#[test]
fn a_client_that_comes_back_with_a_ticket_is_heard_one_round_trip_earlier() {
    really(async {
        let site = Site::start(|quic| Rc::new(Late(quic.dialer()))).await;
        assert_eq!(site.come_back().await, LATE);
        assert_eq!(site.server.state.shown.get(), 0);
    });
    really(async {
        let site = Site::start(|quic| Rc::new(quic.dialer())).await;
        assert_eq!(site.come_back().await, EARLY);
        assert_eq!(site.server.state.shown.get(), 1);
        assert_eq!(site.client.links.get(), 1, "it is the same link");
    });
}

#[test]
fn who_came_early_speaks_late_until_a_carrier_was_let_in_for_good() {
    really(async {
        let site = Site::start(|quic| Rc::new(quic.dialer())).await;
        assert_eq!(site.come_back().await, EARLY);
        assert_eq!(site.come_back().await, LATE, "the first one may have been refused");
        assert_eq!(site.come_back().await, EARLY, "an ordinary greeting went well");
        tokio::time::sleep(proto::greeting::GREETING_TIMEOUT).await;
        assert_eq!(site.come_back().await, EARLY, "nobody is refused any more after so long");
        assert_eq!((site.server.state.shown.get(), site.client.links.get()), (3, 1));
    });
}

#[test]
fn the_first_flight_of_a_client_sent_again_changes_nothing_not_even_after_a_restart() {
    really(async {
        let site = Site::start(|quic| Rc::new(quic.dialer())).await;
        site.come_back().await;
        let flight = site.flights.first_flight();
        let before = site.state();
        let restarted = site.restarted;
        // Of a connection that it has, QUIC drops what it knows.
        for (server, shown, is_new) in
            [(site.address, 1, false), (restarted, 2, true), (restarted, 2, false)]
        {
            let answered = send_again(&flight, server).await;
            assert_eq!(answered > 0, is_new);
            let sent: usize = flight.iter().map(Vec::len).sum();
            assert!(answered <= 3 * sent, "{answered} bytes for {sent}");
            assert_eq!(site.server.state.shown.get(), shown);
            assert_eq!(site.state(), before);
        }
        assert!(site.here.send(Pattern.at(8, 2)).await);
        until("the stream goes on", || site.there.count() == 10).await;
    });
}

/// Bytes that come back within two seconds.
async fn send_again(flight: &[Vec<u8>], server: SocketAddr) -> usize {
    let socket = tokio::net::UdpSocket::bind(("127.0.0.1", 0)).await.unwrap();
    for packet in flight {
        socket.send_to(packet, server).await.unwrap();
    }
    let (mut answered, mut packet) = (0, [0; 65_536]);
    let listen = async {
        loop {
            answered += socket.recv(&mut packet).await.unwrap();
        }
    };
    let _: Result<(), _> = tokio::time::timeout(Duration::from_secs(2), listen).await;
    answered
}
