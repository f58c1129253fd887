//! Invitations: a client with the right `allow.invite` lets visitors come to its own private
//! services. A new visitor is a client that enrols by a one-time code and has the right to visit that
//! service and no other right.

use std::sync::atomic::Ordering;

use anyhow::{bail, ensure};
use logging::AUDIT;
use ops::WrongConfig;
use ops::clients::Change;
use ops::enrol::Order;
use proto::control::{Invite, InviteAction, InviteOutcome, OneTimeSecret};

use super::clients::Client;
use super::registry::Registry;

/// Most clients that have no other right than to visit services of one client. Each of them is a file
/// in the state directory.
const VISITORS_MAX: usize = 256;

impl Registry {
    /// Carries out the request of the client `host`.
    pub(super) async fn invite(&self, host: &str, invite: Invite) -> InviteOutcome {
        let (visitor, service) = (invite.visitor.clone(), invite.service.clone());
        match self.try_invite(host, invite).await {
            Ok(secret) => InviteOutcome::Done(secret.map(OneTimeSecret)),
            Err(why) => {
                tracing::info!(
                    target: AUDIT, client = host,
                    "client {host} asked for {visitor} to visit {service}, and was refused: {why:#}"
                );
                InviteOutcome::Refused(match why.downcast::<WrongConfig>() {
                    Ok(WrongConfig(problems)) => problems.join("; "),
                    Err(why) => format!("{why:#}"),
                })
            }
        }
    }

    async fn try_invite(&self, host: &str, invite: Invite) -> anyhow::Result<Option<String>> {
        let Invite { visitor, service, action, request: _ } = invite;
        let shared = self.shared();
        let may = shared.clients.find(host).is_some_and(|client| client.invite);
        ensure!(may, "client `{host}` has no right to invite visitors: allow.invite");
        ensure!(visitor.as_str() != host, "a client needs no right to its own services");
        let right = format!("{host}/{service}");
        let known = shared.clients.find(visitor.as_str());
        let order = Order {
            name: visitor.to_string(),
            allow_visit: vec![right.clone()],
            ..Order::default()
        };
        match (action, known) {
            (InviteAction::New, Some(_)) => bail!(
                "the server has a client `{visitor}` already (hint: another name, or --for \
                 {visitor} if it is the visitor)"
            ),
            (InviteAction::New, None) => {
                let all = shared.clients.known();
                let own = all.iter().filter(|known| visits_only(&known.client, host)).count();
                ensure!(own < VISITORS_MAX, "client `{host}` has {own} invited visitors already");
                let admits = shared.admits_codes.load(Ordering::Relaxed);
                let secret = shared.enrolments.begin(order, false, admits, Some(host))?;
                tracing::info!(
                    target: AUDIT, client = host,
                    "a code was made with which client {visitor} can enrol, to visit {right}; \
                     client {host} asked for it"
                );
                Ok(Some(secret))
            }
            (InviteAction::Existing, None) => bail!("the server knows no client `{visitor}`"),
            (InviteAction::Existing, Some(client)) => {
                if !client.visit.permit(host, service.as_str())
                    && self.change(Change::Allow(order)).await?.is_none()
                {
                    bail!(
                        "client `{visitor}` is in the server's configuration, which this request \
                         does not change (hint: on its machine: tunnel allow {visitor} --visit \
                         {right})"
                    );
                }
                Ok(None)
            }
            (InviteAction::Revoke, known) => {
                shared.enrolments.withdraw(&visitor, host);
                let Some(client) = known else { return Ok(None) };
                if !client.visit.permit(host, service.as_str()) {
                    return Ok(None);
                }
                let is_last = client.visit.0.len() == 1 && visits_only(&client, host);
                if is_last && client.enrolled && self.revoke(&visitor).await? {
                    return Ok(None);
                }
                // The right may be part of a pattern that an administrator has written.
                let has = client.visit.0.iter().any(|one| one.to_string() == right);
                if !has || self.change(Change::Deny(order)).await?.is_none() {
                    bail!(
                        "the right of client `{visitor}` is in the server's configuration, which \
                         this request does not change (hint: on its machine: tunnel deny \
                         {visitor} --visit {right})"
                    );
                }
                Ok(None)
            }
        }
    }
}

/// Whether a client has no other rights than to visit services of `host`.
fn visits_only(client: &Client, host: &str) -> bool {
    let begin = format!("{host}/");
    !client.visit.0.is_empty()
        && client.visit.0.iter().all(|right| right.to_string().starts_with(&begin))
        && client.has_no_right_but_visits()
}
