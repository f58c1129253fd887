//! What a hundred offers cost whose peers begin a connection and never finish it, and when they
//! end. The test has a process of its own, because it looks at the memory of the process.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

mod setup;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use setup::stun::check;
use setup::{CLIENT_HELLO, run_paused, settings};
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep};
use transport_webrtc::{Answerer, First, Interfaces, Offerer, Peers, SignalError, WebrtcSettings};

/// Offers beside each other, more than the limit of the defaults admits.
const OFFERS: usize = 100;

/// The most that all of them may cost, bytes.
const COST: usize = 10_000_000;

/// Bytes of this process in memory (proc(5)).
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size()
}

/// The value of a line of a session description.
fn value<'a>(description: &'a str, name: &str) -> &'a str {
    description.lines().find_map(|line| line.strip_prefix(name)).unwrap()
}

/// A peer that knows all texts, makes the check that opens the way to the handshake, and begins the
/// handshake. It answers nothing.
struct Stranger {
    socket: UdpSocket,
    offer: String,
}

impl Stranger {
    async fn new() -> Self {
        let peers = Peers::new(settings());
        let offerer = Offerer::new(&peers, First::Carrier, Interfaces::Announced).await.unwrap();
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        // The only address in the offer is that of the socket.
        let mut offer = offerer.offer().to_owned();
        let candidate = value(&offer, "a=candidate:");
        let words: Vec<_> = candidate.split(' ').collect();
        let port = socket.local_addr().unwrap().port().to_string();
        offer = offer
            .replace(&format!(" {} {} ", words[4], words[5]), &format!(" {} {port} ", words[4]));
        Self { socket, offer }
    }

    fn begin(&self, answer: &str) {
        let candidate = value(answer, "a=candidate:");
        let words: Vec<_> = candidate.split(' ').collect();
        let to: SocketAddr = format!("{}:{}", words[4], words[5]).parse().unwrap();
        let [ours, theirs] = [&self.offer[..], answer].map(|text| value(text, "a=ice-ufrag:"));
        let name = format!("{theirs}:{ours}");
        let check = check(&name, value(answer, "a=ice-pwd:"));
        self.socket.send_to(&check, to).unwrap();
        self.socket.send_to(&CLIENT_HELLO, to).unwrap();
        // As if data came, without a key.
        self.socket.send_to(&[23, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 9], to).unwrap();
    }

    /// The senders of the success responses (RFC 8489 section 5) that have arrived.
    fn answered(&self) -> Vec<SocketAddr> {
        let (mut buf, mut senders) = ([0; 2_000], Vec::new());
        while let Ok((_, from)) = self.socket.recv_from(&mut buf) {
            if buf[..2] == [1, 1] && !senders.contains(&from) {
                senders.push(from);
            }
        }
        senders
    }
}

/// Makes the offers with the limit of the defaults, and waits until all connections have ended.
/// Returns the most bytes that the offers cost, and the number of connections.
async fn live(stranger: &Stranger) -> (usize, usize) {
    let peers = Peers::new(settings());
    let (before, begin) = (resident(), Instant::now());
    let (mut connecting, mut answered) = (Vec::new(), Vec::new());
    for _ in 0..OFFERS {
        match Answerer::new(&peers, &stranger.offer, Interfaces::Announced).await {
            Ok(answerer) => {
                stranger.begin(answerer.answer());
                connecting.push(spawn_local(answerer.connect()));
            }
            Err(error) => assert!(matches!(error, SignalError::Full(30)), "{error}"),
        }
        // Before the socket is full.
        answered.extend(stranger.answered());
    }
    assert_eq!((peers.count(), connecting.len()), (30, 30));
    let mut cost = 0;
    while peers.count() > 0 {
        sleep(Duration::from_millis(20)).await;
        cost = cost.max(resident().saturating_sub(before));
        answered.extend(stranger.answered());
    }
    answered.sort_unstable();
    answered.dedup();
    assert_eq!(answered.len(), 30, "each connection has a socket, and answers the check");
    let elapsed = begin.elapsed();
    let half_open = WebrtcSettings::default().half_open;
    assert!((half_open..half_open + Duration::from_secs(3)).contains(&elapsed), "{elapsed:?}");
    for one in &mut connecting {
        one.await.unwrap().unwrap_err();
    }
    (cost, connecting.len())
}

/// In virtual time, which goes on when all connections wait.
#[test]
fn a_hundred_half_open_offers_cost_less_than_10_mb_and_end_after_30_s() {
    assert_eq!(WebrtcSettings::default().half_open, Duration::from_secs(30));
    run_paused(async {
        let stranger = Stranger::new().await;
        // What is made once is no cost of an offer. One connection leaves no room to the others.
        let peers = Peers::new(settings());
        drop(Answerer::new(&peers, &stranger.offer, Interfaces::Announced).await.unwrap());
        let (cost, count) = live(&stranger).await;
        println!("{cost} bytes for {count} connections");
        assert!(cost < COST, "{cost} bytes");
    });
}
