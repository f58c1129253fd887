//! The hash of a password of a visitor, for `basic_auth`.

use std::io::{self, BufRead as _, IsTerminal as _, Read as _};

use anyhow::Context as _;
use argon2::{Algorithm, Argon2, Params, Version};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use ops::{WrongConfig, term};
use proto::HttpOptions;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

/// The memory in KiB, the passes and the lanes that OWASP's "Password Storage Cheat Sheet"
/// recommends for Argon2id: 40 ms of a server.
const COST: (u32, u32, u32) = (19 * 1024, 2, 1);

/// Longer than any password that a server takes, bytes.
const LINE_MAX: u64 = 1024;

/// The pair of user and password has at most so many bytes.
const PAIR_MAX: usize = 256;

/// The line `USER:HASH` for the password on the first line of standard input; without a user, the
/// hash alone.
pub(crate) fn hashed(user: Option<&str>) -> anyhow::Result<String> {
    let password = password()?;
    let bad = |why: String| -> anyhow::Error { WrongConfig::one(why).into() };
    if password.is_empty() {
        return Err(bad("an empty password".to_owned()));
    }
    if user.map_or(0, |user| user.len() + 1) + password.len() > PAIR_MAX {
        return Err(bad(format!("user and password have more than {PAIR_MAX} bytes")));
    }
    let hash = hash(password.as_bytes())?;
    let Some(user) = user else { return Ok(hash) };
    let line = format!("{user}:{hash}");
    match HttpOptions::check_hashed(&line) {
        Ok(found) if found == user => Ok(line),
        Ok(_) | Err(_) => Err(bad(format!("`{user}` is no user: it has a colon or is empty"))),
    }
}

fn hash(password: &[u8]) -> anyhow::Result<String> {
    let ((memory, passes, lanes), mut salt, mut hash) = (COST, [0; 16], [0; 32]);
    getrandom::fill(&mut salt).context("random numbers")?;
    let params = Params::new(memory, passes, lanes, Some(hash.len()));
    let params = params.map_err(|why| anyhow::anyhow!("argon2: {why}"))?;
    Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password_into(password, &salt, &mut hash)
        .map_err(|why| anyhow::anyhow!("argon2: {why}"))?;
    let [salt, hash] = [&salt[..], &hash].map(|bytes| STANDARD_NO_PAD.encode(bytes));
    Ok(format!("$argon2id$v=19$m={memory},t={passes},p={lanes}${salt}${hash}"))
}

/// The first line of standard input. A terminal does not show what is typed.
fn password() -> anyhow::Result<Zeroizing<String>> {
    let hidden = io::stdin().is_terminal().then(|| {
        term::err("the password, and Enter:");
        Hidden::new()
    });
    let mut line = Zeroizing::new(String::new());
    io::stdin().lock().take(LINE_MAX).read_line(&mut line).context("standard input")?;
    drop(hidden);
    let text = line.strip_suffix('\n').unwrap_or(&line);
    Ok(Zeroizing::new(text.strip_suffix('\r').unwrap_or(text).to_owned()))
}

/// A terminal that shows nothing of what is typed, until the value is dropped.
struct Hidden(Option<Termios>);

impl Hidden {
    fn new() -> Self {
        let Ok(before) = tcgetattr(io::stdin()) else { return Self(None) };
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        let is_set = tcsetattr(io::stdin(), OptionalActions::Flush, &silent).is_ok();
        Self(is_set.then_some(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // A terminal that is gone shows nothing either.
            let _ = tcsetattr(io::stdin(), OptionalActions::Flush, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use proto::PasswordHash;

    use super::*;

    #[test]
    fn each_hash_has_a_salt_of_its_own_and_is_one_that_a_server_takes() {
        let [one, other] = [hash(b"secret").unwrap(), hash(b"secret").unwrap()];
        assert_ne!(one, other);
        let PasswordHash::Argon2id { memory, passes, lanes, .. } =
            PasswordHash::parse(&one).unwrap()
        else {
            panic!("{one}");
        };
        assert_eq!((memory, passes, lanes), COST);
    }
}
