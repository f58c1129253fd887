//! Sessions of the web console. No password is chosen: `tunnel console` requests a key over the
//! control socket, and the page exchanges the key for a token. Both come from the system's random
//! source and are kept as their hashes. Keys are kept only in memory. Sessions survive a restart of
//! the daemon in a file of its state directory, so that a page continues; a new `admin.token` ends
//! all sessions.

use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use ops::state::{check_private, create_private, read_private, write_private};
use proto::greeting::{StoredCredential, Token};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// How long a key is valid.
pub(crate) const KEY_LASTS: Duration = Duration::from_secs(60);

/// The largest number of unused keys at a time. A further key replaces the oldest.
const KEYS: usize = 4;

/// How long a session lasts.
const LASTS: Duration = Duration::from_secs(12 * 3600);

/// The largest number of sessions at a time. A further session replaces the session that was idle
/// longest: a browser that has lost its token must not lock its user out.
const SESSIONS: usize = 16;

/// The credential that started a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum By {
    /// A key of `tunnel console`.
    Link,
    /// `admin.token`.
    Token,
}

/// The sender of a request; an extension of each request with a valid token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// The holder of `admin.token`.
    Token,
    /// The holder of `admin.read_token`.
    Reader,
    /// A session, by its name.
    Session(String),
    /// A page with a key, which is now used up.
    Link,
}

/// A new session.
#[derive(Debug, Serialize)]
pub(crate) struct Begun {
    token: String,
    id: String,
    expires_seconds: u64,
}

/// A session as the API shows it.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Shown {
    id: String,
    by: By,
    from: IpAddr,
    age_seconds: u64,
    idle_seconds: u64,
    expires_seconds: u64,
    /// Whether this is the session of the request.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    own: bool,
}

/// The sessions of a daemon, and the unused keys. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sessions(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    keys: Vec<Key>,
    sessions: Vec<Session>,
    /// `None`: a restart ends all sessions.
    file: Option<Place>,
}

/// The file of the sessions.
#[derive(Debug)]
struct Place {
    folder: PathBuf,
    name: String,
    /// Changes with the API token: sessions of another token are invalid.
    seal: String,
}

/// The content of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    seal: String,
    sessions: Vec<KeptSession>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptSession {
    id: String,
    /// The hash of the token.
    stored: String,
    by: By,
    from: IpAddr,
    /// The end of the session, in seconds since 1970.
    ends: u64,
}

#[derive(Debug)]
struct Key {
    stored: StoredCredential,
    ends: Instant,
}

#[derive(Debug)]
struct Session {
    /// A random name, which is not secret.
    id: String,
    stored: StoredCredential,
    by: By,
    from: IpAddr,
    ends: Instant,
    /// The time of the last request; for a session from the file, the start of the daemon.
    used: Instant,
}

impl Sessions {
    /// The sessions of the API at the address `listen`, whose file is in `folder`. If the folder
    /// cannot be used, the sessions are kept only in memory.
    pub(crate) fn kept_in(folder: &Path, listen: &str, seal: String) -> Self {
        let safe = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
        let name = format!("console.{}.sessions", listen.chars().map(safe).collect::<String>());
        let place = Place { folder: folder.to_owned(), name, seal };
        let mut state = State::default();
        match place.load() {
            Ok(sessions) => (state.sessions, state.file) = (sessions, Some(place)),
            Err(error) => {
                tracing::debug!(folder = %folder.display(), %error, "sessions are not kept");
            }
        }
        Self(Arc::new(Mutex::new(state)))
    }

    /// Makes a key that is valid once, within `lasts`.
    ///
    /// # Errors
    /// The system provides no random bytes.
    pub(crate) fn key_for(&self, lasts: Duration) -> anyhow::Result<String> {
        let (key, stored) = random()?;
        let now = Instant::now();
        let mut state = self.state();
        state.forget(now);
        if state.keys.len() >= KEYS {
            state.keys.remove(0);
        }
        state.keys.push(Key { stored, ends: now + lasts });
        Ok(key)
    }

    /// Whether the text is an unused key. The key is used up.
    pub(crate) fn redeem(&self, given: &StoredCredential) -> bool {
        let mut state = self.state();
        state.forget(Instant::now());
        let place = state.keys.iter().position(|key| key.stored == *given);
        place.map(|place| state.keys.remove(place)).is_some()
    }

    /// The name of the session with this token; the session counts as used now.
    pub(crate) fn of(&self, given: &StoredCredential) -> Option<String> {
        let now = Instant::now();
        let mut state = self.state();
        state.forget(now);
        let mut found = None;
        // Each comparison takes constant time, and all comparisons are made.
        for session in &mut state.sessions {
            if session.stored == *given {
                session.used = now;
                found = Some(session.id.clone());
            }
        }
        found
    }

    /// Begins a session.
    ///
    /// # Errors
    /// The system provides no random bytes.
    pub(crate) fn begin(&self, by: By, from: IpAddr) -> anyhow::Result<Begun> {
        let (token, stored) = random()?;
        let mut id = String::new();
        let mut bytes = [0; 4];
        ops::random(&mut bytes)?;
        for byte in bytes {
            // Writing to a string cannot fail.
            let _ = write!(id, "{byte:02x}");
        }
        let now = Instant::now();
        let mut state = self.state();
        state.forget(now);
        if state.sessions.len() >= SESSIONS {
            let idle = state.sessions.iter().enumerate().min_by_key(|(_, session)| session.used);
            let idle = idle.map(|(place, _)| place);
            idle.map(|place| state.sessions.remove(place));
        }
        let session = Session { id: id.clone(), stored, by, from, ends: now + LASTS, used: now };
        state.sessions.push(session);
        state.keep();
        Ok(Begun { token, id, expires_seconds: LASTS.as_secs() })
    }

    /// All sessions, oldest first. `own` is the session of the request.
    pub(crate) fn list(&self, own: Option<&str>) -> Vec<Shown> {
        let now = Instant::now();
        let mut state = self.state();
        state.forget(now);
        let shown = |session: &Session| Shown {
            id: session.id.clone(),
            by: session.by,
            from: session.from,
            age_seconds: LASTS.saturating_sub(session.ends - now).as_secs(),
            idle_seconds: (now - session.used).as_secs(),
            expires_seconds: (session.ends - now).as_secs(),
            own: own == Some(session.id.as_str()),
        };
        state.sessions.iter().map(shown).collect()
    }

    /// Ends a session. Returns whether a session with this name existed.
    pub(crate) fn end(&self, id: &str) -> bool {
        let mut state = self.state();
        let before = state.sessions.len();
        state.sessions.retain(|session| session.id != id);
        let is_ended = state.sessions.len() < before;
        if is_ended {
            state.keep();
        }
        is_ended
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Removes expired sessions.
    fn forget(&mut self, now: Instant) {
        self.keys.retain(|key| key.ends > now);
        self.sessions.retain(|session| session.ends > now);
    }

    /// Writes the file. A file that cannot be written is removed: it could restore a session that
    /// was ended.
    fn keep(&self) {
        let Some(place) = &self.file else { return };
        if let Err(error) = place.write(&self.sessions) {
            tracing::warn!(
                %error, "the sessions of the console are not kept beyond the end of this process"
            );
            drop(fs::remove_file(place.folder.join(&place.name)));
        }
    }
}

impl Place {
    /// The sessions of the file that have not expired. A session that would outlast the longest
    /// lifetime was written under another clock.
    fn load(&self) -> std::io::Result<Vec<Session>> {
        // The folder is created with the first session.
        if !self.folder.exists() {
            return Ok(Vec::new());
        }
        self.check()?;
        let text = read_private(&self.folder, &self.name)?.unwrap_or_default();
        // A file that cannot be read counts as empty, and is replaced by the next write.
        let kept = serde_json::from_str::<Kept>(&text).ok();
        let kept = kept.filter(|kept| kept.seal == self.seal);
        let (now, unix) = (Instant::now(), unix_seconds());
        let session = |kept: KeptSession| {
            let left = Duration::from_secs(kept.ends.checked_sub(unix)?);
            let stored = StoredCredential::of(&kept.stored).ok()?;
            let KeptSession { id, by, from, .. } = kept;
            let is_good = !left.is_zero() && left <= LASTS;
            is_good.then_some(Session { id, stored, by, from, ends: now + left, used: now })
        };
        let sessions = kept.into_iter().flat_map(|kept| kept.sessions);
        Ok(sessions.filter_map(session).take(SESSIONS).collect())
    }

    /// Write access to the folder would allow anybody to add a session.
    fn check(&self) -> std::io::Result<()> {
        check_private(&self.folder).map_err(std::io::Error::other)
    }

    fn write(&self, sessions: &[Session]) -> std::io::Result<()> {
        create_private(&self.folder)?;
        self.check()?;
        let (now, unix) = (Instant::now(), unix_seconds());
        let kept = |session: &Session| KeptSession {
            id: session.id.clone(),
            stored: session.stored.text().to_string(),
            by: session.by,
            from: session.from,
            ends: unix + session.ends.saturating_duration_since(now).as_secs(),
        };
        let sessions = sessions.iter().map(kept).collect();
        let text = serde_json::to_vec(&Kept { seal: self.seal.clone(), sessions })?;
        write_private(&self.folder, &self.name, &text)
    }
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A secret of 256 bits, and its stored form.
fn random() -> anyhow::Result<(String, StoredCredential)> {
    let text = ops::token()?;
    let stored = Token::new(&text)?.stored();
    Ok((text, stored))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::time::advance;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn stored(text: &str) -> StoredCredential {
        Token::new(text).unwrap().stored()
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_good_once_and_for_a_minute() {
        let sessions = Sessions::default();
        let (one, other) =
            (sessions.key_for(KEY_LASTS).unwrap(), sessions.key_for(KEY_LASTS).unwrap());
        assert!(sessions.redeem(&stored(&one)));
        assert!(!sessions.redeem(&stored(&one)), "used");
        assert!(sessions.of(&stored(&other)).is_none(), "a key is no session");
        advance(KEY_LASTS).await;
        assert!(!sessions.redeem(&stored(&other)), "old");
        let keys: Vec<_> = (0..=KEYS).map(|_| sessions.key_for(KEY_LASTS).unwrap()).collect();
        assert!(!sessions.redeem(&stored(&keys[0])), "the oldest has given way");
        assert!(keys[1..].iter().all(|key| sessions.redeem(&stored(key))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_lasts_for_half_a_day_whoever_uses_it() {
        let sessions = Sessions::default();
        let begun = sessions.begin(By::Link, HERE).unwrap();
        assert_eq!(begun.expires_seconds, 43_200);
        advance(LASTS / 2).await;
        assert_eq!(sessions.of(&stored(&begun.token)), Some(begun.id.clone()));
        let [shown] = &sessions.list(Some(&begun.id))[..] else { panic!("one session") };
        assert_eq!((shown.age_seconds, shown.idle_seconds), (21_600, 0));
        assert!(shown.own && shown.expires_seconds == 21_600);
        advance(LASTS / 2).await;
        assert_eq!(sessions.of(&stored(&begun.token)), None);
        assert!(sessions.list(None).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_outlive_the_daemon_until_they_end_or_the_token_changes() {
        let dir = tempfile::tempdir().unwrap();
        let kept = |seal: &str| Sessions::kept_in(dir.path(), "[::1]:7070", seal.to_owned());
        let first = kept("a");
        let begun: Vec<_> = (0..3).map(|_| first.begin(By::Link, HERE).unwrap()).collect();
        assert!(first.end(&begun[0].id));
        let file = dir.path().join("console.---1--7070.sessions");
        let text = fs::read_to_string(&file).unwrap();
        assert!(begun.iter().all(|one| !text.contains(&one.token)), "{text}");
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        drop(first);
        let second = kept("a");
        let of = |sessions: &Sessions, one: &Begun| sessions.of(&stored(&one.token));
        assert_eq!(of(&second, &begun[0]), None, "it was ended");
        assert_eq!(of(&second, &begun[1]), Some(begun[1].id.clone()));
        assert!(second.list(None).iter().all(|one| one.expires_seconds > 43_000));
        assert!(!second.redeem(&stored(&begun[1].token)), "a session is no key");
        assert_eq!(of(&kept("b"), &begun[1]), None, "another token of the API");
        // Clocks of another time, and a damaged file.
        let unix = unix_seconds();
        for (from, to) in [(unix + 43_199, unix), (unix + 43_199, unix + 86_400)] {
            let is_near = |n: u64| (from - 5..=from + 5).contains(&n);
            let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
            for one in value["sessions"].as_array_mut().unwrap() {
                assert!(is_near(one["ends"].as_u64().unwrap()), "{text}");
                one["ends"] = to.into();
            }
            fs::write(&file, value.to_string()).unwrap();
            assert!(kept("a").list(None).is_empty());
        }
        fs::write(&file, &text[..text.len() / 2]).unwrap();
        assert!(kept("a").list(None).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_session_that_was_idle_longest_gives_way() {
        let sessions = Sessions::default();
        let mut all = Vec::new();
        for _ in 0..SESSIONS {
            all.push(sessions.begin(By::Token, HERE).unwrap());
            advance(Duration::from_secs(1)).await;
        }
        let _ = sessions.of(&stored(&all[0].token));
        all.push(sessions.begin(By::Token, HERE).unwrap());
        let gone = |begun: &Begun| sessions.of(&stored(&begun.token)).is_none();
        let gone: Vec<_> =
            all.iter().enumerate().filter(|(_, one)| gone(one)).map(|(n, _)| n).collect();
        assert_eq!(gone, [1]);
        assert!(sessions.end(&all[2].id) && !sessions.end(&all[2].id));
        assert_eq!(sessions.list(None).len(), SESSIONS - 1);
    }
}
