//! The data that a server needs to publish names: the table of names, the ports for their visitors,
//! and the domain in which each client has its own name.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use arc_swap::{ArcSwap, ArcSwapOption};
use config::PublicUrls;
use ops::events::Events;
use ops::status::Certificate;
use proto::control::{ServiceError, ServiceErrorCode};
use termination::{Cover, NameStatus, Terminator, Wanted};

use crate::holds::Holds;
use crate::remembered::Remembered;
use node::names::{Host, Kind, Names};

/// The names of a server and the rules for them.
#[derive(Debug, Default)]
pub struct Hosts {
    /// The published names.
    pub names: Names,
    /// The port for visitors of HTTP by name, and the port for visitors of TLS by name.
    /// Known once the doors are bound.
    ports: OnceLock<[Option<u16>; 2]>,
    /// `http.domain`.
    domain: ArcSwapOption<String>,
    /// The domain, if the page for browsers has names below it.
    of_browsers: ArcSwapOption<String>,
    /// `public_url`.
    public: ArcSwap<PublicUrls>,
    /// Visitors over HTTP are not redirected to `https://` names.
    keeps_http: AtomicBool,
    /// Terminates TLS for `https://` names; `None` without a door for TLS.
    terminator: Option<Arc<Terminator>>,
    /// The names that are known while their clients are away.
    pub(super) remembered: Remembered,
    /// The clients whose names answer with a maintenance page.
    pub holds: Holds,
    /// The events of changes in the server.
    pub events: Events,
}

impl Hosts {
    pub fn new(domain: Option<&str>, terminator: Option<Arc<Terminator>>) -> Self {
        let domain = ArcSwapOption::from_pointee(domain.map(str::to_owned));
        Self { domain, terminator, ..Self::default() }
    }

    /// Reports changes to the listeners of `events`.
    pub fn with_events(self, events: Events) -> Self {
        Self { events, ..self }
    }

    /// Sets the ports for visitors of HTTP and of TLS by name; `None`: there is no such port.
    pub fn set_ports(&self, http: Option<u16>, tls: Option<u16>) {
        // Doors are bound once.
        let _ = self.ports.set([http, tls]);
    }

    /// Terminates TLS for `https://` names.
    pub(super) fn terminator(&self) -> Option<&Arc<Terminator>> {
        self.terminator.as_ref()
    }

    /// The domain in which each client has its own name.
    pub fn domain(&self) -> Option<Arc<String>> {
        self.domain.load_full()
    }

    /// Replaces the domain. Names that are published stay until their client registers again.
    pub(crate) fn set_domain(&self, domain: Option<&str>) {
        self.domain.store(domain.map(|domain| Arc::new(domain.to_owned())));
    }

    /// Sets whether browsers find the page and the private services below the domain.
    pub fn set_browser(&self, browser: bool) {
        self.of_browsers.store(self.domain().filter(|_| browser));
    }

    /// Whether a host belongs to the page for browsers, and thus to no client.
    pub fn is_of_browsers(&self, host: &str) -> bool {
        let domain = self.of_browsers.load();
        domain.as_ref().is_some_and(|domain| families::browser::is_reserved(host, domain))
    }

    /// Sets whether visitors over HTTP are redirected to `https://` names. Names that are published
    /// stay as they are until their client registers again.
    pub fn set_redirects(&self, redirects: bool) {
        self.keeps_http.store(!redirects, Ordering::Relaxed);
    }

    /// Whether an own name that a client publishes over `http://` is an `https://` name: there is a
    /// port for visitors of names over TLS, and the name has a certificate or gets one. Visitors
    /// over HTTP are then redirected to `https://`.
    ///
    /// False if redirects are disabled (`http.redirect: false`), or if `public_url` names a reverse
    /// proxy that terminates TLS: the requests that it sends over HTTP would be redirected back to
    /// it.
    pub fn secures(&self, name: &str, client: &str) -> bool {
        let Some(terminator) = &self.terminator else { return false };
        let has_port = self.ports.get().is_some_and(|[_, tls]| tls.is_some());
        let ends_elsewhere = || self.public_form(&format!("http://{name}")).starts_with("https://");
        has_port
            && !self.keeps_http.load(Ordering::Relaxed)
            && matches!(terminator.covers(name, client), Cover::Configured | Cover::Acme)
            && !ends_elsewhere()
    }

    /// Replaces the addresses at which others reach the server.
    pub fn set_public(&self, urls: &PublicUrls) {
        self.public.store(Arc::new(urls.clone()));
    }

    /// The public address of a service as others reach it, if `public_url` defines it.
    pub fn public_form(&self, address: &str) -> String {
        self.public.load().public_form(address)
    }

    /// The URL at which visitors reach a name, as far as this server can know.
    ///
    /// # Errors
    /// The server has no port for such visitors.
    pub fn url(&self, host: &Host) -> Result<String, ServiceError> {
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

    /// The port of the `https://` names for a visitor that connected over HTTP and named the port
    /// `asked`; `None`: 443.
    ///
    /// A visitor that names a port other than the door's came through a device that maps ports, or
    /// through a proxy, which offer `https://` at the standard port.
    pub(crate) fn https_port(&self, asked: Option<u16>) -> Option<u16> {
        let [http, tls] = *self.ports.get()?;
        let is_direct = asked.unwrap_or(Kind::Http.port()) == http?;
        tls.filter(|port| is_direct && *port != Kind::Https.port())
    }

    /// The state of the certificates for the status.
    pub fn certificates(&self) -> Vec<Certificate> {
        let Some(terminator) = &self.terminator else { return Vec::new() };
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = since.map_or(0, |since| since.as_secs());
        let shown = |name: NameStatus| {
            let mut certificate = Certificate {
                host: name.host,
                source: name.source.word().to_owned(),
                error: name.error,
                retry_seconds: name.retry_in.map(|pause| pause.as_secs()),
                challenge: name.challenge.map(str::to_owned),
                renews_at: name.renews,
                renews_seconds: name.renews.map(|at| at.saturating_sub(now)),
                ..Certificate::default()
            };
            certificate.expires(name.expires, now);
            certificate
        };
        terminator.status().into_iter().map(shown).collect()
    }

    /// As [`Self::certify`], for a name whose client has its links with another node of the
    /// cluster. Where the nodes share certificates, that node orders.
    ///
    /// # Errors
    /// As [`Self::certify`].
    pub fn certify_elsewhere(
        &self,
        host: &Host,
        client: &str,
    ) -> Result<Option<Wanted>, ServiceError> {
        let wanted = self.certify(host, client)?;
        let orders = |terminator: &Arc<Terminator>| terminator.orders_for_others(&host.name);
        Ok(wanted.filter(|_| self.terminator.as_ref().is_some_and(orders)))
    }

    /// Ensures that an `https://` name has a certificate until the returned value is dropped;
    /// `None` for another name.
    ///
    /// # Errors
    /// The name has no certificate and will not get one ([`ServiceErrorCode::BadAddress`]), or not
    /// soon; the client retries after [`ServiceErrorCode::Limit`].
    pub fn certify(&self, host: &Host, client: &str) -> Result<Option<Wanted>, ServiceError> {
        if host.kind != Kind::Https {
            return Ok(None);
        }
        let Some(terminator) = &self.terminator else { return Ok(None) };
        if &*host.name == "*" {
            // No certificate covers all hosts: visitors get the certificate of the name that they
            // request, and visitors without a name get the first certificate.
            if terminator.has_default() {
                return Ok(None);
            }
            let text = format!(
                "{host}: the server has no certificate for its visitors (hint: add one to \
                 `tls_routes.certificates`)"
            );
            return Err(ServiceError { code: ServiceErrorCode::BadAddress, text });
        }
        let (code, why) = match terminator.covers(&host.name, client) {
            Cover::Configured | Cover::Acme => {
                return Ok(Some(terminator.want(&host.name, client)));
            }
            Cover::Full(why) => (ServiceErrorCode::Limit, why),
            Cover::None(why) => (ServiceErrorCode::BadAddress, why),
        };
        Err(ServiceError { code, text: format!("{host}: {why}") })
    }
}

#[cfg(test)]
mod tests {
    use termination::{Acme, Doors, Settings};
    use testkit::certs::Authority;

    use super::*;

    #[test]
    fn a_visitor_is_sent_to_the_port_that_belongs_to_the_port_of_its_own() {
        let port = |http, tls, asked| {
            let hosts = Hosts::default();
            hosts.set_ports(Some(http), Some(tls));
            hosts.https_port(asked)
        };
        assert_eq!(port(80, 443, None), None);
        assert_eq!(port(80, 8443, None), Some(8443));
        assert_eq!(port(8080, 8443, Some(8080)), Some(8443));
        assert_eq!(port(8080, 443, Some(8080)), None);
        // The ports are mapped.
        assert_eq!(port(8080, 8443, None), None);
        assert_eq!(port(8080, 8443, Some(80)), None);
        assert_eq!(Hosts::default().https_port(None), None);
    }

    fn code(outcome: Result<Option<Wanted>, ServiceError>) -> Option<ServiceErrorCode> {
        outcome.err().map(|error| error.code)
    }

    #[test]
    fn a_full_queue_of_orders_is_a_refusal_after_which_the_client_asks_again() {
        let dir = tempfile::tempdir().unwrap();
        let acme = Acme {
            directory: "https://ca.example/dir".to_owned(),
            ca: Some(Authority::new("test").unwrap().save(dir.path()).unwrap()),
            ..Acme::default()
        };
        let settings = Settings {
            acme: vec![acme],
            state_dir: Some(dir.path().to_owned()),
            doors: Doors { http: true, tls: true },
            ..Settings::default()
        };
        let terminator = Terminator::new(&settings).unwrap();
        let hosts = Hosts::new(None, Some(Arc::clone(&terminator)));
        let host = |name: &str| Host { kind: Kind::Https, name: name.into() };
        let mut waiting = Vec::new();
        let refused = loop {
            match hosts.certify(&host(&format!("n{}.example.com", waiting.len())), "home") {
                Ok(wanted) => waiting.extend(wanted),
                Err(error) => break error,
            }
        };
        assert_eq!((waiting.len(), refused.code), (100, ServiceErrorCode::Limit), "{refused}");
        assert!(refused.code.may_pass());
        assert_eq!(code(hosts.certify(&host("n5.example.com"), "home")), None, "it waits already");
        assert_eq!(code(hosts.certify(&host("other.example.com"), "other")), None, "its own place");
        waiting.pop();
        assert_eq!(
            code(hosts.certify(&host("late.example.com"), "home")),
            None,
            "there is room again"
        );
        let wildcard = hosts.certify(&host("*.example.com"), "home");
        assert_eq!(code(wildcard), Some(ServiceErrorCode::BadAddress), "it stays so");
    }
}
