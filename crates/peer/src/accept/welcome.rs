//! Logs a visitor in, over any carrier.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use ::link::server::{LogInError, log_in};
use logging::AUDIT;
use node::session::Worker;
use proto::greeting::Refusal;
use tls::Shown;
use transport::{CarrierError, Incoming};

use super::arrival::Arrival;
use super::lock::lock;
use super::proof::reason;
use super::verifier::PeerVerifier;
use crate::home::Home;
use crate::visit::VisitKey;

/// Logs a visitor in, or logs why that failed. `shown` is the certificate of the visitor, once it
/// has shown one.
pub(crate) async fn welcome(
    worker: &Rc<Worker>,
    shared: &Arc<dyn Home>,
    whose: &VisitKey,
    (incoming, shown): (Box<dyn Incoming>, &Shown),
) {
    let verifier = PeerVerifier::new(shared, whose);
    let arrival = Arrival { worker, shared, whose, shown };
    let Err(error) = log_in(incoming, &verifier, &arrival).await else { return };
    let VisitKey { visitor, service } = whose;
    if let LogInError::Greeting(error) = &error
        && error.refusal() == Some(Refusal::UnknownLink)
    {
        // The visitor begins another link at once. A line about this link would suppress the line
        // with the reason why the other link is refused.
        tracing::debug!(%visitor, %service, "a carrier of a link that has ended, or may not go on");
        return;
    }
    let why = match &error {
        LogInError::Greeting(error) => reason(error, shared, whose, shown),
        LogInError::Handshake(CarrierError::Certificate(_)) => {
            Some("it does not trust our certificate; its log has the reason".to_owned())
        }
        LogInError::Handshake(_) | LogInError::LinkGone => None,
    };
    let why = why.unwrap_or_else(|| error.to_string());
    if lock(&shared.host().complaints).pass(whose.clone(), Instant::now()).is_some() {
        tracing::warn!(
            target: AUDIT, client = visitor.as_str(), service = service.as_str(),
            "client {visitor} does not visit the private service {service}: {why}"
        );
    }
}
