//! Shared entrances: several sessions serve the visitors of one address. They are processes of one
//! client or clients of different names. Each of them has the right `allow.shared` and the right to
//! publish at the address, and each service has `shared: true`.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use config::Over;
use proto::control::{ServiceErrorCode, ServiceSpec};
use proto::greeting::Name;
use tokio::sync::Mutex;

use crate::about::{self, Marks};
use crate::directory::{Claim, Class, Directory, Generation, Key, NodeEpoch, NotGiven, Owner};
use doors::hosts::Hosts;
use node::aim::Aim;
use node::entrance;
use node::names::{Host, Kind};
use node::session::{Handle, SessionPort};

use super::address::{Outcome, Place, Public, error, no_room, not_given, refusal};
use super::of_client::{Closed, Entry, OfClient, aim, gate, listen};
use super::of_names::open_named;
use super::registrant::Registrant;

/// The shared entrances of all clients. The lock of a client is taken before this lock.
#[derive(Debug, Default)]
pub(super) struct Shares(Mutex<All>);

#[derive(Debug, Default)]
struct All {
    entrances: HashMap<Place, Entry>,
    /// The claims of names. Services that share a host by different paths share its claim.
    names: HashMap<Key, (Option<Kind>, Weak<Claim>)>,
}

impl Shares {
    /// Closes the entrances at the resource of this claim, which another owner has. Returns the
    /// clients that shared them.
    pub(super) async fn lose(
        &self,
        (key, generation): (&Key, Generation),
        at: (&[Handle], &Hosts),
    ) -> BTreeSet<String> {
        let mut all = self.0.lock().await;
        let is_lost = |entry: &Entry| entry.held.0.is(key, generation);
        let lost: Vec<_> = all.entrances.extract_if(|_, entry| is_lost(entry)).collect();
        let mut clients = BTreeSet::new();
        for (_, entry) in lost {
            let backends = entry.entrance.backends.all();
            clients.extend(backends.iter().map(|one| one.session.name.clone()));
            entry.shut(at, Closed { is_news: true, is_final: false }).await;
        }
        all.names.retain(|_, (_, claim)| claim.strong_count() > 0);
        clients
    }

    /// The shared services at the resource of a claim.
    pub(super) async fn services_at(
        &self,
        (key, generation): (&Key, Generation),
    ) -> Vec<ServiceSpec> {
        let all = self.0.lock().await;
        let own = all.entrances.values().filter(|entry| entry.held.0.is(key, generation));
        own.filter_map(Entry::spec).collect()
    }
}

impl OfClient {
    /// Publishes a shared service at a port.
    pub(super) async fn share_port(
        &mut self,
        to: Registrant<'_>,
        spec: &ServiceSpec,
        (text, (over, address), place): (&str, (Over, SocketAddr), Place),
    ) -> Outcome<SocketAddr> {
        self.may_share(to, text, &place)?;
        let shares = Arc::clone(&self.shares);
        let mut all = shares.0.lock().await;
        if let Some(entry) = all.entrances.get(&place) {
            entry.join(to, spec, text, None)?;
        } else {
            let owner = self.owner(to);
            let public =
                Public::Port((over, Class::of(address.ip(), to.public_bind), address.port()));
            let wanted = (place.key.clone(), self.about_of(spec, &public, text));
            let claim = Claim::new(&self.directory, wanted, &owner).await;
            let claim = claim.map_err(|why| {
                not_given(why, text, || {
                    let other = "another client publishes there without `shared: true`";
                    error(ServiceErrorCode::PortTaken, format!("{text} is taken: {other}"))
                })
            })?;
            let service = spec.name.as_str();
            let reserved = self.budget.reserve(to.handles.len());
            let reserved = reserved.ok_or_else(|| no_room(text, service))?;
            let entry = listen(to, spec, (over, address), (claim, reserved), false).await;
            let entry = entry.map_err(|e| refusal(text, service, &e))?;
            all.entrances.insert(place.clone(), entry);
        }
        self.joined.insert((to.session.id, place), true);
        Ok(address)
    }

    /// Publishes a shared service under a name.
    pub(super) async fn share_name(
        &mut self,
        to: Registrant<'_>,
        spec: &ServiceSpec,
        (text, host, place, url): (&str, &Host, Place, &str),
        rules: Arc<web::Rules>,
    ) -> Outcome<()> {
        self.may_share(to, text, &place)?;
        let shares = Arc::clone(&self.shares);
        let mut all = shares.0.lock().await;
        if let Some(entry) = all.entrances.get(&place) {
            entry.join(to, spec, text, Some(rules))?;
            to.hosts.names.note_change();
        } else {
            let known = all.names.get(&place.key);
            let claim = match known.and_then(|(kind, claim)| Some((kind, claim.upgrade()?))) {
                Some((kind, claim)) if *kind == place.kind => claim,
                Some(_) => {
                    let text = format!(
                        "{text} is shared by another kind of service: TLS of a host ends at the \
                         server or passes through"
                    );
                    return Err(error(ServiceErrorCode::NameTaken, text));
                }
                None => {
                    let owner = self.owner(to);
                    let public = Public::Name(host.clone());
                    let wanted = (place.key.clone(), self.about_of(spec, &public, text));
                    let claim = Claim::new(&self.directory, wanted, &owner).await;
                    Arc::new(claim.map_err(|why| {
                        not_given(why, text, || {
                            let other = "another client publishes this name without `shared: true`";
                            error(ServiceErrorCode::NameTaken, format!("{text} is taken: {other}"))
                        })
                    })?)
                }
            };
            all.names.insert(place.key.clone(), (place.kind, Arc::downgrade(&claim)));
            let address = match &place.path {
                Some(path) => format!("{url}{path}"),
                None => url.to_owned(),
            };
            let at = (text, host, &place, address);
            let entry = open_named(to, spec, at, (claim, rules)).await?;
            all.entrances.insert(place.clone(), entry);
        }
        self.joined.insert((to.session.id, place), true);
        Ok(())
    }

    /// Whether this session may share the address.
    fn may_share(&self, to: Registrant<'_>, text: &str, place: &Place) -> Outcome<()> {
        let name = &self.name;
        if !to.client.shared {
            let mut text = format!(
                "{text}: sharing is not allowed to client `{name}`: add `shared: true` to `allow` of \
                 this client on the server"
            );
            if to.is_known {
                text.push_str(&format!(", or run there: tunnel allow {name} --shared"));
            }
            text.push_str(", or remove the key from the service");
            return Err(error(ServiceErrorCode::NotAllowed, text));
        }
        if self.joined.get(&(to.session.id, place.clone())) == Some(&true) {
            let text = format!("{text} is published by another service of this client");
            return Err(error(ServiceErrorCode::NameTaken, text));
        }
        if self.entrances.contains_key(place) {
            // Another process of the client holds the address without sharing it.
            let text = format!(
                "{text} is published by another process of this client without `shared: true`"
            );
            return Err(error(ServiceErrorCode::PortTaken, text));
        }
        Ok(())
    }

    /// Removes sessions of this client from shared entrances. An entrance that no session serves
    /// closes.
    pub(super) async fn leave(
        &mut self,
        gone: impl Fn(&(u64, Place), bool) -> bool,
        (handles, hosts): (&[Handle], &Hosts),
        why: Closed,
    ) {
        let gone: Vec<_> = self.joined.extract_if(|key, wanted| gone(key, *wanted)).collect();
        if gone.is_empty() {
            return;
        }
        let shares = Arc::clone(&self.shares);
        let mut all = shares.0.lock().await;
        for ((session, place), _) in gone {
            let Some(entry) = all.entrances.get(&place) else { continue };
            let backends = entry.entrance.backends.all();
            let own = backends.iter().find(|one| one.session.id == session);
            if why.is_news
                && let Some(own) = own
            {
                self.tell_end(hosts, &own.picked.aim.name);
            }
            if backends.iter().any(|one| one.session.id != session) {
                entry.entrance.backends.leave(session);
                entry.entrance.lead_peers();
                if entry.host.is_some() {
                    hosts.names.note_change();
                }
                entrance::forget_everywhere(handles, entry.entrance.id, session).await;
                if !entry.pass_on(&self.directory, session).await
                    && let Some(entry) = all.entrances.remove(&place)
                {
                    entry.shut((handles, hosts), why).await;
                }
            } else if let Some(entry) = all.entrances.remove(&place) {
                entry.shut((handles, hosts), why).await;
            }
        }
        all.names.retain(|_, (_, claim)| claim.strong_count() > 0);
    }
}

impl Entry {
    /// Passes the claim of a session that has left to another session that serves the visitors.
    /// False: another owner has won the resource.
    async fn pass_on(&self, directory: &Arc<dyn Directory>, gone: u64) -> bool {
        let (claim, _) = &self.held;
        let serving = self.entrance.backends.all();
        let Some(heir) = serving.first().filter(|_| claim.owner().process == gone) else {
            return true;
        };
        let client = heir.picked.client.as_str().into();
        let owner = Owner { client, process: heir.session.id, node: NodeEpoch::HERE };
        let about = self.about_of(&heir.picked.aim, directory.marks());
        let passed = Claim::pass(directory, &[(Arc::clone(claim), about)], &owner).await;
        !passed.contains(&Err(NotGiven::Taken))
    }

    /// The service at the entrance, as another node publishes it. All services that share an
    /// entrance have the same terms for visitors.
    pub(super) fn spec(&self) -> Option<ServiceSpec> {
        let in_force = self.entrance.in_force();
        let aim = in_force.aim();
        let name = Name::new(&aim.name).ok()?;
        let public = match &self.host {
            Some((host, _)) => host.to_string(),
            None => self.entrance.address.clone(),
        };
        Some(ServiceSpec { name, public: vec![public], terms: aim.terms.clone() })
    }

    /// What other servers need to know of the service that this aim leads to.
    fn about_of(&self, aim: &Aim, marks: Option<&Marks>) -> Arc<str> {
        let (Some(marks), Ok(name)) = (marks, Name::new(&aim.name)) else { return "".into() };
        let public = vec![self.entrance.address.clone()];
        about::encode(&[ServiceSpec { name, public, terms: aim.terms.clone() }], marks).into()
    }

    /// Lets another session serve the visitors as well.
    fn join(
        &self,
        to: Registrant<'_>,
        spec: &ServiceSpec,
        text: &str,
        rules: Option<Arc<web::Rules>>,
    ) -> Outcome<()> {
        let backends = &self.entrance.backends;
        let others = backends.all();
        let others = others.iter().filter(|one| one.session.id != to.session.id);
        let differs = |terms: &proto::control::ServiceTerms| {
            // The visitors of a name are checked before their backend is chosen.
            !terms.http.is_like(&spec.terms.http) || terms.visitors != spec.terms.visitors
        };
        if others.into_iter().any(|one| differs(&one.picked.aim.terms)) {
            let text = format!(
                "{text} is shared by a service with other options of HTTP or other lists of visitors: \
                 give the same options to all services that share the address"
            );
            return Err(error(ServiceErrorCode::PortTaken, text));
        }
        backends.join(to.session, aim(spec, rules), &gate(to));
        to.client.bound_flows(&self.entrance.bounds);
        self.entrance.steer(to.session);
        Ok(())
    }
}
