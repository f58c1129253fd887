//! Invitations: a client with the right `allow.invite` invites visitors to its own private
//! services. A new visitor is a client that enrols by a one-time code and has the right to visit
//! that service and no other right.
//!
//! A revocation removes a client only if this process enrolled it by a code that the same inviter
//! requested: an inviter also gives rights to clients of other inviters, and must not remove these
//! clients.
//!
//! A refusal reveals which names the server knows, so each additional refusal is delayed longer.

use std::sync::atomic::Ordering;

use anyhow::{bail, ensure};
use logging::AUDIT;
use ops::WrongConfig;
use ops::clients::Change;
use ops::enrol::Order;
use proto::control::{Invite, InviteAction, InviteOutcome, OneTimeSecret};

use super::clients::Client;
use super::registry::Registry;

/// The maximum number of clients whose only rights are to visit services of one client. Each of
/// them is a file in the state directory.
const VISITORS_MAX: usize = 256;

/// The maximum number of rights to visit services of one client that invitations give to one
/// visitor.
const RIGHTS_MAX: usize = 64;

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
                tokio::time::sleep(self.shared().enrolments.refuse(host)).await;
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
        self.learn(&visitor).await;
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
                self.may_replace_code(&visitor, host).await?;
                let made = shared.enrolments.begin(order, false, admits, Some(host))?;
                let secret = self.offer_code(made).await?;
                tracing::info!(
                    target: AUDIT, client = host,
                    "a code was made with which client {visitor} can enrol, to visit {right}; \
                     client {host} asked for it"
                );
                Ok(Some(secret))
            }
            (InviteAction::Existing, None) => bail!("the server knows no client `{visitor}`"),
            (InviteAction::Existing, Some(client)) => {
                ensure!(
                    shared.private.has(host, &service),
                    "client `{host}` has published no private service `{service}`"
                );
                let is_new = !client.visit.permit(host, service.as_str());
                ensure!(
                    !is_new || rights_at(&client, host) < RIGHTS_MAX,
                    "client `{visitor}` has {RIGHTS_MAX} rights to visit services of client \
                     `{host}` already"
                );
                if is_new && self.change(Change::Allow(order)).await?.is_none() {
                    bail!(
                        "client `{visitor}` is in the server's configuration, which this request \
                         does not change (hint: on its machine: tunnel allow {visitor} --visit \
                         {right})"
                    );
                }
                Ok(None)
            }
            (InviteAction::Revoke, known) => {
                self.withdraw_code(&visitor, host).await?;
                let Some(client) = known else { return Ok(None) };
                if !client.visit.permit(host, service.as_str()) {
                    return Ok(None);
                }
                let is_own = client.enrolled && shared.enrolments.has_invited(&visitor, host);
                if is_own && is_only_right(&client, &right) && self.revoke(&visitor).await? {
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

/// Whether a client has this right to visit, and no other right. A right with `*` is another right.
fn is_only_right(client: &Client, right: &str) -> bool {
    matches!(&client.visit.0[..], [only] if only.to_string() == right)
        && client.has_no_right_but_visits()
}

/// The number of rights that a client has to visit services of `host`.
fn rights_at(client: &Client, host: &str) -> usize {
    let begin = format!("{host}/");
    client.visit.0.iter().filter(|right| right.to_string().starts_with(&begin)).count()
}

/// Whether a client has no other rights than to visit services of `host`.
fn visits_only(client: &Client, host: &str) -> bool {
    let all = client.visit.0.len();
    all > 0 && rights_at(client, host) == all && client.has_no_right_but_visits()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use config::{ServerFlags, Sources, Text, load_server};

    use super::*;
    use crate::clients::Clients;

    fn client(allow: &str) -> Arc<Client> {
        let text = format!(
            "listen: tls://127.0.0.1:7000\ntls: {{ cert: a, key: b }}\nclients:\n  - {{ name: \
             laptop, token: q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi, allow: {{ {allow} }} }}\n"
        );
        let sources = Sources { env: &|_| None, read: &|_| Ok(String::new()) };
        let text = Some(Text { name: "server.yaml", text: &text });
        let config = load_server(text, &ServerFlags::default(), &sources).unwrap().config;
        Clients::new(&config).unwrap().find("laptop").unwrap()
    }

    #[test]
    fn a_right_of_an_administrator_is_not_the_only_right_that_an_inviter_gave() {
        let is_only = |allow| is_only_right(&client(allow), "home/ssh");
        assert!(is_only("visit: home/ssh"));
        assert!(!is_only("visit: home/*"));
        assert!(!is_only("visit: [home/ssh, home/web]"));
        assert!(!is_only("visit: home/ssh, tcp: 1000"));
        assert!(!is_only("visit: home/ssh, invite: true"));
        assert!(!is_only("visit: home/ssh, shared: true"));
        assert!(!is_only(""));
        let client = client("visit: [home/ssh, 'home/*', office/ssh]");
        assert_eq!((rights_at(&client, "home"), rights_at(&client, "hom")), (2, 0));
        assert!(!visits_only(&client, "home"));
    }
}
