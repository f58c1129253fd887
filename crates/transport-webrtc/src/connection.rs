//! One connection with a peer: its start, its users, and its end.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use rtc::ice::mdns::MulticastDnsMode;
use rtc::peer_connection::configuration::setting_engine::SctpMaxMessageSize;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::spawn_local;
use tokio::time::{sleep, timeout};
use webrtc::data_channel::DataChannel;
use webrtc::peer_connection::{
    PeerConnection, PeerConnectionBuilder, PeerConnectionEventHandler, RTCConfigurationBuilder,
    RTCIceCandidateInit, RTCIceGatheringState, RTCIceServer, RTCPeerConnectionState,
    SettingEngineBuilder,
};

use crate::candidate::Kind;
use crate::error::{End, SignalError};
use crate::gate::Gate;
use crate::peers::{Peers, Place};
use crate::runtime::Worker;
use crate::sdp::Description;
use crate::settings::WebrtcSettings;

/// The timeout for gathering addresses. A STUN server that does not answer costs this time.
const GATHERING: Duration = Duration::from_secs(1);

/// The interval and the number of checks of each pair of addresses: for 10 s. The checks of a
/// socket are still sent 50 ms apart (`pace.rs`).
const CHECKS_EVERY: Duration = Duration::from_millis(200);
const CHECKS: u16 = 50;

/// The maximum length of a message that the library accepts, in bytes. It drops a longer message,
/// so this is more than the limit that is announced to peers ([`crate::sdp::MAX_MESSAGE`]): a peer
/// that does not comply gets an error.
const LARGEST: u32 = SctpMaxMessageSize::DEFAULT_MESSAGE_SIZE;

/// The state of the connection that its lanes and tasks share.
pub(crate) struct Core {
    pub(crate) pc: Arc<dyn PeerConnection>,
    pub(crate) gate: Arc<Gate>,
    /// The number of bytes that the library accepts from a channel.
    window: usize,
    /// Counts messages.
    activity: AtomicU64,
    /// Whether a channel is open.
    is_open: AtomicBool,
    /// The reason why the connection is closed.
    end: watch::Sender<Option<End>>,
    /// Signals that the connection is closed.
    closing: Notify,
}

/// Closes a connection, regardless of its users.
#[derive(Clone)]
pub struct Closer(Weak<Core>);

impl Closer {
    /// Ends the connection as if the peer had closed it.
    pub fn close(&self) {
        if let Some(core) = self.0.upgrade() {
            core.closing.notify_one();
        }
    }

    /// Whether the connection carries bytes.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let core = self.0.upgrade().filter(|core| core.end().is_none());
        core.is_some_and(|core| core.is_open.load(Ordering::Relaxed))
    }

    /// Whether the connection has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.0.upgrade().is_none_or(|core| core.end().is_some())
    }
}

impl fmt::Debug for Closer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closer(..)")
    }
}

impl Core {
    pub(crate) const fn window(&self) -> usize {
        self.window
    }

    pub(crate) fn closer(self: &Arc<Self>) -> Closer {
        Closer(Arc::downgrade(self))
    }

    pub(crate) fn touch(&self) {
        self.activity.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn opened(&self) {
        self.is_open.store(true, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) -> Option<End> {
        *self.end.borrow()
    }

    /// Waits for the end of the connection.
    pub(crate) async fn ended(&self) -> End {
        let mut end = self.end.subscribe();
        let end = end.wait_for(Option::is_some).await;
        end.ok().and_then(|end| *end).unwrap_or(End::Closed)
    }

    /// The address of the peer on the chosen path.
    pub(crate) async fn remote(&self) -> Option<SocketAddr> {
        let ice = self.pc.sctp().await?.transport().ice_transport();
        let pair = ice.get_selected_candidate_pair().await.ok()??;
        let remote = pair.remote();
        Some(SocketAddr::new(remote.address.parse().ok()?, remote.port))
    }

    /// The certificates that the peer has presented, in DER.
    pub(crate) async fn certificates(&self) -> Vec<Vec<u8>> {
        let Some(sctp) = self.pc.sctp().await else { return Vec::new() };
        sctp.transport().get_remote_certificates().await.unwrap_or_default()
    }
}

/// Every user of the connection has a reference. The connection is closed when the last reference
/// is dropped.
#[derive(Debug)]
pub(crate) struct Hold {
    _alive: oneshot::Sender<()>,
}

/// Handles the events of the library.
struct Handler {
    is_gathered: watch::Sender<bool>,
    state: watch::Sender<RTCPeerConnectionState>,
    channels: mpsc::Sender<Arc<dyn DataChannel>>,
}

#[async_trait]
impl PeerConnectionEventHandler for Handler {
    async fn on_ice_gathering_state_change(&self, state: RTCIceGatheringState) {
        if state == RTCIceGatheringState::Complete {
            self.is_gathered.send_replace(true);
        }
    }

    async fn on_connection_state_change(&self, state: RTCPeerConnectionState) {
        self.state.send_replace(state);
    }

    async fn on_data_channel(&self, channel: Arc<dyn DataChannel>) {
        if let Err(refused) = self.channels.try_send(channel) {
            let _ = refused.into_inner().close().await;
        }
    }
}

/// A connection before its first channel is open.
pub(crate) struct Beginning {
    pub(crate) core: Arc<Core>,
    pub(crate) hold: Arc<Hold>,
    pub(crate) state: watch::Receiver<RTCPeerConnectionState>,
    pub(crate) channels: mpsc::Receiver<Arc<dyn DataChannel>>,
    is_gathered: watch::Receiver<bool>,
}

impl Beginning {
    /// Takes a slot and opens sockets. Runs on the worker that drives the connection from then on.
    pub(crate) async fn new(peers: &Peers) -> Result<Self, SignalError> {
        let place = peers.enter()?;
        let settings = peers.settings();
        let (is_gathered, gathered) = watch::channel(false);
        let (state, states) = watch::channel(RTCPeerConnectionState::New);
        let (channels, accepted) = mpsc::channel(settings.channels.max(1));
        let handler = Handler { is_gathered, state, channels };
        let gate = Arc::new(Gate::new(settings)?);
        let pc = build(settings, &gate, handler).await?;
        let core = Arc::new(Core {
            pc,
            gate,
            window: settings.outstanding(),
            activity: AtomicU64::new(0),
            is_open: AtomicBool::new(false),
            end: watch::Sender::new(None),
            closing: Notify::new(),
        });
        let (alive, gone) = oneshot::channel();
        let guard = Guard { core: Arc::clone(&core), place };
        spawn_local(guard.run(gone, states.clone(), settings.half_open, settings.idle));
        Ok(Self {
            core,
            hold: Arc::new(Hold { _alive: alive }),
            state: states,
            channels: accepted,
            is_gathered: gathered,
        })
    }

    /// The description of this end, after it has gathered its addresses.
    pub(crate) async fn gather(&mut self, peers: &Peers) -> Result<Description, SignalError> {
        // Candidates that were gathered in time are sent.
        let _ = timeout(GATHERING, self.is_gathered.wait_for(|done| *done)).await;
        let own = self.core.pc.local_description().await;
        let own = own.ok_or(SignalError::Description("the library made none"))?;
        let mut own = Description::read(&own.sdp)?;
        peers.settings().admission.announced(&mut own.candidates);
        Ok(own)
    }

    /// Passes the permitted candidates of the peer to the library.
    pub(crate) async fn add_candidates(
        &self,
        peers: &Peers,
        own: &Description,
        theirs: &Description,
        is_answer: bool,
    ) -> Result<(), SignalError> {
        let admission = peers.settings().admission;
        let admitted = admission.admitted(&theirs.candidates, &own.candidates);
        if is_answer {
            let outer = admitted.iter().filter(|one| one.kind == Kind::Reflexive);
            self.core.gate.opens(outer.map(|one| one.address));
        }
        for candidate in admitted {
            let candidate = RTCIceCandidateInit {
                candidate: candidate.to_string(),
                sdp_mid: Some(theirs.mid.clone()),
                sdp_mline_index: Some(0),
                ..RTCIceCandidateInit::default()
            };
            self.core.pc.add_ice_candidate(candidate).await.map_err(SignalError::local)?;
        }
        Ok(())
    }
}

/// The number of ports of a range that are tried. A range in which this number of ports is in use
/// counts as exhausted.
const TRIES: u32 = 64;

/// Builds the connection at a port of the settings.
async fn build(
    settings: &WebrtcSettings,
    gate: &Arc<Gate>,
    handler: Handler,
) -> Result<Arc<dyn PeerConnection>, SignalError> {
    let handler = Arc::new(handler);
    let Some((first, last)) = settings.ports else {
        return build_at(settings, gate, 0, handler).await;
    };
    let mut random = [0; 2];
    aws_lc_rs::rand::fill(&mut random).map_err(SignalError::local)?;
    let begin = u32::from(u16::from_be_bytes(random));
    let count = (u32::from(last) + 1).saturating_sub(first.into()).max(1);
    let mut failed = SignalError::Local("no port".to_owned());
    let ports = (0..count.min(TRIES)).map(|nth| u32::from(first) + (begin + nth) % count);
    for port in ports.filter_map(|port| u16::try_from(port).ok()) {
        match build_at(settings, gate, port, Arc::clone(&handler)).await {
            Ok(made) => return Ok(made),
            Err(error) => failed = error,
        }
    }
    Err(SignalError::Local(format!("no port of `p2p.ports` {first}-{last} is free: {failed}")))
}

async fn build_at(
    settings: &WebrtcSettings,
    gate: &Arc<Gate>,
    port: u16,
    handler: Arc<Handler>,
) -> Result<Arc<dyn PeerConnection>, SignalError> {
    let (ufrag, password) = gate.credentials();
    let engine = SettingEngineBuilder::new()
        // MDNS announces this machine to other machines, and fails without a multicast route.
        .with_multicast_dns_mode(MulticastDnsMode::Disabled)
        .with_ice_credentials(ufrag, password)
        .with_ice_connection_attempts(Some(CHECKS_EVERY), Some(CHECKS))
        .with_sctp_max_message_size(SctpMaxMessageSize::Bounded(LARGEST))
        .with_sctp_max_receive_buffer_size(settings.window())
        .build();
    let servers = settings.stun.iter().map(|server| RTCIceServer {
        urls: vec![format!("stun:{server}")],
        ..RTCIceServer::default()
    });
    // Without certificates the library makes a fresh one for this connection.
    let configuration = RTCConfigurationBuilder::new().with_ice_servers(servers.collect()).build();
    let addresses = settings.addresses().into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
    let pc = PeerConnectionBuilder::new()
        .with_configuration(configuration)
        .with_setting_engine(engine)
        .with_runtime(Arc::new(Worker { gate: Arc::clone(gate) }))
        .with_handler(handler)
        .with_udp_addrs(addresses)
        .with_data_channel_send_buffer_limit(settings.outstanding())
        .build()
        .await
        .map_err(SignalError::local)?;
    Ok(Arc::new(pc))
}

/// Closes the connection when it ends, because the library keeps running a connection that is
/// merely dropped.
struct Guard {
    core: Arc<Core>,
    place: Place,
}

impl Guard {
    async fn run(
        self,
        gone: oneshot::Receiver<()>,
        mut state: watch::Receiver<RTCPeerConnectionState>,
        half_open: Duration,
        idle: Duration,
    ) {
        let is_over = |state: &RTCPeerConnectionState| {
            matches!(state, RTCPeerConnectionState::Failed | RTCPeerConnectionState::Closed)
        };
        let end = tokio::select! {
            _ = gone => End::Closed,
            () = self.core.closing.notified() => End::Closed,
            state = state.wait_for(is_over) => match state.map(|state| *state) {
                Ok(RTCPeerConnectionState::Failed) => End::Silent,
                _ => End::Closed,
            },
            end = self.overdue(half_open, idle) => end,
        };
        self.core.end.send_replace(Some(end));
        if let Err(error) = self.core.pc.close().await {
            tracing::debug!("closing a WebRTC connection: {error}");
        }
        drop(self.place);
    }

    /// Waits until the connection has taken too long to open, or has been idle for too long.
    async fn overdue(&self, half_open: Duration, idle: Duration) -> End {
        sleep(half_open).await;
        if !self.core.is_open.load(Ordering::Relaxed) {
            return End::Silent;
        }
        loop {
            let before = self.core.activity.load(Ordering::Relaxed);
            sleep(idle).await;
            if self.core.activity.load(Ordering::Relaxed) == before {
                return End::Idle;
            }
        }
    }
}
