//! The user and the password of a proxy. The comparison takes constant time, so the time of an
//! answer does not reveal how much of a guess was right. A brake limits the guesses of a source
//! over all its connections.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use net::brake::{Attempt, Brake, Judgement};
use net::source::Source;
use subtle::ConstantTimeEq as _;
use tokio::time::sleep;
use zeroize::Zeroizing;

use super::Fault;

/// The maximum length of a user and of a password, in bytes (RFC 1929 section 2).
const LONGEST: usize = 255;

/// The delay before the answer to a wrong password without a brake.
const WRONG: Duration = Duration::from_millis(500);

/// The maximum time for which the check of a password may be delayed: less than the time for the
/// whole handshake, so that a visitor receives the refusal.
const PATIENCE: Duration = Duration::from_secs(8);

/// At least one pair of user and password.
#[derive(Clone)]
pub struct Credentials {
    pairs: Vec<Pair>,
    /// The brake, and the name of the service for its reports.
    brake: Option<(Arc<Brake>, Arc<str>)>,
}

#[derive(Clone)]
struct Pair {
    user: Padded,
    password: Padded,
}

/// The credentials that a visitor sent.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) user: Zeroizing<Vec<u8>>,
    pub(crate) password: Zeroizing<Vec<u8>>,
}

impl Given {
    pub(crate) fn new(user: &[u8], password: &[u8]) -> Self {
        Self { user: Zeroizing::new(user.to_vec()), password: Zeroizing::new(password.to_vec()) }
    }
}

impl Credentials {
    /// Returns `None` if the user or the password is longer than 255 bytes.
    #[must_use]
    pub fn new(user: &str, password: &str) -> Option<Self> {
        Self::any_of([(user, password)])
    }

    /// Makes credentials that accept any one of these pairs of user and password. `None`: there is
    /// no pair, or a text is longer than 255 bytes.
    #[must_use]
    pub fn any_of<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Option<Self> {
        let pair = |(user, password): (&str, &str)| {
            let (user, password) = (user.as_bytes(), password.as_bytes());
            Some(Pair { user: Padded::new(user)?, password: Padded::new(password)? })
        };
        let pairs: Vec<_> = pairs.into_iter().map(pair).collect::<Option<_>>()?;
        (!pairs.is_empty()).then_some(Self { pairs, brake: None })
    }

    /// The same credentials, with guesses limited by `brake` under the name `service`.
    #[must_use]
    pub fn braked(self, brake: &Arc<Brake>, service: &str) -> Self {
        Self { brake: Some((Arc::clone(brake), service.into())), ..self }
    }

    /// Checks the credentials of a visitor. Returns when the outcome may be sent to the visitor.
    pub(crate) async fn judge(&self, given: &Given, source: Option<&Source>) -> Result<(), Fault> {
        let is_right = self.admit(given);
        let judgement = match (&self.brake, source) {
            (Some((brake, service)), Some(source)) => {
                let attempt = Attempt { service, source, is_right, is_known: false };
                brake.judge(attempt, PATIENCE).await
            }
            _ if is_right => Judgement::Right,
            _ => {
                sleep(WRONG).await;
                Judgement::Wrong
            }
        };
        match judgement {
            Judgement::Right => Ok(()),
            Judgement::Wrong => Err(Fault::Denied),
            Judgement::Busy => Err(Fault::Busy),
        }
    }

    /// Whether `given` is one of the accepted pairs.
    fn admit(&self, given: &Given) -> bool {
        let (user, password) = (Padded::new(&given.user), Padded::new(&given.password));
        // No stored text is too long, so this early return reveals nothing about the stored texts.
        let (Some(user), Some(password)) = (user, password) else { return false };
        // All pairs are compared, so the time does not reveal which pair matched.
        let right =
            self.pairs.iter().map(|pair| pair.user.equals(&user) & pair.password.equals(&password));
        right.fold(subtle::Choice::from(0), |any, one| any | one).into()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(secret)")
    }
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Given(secret)")
    }
}

/// A text with a comparison in constant time, whatever its length.
#[derive(Clone)]
struct Padded {
    length: u64,
    bytes: Zeroizing<[u8; LONGEST]>,
}

impl Padded {
    fn new(text: &[u8]) -> Option<Self> {
        let mut bytes = Zeroizing::new([0; LONGEST]);
        bytes.get_mut(..text.len())?.copy_from_slice(text);
        Some(Self { length: text.len() as u64, bytes })
    }

    fn equals(&self, other: &Self) -> subtle::Choice {
        self.length.ct_eq(&other.length) & self.bytes[..].ct_eq(&other.bytes[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_pair_is_admitted() {
        let credentials = Credentials::new("anna", "one").unwrap();
        let admit = |user: &[u8], password: &[u8]| credentials.admit(&Given::new(user, password));
        assert!(admit(b"anna", b"one"));
        for (user, password) in [
            (&b"anna"[..], &b"two"[..]),
            (b"bert", b"one"),
            (b"anna", b""),
            (b"", b"one"),
            (b"anna", b"one\0"),
            (b"anna\0", b"one"),
            (b"annaone", b""),
            (b"anna", &[0; 300]),
        ] {
            assert!(!admit(user, password));
        }
        assert!(Credentials::new("", "").is_some());
        assert!(Credentials::new(&"a".repeat(256), "").is_none());
        assert_eq!(format!("{credentials:?}"), "Credentials(secret)");
    }
}
