//! Parts of the configuration that several families use: TLS at both ends, and proxies.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::Context;
use config::Listen;
use net::Current;
use tls::{Identity, Oldest, ServerConfig, Trust};
use transport::{Dialer, PathDialer};
use transport_tcp::{ProxyKind, ResolvedBy, Speech, TlsClient, Via};

use super::Setup;
use crate::identity;

/// The TLS settings of the listeners of one family, for later connections. A listener asks clients
/// for a certificate of `tls.client_ca`, or is exempt. Each kind has its own TLS sessions, because
/// a session of an exempt listener does not prove a certificate.
#[derive(Clone, Debug)]
pub(super) struct ServerTls {
    asking: Current<ServerConfig>,
    exempt: Current<ServerConfig>,
}

impl ServerTls {
    /// The settings of listeners that speak `speech` inside TLS; `None` without a certificate.
    pub(super) fn new(setup: &Setup<'_>, speech: Speech) -> anyhow::Result<Option<Self>> {
        let both = both(setup, speech)?;
        Ok(both.map(|[asking, exempt]| Self { asking: asking.into(), exempt: exempt.into() }))
    }

    /// The settings of a listener to which `client_ca` applies, or of an exempt listener.
    pub(super) fn by(&self, client_ca: bool) -> Current<ServerConfig> {
        if client_ca { self.asking.clone() } else { self.exempt.clone() }
    }

    /// Prepares new settings. Calling the result applies them.
    pub(super) fn renewal(
        &self,
        setup: &Setup<'_>,
        speech: Speech,
    ) -> anyhow::Result<impl FnOnce() + use<>> {
        let (own, new) = (self.clone(), both(setup, speech)?);
        Ok(move || {
            if let Some([asking, exempt]) = new {
                own.asking.replace(asking);
                own.exempt.replace(exempt);
            }
        })
    }
}

/// The settings of a listener of `tls://` or `wss://`; `None` for a listener without TLS.
///
/// # Errors
/// TLS is required, and the server has no certificate.
pub(super) fn tls_of(
    tls: Option<&ServerTls>,
    listen: &Listen,
) -> anyhow::Result<Option<Current<ServerConfig>>> {
    if !listen.endpoint.scheme.tls {
        return Ok(None);
    }
    let tls = tls.with_context(|| format!("{} without a certificate", listen.endpoint))?;
    Ok(Some(tls.by(listen.client_ca)))
}

/// The settings of listeners that request a certificate, and of exempt listeners.
fn both(setup: &Setup<'_>, speech: Speech) -> anyhow::Result<Option<[Arc<ServerConfig>; 2]>> {
    let Some(identity) = setup.identity else { return Ok(None) };
    let server = |ca: Option<&Path>| {
        let config = tls::server_config(identity, ca, &[speech.alpn()]).context("tls");
        config.map(tls::server_with_key_log)
    };
    Ok(Some([server(setup.config.tls.client_ca.as_deref())?, server(None)?]))
}

/// Host and port of the proxy of a path, and the request to the proxy; `None` without a proxy.
pub(super) fn via(path: &config::Path) -> Option<(String, u16, Via)> {
    let proxy = path.proxy.as_ref()?;
    let (host, port) = (path.endpoint.host.unscoped().bare(), path.endpoint.port);
    let resolved = |by| match by {
        config::ResolvedBy::Client => ResolvedBy::Client,
        config::ResolvedBy::Proxy => ResolvedBy::Proxy,
    };
    let kind = match proxy.kind {
        config::ProxyKind::Http => ProxyKind::Http,
        config::ProxyKind::Socks4(by) => ProxyKind::Socks4(resolved(by)),
        config::ProxyKind::Socks5(by) => ProxyKind::Socks5(resolved(by)),
    };
    let credentials = proxy.credentials.as_ref();
    let credentials =
        credentials.map(|(user, password)| (user.clone(), password.reveal().to_owned()));
    Some((proxy.host.bare(), proxy.port, Via { kind, host, port, credentials }))
}

/// The host that a path dials: its server, or the proxy in front of it.
#[derive(Clone, Debug)]
pub(super) struct NextHop {
    name: String,
    port: u16,
}

impl NextHop {
    pub(super) fn new(path: &config::Path) -> Self {
        let (name, port) = match via(path) {
            Some((name, port, _)) => (name, port),
            None => (path.endpoint.host.bare(), path.endpoint.port),
        };
        Self { name, port }
    }

    /// A dialer for all addresses of the host, on top of `dialer`.
    pub(super) fn dialled(&self, dialer: impl Dialer + 'static) -> Rc<dyn PathDialer> {
        Rc::new(link::Host { name: self.name.clone(), port: self.port, dialer: Rc::new(dialer) })
    }
}

/// How a certificate is verified. Parses pins.
pub fn trust(trust: &config::Trust) -> Result<Trust, tls::PinError> {
    Ok(match trust {
        config::Trust::System => Trust::System,
        config::Trust::Ca(file) => Trust::Authority(file.clone()),
        config::Trust::Pins(pins) => {
            let pins: Result<Vec<_>, _> = pins.iter().map(|pin| pin.parse()).collect();
            Trust::Pins(pins?)
        }
    })
}

/// The TLS settings of a client that speaks `speech` inside TLS; `None` for a scheme without TLS.
/// Reads certificates and pins.
pub(super) fn tls_client(path: &config::Path, speech: Speech) -> anyhow::Result<Option<TlsClient>> {
    if !path.endpoint.scheme.tls {
        return Ok(None);
    }
    let trust = trust(&path.trust)?;
    let identity =
        path.identity.as_ref().map(|pair| Identity::load(&pair.cert, &pair.key)).transpose()?;
    if let (Some(identity), Some(pair)) = (&identity, &path.identity) {
        identity::warn_of_dates(identity, &pair.cert);
    }
    let oldest = match path.min_version {
        config::TlsVersion::V12 => Oldest::Tls12,
        config::TlsVersion::V13 => Oldest::Tls13,
    };
    let config = tls::client_config_from(oldest, &trust, identity.as_ref(), &[speech.alpn()])?;
    let config = tls::client_with_key_log(config);
    // A certificate does not name an interface of this machine.
    let host = path.endpoint.host.unscoped().bare();
    let name = tls::server_name(path.sni.as_deref().unwrap_or(&host))?;
    Ok(Some(TlsClient { config, name }))
}
