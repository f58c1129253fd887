//! Visitors that are programs with a WebRTC library: a data channel is a stream. The server
//! forwards the offer; the bytes do not pass through it.

use std::rc::Rc;
use std::sync::Arc;

use logging::AUDIT;
use proto::greeting::{GREETING_TIMEOUT, ProvenOffer, verify_offer};
use relay::{Layered, StreamLane, Visitor, lead};
use tls::Shown;
use tokio::sync::Semaphore;
use tokio::task::{JoinSet, spawn_local};
use tokio::time::{Instant, sleep, timeout};
use transport_webrtc::{Arrived, Channel, Channels, Closer};

use super::incoming::Ready;
use super::lock::lock;
use super::programs::Program;
use super::proof::{credentials, may_visit};
use super::proved::Proved;
use super::welcome::welcome;
use crate::direct::channels;
use crate::direct::channels::Offered;
use crate::direct::failed::Failed;
use crate::home::Home;
use crate::turns::Turn;
use crate::visit::VisitKey;
use crate::wire;
use crate::wire::{Reply, Why};
use node::session::Worker;

/// The maximum number of concurrent streams of one program. Each costs as much as a stream of a
/// link, plus its target.
const STREAMS: usize = 256;

/// Handles an offer whose first byte was read.
pub(super) async fn take(
    worker: &Rc<Worker>,
    shared: &Arc<dyn Home>,
    whose: &VisitKey,
    mut lane: StreamLane,
    turn: Turn,
) {
    let read = timeout(GREETING_TIMEOUT, wire::read_offer(&mut lane)).await;
    let Ok(Ok((proof, offer))) = read else { return };
    let begun = begin(shared, whose, &offer, &proof).await;
    let reply = match &begun {
        Ok((offered, proven)) => {
            let answer = offered.answer();
            Reply::Answer(proven.sign(answer), answer.to_owned())
        }
        Err(why) => Reply::Refused(*why),
    };
    let sent = wire::write(&mut lane, &wire::bytes(&reply)).await;
    let (Ok((offered, proven)), Ok(())) = (begun, sent) else { return };
    let closer = offered.closer();
    shared.host().programs.note(Program {
        whose: whose.clone(),
        proved: Proved::Token(proven.credential()),
        closer: closer.clone(),
    });
    let control = spawn_local(obey(lane, closer));
    match offered.connect().await {
        Ok(arrived) => {
            drop(turn);
            shared.direct().note(None);
            serve(worker, shared, whose, arrived).await;
        }
        Err(error) => {
            let failed = Failed::Channels(error);
            shared.direct().note(Some(&failed));
            tracing::debug!(visitor = %whose.visitor, error = %failed, "a program does not visit");
        }
    }
    // The end of the stream informs the server.
    control.abort();
}

/// Verifies an offer, and opens sockets for it if it is valid.
async fn begin(
    shared: &Arc<dyn Home>,
    whose: &VisitKey,
    offer: &str,
    proof: &[u8; 32],
) -> Result<(Offered, ProvenOffer), Why> {
    let VisitKey { visitor, service } = whose;
    let config = shared.config().load_full();
    let context = format!("{visitor}\n{}/{service}", config.name);
    let known = credentials(&config, whose);
    let Some(proven) = verify_offer(&known, &context, offer, proof) else {
        tracing::warn!(
            target: AUDIT, client = visitor.as_str(), service = service.as_str(),
            "client {visitor} does not visit the private service {service} by WebRTC: wrong token"
        );
        let pause = lock(&shared.host().brake).count(whose.clone(), std::time::Instant::now());
        sleep(pause).await;
        return Err(Why::Proof);
    };
    if config.p2p.is_relayed() {
        shared.direct().note(Some(&Failed::because(punch::Why::Relay)));
        return Err(Why::Unable);
    }
    let offered = channels::answer(shared, visitor.as_str(), offer).await.map_err(|declined| {
        let error = declined.into_failure(shared.direct());
        tracing::debug!(%visitor, %error, "an offer of WebRTC is not answered");
        Why::Unable
    })?;
    Ok((offered, proven))
}

/// Ends the connection when the server requests it. A lost server requests nothing.
async fn obey(mut lane: StreamLane, closer: Closer) {
    if let Ok(Some(wire::END)) = wire::byte(&mut lane).await {
        closer.close();
    }
    std::future::pending::<()>().await;
}

async fn serve(worker: &Rc<Worker>, shared: &Arc<dyn Home>, whose: &VisitKey, arrived: Arrived) {
    match arrived {
        Arrived::Carrier(carrier) => {
            // The offer has proved a token, and so does the greeting.
            let shown = Shown::default();
            welcome(worker, shared, whose, (Box::new(Ready(carrier)), &shown)).await;
        }
        Arrived::Channels(channels) => streams(worker, shared, whose, channels).await,
    }
}

/// Serves each channel as a stream to the service.
async fn streams(
    worker: &Rc<Worker>,
    shared: &Arc<dyn Home>,
    whose: &VisitKey,
    mut channels: Channels,
) {
    let VisitKey { visitor, service } = whose;
    let (client, name) = (visitor.as_str(), service.as_str());
    let address = channels.peer().address;
    tracing::info!(
        target: AUDIT, client, service = name,
        "client {visitor} visits the private service {service} by WebRTC, without a tunnel"
    );
    let begun = Instant::now();
    let (room, mut running) = (Arc::new(Semaphore::new(STREAMS)), JoinSet::new());
    let end = loop {
        let channel = tokio::select! {
            channel = channels.accept() => channel,
            Some(_) = running.join_next() => continue,
        };
        let Channel { label, .. } = match &channel {
            Ok(channel) => channel,
            Err(error) => break error.to_string(),
        };
        let is_it = label == name && may_visit(&shared.config().load(), whose);
        let local = is_it.then(|| shared.service(worker, name)).flatten();
        let (Some(local), Ok(place)) = (local, Arc::clone(&room).try_acquire_owned()) else {
            tracing::debug!(client, service = name, label, "a channel is refused");
            // A channel that closes without an end is a reset.
            continue;
        };
        let Ok(channel) = channel else { continue };
        let budget = Rc::clone(&worker.state.budget);
        // The address is the one that the server reports for the program.
        let client = whose.visitor.as_str().into();
        let visitor = Visitor::Of { client, claimed: Some(address) };
        running.spawn_local(async move {
            let channel = Layered::new(channel.into_stream(), bytes::Bytes::new());
            lead(channel, budget, |inlet| local.serve(visitor, None, None, inlet)).await;
            drop(place);
        });
    };
    let seconds = begun.elapsed().as_secs();
    tracing::info!(
        client,
        service = name,
        seconds,
        "the visit of client {visitor} at {service} by WebRTC has ended: {end}"
    );
}
