//! `tunnel visit --new`, `--list` and `--revoke` in the running client.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, ensure};
use config::{ClientConfig, Trust};
use logging::AUDIT;
use ops::enrol::{Code, GOOD_FOR};
use ops::visit::{Invitation, InviteOrder, InvitedVisitor, Uninvited, VisitCode, Visited};
use ops::{Inviter, Phase, SendFuture, Visitors, WrongConfig};
use proto::control::InviteAction;
use proto::greeting::{Name, StoredCredential};
use tokio::time::{Instant, sleep_until};

use super::running::RunningDaemon;
use crate::visits::{KeptVisitor, KeptVisitors};

/// The error of a change that would not last.
const NO_STATE: &str = "this client has no state directory, in which the visitor could be kept \
                        (hint: start it with --state-dir)";

/// Longest interval between two checks of the clock, which may be set.
const CLOCK: Duration = Duration::from_secs(60);

/// Characters of the random part of a visitor's name.
const RANDOM: usize = 6;

impl RunningDaemon {
    fn inviter(&self) -> anyhow::Result<&dyn Inviter> {
        self.role.inviter().context("it has no services")
    }

    fn client_config(&self) -> anyhow::Result<Arc<ClientConfig>> {
        Ok(self.role.lists_in_force().context("it has no services")?.config())
    }

    fn kept_visitors(&self) -> anyhow::Result<KeptVisitors> {
        KeptVisitors::of(&*self.client_config()?).context(NO_STATE)
    }

    async fn invite_now(&self, order: InviteOrder) -> anyhow::Result<Invitation> {
        // The lock excludes reloads and other changes of the visitors.
        let mut turn = self.turn.lock().await;
        ensure!(self.life.phase() == Phase::Running, "it is stopping");
        let config = self.client_config()?;
        let kept = self.kept_visitors()?;
        let service = private_service(&config, &order.service)?;
        let visitor = match &order.visitor {
            Some(name) => Name::new(name)
                .map_err(|why| WrongConfig::one(format!("visitor `{name}`: {why}")))?,
            None => random_name()?,
        };
        let token = ops::token()?;
        let action = if order.existing { InviteAction::Existing } else { InviteAction::New };
        // The code leads the visitor to the server that knows it.
        let config = config.at_server(&self.inviter()?.server());
        let asked = self.inviter()?.ask(visitor.clone(), service.clone(), action).await;
        let (secret, left_to_do) = match asked {
            Ok(secret) => (secret, None),
            // The visitor is a client even without this request; the operator of the server can
            // grant the right manually.
            Err(why) if order.existing => (None, Some(format!("{why:#}"))),
            Err(why) => return Err(why),
        };
        let enrolment = match (order.existing, secret) {
            (true, _) => None,
            (false, secret) => {
                Some(enrolment(&config, &visitor, secret.context("the server has sent no code")?))
            }
        };
        let is_new = enrolment.is_some();
        let hash = StoredCredential::of(&token)?.text();
        let until = SystemTime::now() + GOOD_FOR;
        let new = KeptVisitor::new(service.as_str(), visitor.as_str(), &hash, until);
        let done = match kept.add(new.clone()) {
            Ok(()) => self.reload_now(&mut turn).await.map(drop),
            Err(why) => Err(why),
        };
        if let Err(why) = done {
            let was_asked = left_to_do.is_none();
            self.take_back(&kept, &new, was_asked.then_some((visitor, service))).await;
            return Err(why);
        }
        let service = format!("{}/{service}", config.name);
        let visitor = visitor.to_string();
        let code =
            VisitCode { service: service.clone(), token, visitor: visitor.clone(), enrolment };
        let (code, valid_seconds) = (code.text(), GOOD_FOR.as_secs());
        let authority = is_new.then(|| authority(&config)).flatten();
        Ok(Invitation { service, visitor, code, valid_seconds, left_to_do, authority })
    }

    /// Reverts a failed invitation. `on_server`: the visitor and the service, if the server has
    /// made a code or granted the right.
    async fn take_back(
        &self,
        kept: &KeptVisitors,
        new: &KeptVisitor,
        on_server: Option<(Name, Name)>,
    ) {
        if let Err(worse) = kept.remove(|one| one == new) {
            tracing::error!("{worse:#}; the next reload will admit a visitor without a code");
        }
        // An earlier token of the visitor for the service needs the right.
        let is_same =
            |one: &KeptVisitor| (&one.service, &one.visitor) == (&new.service, &new.visitor);
        let has_other = kept.load().map_or(true, |all| all.iter().any(is_same));
        let Some((visitor, service)) = on_server.filter(|_| !has_other) else { return };
        let revoke = async { self.inviter()?.ask(visitor, service, InviteAction::Revoke).await };
        if let Err(why) = revoke.await {
            tracing::warn!(
                "the server keeps the right of {} to visit {}: {why:#}",
                new.visitor,
                new.service
            );
        }
    }

    async fn uninvite_now(&self, visitor: String) -> anyhow::Result<Uninvited> {
        let mut turn = self.turn.lock().await;
        ensure!(self.life.phase() == Phase::Running, "it is stopping");
        let kept = self.kept_visitors()?;
        let gone = kept.remove(|one| one.visitor == visitor)?;
        let mut services: Vec<_> = gone.iter().map(|one| one.service.clone()).collect();
        services.sort();
        services.dedup();
        if services.is_empty() {
            return Ok(Uninvited::default());
        }
        if let Err(why) = self.reload_now(&mut turn).await {
            return Err(not_revoked(&visitor, why, kept.restore(gone)));
        }
        // The token is already invalid, whatever the server answers.
        let name = Name::new(&visitor)?;
        let mut left = Vec::new();
        for service in &services {
            let service = Name::new(service)?;
            let asked = self.inviter()?.ask(name.clone(), service, InviteAction::Revoke).await;
            left.extend(asked.err().map(|why| format!("{why:#}")));
        }
        let left_to_do = (!left.is_empty()).then(|| left.join("; "));
        Ok(Uninvited { services, left_to_do })
    }

    /// Ends expired codes. Returns the time until the next code expires.
    async fn end_codes(&self) -> anyhow::Result<Duration> {
        let mut turn = self.turn.lock().await;
        let kept = self.kept_visitors()?;
        let now = SystemTime::now();
        let ended = kept.expire(now)?;
        if !ended.is_empty() {
            let names: Vec<_> = ended.iter().map(|one| one.visitor.clone()).collect();
            let names = names.join(", ");
            if let Err(why) = self.reload_now(&mut turn).await {
                return Err(not_revoked(&names, why, kept.restore(ended)));
            }
            tracing::info!(target: AUDIT, "the code of {names} was not used in time");
        }
        let left = kept.load()?.iter().filter_map(|one| one.left(now)).min();
        Ok(left.map_or(CLOCK, |left| left.min(CLOCK)).max(Duration::from_secs(1)))
    }

    async fn settle(&self, visited: &Visited) -> anyhow::Result<()> {
        let _turn = self.turn.lock().await;
        if !self.kept_visitors()?.settle(visited)? {
            // Each link of a known visitor begins in this way.
            let Visited { visitor, service, token: _ } = visited;
            tracing::debug!("{visitor} visits {service} by no token that waits for its first use");
        }
        Ok(())
    }
}

/// Ends expired codes, and records which visitors have logged in.
pub(super) async fn follow_visitors(running: Arc<RunningDaemon>) {
    let Some(inviter) = running.role.inviter() else { return };
    if running.kept_visitors().is_err() {
        return;
    }
    let mut look = Instant::now();
    loop {
        tokio::select! {
            // A visitor that logs in during the last second of its code is recorded before the code
            // ends.
            biased;
            visited = inviter.visited() => {
                if let Err(why) = running.settle(&visited).await {
                    let visitor = visited.visitor;
                    tracing::error!("{visitor} came by a code, and that cannot be kept: {why:#}");
                }
            }
            () = running.visitors_changed.notified() => look = Instant::now(),
            () = sleep_until(look) => {
                let pause = running.end_codes().await.unwrap_or_else(|why| {
                    tracing::error!("the visitors of private services: {why:#}");
                    CLOCK
                });
                look = Instant::now() + pause;
            }
        }
    }
}

/// The error of a revocation whose reload failed for the reason `why`: the tokens are valid until a
/// reload succeeds.
fn not_revoked(visitor: &str, why: anyhow::Error, restored: anyhow::Result<()>) -> anyhow::Error {
    let text = format!("the visits of {visitor} go on, because the reload of this client failed");
    match why.downcast::<WrongConfig>() {
        Ok(WrongConfig(mut problems)) => {
            problems.insert(0, text);
            problems.extend(restored.err().map(|worse| format!("{worse:#}")));
            WrongConfig(problems).into()
        }
        Err(why) => match restored {
            Ok(()) => why.context(text),
            Err(worse) => why.context(format!("{text}, and {worse:#}")),
        },
    }
}

/// The private service of this name.
fn private_service(config: &ClientConfig, name: &str) -> anyhow::Result<Name> {
    let private = || config.services.iter().filter(|service| service.private.is_some());
    let only: Vec<_> = private().take(2).collect();
    let name = match &only[..] {
        [one] if name.is_empty() => &one.name,
        _ => name,
    };
    if private().any(|service| service.name == name) {
        return Name::new(name).map_err(|why| WrongConfig::one(format!("{name}: {why}")).into());
    }
    let all: Vec<_> = private().map(|service| service.name.as_str()).collect();
    let hint = if all.is_empty() {
        "a private service has `public: private` in the configuration".to_owned()
    } else {
        format!("there are: {}", all.join(", "))
    };
    let problem = if name.is_empty() {
        "which private service?".to_owned()
    } else {
        format!("no private service `{name}` here")
    };
    Err(WrongConfig::one(format!("{problem} (hint: {hint})")).into())
}

fn random_name() -> anyhow::Result<Name> {
    let random: String = ops::token()?
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .take(RANDOM)
        .collect();
    Ok(Name::new(&format!("visitor-{random}"))?)
}

/// The authority by which this client verifies its server, if no path has a pin.
fn authority(config: &ClientConfig) -> Option<String> {
    let of = |path: &config::Path| match &path.trust {
        Trust::Pins(_) => Some(None),
        Trust::Ca(file) => Some(Some(file.display().to_string())),
        Trust::System => None,
    };
    config.paths().find_map(of).flatten()
}

/// The code with which the visitor enrols at the server of this client.
fn enrolment(config: &ClientConfig, visitor: &Name, secret: String) -> Code {
    let pin = config.paths().find_map(|path| match &path.trust {
        Trust::Pins(pins) => pins.first().cloned(),
        Trust::System | Trust::Ca(_) => None,
    });
    // This client trusts the certificate of the proxy, which is not that of the server.
    let is_of_proxy = |path: &config::Path| {
        path.endpoint.scheme.name == "wss" && !matches!(path.trust, Trust::Pins(_))
    };
    Code {
        name: visitor.to_string(),
        secret,
        self_signed: pin.is_some(),
        proxied: pin.is_some() && config.paths().any(is_of_proxy),
        pin,
        renew: false,
        may: None,
        reach: None,
        urls: config.paths().map(|path| path.endpoint.to_string()).collect(),
        names: config
            .paths()
            .filter_map(|path| Some((path.endpoint.to_string(), path.sni.clone()?)))
            .collect(),
        others: Vec::new(),
    }
}

impl Visitors for RunningDaemon {
    fn invite(&self, order: InviteOrder) -> SendFuture<'_, anyhow::Result<Invitation>> {
        Box::pin(async {
            let outcome = self.invite_now(order).await;
            self.visitors_changed.notify_one();
            outcome
        })
    }

    fn all(&self) -> SendFuture<'_, anyhow::Result<Vec<InvitedVisitor>>> {
        Box::pin(async {
            let now = SystemTime::now();
            let shown = |one: KeptVisitor| InvitedVisitor {
                valid_seconds: one.left(now).map(|left| left.as_secs()),
                service: one.service,
                visitor: one.visitor,
            };
            Ok(self.kept_visitors()?.load()?.into_iter().map(shown).collect())
        })
    }

    fn uninvite(&self, visitor: String) -> SendFuture<'_, anyhow::Result<Uninvited>> {
        Box::pin(self.uninvite_now(visitor))
    }
}
