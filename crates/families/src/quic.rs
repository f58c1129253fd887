//! `quic://` in both roles: the settings of `transport-quic`, and the data that a server keeps
//! across restarts.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use config::{Common, Congestion, Listen, ServerConfig};
use net::Current;
use net::source::Proxies;
use net::udp::{Buffers, Form};
use transport::PathDialer;
use transport_quic::{Keys, QuicDialer, QuicListener, QuicServer, QuicSettings, RecordedPeer};
use transport_tcp::Speech;

use super::material::{NextHop, ServerTls};
use super::{
    Bound, Dials, Family, Listeners, Renewal, Setup, bound_udp, buffers, dialer_options, material,
    proxies, record,
};

/// The time by which the idle timeout of a connection exceeds the keepalive. The link needs less:
/// it declares a carrier dead 20 s after its first unanswered keepalive PING.
const ANSWER: Duration = Duration::from_secs(30);

pub(super) struct Quic;

impl Family for Quic {
    fn schemes(&self) -> &'static [&'static str] {
        const NAMES: &[&str] = &[transport_quic::QUIC.name()];
        NAMES
    }

    /// Reads the data that the previous process left in the state directory. Without a state
    /// directory nothing is kept.
    fn listeners(&self, setup: &Setup<'_>) -> anyhow::Result<Arc<dyn Listeners>> {
        let tls = ServerTls::new(setup, Speech::Tunnel)?;
        let tls = tls.context("quic:// without a certificate")?;
        let (keys, peers, left) = match setup.state {
            None => (Keys::fleeting()?, None, Vec::new()),
            Some(folder) => {
                let keys = Keys::of(folder)?;
                let (peers, left) = record(folder, "quic")
                    .with_context(|| format!("{}: quic.peers", folder.display()))?;
                (keys, Some(peers), left)
            }
        };
        let config = setup.config;
        let proxies = Current::from(proxies(config));
        let server = |asks: bool| {
            let (keys, peers) = (keys.clone(), peers.clone());
            QuicServer::new(tls.by(asks), ca(config, asks), settings(&config.common), keys, peers)
                .map(|server| server.behind(proxies.clone()).with_stun(Arc::clone(setup.stun)))
        };
        let (asking, exempt) = (server(true)?, server(false)?);
        Ok(Arc::new(QuicListeners { tls, asking, exempt, proxies, left: left.into() }))
    }

    fn dials(&self, path: &config::Path, common: &Common) -> anyhow::Result<Arc<dyn Dials>> {
        let tls = material::tls_client(path, Speech::Tunnel)?.context("quic:// without TLS")?;
        let tls = transport_quic::TlsClient { config: tls.config, name: tls.name };
        let dialer = QuicDialer::new(&tls, settings(common), sizes(&common.quic));
        let dialer = dialer.context("quic")?.obeying(dialer_options(path));
        Ok(Arc::new(QuicDials { hop: NextHop::new(path), dialer }))
    }
}

#[derive(Debug)]
struct QuicListeners {
    tls: ServerTls,
    /// The state of listeners that request client certificates, and of listeners that do not. Their
    /// tickets differ: only a ticket of the former proves a certificate.
    asking: QuicServer,
    exempt: QuicServer,
    proxies: Current<Proxies>,
    /// The clients of the previous process. Their connections are reset, so that they reconnect.
    left: Arc<[RecordedPeer]>,
}

impl Listeners for QuicListeners {
    /// Binds a socket for each worker, and resets the connections of the previous process, so that
    /// their clients reconnect at once.
    fn bind(&self, listen: &Listen, common: &Common, workers: usize) -> anyhow::Result<Bound> {
        let server = if listen.client_ca { &self.asking } else { &self.exempt };
        let (own, left) = (server.clone(), Arc::clone(&self.left));
        bound_udp(
            listen,
            workers,
            (Form::Quic, sizes(&common.quic)),
            |socket| server.call_back(socket, &left),
            move |socket, steering_slot| {
                Ok(Box::new(QuicListener::new(socket, steering_slot, &own)?))
            },
        )
    }

    fn renew(&self, setup: &Setup<'_>) -> anyhow::Result<Renewal> {
        let config = setup.config;
        let asking = self.asking.renewal(ca(config, true), settings(&config.common))?;
        let exempt = self.exempt.renewal(ca(config, false), settings(&config.common))?;
        let tls = self.tls.renewal(setup, Speech::Tunnel)?;
        let (current, proxies) = (self.proxies.clone(), proxies(config));
        Ok(Box::new(move || {
            current.replace(Arc::new(proxies));
            asking();
            exempt();
            tls();
        }))
    }
}

/// The dialers of one path. They share their session tickets.
#[derive(Debug)]
struct QuicDials {
    hop: NextHop,
    dialer: QuicDialer,
}

impl Dials for QuicDials {
    fn dialer(&self, link: Option<u8>) -> Rc<dyn PathDialer> {
        let dialer = self.dialer.clone();
        self.hop.dialled(match link {
            Some(number) => dialer.steered(number),
            None => dialer,
        })
    }
}

/// The authority whose certificates a listener requests. `asks`: `client_ca` applies to the
/// listener.
fn ca(config: &ServerConfig, asks: bool) -> Option<&Path> {
    config.tls.client_ca.as_deref().filter(|_| asks)
}

/// The socket buffers of the configuration.
pub fn sizes(quic: &config::Quic) -> Buffers {
    buffers(quic.receive_buffer, quic.send_buffer)
}

/// The settings of connections.
pub fn settings(common: &Common) -> QuicSettings {
    let congestion = match common.quic.congestion {
        Congestion::Bbr => transport_quic::Congestion::Bbr,
        Congestion::Cubic => transport_quic::Congestion::Cubic,
    };
    let idle = idle(common.keepalive.duration());
    QuicSettings { congestion, mtu: common.quic.mtu, idle, ..QuicSettings::default() }
}

/// The idle timeout of a connection. It outlasts the keepalive of `proto` for any configured
/// period.
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
