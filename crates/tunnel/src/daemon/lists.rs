//! `tunnel publish`, `tunnel unpublish` and `tunnel forward` in the running client.

use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, ensure};
use config::{Kept, Lists, Moment, edit, listen_address};
use logging::AUDIT;
use ops::lists::ListChange;
use ops::share::open_password;
use ops::{ListsInForce, Phase, Reloaded, SendFuture, WrongConfig};

use super::running::RunningDaemon;
use super::settings::undo;
use crate::config_file::refusal;
use crate::input::with_sources;
use crate::kept_lists::KeptLists;
use crate::load::shadow_warnings;
use crate::own;

/// The error of a change that would not last.
const NO_STATE: &str = "this client has no state directory, in which the change could be kept (hint: \
                        start it with --state-dir, or add --save for its configuration file)";

impl RunningDaemon {
    pub(super) async fn change_lists_now(&self, change: ListChange) -> anyhow::Result<Reloaded> {
        // The lock excludes reloads and other changes of the files.
        let _turn = self.turn.lock().await;
        ensure!(self.life.phase() == Phase::Running, "it is stopping");
        let config = self.lists_in_force()?.config();
        let prefix = config.id_prefix.as_deref();
        let kept = self.kept()?.map(|kept| kept.load(prefix)).transpose()?;
        let kept = kept.unwrap_or_default();
        let hidden: Vec<_> = kept.without.iter().map(|what| with(prefix, what)).collect();
        let (services, forwards) = (config.services.clone(), config.forwards.clone());
        let mut running = Lists { services, forwards };
        // Services of `tunnel share` end with their command.
        running.services.retain(|service| !self.shares.has(&service.name));
        let mut known = names(&running);
        known.extend(names(&config.shadowed));
        if change.save {
            // An entry of the file that an earlier command has removed can be deleted from the
            // file.
            known.extend(hidden.iter().cloned());
        }
        let mut order = Order::new(&change, (&running, &known), prefix)?;
        if change.save && change == (ListChange { save: true, ..ListChange::default() }) {
            ensure!(self.kept()?.is_some(), NO_STATE);
            order = Order { added: kept.lists, gone: hidden, warnings: Vec::new() };
        }
        own::refuse(order.added.services.iter(), &config.common)?;
        let mut after = config::ClientConfig::clone(&config);
        // A refused change is reported below.
        if after.keep(&order.change(!change.save)).is_ok()
            && let Some(lost) = self.shares.displaced(&config, &after)
        {
            let why = format!("a command shares at {lost} (hint: end it first: Ctrl-C there)");
            return Err(WrongConfig::one(why).into());
        }
        let mut warnings = std::mem::take(&mut order.warnings);
        let asking = order.added.services.iter().filter(|service| service.asks_for_passwords());
        let asking: Vec<_> = asking.map(|service| service.name.clone()).collect();
        let outcome = if change.save {
            self.save(order, prefix).await
        } else {
            self.keep(order, prefix).await
        };
        if let Ok(reloaded) = &outcome {
            let guarded = reloaded.published.iter().filter(|one| asking.contains(&one.name));
            warnings.extend(guarded.filter_map(|one| open_password(&one.addresses)));
        }
        let outcome = outcome.map(|reloaded| Reloaded { warnings, ..reloaded });
        self.lists_changed.notify_one();
        if let Ok(reloaded) = &outcome {
            // The command has already reported them.
            self.know_warnings(shadow_warnings(&self.lists_in_force()?.config()));
            tracing::info!(target: AUDIT, "services and forwards were changed by a command: {reloaded}");
        }
        outcome
    }

    /// Withdraws expired services. Returns when the next service expires.
    pub(super) async fn end_services(&self) -> Option<Moment> {
        // The lock excludes reloads and other changes of the files.
        let _turn = self.turn.lock().await;
        let now = Moment::of(SystemTime::now());
        let config = self.role.lists_in_force()?.config();
        let times = config.services.iter().filter_map(|service| Some((service, service.until?)));
        let (ended, left): (Vec<_>, Vec<_>) = times.partition(|(_, until)| *until <= now);
        let mut without: Vec<_> = ended.iter().map(|(service, _)| service.name.clone()).collect();
        without.retain(|name| !self.shares.expire(name));
        self.withdraw_ended().await;
        if !without.is_empty() {
            let names = without.join(", ");
            if let Err(why) = self.end(without, config.id_prefix.as_deref()).await {
                tracing::error!("{names}: its time is over, and it cannot be withdrawn: {why:#}");
            } else {
                tracing::info!(target: AUDIT, "the time of {names} is over");
            }
        }
        left.into_iter().map(|(_, until)| until).min()
    }

    async fn end(&self, without: Vec<String>, prefix: Option<&str>) -> anyhow::Result<()> {
        let bare: Vec<_> = without.iter().map(|name| bare(name, prefix)).collect();
        // Stopping visitors takes precedence over updating the file, whose expired entries are
        // ignored at each load.
        self.lists_in_force()?.apply(Kept { without, ..Kept::default() }).await?;
        let Some(kept) = self.kept()? else { return Ok(()) };
        let text = kept.read()?;
        let rest = kept.without(&text, &bare)?;
        if rest != text {
            kept.write(&rest)?;
        }
        Ok(())
    }

    fn lists_in_force(&self) -> anyhow::Result<&dyn ListsInForce> {
        self.role.lists_in_force().context("it has no services and forwards")
    }

    /// The services and forwards that commands have added. `None`: the environment names no folder
    /// for state.
    fn kept(&self) -> anyhow::Result<Option<KeptLists>> {
        Ok(KeptLists::of(&self.lists_in_force()?.config()))
    }

    /// Writes the change to the state directory and applies it.
    async fn keep(&self, order: Order, prefix: Option<&str>) -> anyhow::Result<Reloaded> {
        let kept = self.kept()?.context(NO_STATE)?;
        let before = kept.read()?;
        let gone = order.gone_without(prefix);
        let after = kept.edited(&before, &order.bare(prefix), &gone)?;
        kept.write(&after)?;
        let outcome = self.lists_in_force()?.apply(order.change(true)).await;
        if outcome.is_err() {
            restore(&kept, &before);
        }
        let mut reloaded = outcome?;
        if !reloaded.refused.is_empty() {
            let taken = order.without(&reloaded.refused);
            kept.write(&kept.edited(&before, &taken.bare(prefix), &gone)?)?;
            reloaded.failed.push(dropped(&reloaded.refused));
        }
        let left = kept.load(None)?.without;
        let file = self.file.as_ref().map(|file| file.name());
        let file = file.unwrap_or_else(|| "the command line".to_owned());
        for what in gone.iter().filter(|what| left.contains(what)) {
            reloaded.applied.push(format!("{what} stays in {file}, and is left out from now on"));
        }
        Ok(reloaded)
    }

    /// Writes the change to the configuration file and applies it.
    async fn save(&self, order: Order, prefix: Option<&str>) -> anyhow::Result<Reloaded> {
        let no_file = "this client was started without a configuration file";
        let file = self.file.as_ref().context(no_file)?;
        file.writable()?;
        let before = file.read()?;
        let name = file.name();
        let edited = |order: &Order| -> anyhow::Result<String> {
            let mut after = before.clone();
            for what in &order.gone {
                after = edit::unpublish(&name, &after, what).map_err(refusal)?.unwrap_or(after);
            }
            edit::publish(&name, &after, &order.added).map_err(refusal)
        };
        let after = edited(&order)?;
        self.role.check(after.clone()).map_err(|why| self.without_secrets(why))?;
        if after != before {
            file.replace(&before, &after)?;
        }
        let kept = self.kept()?;
        let kept_before = kept.as_ref().map(KeptLists::read).transpose()?;
        let settled = |order: &Order| -> anyhow::Result<()> {
            let (Some(kept), Some(text)) = (&kept, &kept_before) else { return Ok(()) };
            let all = [order.gone_without(prefix), names(&order.bare(prefix))].concat();
            kept.write(&kept.without(text, &all)?)
        };
        let outcome = match settled(&order) {
            Ok(()) => self.lists_in_force()?.apply(order.change(false)).await,
            Err(why) => Err(why),
        };
        let outcome = outcome.map_err(|why| {
            if let (Some(kept), Some(text)) = (&kept, &kept_before) {
                restore(kept, text);
            }
            if after == before { why } else { undo(file, &after, &before, why).0 }
        });
        let mut reloaded = outcome?;
        let is_of_file = |what: &&String| {
            edit::unpublish(&name, &before, what).is_ok_and(|without| without.is_some())
        };
        let removed = order.gone.iter().filter(is_of_file);
        reloaded.applied.extend(removed.map(|what| format!("{what} is removed from {name}")));
        if !reloaded.refused.is_empty() {
            let taken = order.without(&reloaded.refused);
            let rest = edited(&taken)?;
            if rest != after {
                file.replace(&after, &rest)?;
            }
            if let (Some(kept), Some(text)) = (&kept, &kept_before) {
                restore(kept, text);
            }
            settled(&taken)?;
            let names = reloaded.refused.join(", ");
            reloaded.failed.push(format!("{name} stays without {names}"));
        }
        Ok(reloaded)
    }
}

/// The line about services that the server has refused, and that are stored nowhere.
fn dropped(refused: &[String]) -> String {
    let names = refused.join(", ");
    format!("nothing of {names} is kept: once the server permits it, publish it again")
}

fn restore(kept: &KeptLists, text: &str) {
    if let Err(error) = kept.write(text) {
        tracing::error!("{error:#}; the next start will have a change that failed");
    }
}

/// A checked change.
struct Order {
    added: Lists,
    /// Names of services with their prefix, and addresses of forwards.
    gone: Vec<String>,
    /// For the log and for the sender of the command.
    warnings: Vec<String>,
}

impl Order {
    fn new(
        change: &ListChange,
        (running, known): (&Lists, &[String]),
        prefix: Option<&str>,
    ) -> Result<Self, WrongConfig> {
        let load = |sources: &config::Sources<'_>| {
            let publish = (&change.publish[..], &change.options.config());
            config::load_asked(publish, &change.forward, prefix, sources)
        };
        let added = with_sources(Path::new(""), load)?;
        let warnings: Vec<_> = added.warnings.iter().map(ToString::to_string).collect();
        for warning in &warnings {
            tracing::warn!("{warning}");
        }
        let added = added.config;
        let (mut gone, mut unknown) = (Vec::new(), Vec::new());
        for what in &change.without {
            let mut meant = vec![what.clone()];
            meant.push(with(prefix, what));
            meant.extend(listen_address(what));
            meant.extend(running.service_at(what).map(str::to_owned));
            meant.extend(["tcp", "udp"].map(|over| with(prefix, &format!("{over}-{what}"))));
            match meant.into_iter().find(|what| known.contains(what)) {
                Some(what) => gone.push(what),
                None => unknown.push(format!("`{what}`")),
            }
        }
        if unknown.is_empty() {
            return Ok(Self { added, gone, warnings });
        }
        let there = if known.is_empty() { "nothing".to_owned() } else { known.join(", ") };
        Err(WrongConfig::one(format!(
            "no service or forward {} here (hint: there is {there})",
            unknown.join(", ")
        )))
    }

    /// The change of the lists in force. `kept`: the entries are in the state directory.
    fn change(&self, kept: bool) -> Kept {
        let mut lists = self.added.clone();
        lists.services.iter_mut().for_each(|service| service.kept = kept);
        lists.forwards.iter_mut().for_each(|forward| forward.kept = kept);
        Kept { lists, without: self.gone.clone(), saved: !kept }
    }

    /// The change without these services.
    fn without(&self, refused: &[String]) -> Self {
        let mut added = self.added.clone();
        added.services.retain(|service| !refused.contains(&service.name));
        Self { added, gone: self.gone.clone(), warnings: Vec::new() }
    }

    /// The new entries without the prefix of their names.
    fn bare(&self, prefix: Option<&str>) -> Lists {
        let mut lists = self.added.clone();
        for service in &mut lists.services {
            service.name = bare(&service.name, prefix);
        }
        lists
    }

    fn gone_without(&self, prefix: Option<&str>) -> Vec<String> {
        self.gone.iter().map(|what| bare(what, prefix)).collect()
    }
}

/// The name of a service with its prefix. The address of a forward has none.
fn with(prefix: Option<&str>, what: &str) -> String {
    match prefix {
        Some(prefix) if !what.contains("://") => format!("{prefix}-{what}"),
        Some(_) | None => what.to_owned(),
    }
}

fn bare(name: &str, prefix: Option<&str>) -> String {
    let rest = prefix.and_then(|prefix| name.strip_prefix(prefix)?.strip_prefix('-'));
    rest.unwrap_or(name).to_owned()
}

/// The names of all services, and the addresses of all forwards.
fn names(lists: &Lists) -> Vec<String> {
    let services = lists.services.iter().map(|service| service.name.clone());
    services.chain(lists.forwards.iter().map(|forward| forward.listen.to_string())).collect()
}

impl ops::Lists for RunningDaemon {
    fn change(&self, change: ListChange) -> SendFuture<'_, anyhow::Result<Reloaded>> {
        Box::pin(self.change_lists_now(change))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_reads_no_variable_of_the_environment() {
        for change in [
            ListChange { publish: vec!["1=unix:///x/${PATH}".into()], ..ListChange::default() },
            ListChange { forward: vec!["1=tcp://${PATH}:1".into()], ..ListChange::default() },
        ] {
            let why = Order::new(&change, (&Lists::default(), &[]), None).map(drop).unwrap_err();
            assert!(why.to_string().contains("a variable of the environment"), "{why}");
        }
    }

    #[test]
    fn a_service_is_withdrawn_by_its_name_its_port_or_its_host() {
        let load = |sources: &config::Sources<'_>| {
            let texts = ["http://app.example.com=3000", "80=8080", "tls://v.example=1"];
            config::load_lists(&texts.map(str::to_owned), &[], Some("a"), sources)
        };
        let running = with_sources(Path::new(""), load).unwrap().config;
        let known = names(&running);
        let gone = |what: &str| {
            let without = vec![what.to_owned()];
            let change = ListChange { without, ..ListChange::default() };
            Order::new(&change, (&running, &known), Some("a")).map(|order| order.gone)
        };
        for (what, name) in [
            ("http://App.example.com", "a-http-app.example.com"),
            ("http-app.example.com", "a-http-app.example.com"),
            ("tls://v.example.", "a-tls-v.example"),
            ("80", "a-tcp-80"),
        ] {
            assert_eq!(gone(what).unwrap(), [name], "{what}");
        }
        for not in ["https://app.example.com", "app.example.com", "http://v.example"] {
            let why = gone(not).unwrap_err().to_string();
            assert!(why.contains(&format!("no service or forward `{not}` here")), "{why}");
        }
    }
}
