//! `kcp://` in both roles: the settings of `transport-kcp`, and the keys that a server keeps across
//! restarts.

use std::rc::Rc;
use std::sync::Arc;

use anyhow::Context;
use config::{Common, KcpCongestion, KcpFec, Listen};
use net::Current;
use net::source::Proxies;
use net::udp::{Buffers, Form};
use transport::PathDialer;
use transport_kcp::{
    Control, KcpDialer, KcpListener, KcpServer, KcpSettings, Keys, Protection, RecordedPeer,
    TlsClient,
};
use transport_tcp::Speech;

use super::material::{NextHop, ServerTls};
use super::{
    Bound, Dials, Family, Listeners, Renewal, Setup, bound_udp, buffers, dialer_options, material,
    proxies, record,
};
use crate::budget;

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
        let (keys, peers, left) = match setup.state {
            None => (Keys::fleeting()?, None, Vec::new()),
            Some(folder) => {
                let (peers, left) = record(folder, "kcp")
                    .with_context(|| format!("{}: kcp.peers", folder.display()))?;
                (Keys::of(folder)?, Some(peers), left)
            }
        };
        let settings = settings(&setup.config.common);
        let proxies = Current::from(proxies(setup.config));
        let server = |asks| {
            KcpServer::new(tls.by(asks), settings.clone(), keys.clone(), peers.clone())
                .behind(proxies.clone())
        };
        let (asking, exempt) = (server(true), server(false));
        Ok(Arc::new(KcpListeners { tls, asking, exempt, proxies, left: left.into() }))
    }

    fn dials(&self, path: &config::Path, common: &Common) -> anyhow::Result<Arc<dyn Dials>> {
        let tls = material::tls_client(path, Speech::Tunnel)?.context("kcp:// without TLS")?;
        let tls = TlsClient { config: tls.config, name: tls.name };
        let dialer = KcpDialer::new(&tls, settings(common), sizes(&common.kcp));
        let dialer = dialer.obeying(dialer_options(path));
        Ok(Arc::new(KcpDials { hop: NextHop::new(path), dialer }))
    }
}

#[derive(Debug)]
struct KcpListeners {
    tls: ServerTls,
    /// The state of listeners that request client certificates, and of listeners that do not.
    asking: KcpServer,
    exempt: KcpServer,
    proxies: Current<Proxies>,
    /// The clients of the previous process. Their connections are reset, so that they reconnect.
    left: Arc<[RecordedPeer]>,
}

impl Listeners for KcpListeners {
    fn bind(&self, listen: &Listen, common: &Common, workers: usize) -> anyhow::Result<Bound> {
        let server = if listen.client_ca { &self.asking } else { &self.exempt };
        let (own, left) = (server.clone(), Arc::clone(&self.left));
        bound_udp(
            listen,
            workers,
            (Form::Kcp, sizes(&common.kcp)),
            |socket| server.call_back(socket, &left),
            move |socket, steering_slot| {
                Ok(Box::new(KcpListener::new(socket, steering_slot, &own)?))
            },
        )
    }

    fn renew(&self, setup: &Setup<'_>) -> anyhow::Result<Renewal> {
        let settings = settings(&setup.config.common);
        let (asking, exempt) = (self.asking.clone(), self.exempt.clone());
        let tls = self.tls.renewal(setup, Speech::Tunnel)?;
        let (current, proxies) = (self.proxies.clone(), proxies(setup.config));
        Ok(Box::new(move || {
            current.replace(Arc::new(proxies));
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

/// The socket buffers of the configuration.
fn sizes(kcp: &config::Kcp) -> Buffers {
    buffers(kcp.receive_buffer, kcp.send_buffer)
}

fn settings(common: &Common) -> KcpSettings {
    let kcp = &common.kcp;
    let default = KcpSettings::default();
    let control = control(kcp.congestion);
    KcpSettings {
        control,
        protection: match kcp.fec {
            KcpFec::Auto => default.protection,
            KcpFec::Off => Protection::Off,
            KcpFec::Fixed { data, parity } => Protection::Fixed { data, parity },
        },
        send_window: kcp.send_window,
        receive_window: kcp.receive_window,
        ack_delay: kcp.ack_delay.duration(),
        least_timeout: kcp.least_timeout.duration(),
        mtu: kcp.mtu,
        decode_memory: budget::of_repairs(common, default.decode_memory),
        ..default
    }
}

const fn control(congestion: KcpCongestion) -> Control {
    match congestion {
        KcpCongestion::Bbr => Control::Bbr,
        KcpCongestion::Classic => Control::Classic,
        KcpCongestion::None => Control::Open,
        KcpCongestion::Fixed(rate) => Control::Fixed(rate.bytes()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use config::{ServerFlags, Sources, Text, load_server};

    use super::*;

    fn of(kcp: &str) -> KcpSettings {
        let read = |_: &std::path::Path| Ok("q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi".to_owned());
        let sources = Sources { env: &|_| None, read: &read };
        let text = format!("listen: kcp://[::]\nclients: []\n{kcp}\n");
        let file = Some(Text { name: "server.yaml", text: &text });
        settings(&load_server(file, &ServerFlags::default(), &sources).unwrap().config.common)
    }

    #[test]
    fn the_defaults_of_the_file_are_those_of_the_transport() {
        assert_eq!(of(""), KcpSettings::default());
    }

    #[test]
    fn a_preset_and_the_largest_values_arrive() {
        let fast3 = of("kcp: { preset: fast3 }");
        assert_eq!(fast3.control, Control::Open);
        assert_eq!(fast3.protection, Protection::Fixed { data: 10, parity: 3 });
        assert_eq!((fast3.send_window, fast3.receive_window), (1024, 1024));
        assert_eq!(fast3.ack_delay, Duration::from_millis(10));
        let most = of("kcp: { rate: 50MiB/s, fec: 64/48, send_window: 65535 }");
        assert_eq!(most.control, Control::Fixed(50 << 20));
        assert_eq!(most.protection, Protection::Fixed { data: 64, parity: 48 });
        assert_eq!(most.send_window, u16::MAX);
        assert_eq!(of("memory_budget: 32MiB").decode_memory, 1 << 20, "a part of little memory");
        assert_eq!(of("memory_budget: 16GiB").decode_memory, KcpSettings::default().decode_memory);
        assert_eq!(of("kcp: { fec: off }").protection, Protection::Off);
    }
}
