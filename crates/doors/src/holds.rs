//! Clients on hold: their names answer 503 with a maintenance page, whether the client is connected
//! or away. A hold is set by a command and outlives a restart. Running requests continue, as do
//! ports and `tls://` names, whose visitors the server cannot inform.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use arc_swap::ArcSwap;
use ops::WrongConfig;
use ops::clients::{HOLDS_MAX, Held, HoldOrder};
use ops::state::{read_private_at_most, write_private};
use serde_json::{Map, Value, json};

/// The file in the state directory.
const FILE: &str = "holds";

/// The maximum size of the file, in bytes. The pages of all holds together have at most half of it.
const LARGEST: u64 = 8 << 20;

/// The maximum size of all pages, in bytes.
const PAGES: usize = 2 << 20;

/// The hold of one client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The page that replaces `http.pages.unavailable`.
    pub page: Option<Arc<str>>,
    /// The seconds after which a visitor may retry.
    pub retry_after: u32,
    /// The time of the command, in seconds since 1970.
    pub since: u64,
}

impl Hold {
    /// The hold as it is shown to users.
    pub fn shown(&self) -> Held {
        Held {
            seconds: now().saturating_sub(self.since),
            retry_after_seconds: self.retry_after.into(),
            page: self.page.is_some(),
        }
    }
}

/// The holds of all clients.
#[derive(Debug, Default)]
pub struct Holds {
    all: ArcSwap<HashMap<String, Arc<Hold>>>,
    folder: Mutex<Option<Arc<Path>>>,
}

impl Holds {
    /// Reads the holds of an earlier process. An invalid file is set aside.
    pub fn load(&self, folder: &Path) {
        let mut place = self.folder.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some(folder.into());
        let text = read_private_at_most(folder, FILE, LARGEST).map_err(|error| error.to_string());
        let read = text.and_then(|text| text.map_or_else(|| Ok(HashMap::new()), |t| parse(&t)));
        match read {
            Ok(all) => self.all.store(Arc::new(all)),
            Err(why) => {
                let (shown, aside) = (folder.join(FILE), format!("{FILE}.bad-{}", now()));
                let shown = shown.display();
                match fs::rename(folder.join(FILE), folder.join(&aside)) {
                    Ok(()) => tracing::warn!(
                        "{shown}: {why}; the file is kept as {aside}, and no client is on hold"
                    ),
                    Err(error) => {
                        // Another write would lose the file.
                        *place = None;
                        tracing::warn!(
                            "{shown}: {why}; the file cannot be kept aside ({error}), so it stays as \
                             it is, and holds end with this process"
                        );
                    }
                }
            }
        }
    }

    /// The hold of a client.
    pub fn of(&self, client: &str) -> Option<Arc<Hold>> {
        let all = self.all.load();
        if all.is_empty() { None } else { all.get(client).cloned() }
    }

    /// All holds in the order of their clients.
    pub fn all(&self) -> Vec<(String, Arc<Hold>)> {
        let all = self.all.load();
        let mut all: Vec<_> =
            all.iter().map(|(name, hold)| (name.clone(), Arc::clone(hold))).collect();
        all.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// Sets or ends the hold of a client: stores the change first, then applies it. The caller must
    /// serialize changes. Returns false if there was no hold to end.
    ///
    /// # Errors
    /// The order is invalid, too many clients are on hold, or the change cannot be stored.
    pub async fn change(&self, order: &HoldOrder) -> anyhow::Result<bool> {
        let mut all = HashMap::clone(&self.all.load());
        if order.off {
            order.check_off()?;
            if all.remove(&order.name).is_none() {
                return Ok(false);
            }
        } else {
            // A repeated order replaces the page, and the hold keeps its start time.
            let since = all.get(&order.name).map_or_else(now, |hold| hold.since);
            let page = order.page()?.map(Arc::from);
            let hold = Hold { page, retry_after: order.retry_after()?, since };
            all.insert(order.name.clone(), Arc::new(hold));
            let pages: usize =
                all.values().filter_map(|hold| Some(hold.page.as_ref()?.len())).sum();
            if all.len() > HOLDS_MAX || pages > PAGES {
                let text = format!(
                    "too many clients are on hold: at most {HOLDS_MAX}, with {} MiB of pages together",
                    PAGES >> 20
                );
                return Err(WrongConfig::one(text).into());
            }
        }
        self.store(all).await?;
        Ok(true)
    }

    /// Ends the hold of a client that was removed.
    pub async fn forget(&self, client: &str) {
        if self.of(client).is_none() {
            return;
        }
        let mut all = HashMap::clone(&self.all.load());
        all.remove(client);
        if let Err(why) = self.store(all).await {
            tracing::warn!(
                client,
                "the hold of client {client}, which was removed, stays: {why:#}"
            );
        }
    }

    async fn store(&self, all: HashMap<String, Arc<Hold>>) -> anyhow::Result<()> {
        let folder = self.folder.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(folder) = folder {
            let text = text(&all);
            let write = move || {
                let path = folder.join(FILE);
                write_private(&folder, FILE, text.as_bytes())
                    .with_context(|| format!("writing {}", path.display()))
            };
            tokio::task::spawn_blocking(write).await??;
        }
        self.all.store(Arc::new(all));
        Ok(())
    }
}

/// The seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn text(all: &HashMap<String, Arc<Hold>>) -> String {
    let entry = |(name, hold): (&String, &Arc<Hold>)| {
        let Hold { page, retry_after, since } = &**hold;
        let page = page.as_deref();
        (name.clone(), json!({ "since": since, "retry_after": retry_after, "page": page }))
    };
    let all: Map<String, Value> = all.iter().map(entry).collect();
    format!("{:#}\n", Value::Object(all))
}

fn parse(text: &str) -> Result<HashMap<String, Arc<Hold>>, String> {
    let all: Map<String, Value> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let entry = |(name, entry): (String, Value)| {
        let number = |key: &str| entry.get(key).and_then(Value::as_u64);
        let hold = Hold {
            page: entry.get("page").and_then(Value::as_str).map(Arc::from),
            retry_after: number("retry_after").and_then(|seconds| seconds.try_into().ok())?,
            since: number("since")?,
        };
        Some((name, Arc::new(hold)))
    };
    let all: Option<_> = all.into_iter().map(entry).collect();
    all.ok_or_else(|| "a hold without `since` and `retry_after`".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(name: &str) -> HoldOrder {
        HoldOrder { name: name.to_owned(), ..HoldOrder::default() }
    }

    #[tokio::test]
    async fn a_hold_outlives_the_process_and_ends_by_a_command() {
        let dir = tempfile::tempdir().unwrap();
        let first = Holds::default();
        first.load(dir.path());
        let page = Some("<p>back soon</p>\n".to_owned());
        let long = HoldOrder { page, retry_after: Some("2h".to_owned()), ..order("home") };
        assert!(first.change(&long).await.unwrap());
        assert!(first.change(&order("office")).await.unwrap());

        let second = Holds::default();
        second.load(dir.path());
        let hold = second.of("home").unwrap();
        assert_eq!(Some(&hold), first.of("home").as_ref());
        assert_eq!((hold.retry_after, hold.page.as_deref()), (7200, Some("<p>back soon</p>\n")));
        assert_eq!(second.of("office").unwrap().retry_after, 600);
        assert!(second.change(&HoldOrder { off: true, ..order("home") }).await.unwrap());
        assert!(!second.change(&HoldOrder { off: true, ..order("home") }).await.unwrap());
        second.forget("office").await;
        let third = Holds::default();
        third.load(dir.path());
        assert!(third.all().is_empty());
    }

    #[tokio::test]
    async fn an_order_that_makes_no_sense_changes_nothing() {
        let holds = Holds::default();
        for bad in [
            HoldOrder { retry_after: Some("soon".into()), ..order("home") },
            HoldOrder { retry_after: Some("0".into()), ..order("home") },
            HoldOrder { page: Some("x".repeat(33 << 10)), ..order("home") },
            HoldOrder { off: true, page: Some("x".into()), ..order("home") },
        ] {
            assert!(holds.change(&bad).await.is_err(), "{bad:?}");
        }
        assert!(holds.all().is_empty());
    }

    #[test]
    fn a_damaged_file_is_kept_aside() {
        let dir = tempfile::tempdir().unwrap();
        for bad in ["{", "[]", r#"{"home":{"since":1}}"#] {
            fs::write(dir.path().join(FILE), bad).unwrap();
            let holds = Holds::default();
            holds.load(dir.path());
            assert!(holds.all().is_empty() && !dir.path().join(FILE).exists());
        }
        assert!(fs::read_dir(dir.path()).unwrap().count() >= 1);
    }
}
