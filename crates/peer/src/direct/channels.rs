//! Direct paths over WebRTC data channels (`p2p: webrtc`), also of a visitor in a browser.
//!
//! ```text
//!   visitor                                      client of the service
//!   Offerer      ── signal: offer ────────────> Answerer
//!                <── signal: answer ───────────
//!   a data channel as the lane of a carrier ──> greeting, as on any carrier
//! ```
//!
//! The signals travel inside the peer link, like the signals of other direct paths.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::link::Link;
use bytes::Bytes;
use config::ClientConfig;
use punch::{Body, Decline, Described, Pace, Signal, Why};
use tokio::sync::mpsc;
use tokio::time::timeout;
use transport::{Carrier, CarrierError};
use transport_webrtc::{
    Admission, Answerer, Arrived, Closer, First, Interfaces, Offerer, SignalError, WebrtcSettings,
};

use super::failed::{Declined, Failed};
use super::signals::{said, say};
use crate::home::Home;

/// The timeout for an answer. The other side resolves names and queries STUN servers first.
const ANSWER: Duration = Duration::from_secs(10);

/// Offers a connection, and waits until it carries bytes.
pub(super) async fn dial(
    shared: &Arc<dyn Home>,
    link: &Link,
    (peer, round): (&str, u32),
    heard: &mut mpsc::Receiver<Bytes>,
) -> Result<Carrier, Failed> {
    let peers = peers(shared, peer).await;
    let interfaces = if tells(shared) { Interfaces::Announced } else { Interfaces::Hidden };
    let offerer = Offerer::new(&peers, First::Carrier, interfaces).await;
    let offerer = offerer.map_err(|error| Failed::Channels(error.into()))?;
    let offer = Body::Description(Described::Offer, offerer.offer().to_owned());
    let signal = Signal { round, body: offer }.encode();
    let asked = async {
        say(&signal, |signal| said(link, signal)).await;
        answer_of(round, heard).await
    };
    let answer = timeout(ANSWER, asked).await.unwrap_or(Err(Why::Silent));
    let answer = answer.map_err(Failed::because)?;
    let arrived = offerer.connect(&answer).await;
    arrived.and_then(carrier).map_err(Failed::Channels)
}

/// The answer of this round among the signals.
async fn answer_of(round: u32, heard: &mut mpsc::Receiver<Bytes>) -> Result<String, Why> {
    while let Some(signal) = heard.recv().await {
        match Signal::decode(&signal) {
            Ok(Signal { round: of, body }) if of == round => match body {
                Body::Description(Described::Answer, text) => return Ok(text),
                Body::Decline(why) => return Err(Why::Declined(why)),
                Body::Offer(_) | Body::Description(Described::Offer, _) => {}
            },
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "a signal is not understood"),
        }
    }
    // The link has ended.
    Err(Why::Silent)
}

/// An answer to an offer.
#[derive(Debug)]
pub(crate) struct Offered(Answerer);

/// Answers the offer of a visitor.
pub(crate) async fn answer(
    shared: &Arc<dyn Home>,
    visitor: &str,
    offer: &str,
) -> Result<Offered, Declined> {
    let peers = peers(shared, visitor).await;
    let interfaces = if tells(shared) { Interfaces::Mutual } else { Interfaces::Hidden };
    let made = Answerer::new(&peers, offer, interfaces).await;
    made.map(Offered).map_err(|error| {
        let is_full = matches!(error, SignalError::Full(_));
        let why = if is_full { Decline::Often } else { Decline::Unable };
        Declined { why, failed: Failed::Channels(error.into()) }
    })
}

impl Offered {
    /// The session description for the visitor.
    pub(crate) fn answer(&self) -> &str {
        self.0.answer()
    }

    /// A handle that closes the connection later.
    pub(crate) fn closer(&self) -> Closer {
        self.0.closer()
    }

    /// Waits for the visitor.
    pub(crate) async fn connect(self) -> Result<Arrived, CarrierError> {
        self.0.connect().await
    }

    /// Waits for a visitor with a tunnel.
    pub(super) async fn carrier(self) -> Result<Carrier, CarrierError> {
        carrier(self.connect().await?)
    }
}

fn carrier(arrived: Arrived) -> Result<Carrier, CarrierError> {
    match arrived {
        Arrived::Carrier(carrier) => Ok(carrier),
        Arrived::Channels(_) => {
            let text = "the peer opened a channel that is no carrier of a tunnel";
            Err(io::Error::new(io::ErrorKind::InvalidData, text).into())
        }
    }
}

/// Whether the addresses of the interfaces are announced to peers.
fn tells(shared: &Arc<dyn Home>) -> bool {
    shared.config().load().p2p.host
}

/// The settings for a connection with the client `peer`.
async fn peers(shared: &Arc<dyn Home>, peer: &str) -> transport_webrtc::Peers {
    let config = shared.config().load_full();
    let stun = shared.stun().await;
    shared.direct().channels.under(settings(&config, stun, shared.direct().pace(peer)))
}

/// The settings of connections.
fn settings(
    config: &ClientConfig,
    stun: Vec<SocketAddr>,
    pace: Arc<Mutex<Pace>>,
) -> WebrtcSettings {
    let p2p = &config.p2p;
    WebrtcSettings {
        bind: every_address(),
        ports: p2p.ports,
        stun: if p2p.reflexive { stun } else { Vec::new() },
        // A loopback address of the peer would make this client send to itself.
        admission: Admission { loopback: false, private: p2p.host },
        peers: usize::try_from(p2p.webrtc.peers).unwrap_or(usize::MAX),
        idle: p2p.webrtc.idle.duration(),
        pace,
        ..WebrtcSettings::default()
    }
}

/// The unspecified addresses of the families that the kernel supports.
fn every_address() -> Vec<IpAddr> {
    let v6 = IpAddr::from(Ipv6Addr::UNSPECIFIED);
    let has_v6 = UdpSocket::bind(SocketAddr::new(v6, 0)).is_ok();
    let v4 = IpAddr::from(Ipv4Addr::UNSPECIFIED);
    [v4].into_iter().chain(has_v6.then_some(v6)).collect()
}
