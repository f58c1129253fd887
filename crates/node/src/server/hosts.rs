//! What a server needs to publish names: the table of names, the ports at which their visitors
//! come, and the domain in which each client has a name of its own.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use proto::control::{ServiceError, ServiceErrorCode};
use termination::{Cover, Terminator, Wanted};

use crate::names::{Host, Kind, Names};

/// The names of a server and the rules for them.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    /// The published names.
    pub(crate) names: Names,
    /// The port for visitors of HTTP by name, and the port for visitors of TLS by name.
    /// Known once the doors are bound.
    ports: OnceLock<[Option<u16>; 2]>,
    /// `http.domain`.
    domain: ArcSwapOption<String>,
    /// Ends TLS for `https://` names; `None` without a door for TLS.
    terminator: Option<Arc<Terminator>>,
}

impl Hosts {
    pub(crate) fn new(domain: Option<&str>, terminator: Option<Arc<Terminator>>) -> Self {
        let domain = ArcSwapOption::from_pointee(domain.map(str::to_owned));
        Self { names: Names::default(), ports: OnceLock::new(), domain, terminator }
    }

    /// Visitors of HTTP and of TLS by name come at these ports; `None`: they do not come.
    pub(super) fn set_ports(&self, http: Option<u16>, tls: Option<u16>) {
        // Doors are bound once.
        let _ = self.ports.set([http, tls]);
    }

    /// Ends TLS for `https://` names.
    pub(super) fn terminator(&self) -> Option<&Arc<Terminator>> {
        self.terminator.as_ref()
    }

    /// The domain in which each client has a name of its own.
    pub(crate) fn domain(&self) -> Option<Arc<String>> {
        self.domain.load_full()
    }

    /// Replaces the domain. Names that are published stay until their client registers again.
    pub(crate) fn set_domain(&self, domain: Option<&str>) {
        self.domain.store(domain.map(|domain| Arc::new(domain.to_owned())));
    }

    /// The URL at which visitors reach a name.
    ///
    /// # Errors
    /// The server has no port for such visitors.
    pub(crate) fn url(&self, host: &Host) -> Result<String, ServiceError> {
        let port = self.ports.get().and_then(|ports| ports[host.kind.space() as usize]);
        let Some(port) = port else {
            let key = match host.kind {
                Kind::Http => "`http: { listen: \"[::]:80\" }`",
                Kind::Https | Kind::Tls => "`tls_routes: { listen: \"[::]:443\" }`",
            };
            let text = format!(
                "{host}: the server has no port for visitors of {}:// names: add {key} or a \
                 `mux://` listener to its configuration",
                host.kind.scheme()
            );
            return Err(ServiceError { code: ServiceErrorCode::BadAddress, text });
        };
        Ok(if port == host.kind.port() { host.to_string() } else { format!("{host}:{port}") })
    }

    /// Takes care that an `https://` name has a certificate as long as the returned value lives;
    /// `None` for another name.
    ///
    /// # Errors
    /// The name has no certificate and will not get one.
    pub(crate) fn certify(&self, host: &Host) -> Result<Option<Wanted>, ServiceError> {
        if host.kind != Kind::Https {
            return Ok(None);
        }
        let Some(terminator) = &self.terminator else { return Ok(None) };
        match terminator.covers(&host.name) {
            Cover::Configured | Cover::Acme => Ok(Some(terminator.want(&host.name))),
            Cover::None(why) => {
                let text = format!("{host}: {why}");
                Err(ServiceError { code: ServiceErrorCode::BadAddress, text })
            }
        }
    }
}
