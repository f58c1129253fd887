//! The ports at which the server answers STUN, and the additional port beside the ports of
//! `quic://`.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use config::{Endpoint, ServerConfig};
use proto::control::{ControlMessage, STUN_PORTS_MAX, StunPorts};
use tokio::sync::oneshot;
use tokio::time::sleep;
use transport_quic::{QUIC, StunCounts, StunServer};

use node::session::Handle;

/// A port in use is retried after this time, like a published port: the previous process may hold
/// it.
const AGAIN: Duration = Duration::from_secs(15);

/// The ports that are announced to clients.
#[derive(Debug)]
pub(crate) struct StunReport {
    server: Arc<StunServer>,
    of_quic: OnceLock<Vec<u16>>,
}

impl StunReport {
    pub(super) fn new(server: &Arc<StunServer>) -> Self {
        Self { server: Arc::clone(server), of_quic: OnceLock::new() }
    }

    /// Records the bound listeners, each with its URL and its address with the actual port.
    pub(super) fn bound<'a>(&self, all: impl Iterator<Item = (&'a Endpoint, SocketAddr)>) {
        let quic = all.filter(|(endpoint, _)| endpoint.scheme.name == QUIC.name());
        let _ = self.of_quic.set(quic.map(|(_, address)| address.port()).collect());
    }

    /// The requests by their outcome, for the status. Empty before the first request.
    pub(super) fn counted(&self) -> BTreeMap<String, u64> {
        let StunCounts { answered, dropped } = self.server.counts();
        let all = [("answered", answered), ("dropped", dropped)];
        if answered + dropped == 0 {
            return BTreeMap::new();
        }
        all.map(|(name, count)| (name.to_owned(), count)).into()
    }

    /// The announcement for a client; `None` if no port answers STUN.
    pub(super) fn message(&self) -> Option<ControlMessage> {
        let of_quic = self.of_quic.get().map_or(&[][..], Vec::as_slice);
        let mut ports: Vec<u16> = of_quic.iter().copied().chain(self.server.other_port()).collect();
        ports.dedup();
        // The last port is the additional one, and reveals most.
        if let Some(last) = ports.get(STUN_PORTS_MAX..).and_then(<[u16]>::last).copied() {
            ports.truncate(STUN_PORTS_MAX - 1);
            ports.push(last);
        }
        (!ports.is_empty()).then(|| ControlMessage::Stun(StunPorts(ports)))
    }
}

/// Answers at the additional port, on the worker of `handle`, while the process runs. The port is
/// bound when the future is ready, or its failure is logged, so that a client that logs in
/// afterwards learns the port.
pub(super) async fn serve(
    server: &Arc<StunServer>,
    config: &ServerConfig,
    handle: &Handle,
) -> anyhow::Result<()> {
    let Some(port) = config.stun_port() else { return Ok(()) };
    let (address, server) = (SocketAddr::new(config.public_bind, port), Arc::clone(server));
    let is_asked_for = config.stun.is_some();
    let (first, is_tried) = oneshot::channel();
    handle
        .call(move |_| {
            tokio::task::spawn_local(async move {
                let (mut is_told, mut first) = (false, Some(first));
                loop {
                    let mut serving = pin!(server.serve(address));
                    // The first poll binds the port.
                    let bound = poll_fn(|cx| Poll::Ready(serving.as_mut().poll(cx))).await;
                    // Nothing waits if the start of the server has failed.
                    if let Some(first) = first.take() {
                        let _ = first.send(());
                    }
                    let outcome = match bound {
                        Poll::Ready(outcome) => outcome,
                        Poll::Pending => serving.await,
                    };
                    if let Err(error) = outcome
                        && !std::mem::replace(&mut is_told, true)
                    {
                        tell(address, &error, is_asked_for);
                    }
                    sleep(AGAIN).await;
                }
            });
        })
        .await?;
    // A worker that has stopped serves nothing.
    let _ = is_tried.await;
    Ok(())
}

/// A failure at a port that is not configured does not justify a warning.
fn tell(address: SocketAddr, error: &std::io::Error, is_asked_for: bool) {
    let text = format!(
        "STUN is not answered at {address}: {error}; it is tried again every {} s",
        AGAIN.as_secs()
    );
    if is_asked_for {
        tracing::warn!("{text}");
    } else {
        tracing::debug!("{text}");
    }
}
