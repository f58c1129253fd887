//! `quic://` in both roles: from the configuration to what `transport-quic` wants, and what a server
//! keeps of it over restarts.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use config::{Congestion, ServerConfig};
use net::udp::{self, Buffers};
use transport_quic::{Keys, Known, Peers, QuicServer, QuicSettings};

use crate::transports::bind_advice;

/// For so long the link goes on asking somebody who does not answer its keepalive.
const ANSWER: Duration = Duration::from_secs(30);

/// What the listeners of a server have in common.
#[derive(Clone, Debug)]
pub(crate) struct QuicSide {
    pub(crate) server: QuicServer,
    /// Clients of the process before this one, which are called back.
    left: Arc<[Known]>,
}

impl QuicSide {
    /// Reads what the process before this one left in `state`. Without a folder nothing is kept.
    pub(crate) fn new(
        config: &ServerConfig,
        tls: net::Current<tls::ServerConfig>,
        state: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let (keys, peers, left) = match state {
            None => (Keys::fleeting()?, None, Vec::new()),
            Some(folder) => {
                let keys = Keys::of(folder)?;
                let (peers, left) = Peers::take_all(folder)
                    .with_context(|| format!("{}: quic.peers", folder.display()))?;
                (keys, Some(peers), left)
            }
        };
        let ca = config.tls.client_ca.as_deref();
        let server = QuicServer::new(tls, ca, settings(&config.common), keys, peers)?;
        Ok(Self { server, left: left.into() })
    }

    /// What connections from now on are to have; to be called when nothing can fail any more.
    pub(crate) fn renewal(&self, config: &ServerConfig) -> anyhow::Result<impl FnOnce() + use<>> {
        let settings = settings(&config.common);
        Ok(self.server.renewal(config.tls.client_ca.as_deref(), settings)?)
    }

    /// Binds a socket for each worker, and has the clients of the process before come back.
    pub(crate) fn bind(
        &self,
        endpoint: &config::Endpoint,
        address: SocketAddr,
        count: usize,
        quic: &config::Quic,
    ) -> anyhow::Result<Vec<UdpSocket>> {
        let group = udp::udp_group(address, count).map_err(|e| {
            let advice = bind_advice(e.kind());
            anyhow::anyhow!("cannot listen on {endpoint}: {e}{advice}")
        })?;
        for socket in &group {
            udp::raise(socket, buffers(quic))?;
        }
        if let Some(first) = group.first() {
            let called = self.server.call_back(first, &self.left)?;
            if called > 0 {
                let connections = called;
                tracing::info!(
                    connections,
                    "clients of the server before this one were called back"
                );
            }
        }
        Ok(group)
    }
}

/// As the configuration says them.
pub(crate) fn buffers(quic: &config::Quic) -> Buffers {
    let bytes = |size: config::Size| usize::try_from(size.bytes()).unwrap_or(usize::MAX);
    Buffers { receive: bytes(quic.receive_buffer), send: bytes(quic.send_buffer) }
}

pub(crate) fn settings(common: &config::Common) -> QuicSettings {
    let congestion = match common.quic.congestion {
        Congestion::Bbr => transport_quic::Congestion::Bbr,
        Congestion::Cubic => transport_quic::Congestion::Cubic,
    };
    let idle = idle(common.keepalive.duration());
    QuicSettings { congestion, mtu: common.quic.mtu, idle, ..QuicSettings::default() }
}

/// The pings of `proto` come before the end, however rarely somebody wants them.
fn idle(keepalive: Duration) -> Duration {
    QuicSettings::default().idle.max(keepalive.saturating_add(ANSWER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_outlives_any_keepalive() {
        for (keepalive, least) in [(1, 45), (15, 45), (60, 90), (600, 630)] {
            assert_eq!(idle(Duration::from_secs(keepalive)), Duration::from_secs(least));
        }
        assert_eq!(idle(Duration::MAX), Duration::MAX);
    }
}
