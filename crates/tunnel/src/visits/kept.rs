//! The visitors of a client's private services that were invited by codes: the hashes of their
//! tokens, in one file of the state directory.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use config::{ClientConfig, Secret, Token, Visitor};
use ops::WrongConfig;
use ops::visit::Visited;
use proto::NamePattern;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::kept_file;
use crate::own::state_folder;

/// The largest number of tokens of a visitor at a time, as in a configuration.
const TOKENS_MAX: usize = 2;

/// The longest time between the log-in of a visitor and its record. A code whose expiry cannot be
/// applied, because the reload fails, is not accepted after that.
const LATE: Duration = Duration::from_secs(60);

/// A visitor.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptVisitor {
    /// The name of the service.
    pub(crate) service: String,
    /// The name of the visitor.
    pub(crate) visitor: String,
    /// The hash of its token.
    token: String,
    /// The end of the code, in seconds since 1970. `None`: the visitor has logged in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<u64>,
}

impl KeptVisitor {
    /// A visitor that has not logged in yet. `token` is a hash.
    pub(crate) fn new(service: &str, visitor: &str, token: &str, until: SystemTime) -> Self {
        let [service, visitor, token] = [service, visitor, token].map(str::to_owned);
        Self { service, visitor, token, until: Some(seconds(until)) }
    }

    fn is_of(&self, service: &str, visitor: &str) -> bool {
        self.service == service && self.visitor == visitor
    }

    fn has_ended(&self, now: SystemTime) -> bool {
        self.until.is_some_and(|until| until <= seconds(now))
    }

    /// The validity of the code. `None`: the visitor has logged in.
    pub(crate) fn left(&self, now: SystemTime) -> Option<Duration> {
        self.until.map(|until| Duration::from_secs(until.saturating_sub(seconds(now))))
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The file of the visitors of one client.
#[derive(Clone, Debug)]
pub(crate) struct KeptVisitors(PathBuf);

impl KeptVisitors {
    pub(crate) fn in_state(folder: &Path, client: &str) -> Self {
        Self(folder.join(format!("visitors-{client}.json")))
    }

    /// The file of a client of this process. `None`: the environment names no folder for state.
    pub(crate) fn of(config: &ClientConfig) -> Option<Self> {
        Some(Self::in_state(&state_folder(&config.common)?, &config.name))
    }

    /// All visitors; none if there is no file.
    pub(crate) fn load(&self) -> Result<Vec<KeptVisitor>, WrongConfig> {
        let Some(text) = kept_file::read(&self.0, false)? else { return Ok(Vec::new()) };
        let text = Zeroizing::new(text);
        serde_json::from_str(&text).map_err(|why| {
            let at = self.0.display();
            WrongConfig::one(format!("{at}: damaged: {why} (hint: remove the file)"))
        })
    }

    fn write(&self, all: &[KeptVisitor]) -> anyhow::Result<()> {
        let text = Zeroizing::new(serde_json::to_string_pretty(all)?);
        kept_file::write(&self.0, (!all.is_empty()).then_some(text.as_str()))
    }

    /// Adds a visitor. A used token of the same visitor stays valid until the new token is used; an
    /// unused token is replaced.
    pub(crate) fn add(&self, new: KeptVisitor) -> anyhow::Result<()> {
        let mut all = self.load()?;
        all.retain(|one| one.until.is_none() || !one.is_of(&new.service, &new.visitor));
        all.push(new);
        self.write(&all)
    }

    /// Removes the visitors for which `is_gone` is true, and returns them.
    pub(crate) fn remove(
        &self,
        is_gone: impl Fn(&KeptVisitor) -> bool,
    ) -> anyhow::Result<Vec<KeptVisitor>> {
        let (gone, left): (Vec<_>, Vec<_>) = self.load()?.into_iter().partition(is_gone);
        if !gone.is_empty() {
            self.write(&left)?;
        }
        Ok(gone)
    }

    /// Restores removed visitors, because the removal could not be applied.
    pub(crate) fn restore(&self, gone: Vec<KeptVisitor>) -> anyhow::Result<()> {
        let mut all = self.load()?;
        all.extend(gone);
        self.write(&all)
    }

    /// Removes expired codes.
    pub(crate) fn expire(&self, now: SystemTime) -> anyhow::Result<Vec<KeptVisitor>> {
        self.remove(|one| one.has_ended(now))
    }

    /// A visitor has logged in. A token at its first use becomes valid without an expiry, and
    /// replaces the previous token. False: no such token waits for its first use.
    pub(crate) fn settle(&self, visited: &Visited) -> anyhow::Result<bool> {
        let Visited { service, visitor, token } = visited;
        let mut all = self.load()?;
        let now = SystemTime::now();
        let is_new = |one: &KeptVisitor| {
            let is_valid = one.until.is_some() && !one.has_ended(now - LATE);
            one.is_of(service, visitor) && one.token == *token && is_valid
        };
        let Some(mut new) = all.iter().find(|one| is_new(one)).cloned() else { return Ok(false) };
        all.retain(|one| !one.is_of(service, visitor));
        new.until = None;
        all.push(new);
        self.write(&all)?;
        Ok(true)
    }

    /// Adds the visitors to their services. A visitor of a service that is not or no longer private
    /// stays in the file.
    pub(crate) fn join(&self, config: &mut ClientConfig) -> Result<(), WrongConfig> {
        let now = SystemTime::now();
        for one in self.load()?.into_iter().filter(|one| !one.has_ended(now)) {
            let named = config.services.iter_mut().find(|service| service.name == one.service);
            let Some(private) = named.and_then(|service| service.private.as_mut()) else {
                continue;
            };
            let Ok(name) = NamePattern::new(&one.visitor) else { continue };
            let token = Token { secret: Secret::new(one.token), file: None };
            let known = private.visitors.iter_mut().find(|visitor| visitor.name == name);
            match known {
                Some(visitor) => {
                    visitor.tokens.insert(0, token);
                    visitor.tokens.truncate(TOKENS_MAX);
                }
                None => private.visitors.push(Visitor { name, tokens: vec![token] }),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use proto::greeting::StoredCredential;

    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn hash(n: u8) -> String {
        StoredCredential { stored_key: [n; 32], server_key: [n; 32] }.text().to_string()
    }

    fn config() -> ClientConfig {
        let sources = config::Sources { env: &|_| None, read: &|_| Err(String::new()) };
        let text = "servers: tls://a\nname: home\ntoken: q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ\n\
                    services: [{ name: ssh, target: 22, public: private, visitors: [] }]\n";
        let text = Some(config::Text { name: "c", text });
        config::load_client(text, &config::ClientFlags::default(), &sources).unwrap().config
    }

    fn tokens(kept: &KeptVisitors) -> Vec<String> {
        let mut config = config();
        kept.join(&mut config).unwrap();
        let private = config.services[0].private.clone().unwrap();
        private.tokens_of("laptop").iter().map(|token| token.secret.reveal().to_owned()).collect()
    }

    #[test]
    fn a_code_ends_unless_its_visitor_comes_and_a_visitor_keeps_its_token_until_the_next_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let kept = KeptVisitors::in_state(dir.path(), "home");
        let now = SystemTime::now();
        let new = |n| KeptVisitor::new("ssh", "laptop", &hash(n), now + 10 * MINUTE);
        kept.add(new(1)).unwrap();
        assert_eq!(tokens(&kept), [hash(1)]);
        let mode = fs::metadata(&kept.0).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(kept.expire(now + 9 * MINUTE).unwrap().len(), 0);
        assert_eq!(kept.expire(now + 10 * MINUTE).unwrap().len(), 1);
        assert!(tokens(&kept).is_empty() && !kept.0.exists());

        kept.add(new(1)).unwrap();
        kept.add(new(2)).unwrap();
        assert_eq!(tokens(&kept), [hash(2)], "an unused token is replaced");
        let visited = |n| {
            let [service, visitor] = ["ssh", "laptop"].map(str::to_owned);
            kept.settle(&Visited { service, visitor, token: hash(n) }).unwrap()
        };
        assert!(visited(2) && !visited(2));
        assert_eq!(kept.expire(now + 60 * 24 * MINUTE).unwrap().len(), 0);
        kept.add(new(3)).unwrap();
        assert_eq!(tokens(&kept), [hash(3), hash(2)]);
        assert!(!visited(2));
        assert_eq!(tokens(&kept), [hash(3), hash(2)], "the new token was not used");
        assert!(visited(3));
        assert_eq!(tokens(&kept), [hash(3)]);
        assert!(!visited(3));
        kept.add(KeptVisitor::new("ssh", "laptop", &hash(4), now - 2 * MINUTE)).unwrap();
        assert!(!visited(4), "its end is waiting for a reload");
        kept.expire(now).unwrap();
        let gone = kept.remove(|one| one.visitor == "laptop").unwrap();
        assert_eq!(gone.len(), 1);
        assert!(tokens(&kept).is_empty());
        kept.restore(gone).unwrap();
        assert_eq!(tokens(&kept), [hash(3)], "the removal did not come into force");
    }

    #[test]
    fn a_directory_that_others_may_write_lets_nobody_in() {
        let dir = tempfile::tempdir().unwrap();
        let kept = KeptVisitors::in_state(dir.path(), "home");
        kept.add(KeptVisitor::new("ssh", "laptop", &hash(1), SystemTime::now() + MINUTE)).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let why = kept.load().err().unwrap().to_string();
        assert!(why.contains("mode 0777"), "{why}");
    }
}
