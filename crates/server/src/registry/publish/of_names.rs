//! The names of one client: rights, ownership, and their entrances.

use std::sync::Arc;

use proto::control::{ServiceErrorCode, ServiceSpec};

use crate::directory::Claim;
use node::entrance;
use node::entrance::{Announcers, Entrance};
use node::listeners::Listeners;
use node::names::{Host, Kind, Published};

use super::address::{Outcome, Place, error, not_given};
use super::of_client::{Entry, OfClient, Registration, backends};
use super::registrant::Registrant;

impl OfClient {
    /// Publishes a service under a name. Returns the URL at which visitors reach it.
    pub(super) async fn open_name(
        &mut self,
        to: Registrant<'_>,
        spec: &ServiceSpec,
        (text, host, place): (&str, Host, Place),
        state: &mut Registration,
    ) -> Outcome<String> {
        let url = to.hosts.url(&host)?;
        self.permit(to, text, &host)?;
        if spec.terms.http.pass_through && !to.client.pass_through {
            let name = &self.name;
            let text = format!(
                "{text}: pass_through is not allowed to client `{name}`: add `pass_through: true` to \
                 `allow` of this client on the server, or remove the key from the service"
            );
            return Err(error(ServiceErrorCode::NotAllowed, text));
        }
        let Some(left) = state.hosts.checked_sub(1) else {
            let name = &self.name;
            let text = format!(
                "{text}: client `{name}` has as many hosts as `limits.hosts` of this client on the \
                 server allows"
            );
            return Err(error(ServiceErrorCode::Limit, text));
        };
        let rules = web::Rules::new(&spec.terms.http).map(Arc::new).map_err(|why| {
            let name = &spec.name;
            error(ServiceErrorCode::BadAddress, format!("{text}: service {name}: {why}"))
        })?;
        if spec.terms.shared.is_some() {
            self.share_name(to, spec, (text, &host, place, &url), rules).await?;
            state.hosts = left;
            return Ok(url);
        }
        if let Some(entry) = self.entrances.get_mut(&place) {
            if entry.wanted {
                let text = format!("{text} is published by another service of this client");
                return Err(error(ServiceErrorCode::NameTaken, text));
            }
            entry.wanted = true;
            entry.offer_to(to, spec, Some(rules));
            state.hosts = left;
            return Ok(url);
        }
        let address = match &place.path {
            Some(path) => format!("{url}{path}"),
            None => url.clone(),
        };
        let claim = self.claim_name(to, (text, &place, &address), state).await?;
        let entry = open_named(to, spec, (text, &host, &place, address), (claim, rules)).await?;
        self.entrances.insert(place, entry);
        state.hosts = left;
        Ok(url)
    }

    /// Claims the name, or shares it with another service of this client.
    async fn claim_name(
        &mut self,
        to: Registrant<'_>,
        (text, place, address): (&str, &Place, &str),
        state: &mut Registration,
    ) -> Outcome<Arc<Claim>> {
        let mine = self.names.get(&place.key);
        if let Some((kind, claim, first)) = mine
            && let Some(claim) = claim.upgrade()
        {
            if *kind == place.kind {
                return Ok(claim);
            }
            let text = format!(
                "{text} excludes {first}, which another service of this client publishes: TLS of a \
                 host ends at the server or passes through"
            );
            return Err(error(ServiceErrorCode::NameTaken, text));
        }
        let claim = self.claim(to, &place.key, state).await;
        let claim = claim.map(Arc::new).map_err(|why| {
            not_given(why, text, || {
                let text = format!("{text} is taken: another client publishes this name");
                error(ServiceErrorCode::NameTaken, text)
            })
        })?;
        let known = (place.kind, Arc::downgrade(&claim), address.to_owned());
        self.names.insert(place.key.clone(), known);
        Ok(claim)
    }

    /// Whether the client may publish the name.
    pub(super) fn permit(&self, to: Registrant<'_>, text: &str, host: &Host) -> Outcome<()> {
        let (key, rights) = match host.kind {
            Kind::Http | Kind::Https => ("http", &to.client.http),
            Kind::Tls => ("tls", &to.client.tls),
        };
        let name = &self.name;
        if to.hosts.is_of_browsers(&host.name) {
            let text = format!(
                "{text} is a name of the server's page for browsers (`http.browser`): choose another"
            );
            return Err(error(ServiceErrorCode::NameTaken, text));
        }
        let domain = to.hosts.domain();
        let domain = domain.as_deref().filter(|_| key == "http");
        if domain.is_none() && !host.name.contains(['.', '*']) {
            let host = &host.name;
            let text = format!(
                "{text} has no domain: the server adds one to `{{name}}` by \
                 `http: {{ domain: example.com }}` of its file, which it has not (hint: add the key, \
                 or publish a whole name, such as {}://{host}.example.com)",
                Kind::Https.scheme()
            );
            return Err(error(ServiceErrorCode::BadAddress, text));
        }
        let is_own = domain.is_some_and(|domain| config::is_own_name(&host.name, domain, name));
        if is_own && let Some(other) = domain.and_then(|domain| to.owner_of(&host.name, domain)) {
            let text = format!(
                "{text} is the name of client `{other}`: change `id_prefix` of client `{name}`"
            );
            return Err(error(ServiceErrorCode::NameTaken, text));
        }
        if is_own || rights.permits(&host.name) {
            return Ok(());
        }
        let host = &host.name;
        let mut text = format!(
            "{text} is not allowed to client `{name}`: add `{host}` to `allow.{key}` of this client \
             on the server"
        );
        if to.is_known {
            // A shell would expand the asterisk.
            let quote = if host.contains('*') { "'" } else { "" };
            text.push_str(&format!(
                ", or run there: tunnel allow {name} --{key} {quote}{host}{quote}"
            ));
        }
        Err(error(ServiceErrorCode::NotAllowed, text))
    }
}

/// Opens an entrance at a claimed name.
pub(super) async fn open_named(
    to: Registrant<'_>,
    spec: &ServiceSpec,
    (text, host, place, address): (&str, &Host, &Place, String),
    (claim, rules): (Arc<Claim>, Arc<web::Rules>),
) -> Outcome<Entry> {
    let certificate = to.hosts.certify(host, &to.account())?;
    let entrance = Arc::new(Entrance {
        id: entrance::next_id(),
        address,
        steering: None,
        bounds: Arc::default(),
        announcers: Announcers::Nobody,
        backends: backends(to, spec, Some(rules)),
    });
    let opened = entrance::open_everywhere(to.handles, &entrance, Listeners::Tcp(Vec::new()));
    opened.await.map_err(|why| error(ServiceErrorCode::Internal, format!("{text}: {why}")))?;
    let (kind, path) = (host.kind, place.path.clone());
    to.hosts.names.add(host, Published { kind, path, entrance: Arc::clone(&entrance) });
    let gate = Arc::clone(&to.client.gate);
    let (host, held) = (Some((host.clone(), certificate)), (claim, None));
    Ok(Entry { entrance, held, gate, host, chosen: false, wanted: true })
}
