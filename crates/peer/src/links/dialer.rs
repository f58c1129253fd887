//! Dials carriers through the server: a stream of a link to the server, with TLS inside.

use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use config::{PrivateService, Proof};
use proto::greeting::Features;
use proto::{Open, Priority, ResetCode, Target};
use relay::{StreamLane, open_duplex};
use tokio::sync::oneshot;
use transport::{Carrier, CarrierError, Dialled, EarlyDataFn, LocalFuture, PathDialer};
use transport_tcp::{TlsClient, connect_inside};

use super::super::{RELAY, certified_tls, client_tls};
use super::trouble;
use crate::home::Home;
use node::session::Worker;

/// The time for which a dial waits for a link to the server. The whole dial has the same limit.
const PATIENCE: Duration = Duration::from_secs(10);

/// The path through the server.
pub(super) struct Relayed {
    pub(super) worker: Rc<Worker>,
    pub(super) shared: Arc<dyn Home>,
    pub(super) service: PrivateService,
    pub(super) proof: Proof,
}

impl fmt::Debug for Relayed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Relayed({})", self.service)
    }
}

/// A stream that becomes a carrier, and the reason of its reset.
type OpenedStream = (StreamLane, oneshot::Receiver<Option<ResetCode>>);

impl PathDialer for Relayed {
    /// There is no early data: the other client could not exclude a replay.
    fn dial(&self, _: Option<EarlyDataFn>) -> LocalFuture<'static, Dialled> {
        let Self { worker, shared, service, proof } = self;
        let (worker, shared) = (Rc::clone(worker), Arc::clone(shared));
        let (service, proof) = (service.clone(), proof.clone());
        Box::pin(async move {
            let tls = match &proof {
                Proof::Token(_) => client_tls()?,
                Proof::Certificate(tls) => certified_tls(&shared, tls, &service)?,
            };
            Ok((dial(&worker, &shared, &service, tls).await?, None))
        })
    }
}

async fn dial(
    worker: &Rc<Worker>,
    shared: &Arc<dyn Home>,
    service: &PrivateService,
    tls: TlsClient,
) -> Result<Carrier, CarrierError> {
    let (lane, reason) = match open(worker, shared, service) {
        Some(begun) => begun?,
        None => {
            // The lane of a stream may be used outside of the worker of its link.
            let at = shared.live_worker(worker.index, PATIENCE).await;
            let handle = at.and_then(|at| worker.peers.get(at)).cloned().ok_or_else(no_link)?;
            let (shared, service) = (Arc::clone(shared), service.clone());
            let begun = handle.call(move |worker| open(worker, &shared, &service)).await;
            begun.ok().flatten().ok_or_else(no_link)??
        }
    };
    match connect_inside(Box::new(lane), RELAY, tls).await {
        Ok(carrier) => Ok(carrier),
        Err(error) => match reason.await {
            Ok(Some(code)) => Err(trouble::refused(service, code)),
            // The handshake itself failed, or the lane was lost.
            Ok(None) | Err(_) => Err(error),
        },
    }
}

/// Opens a stream over a link of this worker to the server. `None`: there is none.
fn open(
    worker: &Worker,
    shared: &Arc<dyn Home>,
    service: &PrivateService,
) -> Option<Result<OpenedStream, CarrierError>> {
    let link = worker.state.live_link(&shared.server())?;
    if !link.features().have(Features::PRIVATE) {
        return Some(Err(trouble::too_old()));
    }
    let PrivateService { client, service } = service.clone();
    let target = Target::Private { client, service };
    let open = Open { target, visitor: None, priority: Priority::Normal, fields: None };
    let stream = open_duplex(&link, open, &Rc::default(), None);
    Some(stream.map(StreamLane::watched).map_err(|why| io::Error::other(why).into()))
}

fn no_link() -> CarrierError {
    io::Error::new(io::ErrorKind::NotConnected, "this client has no link to the server").into()
}
