//! The reload of a client: services, forwards, and new links where the settings of links have
//! changed.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use config::{ClientConfig, Forward, Kept, Lists, ServerPaths, Service, Trust};
use ops::{Foreseen, Loaded, Published, Reloaded, WrongConfig, shown};
use tokio::time::{Instant, timeout_at};

use super::published::Outcome;
use super::{Client, register};
use node::limits;
use peer::material;
use targets::lead_flows;

/// The longest wait for the server's answer to a registration.
const ANSWER: Duration = Duration::from_secs(5);

/// Whether both services are equal for visitors and for the server.
fn is_same_service(one: &Service, other: &Service) -> bool {
    let mut one = one.clone();
    one.kept = other.kept;
    one == *other
}

/// The line about a service that was removed.
fn gone_line(name: &str) -> String {
    format!("{name} is published no more")
}

/// The lines about the forwards that differ.
fn forward_lines(before: &ClientConfig, now: &ClientConfig) -> Vec<String> {
    let has = |all: &[Forward], forward: &Forward| {
        all.iter().any(|f| Forward { kept: f.kept, ..forward.clone() } == *f)
    };
    let new = now.forwards.iter().filter(|forward| !has(&before.forwards, forward));
    let new = new.map(|forward| format!("forward {forward}"));
    // The mode of a socket file is not part of its address.
    let at = |forward: &Forward| forward.listen.to_string();
    let is_gone = |old: &&Forward| now.forwards.iter().all(|new| at(new) != at(old));
    let gone = before.forwards.iter().filter(is_gone);
    new.chain(gone.map(|forward| format!("forward {} closed", forward.listen))).collect()
}

/// The lines about entries that now shadow a configured entry.
fn new_shadows(before: &ClientConfig, now: &ClientConfig) -> Vec<String> {
    let known = before.shadows();
    let new = now.shadows().into_iter().filter(|shadow| !known.contains(shadow));
    new.map(|shadow| shadow.to_string()).collect()
}

/// The maximum size of a user file, in bytes: each of 256 users has a line of about 120 bytes.
const USERS_MAX: u64 = 128 << 10;

/// Reads a user file of `basic_auth`.
fn text_of(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(USERS_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Reads the certificates of visits, on a blocking thread.
async fn read_materials(config: &ClientConfig) -> anyhow::Result<material::Read> {
    let config = config.clone();
    tokio::task::spawn_blocking(move || material::read(&config)).await?
}

impl Client {
    /// Reads the configuration again and applies it.
    pub(super) async fn reload_source(&self) -> anyhow::Result<Reloaded> {
        let source = self.source.as_ref().context("it was started without a configuration")?;
        let Loaded { config, warnings } = source(None)?;
        for warning in &warnings {
            tracing::warn!("{warning}");
        }
        Ok(Reloaded { warnings, ..self.apply(config).await? })
    }

    /// Checks whether a client could start with `text` as its configuration file.
    pub(super) fn try_source(&self, text: String) -> anyhow::Result<Foreseen> {
        let source = self.source.as_ref().context(shown::NONE)?;
        let Loaded { config, warnings } = source(Some(text))?;
        let config = self.shared.homes.with_open(config);
        Ok((warnings, self.shared.config.load().differs(&config)))
    }

    /// Applies a new configuration. An error leaves everything unchanged.
    pub(super) async fn apply(&self, new: ClientConfig) -> anyhow::Result<Reloaded> {
        let running = self.shared.config.load_full();
        let mut reloaded = self.apply_for(new, None).await?;
        reloaded.applied.extend(new_shadows(&running, &self.shared.config.load()));
        Ok(reloaded)
    }

    /// Applies a new configuration. The report covers the services `named`; without them, all
    /// services that differ or are refused.
    async fn apply_for(
        &self,
        mut new: ClientConfig,
        named: Option<&[Service]>,
    ) -> anyhow::Result<Reloaded> {
        let _turn = self.applying.lock().await;
        let running = self.shared.config.load_full();
        if new.finds_servers().is_some() {
            // The file names no servers: those that were found stay until the next answer.
            new.servers.clone_from(&running.servers);
        }
        let sources = |config: &ClientConfig| {
            (config.servers_from.clone(), config.srv.clone(), config.path_defaults.clone())
        };
        let is_other = sources(&new) != sources(&running);
        let homes = &self.shared.homes;
        let new = homes.with_open(new);
        let has_homes = homes.open().iter().all(|home| new.servers.contains(home));
        let outcome = self.apply_now(new, named).await;
        if outcome.is_ok() && !has_homes {
            homes.set_open(Vec::new());
        }
        homes.look_again();
        if is_other && outcome.is_ok() {
            self.shared.source_changed.notify_one();
        }
        outcome
    }

    /// Applies the servers of an answer.
    pub(super) async fn use_found(&self, servers: Vec<ServerPaths>) {
        let _turn = self.applying.lock().await;
        let running = self.shared.config.load_full();
        if running.finds_servers().is_none()
            || running.servers == servers
            || self.shared.is_leaving()
        {
            return;
        }
        let names: Vec<_> = servers.iter().map(ServerPaths::label).collect();
        let names = names.join(", ");
        let new = ClientConfig { servers, ..ClientConfig::clone(&running) };
        match self.apply_now(new, None).await {
            Ok(_) => tracing::info!("the servers are {names} now"),
            Err(why) => {
                tracing::warn!("the servers {names} are not used, so the former stay: {why:#}");
            }
        }
    }

    /// Applies the servers that the client is to have as homes, beside the configured server.
    pub(super) async fn use_homes(&self, homes: Vec<ServerPaths>) {
        let _turn = self.applying.lock().await;
        let running = self.shared.config.load_full();
        let (open, own) = (self.shared.homes.open(), self.shared.homes.configured(&running));
        let is_alone = own.len() == 1;
        let servers: Vec<_> = own.into_iter().chain(homes.iter().cloned()).collect();
        // Another process has the services: at a further node this process would take them back.
        let all = self.shared.uplinks.all();
        if all.iter().any(|uplink| uplink.published.is_superseded()) {
            return;
        }
        // The configuration may have changed meanwhile.
        if !is_alone || servers == running.servers || self.shared.is_leaving() {
            return;
        }
        let names: Vec<_> = servers.iter().map(ServerPaths::label).collect();
        let names = names.join(", ");
        // The message of a new home arrives while it is being added.
        self.shared.homes.set_open(homes);
        let new = ClientConfig { servers, ..ClientConfig::clone(&running) };
        match self.apply_now(new, None).await {
            Ok(_) => tracing::info!("the client has its links with {names} now"),
            Err(why) => {
                self.shared.homes.set_open(open);
                tracing::warn!("the links of the client stay where they are: {why:#}");
            }
        }
    }

    /// Applies a new configuration; the caller has the turn.
    async fn apply_now(
        &self,
        new: ClientConfig,
        named: Option<&[Service]>,
    ) -> anyhow::Result<Reloaded> {
        let (shared, handles) = (&self.shared, self.workers.handles());
        let running = shared.config.load_full();
        let differs = running.differs(&new);
        let new = new.reloaded(&running);
        // The steps that can fail come first: addresses, then links.
        let materials = read_materials(&new).await?;
        let forwards = shared.forwards.bind(&new.forwards, self.count, &shared.uplinks).await?;
        let change = self.other_servers(&running, &new, &differs).await?;
        shared.materials.replace(materials);
        shared.config.store(Arc::new(new.clone()));
        limits::set_client(&new.limits);
        shared.records.follow(new.services.iter());
        self.use_servers(change).await;
        let failed = shared.forwards.follow(forwards, handles, self.count, &shared.uplinks).await;
        if !failed.is_empty() {
            // The forwards that failed are left out of the configuration in force, so the next
            // reload retries them.
            let is_open = |forward: &Forward| failed.iter().all(|(f, _)| f != forward);
            let forwards = new.forwards.iter().filter(|f| is_open(f)).cloned().collect();
            shared.config.store(Arc::new(ClientConfig { forwards, ..new }));
        }
        let now = shared.config.load_full();
        shared.host.review(&shared.home(), handles).await;
        shared.visits.follow(&now).await;
        let mut reloaded = Reloaded::new(
            Vec::new(),
            // The lines about each entry are more detailed.
            &differs
                .iter()
                .copied()
                .filter(|changed| !["services", "forwards"].contains(&changed.key))
                .collect::<Vec<_>>(),
        );
        reloaded.applied.extend(forward_lines(&running, &now));
        reloaded
            .failed
            .extend(failed.into_iter().map(|(f, why)| format!("forward {}: {why}", f.listen)));
        // Waiting forwards stay in the configuration in force, and are retried.
        let waiting = shared.forwards.waiting().into_iter();
        reloaded.failed.extend(waiting.map(|(f, why)| format!("forward {}: {why}", f.listen)));
        let registers = ["services", "allow_from", "deny_from"];
        if differs.iter().any(|changed| registers.contains(&changed.key)) {
            for uplink in shared.uplinks.all().iter() {
                let own = uplink.services(&now);
                uplink.published.forget_others(&own, &uplink.session().name);
                uplink.note_services(&now);
            }
            let is_there = |name: &str| now.services.iter().any(|service| service.name == name);
            shared.records.retain(is_there);
            shared.observed.retain(&now.services);
            for handle in handles.iter() {
                let now = Arc::clone(&now);
                // A worker that has stopped has no flows.
                let _ = handle.call(move |worker| lead_flows(worker, now.services.iter())).await;
            }
            let mut asked = Vec::new();
            for uplink in shared.uplinks.all().iter() {
                asked.push((Arc::clone(uplink), register::anew(handles, shared, uplink).await));
            }
            let until = Instant::now() + ANSWER;
            for (uplink, generation) in asked {
                if uplink.session().live() > 0 {
                    // A server that does not answer in time leaves the services without an outcome.
                    let _ = timeout_at(until, uplink.published.answered(generation)).await;
                }
            }
        }
        if named.is_some() || differs.iter().any(|changed| changed.key == "services") {
            self.service_lines((&running, &now), named, &mut reloaded);
        }
        Ok(reloaded)
    }

    /// Adds to a report the outcomes of the services `named`, or else of the services that differ,
    /// and which services are refused.
    fn service_lines(
        &self,
        (before, now): (&ClientConfig, &ClientConfig),
        named: Option<&[Service]>,
        to: &mut Reloaded,
    ) {
        let is_alone = self.shared.uplinks.all().len() == 1;
        let is_named = |name: &str| named.map(|all| all.iter().any(|service| service.name == name));
        for service in &now.services {
            let is_named = is_named(&service.name);
            if is_named == Some(false) {
                continue;
            }
            let is_same = is_named.is_none()
                && before.services.iter().any(|other| is_same_service(other, service));
            let name = &service.name;
            for uplink in self.servers_of(service) {
                let server = uplink.session().name.clone();
                let at_server =
                    if is_alone { String::new() } else { format!(" at server {server}") };
                let Some(outcome) = uplink.published.outcome(name) else {
                    to.applied.push(format!(
                        "{name}: the server has not answered yet{at_server}; `tunnel status` shows \
                         its answer"
                    ));
                    continue;
                };
                if let Ok(at) = &outcome.at
                    && !is_same
                {
                    let until = service.until.map(|until| format!(", until {until}"));
                    let at: Vec<_> = at.iter().map(|at| now.url(service, at)).collect();
                    let line = format!("{name} -> {}{}", at.join(", "), until.unwrap_or_default());
                    to.applied.push(line);
                    to.published.push(Published { name: name.clone(), addresses: at });
                }
                // An address that waits needs no other command.
                for (waits, line) in outcome.failures(name) {
                    if waits { to.applied.push(line) } else { to.failed.push(line) }
                }
            }
        }
        let gone = |name: &String| now.services.iter().all(|service| service.name != *name);
        let names = before.services.iter().map(|service| &service.name).filter(|name| gone(name));
        to.applied.extend(names.map(|name| gone_line(name)));
    }

    /// Applies a change of services and forwards to the configuration in force. New services that
    /// the server refuses are dropped again, and the entries that they had replaced are restored.
    pub(super) async fn change_lists(&self, change: Kept) -> anyhow::Result<Reloaded> {
        let running = ClientConfig::clone(&self.shared.config.load());
        if let Some(bad) = running.names_no_server(&change.lists) {
            return Err(WrongConfig::one(bad.line()).into());
        }
        let mut reloaded = self.change_from(&running, &change).await?;
        // A service that one of several servers publishes is not refused.
        let is_refused = |service: &Service| {
            let of = self.servers_of(service);
            let outcomes: Vec<_> =
                of.iter().filter_map(|uplink| uplink.published.outcome(&service.name)).collect();
            !outcomes.is_empty() && outcomes.iter().all(Outcome::is_refused)
        };
        let (refused, taken): (Vec<_>, Vec<_>) =
            change.lists.services.iter().cloned().partition(is_refused);
        if !refused.is_empty() {
            let lists = Lists { services: taken, forwards: change.lists.forwards.clone() };
            self.change_from(&running, &Kept { lists, ..change }).await?;
            reloaded.refused = refused.into_iter().map(|service| service.name).collect();
            let now = self.shared.config.load();
            let is_back = |line: &String| {
                now.services.iter().any(|service| *line == gone_line(&service.name))
            };
            reloaded.applied.retain(|line| !is_back(line));
        }
        reloaded.applied.extend(new_shadows(&running, &self.shared.config.load()));
        Ok(reloaded)
    }

    /// Applies `running` with a change. The report covers the services that the change adds or
    /// restores.
    async fn change_from(&self, running: &ClientConfig, change: &Kept) -> anyhow::Result<Reloaded> {
        let mut new = running.clone();
        new.keep(change).map_err(|bad| WrongConfig::one(bad.line()))?;
        let is_added = |service: &Service| {
            change.lists.services.iter().any(|added| added.name == service.name)
        };
        let is_back = |service: &Service| running.shadowed.services.contains(service);
        let named: Vec<_> = new
            .services
            .iter()
            .filter(|service| {
                is_added(service) || is_back(service) && !running.services.contains(service)
            })
            .cloned()
            .collect();
        let is_back_at = |forward: &&Forward| {
            !running.forwards.contains(forward) && running.shadowed.forwards.contains(forward)
        };
        let back: Vec<_> = named
            .iter()
            .filter(|service| !is_added(service))
            .map(|service| service.name.clone())
            .chain(new.forwards.iter().filter(is_back_at).map(|forward| forward.listen.to_string()))
            .map(|name| format!("{name} is the configured entry again"))
            .collect();
        let mut reloaded = self.apply_for(new, Some(&named)).await?;
        reloaded.applied.extend(back);
        Ok(reloaded)
    }

    /// The user files of `basic_auth`.
    pub(super) fn files_of_users(&self) -> Vec<PathBuf> {
        let config = self.shared.config.load();
        let files = config.services.iter().filter_map(|service| service.user_file.as_ref());
        files.map(|file| file.path.clone()).collect()
    }

    /// Reads the user files again, and publishes the changes. An error leaves everything unchanged.
    pub(super) async fn read_users(&self) -> anyhow::Result<Reloaded> {
        let running = ClientConfig::clone(&self.shared.config.load());
        let read = move || running.with_users(&|path| text_of(path).map_err(|e| e.to_string()));
        let new = tokio::task::spawn_blocking(read).await?;
        self.apply(new.map_err(|bad| WrongConfig::one(bad.line()))?).await
    }

    /// The certificate and key files that are read in addition to the configuration.
    pub(super) fn certificate_files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for path in self.shared.config.load().paths() {
            if let Trust::Ca(ca) = &path.trust {
                files.push(ca.clone());
            }
            files.extend(path.identity.iter().flat_map(|pair| [&pair.cert, &pair.key]).cloned());
        }
        files.extend(material::files(&self.shared.config.load()));
        files
    }
}
