//! `kcp://` in both roles: the settings of `transport-kcp`, and the keys that a server keeps over
//! restarts.

use std::rc::Rc;
use std::sync::Arc;

use anyhow::Context;
use config::{Common, KcpCongestion, KcpFec, Listen};
use net::udp::{self, Buffers};
use transport::PathDialer;
use transport_kcp::{
    Control, KcpDialer, KcpListener, KcpServer, KcpSettings, Keys, Protection, TlsClient,
};
use transport_tcp::Speech;

use super::material::{NextHop, ServerTls};
use super::{
    Bound, Dials, Family, Listeners, Opener, Renewal, Setup, bind_advice, listen_address, material,
};

pub(super) struct Kcp;

impl Family for Kcp {
    fn schemes(&self) -> &'static [&'static str] {
        const NAMES: &[&str] = &[transport_kcp::KCP.name()];
        NAMES
    }

    /// Reads the keys that the previous process left in the state directory. Without a state
    /// directory nothing is kept.
    fn listeners(&self, setup: &Setup<'_>) -> anyhow::Result<Arc<dyn Listeners>> {
        let tls = ServerTls::new(setup, Speech::Tunnel)?;
        let tls = tls.context("kcp:// without a certificate")?;
        let keys = match setup.state {
            None => Keys::fleeting()?,
            Some(folder) => Keys::of(folder)?,
        };
        let settings = settings(&setup.config.common);
        let server = |asks: bool| KcpServer::new(tls.by(asks), settings.clone(), keys.clone());
        let (asking, exempt) = (server(true), server(false));
        Ok(Arc::new(KcpListeners { tls, asking, exempt }))
    }

    fn dials(&self, path: &config::Path, common: &Common) -> anyhow::Result<Arc<dyn Dials>> {
        let tls = material::tls_client(path, Speech::Tunnel)?.context("kcp:// without TLS")?;
        let tls = TlsClient { config: tls.config, name: tls.name };
        let dialer = KcpDialer::new(&tls, settings(common), buffers(&common.kcp));
        Ok(Arc::new(KcpDials { hop: NextHop::new(path), dialer }))
    }
}

#[derive(Debug)]
struct KcpListeners {
    tls: ServerTls,
    /// The state of listeners that ask clients for certificates, and of those that do not.
    asking: KcpServer,
    exempt: KcpServer,
}

impl Listeners for KcpListeners {
    /// Binds a socket for each worker.
    fn bind(&self, listen: &Listen, common: &Common, workers: usize) -> anyhow::Result<Bound> {
        let Listen { endpoint, client_ca, .. } = listen;
        let server = if *client_ca { &self.asking } else { &self.exempt };
        let group = udp::udp_group(listen_address(endpoint)?, workers).map_err(|e| {
            let advice = bind_advice(e.kind());
            anyhow::anyhow!("cannot listen on {endpoint}: {e}{advice}")
        })?;
        for socket in &group {
            udp::raise(socket, buffers(&common.kcp))?;
        }
        let address = group.first().context("no socket")?.local_addr()?;
        let count = group.len();
        let by_worker = group.into_iter().enumerate().map(|(worker, socket)| -> Opener {
            let server = server.clone();
            Box::new(move || Ok(Box::new(KcpListener::new(socket, worker, count, &server)?)))
        });
        Ok(Bound { address, by_worker: by_worker.collect() })
    }

    fn renew(&self, setup: &Setup<'_>) -> anyhow::Result<Renewal> {
        let settings = settings(&setup.config.common);
        let (asking, exempt) = (self.asking.clone(), self.exempt.clone());
        let tls = self.tls.renewal(setup, Speech::Tunnel)?;
        Ok(Box::new(move || {
            asking.renew(settings.clone());
            exempt.renew(settings);
            tls();
        }))
    }
}

/// The dialers of one path.
#[derive(Debug)]
struct KcpDials {
    hop: NextHop,
    dialer: KcpDialer,
}

impl Dials for KcpDials {
    fn dialer(&self, link: Option<u8>) -> Rc<dyn PathDialer> {
        let dialer = self.dialer.clone();
        self.hop.dialled(match link {
            Some(number) => dialer.steered(number),
            None => dialer,
        })
    }
}

/// The socket buffers of the configuration, in bytes.
fn buffers(kcp: &config::Kcp) -> Buffers {
    let bytes = |size: config::Size| usize::try_from(size.bytes()).unwrap_or(usize::MAX);
    Buffers { receive: bytes(kcp.receive_buffer), send: bytes(kcp.send_buffer) }
}

fn settings(common: &Common) -> KcpSettings {
    let kcp = &common.kcp;
    let control = match kcp.congestion {
        KcpCongestion::Bbr => Control::Bbr,
        KcpCongestion::Classic => Control::Classic,
        KcpCongestion::None => Control::Open,
        KcpCongestion::Fixed(rate) => Control::Fixed(rate.bytes()),
    };
    let defaults = KcpSettings::default();
    let protection = match kcp.fec {
        KcpFec::Auto => defaults.protection,
        KcpFec::Off => Protection::Off,
        KcpFec::Fixed { data, parity } => Protection::Fixed { data, parity },
    };
    KcpSettings {
        control,
        loopback: control,
        protection,
        send_window: kcp.send_window,
        receive_window: kcp.receive_window,
        ack_delay: kcp.ack_delay.duration(),
        least_timeout: kcp.least_timeout.duration(),
        mtu: kcp.mtu,
        ..defaults
    }
}
