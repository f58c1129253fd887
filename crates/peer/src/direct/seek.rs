//! The side that visits: the direct path of a peer link, as its keeper dials it.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use link::Link;
use punch::Why;
use tokio::sync::{Notify, mpsc};
use transport::{Carrier, CarrierError, Dialled, EarlyDataFn, LocalFuture, PathDialer, Patience};
use transport_quic::punched::{Begin, Failure};

use super::failed::Failed;
use super::signals::{WAITING_MAX, converse};
use super::{channels, news};
use crate::home::Home;
use node::session::{Found, Session};

/// The transport of a direct path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Quic,
    /// WebRTC data channels.
    Channels,
}

/// The limit of a trial: names of STUN servers take up to 5 s, the checks 10 s, the QUIC handshake
/// over a working pair 8 s.
const TRIAL: Duration = Duration::from_secs(25);

/// The state that the owner of a link and the dialer of its direct path share.
pub(crate) struct Seeker {
    shared: Arc<dyn Home>,
    /// The name of the client that has the service.
    peer: String,
    session: Arc<Session>,
    over: Over,
    /// The link, while it has a carrier that can carry signals.
    link: RefCell<Option<Link>>,
    /// The running trial receives its signals here.
    inbox: RefCell<Option<mpsc::Sender<Bytes>>>,
    /// The number of the last trial.
    round: Cell<u32>,
    /// Notified when the link has its first carrier, so that a trial can succeed.
    begun: Notify,
    asked: news::Asked,
}

impl Seeker {
    pub(crate) fn new(
        shared: &Arc<dyn Home>,
        (peer, session): (&str, &Arc<Session>),
        over: Over,
    ) -> Rc<Self> {
        Rc::new(Self {
            shared: Arc::clone(shared),
            peer: peer.to_owned(),
            session: Arc::clone(session),
            over,
            link: RefCell::default(),
            inbox: RefCell::default(),
            round: Cell::new(0),
            begun: Notify::new(),
            asked: news::Asked::default(),
        })
    }

    /// Records that the link has a carrier, for the first time or again.
    pub(crate) fn live(&self, link: &Link) {
        let is_new = self.link.replace(Some(link.clone())).is_none();
        if is_new {
            self.begun.notify_one();
        }
    }

    /// Records that the link has no carrier, or has ended.
    pub(crate) fn stalled(&self) {
        self.link.replace(None);
    }

    /// Handles a signal of the client of the service.
    pub(crate) fn hear(&self, signal: Bytes) {
        if let Some(inbox) = &*self.inbox.borrow() {
            // A signal that does not fit is repeated by the next one.
            let _ = inbox.try_send(signal);
        }
    }

    async fn dial(&self) -> Result<Carrier, CarrierError> {
        let Some(link) = self.link.borrow().clone() else {
            let text = "the link has no relayed carrier yet, which a direct path begins with";
            return Err(io::Error::new(io::ErrorKind::NotConnected, text).into());
        };
        let outcome = self.begin(&link).await;
        self.inbox.replace(None);
        self.shared.direct().note(outcome.as_ref().err());
        if let Err(error) = &outcome {
            self.session.paths.failed(&link, error.to_string());
        }
        Ok(outcome?)
    }

    async fn begin(&self, link: &Link) -> Result<Carrier, Failed> {
        if self.shared.config().load().p2p.is_relayed() {
            return Err(Failed::because(Why::Relay));
        }
        let round = self.round.get().saturating_add(1);
        self.round.set(round);
        let (inbox, mut heard) = mpsc::channel(WAITING_MAX);
        self.inbox.replace(Some(inbox));
        match self.over {
            Over::Quic => Ok(self.attempt(link, round, &mut heard).await?),
            Over::Channels => {
                let carrier =
                    channels::dial(&self.shared, link, (&self.peer, round), &mut heard).await?;
                self.session.paths.found(link, Found::Channels(carrier.peer.address));
                Ok(carrier)
            }
        }
    }

    async fn attempt(
        &self,
        link: &Link,
        round: u32,
        heard: &mut mpsc::Receiver<Bytes>,
    ) -> Result<Carrier, Failure> {
        let config = self.shared.config().load_full();
        let stun = self.shared.stun().await;
        let puncher = self.shared.direct().puncher(&config);
        let is_mapping = config.p2p.mapped;
        let pace = self.shared.direct().pace(&self.peer);
        let begin = Begin { round, stun, is_mapping, pace };
        let trial = puncher.map_err(Failure::Quic)?.visitor(&begin)?;
        if is_mapping {
            self.shared.direct().ports.map(&trial);
        }
        let carrier = tokio::select! {
            carrier = trial.dial() => carrier?,
            never = converse(link, &trial, heard) => match never {},
        };
        self.session.paths.found(link, Found::Quic(trial.path()));
        Ok(carrier)
    }
}

/// The direct path of a link.
pub(crate) struct Direct(pub Rc<Seeker>);

impl fmt::Debug for Direct {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Direct({})", self.0.session.name)
    }
}

impl PathDialer for Direct {
    /// There is no early data: the trial takes longer than the round trip that it would save.
    fn dial(&self, _: Option<EarlyDataFn>) -> LocalFuture<'static, Dialled> {
        let seeker = Rc::clone(&self.0);
        Box::pin(async move { Ok((seeker.dial().await?, None)) })
    }

    /// A second trial would end the first one, which retransmits its checks anyway. In addition, a
    /// trial knows at its end why there is no path.
    fn patience(&self) -> Patience {
        Patience { whole: TRIAL, second: None }
    }

    fn asks(&self) -> LocalFuture<'static, ()> {
        let seeker = Rc::clone(&self.0);
        Box::pin(async move {
            tokio::select! {
                () = seeker.begun.notified() => {}
                () = seeker.asked.other_addresses() => {}
            }
            seeker.asked.note();
        })
    }
}
