//! The registration of a client's services: the complete set on each new link, an empty set when
//! the client leaves, and the set again while a service waits for a port that may become free.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use config::{ClientConfig, Over};
use link::Link;
use proto::control::{ControlMessage, Register, ServiceSpec};
use proto::greeting::{Features, Name};

use super::shared::ClientShared;
use super::uplink::Uplink;
use node::session::Handle;

/// The period at which the client requests refused services again. A user who frees a port in use
/// waits no longer than a check of the status takes. The requests of a thousand clients cost a
/// server almost nothing.
const AGAIN: Duration = Duration::from_secs(15);

/// The state of a service with lists of visitors at a server without [`Features::VISITORS`].
const TOO_OLD: &str = "the server is too old to restrict visitors (allow_from, deny_from); the \
    service is not published; update the server";

/// The state of a UDP service at a server without [`Features::FLOWS`].
const NO_UDP: &str =
    "the server is too old to carry UDP; the service is not published; update the server";

/// The state of a private service at a server without [`Features::PRIVATE`].
const NO_PRIVATE: &str = "the server is too old for private services; the service is not \
    published; update the server";

/// The state of a shared service at a server without [`Features::SHARED`].
const NO_SHARED: &str = "the server is too old for shared services; the service is not published; \
    update the server";

/// The state of a service whose name no server accepts.
const NO_NAME: &str = "its name has characters that services cannot have";

/// Registers the current set of services over `link`.
pub(super) fn register(link: &Link, shared: &ClientShared, uplink: &Uplink) {
    let generation = uplink.generation();
    // A server without the feature would ignore the lists and admit all visitors.
    let restricts = link.features().have(Features::VISITORS);
    let carries_udp = link.features().have(Features::FLOWS);
    let leaving = shared.leaving.load(Ordering::Relaxed);
    let services = if leaving {
        Vec::new()
    } else {
        let (config, server) = (shared.config.load(), &uplink.session().name);
        let own = uplink.services(&config);
        let refuse = |service: &&config::Service, why| {
            uplink.published.refuse(&service.name, why, server);
        };
        let (asked, refused): (Vec<_>, Vec<_>) = own
            .into_iter()
            .partition(|service| restricts || config.terms_of(service).visitors.are_all());
        refused.iter().for_each(|service| refuse(service, TOO_OLD));
        let knows_private = link.features().have(Features::PRIVATE);
        let (asked, refused): (Vec<_>, Vec<_>) =
            asked.into_iter().partition(|service| knows_private || service.private.is_none());
        refused.iter().for_each(|service| refuse(service, NO_PRIVATE));
        let is_private = |service: &config::Service| service.private.is_some();
        let (asked, refused): (Vec<_>, Vec<_>) = asked
            .into_iter()
            .partition(|service| is_private(service) || carries_udp || !service.carries(Over::Udp));
        refused.iter().for_each(|service| refuse(service, NO_UDP));
        let knows_shared = link.features().have(Features::SHARED);
        let (asked, refused): (Vec<_>, Vec<_>) =
            asked.into_iter().partition(|service| knows_shared || !service.is_shared());
        refused.iter().for_each(|service| refuse(service, NO_SHARED));
        let specs = asked.into_iter().filter_map(|service| {
            let spec = spec(&config, service);
            if spec.is_none() {
                refuse(&service, NO_NAME);
            }
            spec
        });
        specs.collect()
    };
    let standby = !leaving && uplink.stands_by();
    let register = Register { generation, services, leaving, standby };
    let message = ControlMessage::Register(register);
    if !link.send_message(&message) {
        tracing::error!(
            "the services of this client do not fit one registration and none is published; publish \
             fewer services"
        );
    }
}

fn spec(config: &ClientConfig, service: &config::Service) -> Option<ServiceSpec> {
    Some(ServiceSpec {
        name: Name::new(&service.name).ok()?,
        public: service.public.iter().map(ToString::to_string).collect(),
        terms: config.terms_of(service),
    })
}

/// Withdraws all services, so that the server accepts no more visitors for them. For a client that
/// is leaving: its names stay known.
pub(super) async fn withdraw(handles: &[Handle], shared: &Arc<ClientShared>, uplink: &Arc<Uplink>) {
    anew(handles, shared, uplink).await;
}

/// Registers again while a service is refused for a reason that may pass, and retries the forwards
/// whose address was not available. Ends when the client stops.
pub(super) async fn insist(handles: Arc<[Handle]>, shared: Arc<ClientShared>) {
    loop {
        tokio::time::sleep(AGAIN).await;
        if shared.leaving.load(Ordering::Relaxed) {
            return;
        }
        shared.forwards.try_again(&handles, &shared.uplinks).await;
        for uplink in shared.uplinks.all().iter() {
            if uplink.published.waits_for_more() {
                anew(&handles, &shared, uplink).await;
            }
        }
    }
}

/// Registers the next generation at a server, and returns its number. The registration is sent over
/// every link of the current session. The server answers on one of the links. A link without a
/// carrier sends the registration when it has a carrier again.
pub(super) async fn anew(
    handles: &[Handle],
    shared: &Arc<ClientShared>,
    uplink: &Arc<Uplink>,
) -> u64 {
    let generation = uplink.next_generation();
    let session = uplink.session().id;
    for handle in handles {
        let (shared, uplink) = (Arc::clone(shared), Arc::clone(uplink));
        let sent = handle.call(move |worker| {
            for (of, link) in worker.state.all_links() {
                if of.id == session {
                    register(&link, &shared, &uplink);
                }
            }
        });
        // A worker that has stopped has no links.
        let _ = sent.await;
    }
    generation
}
