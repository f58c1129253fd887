//! Signalling: the caller sends an offer to the peer and receives an answer, over any channel.
//!
//! Both are complete: they contain all candidates, and there is no trickle ICE (RFC 8838). The
//! caller transfers them as text, for example as WHIP does (RFC 9725).

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use transport::{Carrier, CarrierError, Peer};
use webrtc::data_channel::DataChannel;
use webrtc::peer_connection::{RTCPeerConnectionState, RTCSessionDescription};

use crate::WEBRTC;
use crate::candidate::Kind;
use crate::channel::{Use, lane};
use crate::channels::{Channel, Channels, PROTOCOL, create, opened};
use crate::connection::{Beginning, Closer};
use crate::error::SignalError;
use crate::peers::Peers;
use crate::sdp::{Description, Setup};

/// The label of the one channel of a carrier.
const CARRIER: &str = "tunnel";

/// The first channel that an offer opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum First {
    /// The lane of a carrier.
    Carrier,
    /// A stream with this label, to a program that is not a tunnel.
    Stream(String),
}

/// Whether the other end learns the addresses of the interfaces of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interfaces {
    /// A peer in the same network needs them.
    Announced,
    /// For browsers. The peer still finds this end by the checks of this end, if the peer's
    /// addresses can be reached, or by the address that a STUN server saw.
    Hidden,
    /// A peer that names addresses of its own interfaces gets ours. Browsers name no such address.
    Mutual,
}

/// A connection: a carrier, or streams of a program that is not a tunnel.
#[derive(Debug)]
pub enum Arrived {
    /// The peer is a tunnel.
    Carrier(Carrier),
    /// The peer opens a channel for each stream.
    Channels(Channels),
}

/// The end that offers. Dropping it closes the connection.
pub struct Offerer {
    beginning: Beginning,
    peers: Peers,
    own: Description,
    offer: String,
    channel: Arc<dyn DataChannel>,
    first: First,
}

impl Offerer {
    /// Opens sockets and gathers addresses, for at most 1 s. Runs on the worker that will drive the
    /// connection.
    ///
    /// # Errors
    ///
    /// The limit of peers is reached, or no socket can be opened.
    pub async fn new(
        peers: &Peers,
        first: First,
        interfaces: Interfaces,
    ) -> Result<Self, SignalError> {
        let mut beginning = Beginning::new(peers).await?;
        let (label, protocol) = match &first {
            First::Carrier => (CARRIER, PROTOCOL),
            First::Stream(label) => (label.as_str(), ""),
        };
        let channel = create(&beginning.core, label, protocol).await?;
        let pc = &beginning.core.pc;
        let offer = pc.create_offer(None).await.map_err(SignalError::local)?;
        pc.set_local_description(offer).await.map_err(SignalError::local)?;
        let mut own = beginning.gather(peers).await?;
        own.setup = Setup::Either;
        let offer = announced(&own, interfaces);
        Ok(Self { beginning, peers: peers.clone(), own, offer, channel, first })
    }

    /// The offer, a session description.
    #[must_use]
    pub fn offer(&self) -> &str {
        &self.offer
    }

    /// Connects to the peer that sent this answer. The time is limited by `half_open`.
    ///
    /// # Errors
    ///
    /// The answer is invalid, or the peer cannot be reached.
    pub async fn connect(self, answer: &str) -> Result<Arrived, CarrierError> {
        let Self { mut beginning, peers, own, channel, first, .. } = self;
        let theirs = Description::read(answer)?;
        if theirs.setup == Setup::Either {
            return Err(SignalError::Description("an answer has to decide about a=setup").into());
        }
        let answer = bare(&theirs, RTCSessionDescription::answer)?;
        let pc = &beginning.core.pc;
        pc.set_remote_description(answer).await.map_err(SignalError::local)?;
        beginning.add_candidates(&peers, &own, &theirs, false).await?;
        let binding = binding(&own, &theirs);
        let peer = connected(&mut beginning, &theirs, binding).await?;
        opened(&beginning.core, &*channel).await?;
        let Beginning { core, hold, channels, .. } = beginning;
        Ok(match first {
            First::Carrier => {
                let lane = lane(channel, &core, hold, Use::Carrier);
                Arrived::Carrier(Carrier::single(peer, Box::new(lane)))
            }
            First::Stream(label) => {
                let lane = Box::new(lane(channel, &core, Arc::clone(&hold), Use::Stream));
                let mut channels = Channels::new(peer, core, hold, channels);
                channels.put_back(Channel { label, lane, used: Use::Stream });
                Arrived::Channels(channels)
            }
        })
    }
}

/// The end that answers. Dropping it closes the connection.
pub struct Answerer {
    beginning: Beginning,
    own: Description,
    theirs: Description,
    answer: String,
}

impl Answerer {
    /// Parses the offer, opens sockets and gathers addresses, for at most 1 s. Runs on the worker
    /// that will drive the connection.
    ///
    /// # Errors
    ///
    /// The offer is invalid, the limit of peers is reached, or no socket can be opened.
    pub async fn new(
        peers: &Peers,
        offer: &str,
        interfaces: Interfaces,
    ) -> Result<Self, SignalError> {
        let theirs = Description::read(offer)?;
        let offer = bare(&theirs, RTCSessionDescription::offer)?;
        let mut beginning = Beginning::new(peers).await?;
        let pc = &beginning.core.pc;
        pc.set_remote_description(offer).await.map_err(SignalError::local)?;
        let answer = pc.create_answer(None).await.map_err(SignalError::local)?;
        pc.set_local_description(answer).await.map_err(SignalError::local)?;
        let own = beginning.gather(peers).await?;
        beginning.add_candidates(peers, &own, &theirs, true).await?;
        let names_none = theirs.candidates.iter().all(|candidate| candidate.kind != Kind::Host);
        let is_hidden = interfaces == Interfaces::Mutual && names_none;
        let interfaces = if is_hidden { Interfaces::Hidden } else { interfaces };
        let answer = announced(&own, interfaces);
        Ok(Self { beginning, own, theirs, answer })
    }

    /// The answer, a session description.
    #[must_use]
    pub fn answer(&self) -> &str {
        &self.answer
    }

    /// A handle that closes the connection later.
    #[must_use]
    pub fn closer(&self) -> Closer {
        self.beginning.core.closer()
    }

    /// Waits for the peer. The time is limited by `half_open`.
    ///
    /// # Errors
    ///
    /// The peer does not connect, or its certificate is not the one that the offer names.
    pub async fn connect(self) -> Result<Arrived, CarrierError> {
        let Self { mut beginning, own, theirs, .. } = self;
        let binding = binding(&theirs, &own);
        let peer = connected(&mut beginning, &theirs, binding).await?;
        let Beginning { core, hold, channels, .. } = beginning;
        let mut channels = Channels::new(peer, core, hold, channels);
        let channel = channels.accept().await?;
        if channel.used == Use::Carrier {
            let peer = channels.peer().clone();
            return Ok(Arrived::Carrier(Carrier::single(peer, channel.lane)));
        }
        channels.put_back(channel);
        Ok(Arrived::Channels(channels))
    }
}

/// The description of this end that is sent to the peer.
fn announced(own: &Description, interfaces: Interfaces) -> String {
    let mut own = own.clone();
    if interfaces == Interfaces::Hidden {
        own.candidates.retain(|candidate| candidate.kind != Kind::Host);
    }
    own.write()
}

/// The description of the peer for the library, without candidates.
fn bare(
    theirs: &Description,
    make: fn(String) -> webrtc::error::Result<RTCSessionDescription>,
) -> Result<RTCSessionDescription, SignalError> {
    let bare = Description { candidates: Vec::new(), ..theirs.clone() };
    make(bare.write()).map_err(SignalError::local)
}

/// Binds a greeting to the connection, instead of the TLS exporter, which the library does not
/// provide: both certificates were made for this connection.
fn binding(offerer: &Description, answerer: &Description) -> [u8; 32] {
    sha256(&[offerer.fingerprint, answerer.fingerprint].concat())
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

/// Waits until the handshake is done; returns the peer.
async fn connected(
    beginning: &mut Beginning,
    theirs: &Description,
    binding: [u8; 32],
) -> Result<Peer, CarrierError> {
    let is_decided = |state: &RTCPeerConnectionState| {
        use RTCPeerConnectionState::{Closed, Connected, Failed};
        matches!(state, Connected | Failed | Closed)
    };
    let core = Arc::clone(&beginning.core);
    let state = tokio::select! {
        state = beginning.state.wait_for(is_decided) => state.map(|state| *state),
        end = core.ended() => return Err(end.error().into()),
    };
    if !matches!(state, Ok(RTCPeerConnectionState::Connected)) {
        let text = "the peer cannot be reached at any of its addresses";
        return Err(io::Error::new(io::ErrorKind::TimedOut, text).into());
    }
    // The library has compared both. The binding depends on the comparison, so it is repeated.
    let certificates = beginning.core.certificates().await;
    let is_named = certificates.first().is_some_and(|der| sha256(der) == theirs.fingerprint);
    if !is_named {
        return Err(CarrierError::Tls("the peer has another certificate than it named".into()));
    }
    beginning.core.gate.connected();
    let address = beginning.core.remote().await;
    let address = address.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)));
    Ok(Peer {
        address,
        transport: WEBRTC,
        connection: None,
        watch: None,
        exporter: Some(binding),
        certificate_name: None,
        cipher: None,
        via: None,
    })
}

impl fmt::Debug for Offerer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offerer").field("first", &self.first).finish_non_exhaustive()
    }
}

impl fmt::Debug for Answerer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answerer(..)")
    }
}
