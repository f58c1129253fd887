//! Logs another node in, over any carrier, or says why that failed.

use std::rc::Rc;
use std::sync::Arc;

use ::link::server::{LogInError, log_in};
use families::nodes::is_plain_transport;
use logging::AUDIT;
use net::source::prefix;
use node::session::Worker;
use proto::greeting::Refusal;
use transport::{CarrierError, Incoming, Transport};

use super::arrival::NodeArrival;
use super::proof::{OfNode, ShownName};
use super::verifier::NodeVerifier;
use crate::shared::NodeShared;

/// Logs another node in, or logs why that failed: once in ten seconds for each source and reason.
pub(super) async fn welcome(
    worker: &Rc<Worker>,
    shared: &Arc<NodeShared>,
    (transport, incoming): (Transport, Box<dyn Incoming>),
) {
    let is_plain = is_plain_transport(transport);
    let (remote, shown) = (incoming.remote(), ShownName::default());
    let incoming = Box::new(OfNode { incoming, shown: shown.clone(), is_plain });
    let verifier = NodeVerifier::new(shared, is_plain);
    let arrival = NodeArrival { worker, shared };
    let Err(error) = log_in(incoming, &verifier, &arrival).await else { return };
    let refusal = match &error {
        LogInError::Greeting(error) => error.refusal(),
        LogInError::Handshake(_) | LogInError::LinkGone => None,
    };
    let source = prefix(remote.ip());
    if refusal == Some(Refusal::UnknownLink) {
        // This process was restarted, and the other node begins another link at once.
        tracing::debug!(%source, "a carrier of a link that has ended");
        return;
    }
    let why = match &error {
        LogInError::Handshake(CarrierError::Certificate(why)) => why.clone(),
        LogInError::Handshake(_) | LogInError::Greeting(_) | LogInError::LinkGone => {
            reason(refusal, &shown, &verifier).unwrap_or_else(|| error.to_string())
        }
    };
    let Some(suppressed) = shared.incomings.complain(source, &why) else { return };
    tracing::warn!(
        target: AUDIT, %source, suppressed,
        "a node from {} did not log in: {why}", remote.ip()
    );
}

/// What a refused certificate or name means. `None`: the failure has another cause.
fn reason(
    refusal: Option<Refusal>,
    shown: &ShownName,
    verifier: &NodeVerifier<'_>,
) -> Option<String> {
    if verifier.is_own() {
        return Some(
            "it has the name of this node: two nodes need two names and certificates, or this node \
             has dialled itself"
                .to_owned(),
        );
    }
    if !matches!(refusal, Some(Refusal::CertificateName | Refusal::BadCredential)) {
        return None;
    }
    if verifier.is_plain() {
        return Some(
            "it does not prove its name by the secret of the cluster: its `cluster.secret` is \
             another, or it has taken this node for another node"
                .to_owned(),
        );
    }
    Some(match shown.get() {
        Some(name) if name.is_empty() => {
            "its certificate has no name; that of a node has `node:<its name>`".to_owned()
        }
        Some(name) => format!(
            "its certificate is that of `{name}`; a node shows a certificate with the name \
             `node:<its name>`, and greets by that name"
        ),
        None => "it shows no certificate".to_owned(),
    })
}
