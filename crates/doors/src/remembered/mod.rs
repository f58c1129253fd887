//! The names that the server knows while their clients are away. Their visitors get 502 instead of
//! 404, and over TLS the certificate of the name, whose renewals continue.
//!
//! A name is known from its publication on, until its client withdraws it, loses the right to it or
//! is removed, until another client publishes it, or until its client was away for `http.remember`.
//! A known name is not reserved: another client with the right can take it at once. Names of
//! ephemeral services, and of clients that introduced themselves, are not known.
//!
//! ```text
//!   registration, end of a session ──> table ──> Names (what visitors find)
//!                                        │  └──> Terminator (certificates)
//!                                        └─ keep ──> state_dir/names
//! ```
//!
//! | file | content |
//! |---|---|
//! | `table` | which names are known, and since when a client is away |
//! | `file` | the text of the file |

mod file;
mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use logging::{AUDIT, RepeatLimit};
use ops::state::{read_private_at_most, write_private};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::hosts::Hosts;
use node::names::{Host, Kind};
use table::{Key, Table};

pub use table::{NameAway, Registered};

/// The pause between two writes of the file, so that clients that reconnect after a start cause few
/// writes.
const PAUSE: Duration = Duration::from_secs(1);

/// The period of the search for names of clients that have been away for too long.
const LOOK: Duration = Duration::from_secs(60);

/// The known names of a server.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    table: Mutex<Table>,
    /// The directory of the file; `None`: the names are kept in memory while this process runs.
    folder: Mutex<Option<PathBuf>>,
    changed: Notify,
    /// Held while the file is written, so that the last write contains the latest state. Limits the
    /// log lines about names without room, and about a file that cannot be written.
    complaints: Mutex<RepeatLimit<Option<String>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wall() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl Hosts {
    /// Sets how long names are known (`http.remember`); zero: not at all.
    pub fn remember_for(&self, longest: Duration) {
        lock(&self.remembered.table).longest = longest;
        self.expire_names();
    }

    /// Applies the registration of a client.
    pub fn remember(&self, client: &str, names: &Registered) {
        let mut table = lock(&self.remembered.table);
        let (changed, left_out) = table.register(client, names, Instant::now());
        self.follow_names(&mut table, &changed);
        self.remembered.changed.notify_one();
        drop(table);
        if left_out > 0 {
            let complaints = lock(&self.remembered.complaints);
            if complaints.pass(Some(client.to_owned()), std::time::Instant::now()).is_some() {
                tracing::warn!(
                    client,
                    "{left_out} names of client {client} are not kept while the client is away: too \
                     many names are known"
                );
            }
        }
    }

    /// Records that the names of a client are no longer published, because the client is away.
    pub fn note_away(&self, client: &str) {
        lock(&self.remembered.table).leave(client, Instant::now());
        self.remembered.changed.notify_one();
    }

    /// Forgets the names for which `keeps` is false.
    pub fn forget_names(&self, keeps: impl Fn(&str, &Host) -> bool) {
        let mut table = lock(&self.remembered.table);
        let gone = table.retain(keeps);
        self.follow_names(&mut table, &gone);
        drop(table);
        if !gone.is_empty() {
            tracing::info!(target: AUDIT, "{} known no more, because a client or its right is gone", said(&gone));
            self.remembered.changed.notify_one();
        }
    }

    /// Forgets the names whose clients have been away for too long.
    fn expire_names(&self) {
        let mut table = lock(&self.remembered.table);
        let gone = table.expire(Instant::now());
        self.follow_names(&mut table, &gone);
        drop(table);
        if !gone.is_empty() {
            tracing::info!("{} known no more: http.remember is over", said(&gone));
            self.remembered.changed.notify_one();
        }
    }

    /// The known names whose clients are away.
    pub fn names_away(&self) -> Vec<NameAway> {
        lock(&self.remembered.table).away(Instant::now())
    }

    /// Updates visitors' look-ups and orders of certificates from the table.
    fn follow_names(&self, table: &mut Table, changed: &[Key]) {
        for key in changed {
            let (space, name) = key;
            let known = table.entry(key).map(|(client, entry)| {
                let is_https = entry.kind == Kind::Https;
                let terminator = self.terminator().filter(|_| is_https);
                if let Some(terminator) = terminator
                    && entry.wanted.is_none()
                {
                    entry.wanted = Some(terminator.want(name, &client));
                } else if !is_https {
                    entry.wanted = None;
                }
                Arc::new(Table::known(&client, entry))
            });
            self.names.set_known(*space, name, known);
        }
    }

    /// Reads the file of an earlier process. `keeps`: the client of a name may still have it. A
    /// damaged file is set aside.
    pub fn load_names(&self, folder: &Path, keeps: impl Fn(&str, &Host) -> bool) {
        *lock(&self.remembered.folder) = Some(folder.to_owned());
        let text = match read_private_at_most(folder, file::FILE, file::LARGEST) {
            Ok(text) => text.unwrap_or_default(),
            Err(error) => {
                self.set_aside(folder, &error.to_string());
                return;
            }
        };
        let (lines, bad) = file::parse(&text);
        let (now, wall) = (Instant::now(), wall());
        let mut table = lock(&self.remembered.table);
        let (mut keys, mut dropped) = (Vec::new(), 0);
        for line in lines {
            let key = (line.host.kind.space(), Arc::clone(&line.host.name));
            if !keeps(&line.client, &line.host) {
                table.is_new = true;
            } else if table.load(line, now, wall) {
                keys.push(key);
            } else {
                dropped += 1;
            }
        }
        table.is_new |= bad + dropped > 0;
        self.follow_names(&mut table, &keys);
        drop(table);
        if bad + dropped > 0 {
            let why = format!("{} of its lines make no sense", bad + dropped);
            self.set_aside(folder, &why);
        }
        self.expire_names();
    }

    /// Sets a damaged file aside for the user, and logs a warning.
    fn set_aside(&self, folder: &Path, why: &str) {
        let (path, aside) = (folder.join(file::FILE), format!("{}.bad-{}", file::FILE, wall()));
        let shown = path.display();
        match fs::rename(&path, folder.join(&aside)) {
            Ok(()) => tracing::warn!(
                "{shown}: {why}; the file is kept as {aside}, and visitors of the names that it has \
                 alone get 404 until their clients are back"
            ),
            Err(error) => {
                // Another write would lose the file.
                *lock(&self.remembered.folder) = None;
                tracing::warn!(
                    "{shown}: {why}; the file cannot be kept aside ({error}), so it stays as it is, \
                     and the names are known as long as this process runs"
                );
            }
        }
    }

    /// Writes the file if the table has changed. Blocks.
    pub fn save_names(&self) {
        if net::handover::is_handed_over() {
            // The file belongs to the next generation of the server.
            return;
        }
        let complaints = lock(&self.remembered.complaints);
        let Some(folder) = lock(&self.remembered.folder).clone() else { return };
        let text = {
            let mut table = lock(&self.remembered.table);
            if !std::mem::take(&mut table.is_new) {
                return;
            }
            file::text(&table.lines(Instant::now(), wall()))
        };
        if let Err(error) = write_private(&folder, file::FILE, text.as_bytes()) {
            // The names stay in memory, and the next change retries the write.
            lock(&self.remembered.table).is_new = true;
            if complaints.pass(None, std::time::Instant::now()).is_some() {
                tracing::warn!("{}: {error}", folder.join(file::FILE).display());
            }
        }
    }
}

/// A few of these names, for the log.
fn said(names: &[Key]) -> String {
    let names = names.iter().map(|(_, name)| name.to_string());
    let verb = if names.len() == 1 { "is" } else { "are" };
    format!("{} {verb}", ops::term::few(names))
}

/// Writes the file after changes, and removes expired names. Never returns.
pub async fn keep(hosts: Arc<Hosts>) {
    loop {
        tokio::select! {
            () = hosts.remembered.changed.notified() => {}
            () = tokio::time::sleep(LOOK) => hosts.expire_names(),
        }
        let writer = Arc::clone(&hosts);
        let written = tokio::task::spawn_blocking(move || writer.save_names());
        // A panic was logged, and the next change retries the write.
        let _ = written.await;
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use node::names::Space;

    fn hosts() -> Hosts {
        let hosts = Hosts::new(None, None);
        hosts.remember_for(Duration::from_secs(30 * 86_400));
        hosts
    }

    fn published(names: &[&str]) -> Registered {
        let mut all = Registered::default();
        names.iter().for_each(|name| all.publish(name.parse().unwrap(), None));
        all
    }

    fn is_known(hosts: &Hosts, space: Space, host: &str) -> bool {
        hosts.names.away(space, host).is_some()
    }

    fn files(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut all: Vec<_> =
            entries.map(|one| one.unwrap().file_name().into_string().unwrap()).collect();
        all.sort_unstable();
        all
    }

    #[tokio::test]
    async fn names_outlive_the_process_with_their_files_mode() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let first = hosts();
        first.load_names(dir.path(), |_, _| true);
        first.remember("home", &published(&["https://a.example", "http://b.example"]));
        first.remember("gone", &published(&["http://c.example"]));
        first.save_names();
        let mode = fs::metadata(dir.path().join("names")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        let second = hosts();
        second.load_names(dir.path(), |client, _| client != "gone");
        assert!(is_known(&second, Space::Tls, "a.example"));
        assert!(is_known(&second, Space::Http, "b.example"));
        assert!(!is_known(&second, Space::Http, "c.example"), "its client is gone");
        assert!(!is_known(&second, Space::Http, "a.example"));
        assert_eq!(second.names_away().len(), 2);
        second.save_names();
        let text = fs::read_to_string(dir.path().join("names")).unwrap();
        assert!(!text.contains(" - ") && !text.contains("c.example"), "{text}");

        second.remember("home", &published(&["https://a.example"]));
        assert!(!is_known(&second, Space::Http, "b.example"), "it was withdrawn");
        second.note_away("home");
        second.remember_for(Duration::ZERO);
        assert!(!is_known(&second, Space::Tls, "a.example"), "off is off");
    }

    #[tokio::test]
    async fn a_damaged_file_is_kept_aside_and_its_good_lines_are_used() {
        let dir = tempfile::tempdir().unwrap();
        let bad = "home - http://a.example\nhome \u{0} http\n";
        fs::write(dir.path().join("names"), bad).unwrap();
        let hosts = hosts();
        hosts.load_names(dir.path(), |_, _| true);
        assert!(is_known(&hosts, Space::Http, "a.example"));
        hosts.save_names();
        let all = files(dir.path());
        assert!(all.len() == 2 && all[1].starts_with("names.bad-"), "{all:?}");
        assert_eq!(fs::read_to_string(dir.path().join(&all[1])).unwrap(), bad);

        // A file that is no text, and a file that is too large.
        for content in [vec![0xff; 10], vec![b'#'; 9 << 20]] {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join("names"), &content).unwrap();
            let hosts = self::hosts();
            hosts.load_names(dir.path(), |_, _| true);
            hosts.remember("home", &published(&["http://a.example"]));
            hosts.save_names();
            let all = files(dir.path());
            assert!(all.len() == 2 && all[1].starts_with("names.bad-"), "{all:?}");
            assert_eq!(fs::read(dir.path().join(&all[1])).unwrap().len(), content.len());
        }
    }
}
