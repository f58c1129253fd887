//! Sessions of the web console. Nobody chooses a password: `tunnel console` asks for a key over the
//! control socket, and the page swaps the key for a token. Both come from the system's random source
//! and are kept as their hashes, in memory alone. A restart ends all sessions.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use proto::greeting::{StoredCredential, Token};
use serde::Serialize;
use tokio::time::Instant;

/// How long a key is valid.
pub(crate) const KEY_LASTS: Duration = Duration::from_secs(60);

/// Most keys that wait at a time. A further key takes the place of the oldest.
const KEYS: usize = 4;

/// How long a session lasts.
const LASTS: Duration = Duration::from_secs(12 * 3600);

/// Most sessions at a time. A further session takes the place of the session that was idle longest:
/// a browser that has lost its token must not keep a person out.
const SESSIONS: usize = 16;

/// What a session was made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum By {
    /// A key of `tunnel console`.
    Link,
    /// `admin.token`.
    Token,
}

/// Who sends a request; an extension of each request with a right token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// The holder of `admin.token`.
    Token,
    /// The holder of `admin.read_token`.
    Reader,
    /// A session, by its name.
    Session(String),
    /// A page with a key, which is used up now.
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
    /// The session that asks.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    own: bool,
}

/// The sessions of a daemon, and the keys that wait. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sessions(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    keys: Vec<Key>,
    sessions: Vec<Session>,
}

#[derive(Debug)]
struct Key {
    stored: StoredCredential,
    ends: Instant,
}

#[derive(Debug)]
struct Session {
    /// A random name, which is no secret.
    id: String,
    stored: StoredCredential,
    by: By,
    from: IpAddr,
    began: Instant,
    /// The time of the last request.
    used: Instant,
}

impl Sessions {
    /// Makes a key that is valid once within `lasts`.
    ///
    /// # Errors
    /// The system gives no random bytes.
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

    /// Whether the text is a key that waits. The key is used up.
    pub(crate) fn redeem(&self, given: &StoredCredential) -> bool {
        let mut state = self.state();
        state.forget(Instant::now());
        let place = state.keys.iter().position(|key| key.stored == *given);
        place.map(|place| state.keys.remove(place)).is_some()
    }

    /// The name of the session with this token, which is in use now.
    pub(crate) fn of(&self, given: &StoredCredential) -> Option<String> {
        let now = Instant::now();
        let mut state = self.state();
        state.forget(now);
        let mut found = None;
        // Each comparison takes constant time, and all are made.
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
    /// The system gives no random bytes.
    pub(crate) fn begin(&self, by: By, from: IpAddr) -> anyhow::Result<Begun> {
        let (token, stored) = random()?;
        let mut id = String::new();
        let mut bytes = [0; 4];
        ops::random(&mut bytes)?;
        for byte in bytes {
            // Writing into a string cannot fail.
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
        let session = Session { id: id.clone(), stored, by, from, began: now, used: now };
        state.sessions.push(session);
        Ok(Begun { token, id, expires_seconds: LASTS.as_secs() })
    }

    /// All sessions, the oldest first. `own` is the session that asks.
    pub(crate) fn list(&self, own: Option<&str>) -> Vec<Shown> {
        let now = Instant::now();
        let mut state = self.state();
        state.forget(now);
        let shown = |session: &Session| Shown {
            id: session.id.clone(),
            by: session.by,
            from: session.from,
            age_seconds: (now - session.began).as_secs(),
            idle_seconds: (now - session.used).as_secs(),
            expires_seconds: (session.began + LASTS).duration_since(now).as_secs(),
            own: own == Some(session.id.as_str()),
        };
        state.sessions.iter().map(shown).collect()
    }

    /// Ends a session. Returns whether there was a session of this name.
    pub(crate) fn end(&self, id: &str) -> bool {
        let mut state = self.state();
        let before = state.sessions.len();
        state.sessions.retain(|session| session.id != id);
        state.sessions.len() < before
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Removes what has ended by itself.
    fn forget(&mut self, now: Instant) {
        self.keys.retain(|key| key.ends > now);
        self.sessions.retain(|session| session.began + LASTS > now);
    }
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
        let (one, other) = (sessions.key_for(KEY_LASTS).unwrap(), sessions.key_for(KEY_LASTS).unwrap());
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
