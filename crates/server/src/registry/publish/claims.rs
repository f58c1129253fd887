//! The claims of one client: what a registration claims before it opens anything, and the claims
//! that a newer process of the client gets with the entrances of the former process.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::Arc;

use doors::hosts::Hosts;
use node::session::Handle;
use proto::control::{Register, ServiceSpec};

use super::abouts::Abouts;
use super::address::{Outcome, Place, Public};
use super::of_client::{Ahead, Closed, Entry, OfClient, Registration};
use super::registrant::Registrant;
use crate::about;
use crate::directory::{Chosen, Claim, Generation, Key, NodeEpoch, NotGiven, Owner, Port};

impl OfClient {
    /// The process of a registration as an owner of resources.
    pub(super) fn owner(&self, to: Registrant<'_>) -> Owner {
        Owner { client: Arc::clone(&self.name), process: to.session.id, node: NodeEpoch::HERE }
    }

    /// What other servers need to know of the services at each resource of a registration; empty
    /// for a server without others.
    pub(super) fn abouts(
        &self,
        to: Registrant<'_>,
        register: &Register,
        publics: &[Vec<Outcome<Public>>],
    ) -> Abouts {
        let mut abouts = Abouts::default();
        let Some(marks) = self.directory.marks() else { return abouts };
        let mut services: HashMap<Key, Vec<ServiceSpec>> = HashMap::new();
        for (spec, publics) in register.services.iter().zip(publics) {
            for (text, public) in spec.public.iter().zip(publics) {
                let Ok(public) = public else { continue };
                if !self.may_publish(to, spec, text, public) {
                    continue;
                }
                if let Public::Port((over, class, 0)) = public {
                    let about = about::encode(&[at(spec, public, text)], marks).into();
                    let of_service = (spec.name.as_str().to_owned(), *over, *class);
                    abouts.chosen.insert(of_service, about);
                } else {
                    services.entry(public.key()).or_default().push(at(spec, public, text));
                }
            }
        }
        let encode = |(key, all): (Key, Vec<ServiceSpec>)| (key, about::encode(&all, marks).into());
        abouts.at = services.into_iter().map(encode).collect();
        abouts
    }

    /// What other servers need to know of a service alone at a resource.
    pub(super) fn about_of(&self, spec: &ServiceSpec, public: &Public, text: &str) -> Arc<str> {
        let Some(marks) = self.directory.marks() else { return "".into() };
        about::encode(&[at(spec, public, text)], marks).into()
    }

    /// The services of the client alone at the resource of a claim.
    pub(super) fn services_at(&self, (key, generation): (&Key, Generation)) -> Vec<ServiceSpec> {
        let own = self.entrances.values().filter(|entry| entry.held.0.is(key, generation));
        own.filter_map(Entry::spec).collect()
    }

    /// Claims the resources of the new addresses of a registration in one batch, because each
    /// question to a directory of several servers takes a round trip.
    ///
    /// Only addresses that the client may publish are claimed, and no more than its limits allow it
    /// to publish. Each address that is published counts against the limits, so a client never
    /// holds more resources than it may publish. An address beyond the limits is claimed later, if
    /// an earlier address could not be published.
    pub(super) async fn claim_ahead(
        &self,
        to: Registrant<'_>,
        register: &Register,
        (publics, abouts): (&[Vec<Outcome<Public>>], &Abouts),
    ) -> Ahead {
        let mut ports = to.client.ports;
        let mut hosts = to.client.hosts.map_or(u32::MAX, NonZeroU32::get);
        let (mut keys, mut seen) = (Vec::new(), HashSet::new());
        for (spec, publics) in register.services.iter().zip(publics) {
            for (text, public) in spec.public.iter().zip(publics) {
                let Ok(public) = public else { continue };
                if !self.may_publish(to, spec, text, public) {
                    continue;
                }
                let left = match public {
                    Public::Port(_) => &mut ports,
                    Public::Name(_) => &mut hosts,
                };
                let Some(fewer) = left.checked_sub(1) else { continue };
                *left = fewer;
                let place = public.place(spec.terms.http.path.as_deref());
                let is_chosen = matches!(public, Public::Port((_, _, 0)));
                let is_held = self.entrances.contains_key(&place)
                    || self
                        .names
                        .get(&place.key)
                        .is_some_and(|(_, claim, _)| claim.strong_count() > 0);
                // The claim of a shared address is made under the lock of all shared addresses.
                if !is_chosen
                    && !is_held
                    && spec.terms.shared.is_none()
                    && seen.insert(place.key.clone())
                {
                    keys.push(place.key);
                }
            }
        }
        let wanted = keys.iter().map(|key| (key.clone(), abouts.at(key)));
        let claims = Claim::all(&self.directory, wanted.collect(), &self.owner(to)).await;
        keys.into_iter().zip(claims).collect()
    }

    /// Whether a client has the right to an address. The complete check comes when the address is
    /// published.
    fn may_publish(
        &self,
        to: Registrant<'_>,
        spec: &ServiceSpec,
        text: &str,
        public: &Public,
    ) -> bool {
        if spec.terms.private.is_some() {
            return false;
        }
        match public {
            Public::Port((over, class, port)) => {
                let rights = to.client.ports_of(*over);
                *port == 0 || rights.permits(class.address(to.public_bind), *port)
            }
            Public::Name(host) => to.hosts.url(host).is_ok() && self.permit(to, text, host).is_ok(),
        }
    }

    /// The claim of a resource for a registration: the claim that was made ahead, or a new claim.
    pub(super) async fn claim(
        &self,
        to: Registrant<'_>,
        key: &Key,
        state: &mut Registration,
    ) -> Result<Claim, NotGiven> {
        match state.ahead.remove(key) {
            Some(claimed) => claimed,
            None => {
                let wanted = (key.clone(), state.abouts.at(key));
                Claim::new(&self.directory, wanted, &self.owner(to)).await
            }
        }
    }

    /// Passes the claims of the entrances that this registration takes over to its process, in one
    /// batch. From then on the former process can release nothing of them. Claims whose services
    /// have changed get the new description.
    ///
    /// An entrance whose resource belongs to another owner by now closes. If the directory does not
    /// answer, the entrance stays open under the former claim, until the registration is applied
    /// again.
    pub(super) async fn pass_claims(
        &mut self,
        to: Registrant<'_>,
        (asked, abouts): (&HashSet<Place>, &Abouts),
        at: (&[Handle], &Hosts),
    ) {
        let owner = self.owner(to);
        let takes = |(place, entry): &(&Place, &Entry)| {
            (asked.contains(*place) || entry.chosen && !entry.is_of_other(to))
                && !entry.is_outranked(to)
        };
        let taken = self.entrances.iter().filter(takes);
        let claims = taken.map(|(_, entry)| {
            let (claim, _) = &entry.held;
            let about = match claim.key().port().filter(|_| entry.chosen) {
                Some((over, class, _)) => abouts.of_chosen(&entry.entrance.name(), over, class),
                None => abouts.at(claim.key()),
            };
            (Arc::clone(claim), about)
        });
        let mut claims: Vec<_> = claims.collect();
        // The services at a name share its claim.
        let mut seen = HashSet::new();
        claims.retain(|(claim, about)| {
            !claim.is_of(&owner, about) && seen.insert(claim.key().clone())
        });
        let passed = Claim::pass(&self.directory, &claims, &owner).await;
        self.is_behind = passed.contains(&Err(NotGiven::Away));
        let lost = claims.iter().zip(passed).filter(|(_, passed)| *passed == Err(NotGiven::Taken));
        let lost: HashSet<_> = lost.map(|((claim, _), _)| claim.key().clone()).collect();
        if !lost.is_empty() {
            let why = Closed { is_news: true, is_final: false };
            self.close(|entry| lost.contains(entry.held.0.key()), at, why).await;
        }
    }

    /// The ports that services had, as they were before this registration. `None`: the directory
    /// does not answer.
    pub(super) async fn chosen_before(&self, state: &mut Registration) -> Option<Arc<Chosen>> {
        if state.before.is_none() {
            state.before = self.chosen.read().await.ok();
        }
        state.before.clone()
    }

    /// Records the ports that the server chose in a registration, in one version of the table.
    pub(super) async fn record_chosen(&self, noted: &[(String, Port)]) {
        if noted.is_empty() {
            return;
        }
        let note = |table: &mut Chosen| {
            let each = noted.iter().map(|(service, port)| table.note(&self.name, service, *port));
            each.fold(false, |any, has_changed| any | has_changed)
        };
        if self.chosen.change(note).await.is_err() {
            let client = &*self.name;
            tracing::warn!(
                client,
                "the ports that were chosen for services of client {client} are not recorded: the directory does not answer"
            );
        }
    }
}

/// The service as it is published at one address, which the client has written as `text`.
fn at(spec: &ServiceSpec, public: &Public, text: &str) -> ServiceSpec {
    let text = match public {
        Public::Port(_) => text.to_owned(),
        // TLS of an `http://` name may end at the server.
        Public::Name(host) => host.to_string(),
    };
    ServiceSpec { public: vec![text], ..spec.clone() }
}
