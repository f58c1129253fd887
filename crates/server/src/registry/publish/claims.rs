//! The claims of one client: what a registration claims before it opens anything, and the claims
//! that a newer process of the client gets with the entrances of the former process.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::sync::Arc;

use doors::hosts::Hosts;
use node::session::Handle;
use proto::control::{Register, ServiceSpec};

use super::address::{Outcome, Place, Public};
use super::of_client::{Ahead, Closed, Entry, OfClient, Registration};
use super::registrant::Registrant;
use crate::directory::{Chosen, Claim, Key, NotGiven, Owner, Port};

impl OfClient {
    /// The process of a registration as an owner of resources.
    pub(super) fn owner(&self, to: Registrant<'_>) -> Owner {
        let (client, node) = (Arc::clone(&self.name), self.directory.epoch());
        Owner { client, process: to.session.id, node }
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
        publics: &[Vec<Outcome<Public>>],
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
        let claims = Claim::all(&self.directory, keys.clone(), &self.owner(to)).await;
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
            None => Claim::new(&self.directory, key.clone(), &self.owner(to)).await,
        }
    }

    /// Passes the claims of the entrances that this registration takes over to its process, in one
    /// batch. From then on the former process can release nothing of them.
    ///
    /// An entrance whose resource belongs to another owner by now closes. If the directory does not
    /// answer, the entrance stays open under the former claim.
    pub(super) async fn pass_claims(
        &mut self,
        to: Registrant<'_>,
        asked: &HashSet<Place>,
        at: (&[Handle], &Hosts),
    ) {
        let owner = self.owner(to);
        let takes = |(place, entry): &(&Place, &Entry)| {
            (asked.contains(*place) || entry.chosen && !entry.is_of_other(to))
                && !entry.is_outranked(to)
                && !entry.held.0.is_of(&owner)
        };
        let taken = self.entrances.iter().filter(takes);
        let mut claims: Vec<_> = taken.map(|(_, entry)| Arc::clone(&entry.held.0)).collect();
        // The services at a name share its claim.
        let mut seen = HashSet::new();
        claims.retain(|claim| seen.insert(claim.key().clone()));
        let passed = Claim::pass(&self.directory, &claims, &owner).await;
        let lost = claims.iter().zip(passed).filter(|(_, passed)| *passed == Err(NotGiven::Taken));
        let lost: HashSet<_> = lost.map(|(claim, _)| claim.key().clone()).collect();
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
