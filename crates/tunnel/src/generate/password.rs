//! The hash of a password of a visitor, for `basic_auth`.

use std::io::{self, BufRead, IsTerminal as _};

use anyhow::Context as _;
use argon2::{Algorithm, Argon2, Params, Version};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use ops::{WrongConfig, term};
use proto::HttpOptions;
use rustix::process::{Signal, kill_current_process_group};
use zeroize::Zeroizing;

use super::hidden::Hidden;

/// The memory in KiB, the passes and the lanes that OWASP's "Password Storage Cheat Sheet"
/// recommends for Argon2id: 40 ms on a server.
const COST: (u32, u32, u32) = (19 * 1024, 2, 1);

/// Longer than any password that a server accepts, in bytes.
const LINE_MAX: usize = 1024;

/// The largest size of a pair of user and password, in bytes.
const PAIR_MAX: usize = 256;

/// The line `USER:HASH` for the password on the first line of standard input; without a user, only
/// the hash.
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

/// The first line of standard input. A terminal does not show the typed characters.
fn password() -> anyhow::Result<Zeroizing<String>> {
    let hidden = io::stdin().is_terminal().then(|| {
        term::err("the password, and Enter:");
        Hidden::new()
    });
    let keys = hidden.as_ref().map_or(&[][..], Hidden::keys);
    let line = line(io::stdin().lock(), keys).context("standard input")?;
    let last = line.last();
    let signal = keys.iter().find(|(key, _)| last == Some(key)).map(|&(_, signal)| signal);
    let is_typed = hidden.is_some();
    drop(hidden);
    if let Some(signal) = signal {
        // As the terminal itself does: the signal goes to every program of the pipeline.
        kill_current_process_group(signal).context("the signal of the terminal")?;
        anyhow::bail!("interrupted");
    }
    let text = str::from_utf8(&line).context("standard input")?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    let text = text.strip_suffix('\r').unwrap_or(text);
    // A control character has no meaning here, and no browser sends it (RFC 7617 section 2).
    if is_typed && text.contains(char::is_control) {
        return Err(WrongConfig::one("the password has a control character".to_owned()).into());
    }
    Ok(Zeroizing::new(text.to_owned()))
}

/// Bytes up to the end of the line, or to one of the special keys.
fn line(input: impl BufRead, keys: &[(u8, Signal)]) -> io::Result<Zeroizing<Vec<u8>>> {
    // A larger buffer would leave a copy behind.
    let mut line = Zeroizing::new(Vec::with_capacity(LINE_MAX));
    for byte in input.bytes().take(LINE_MAX) {
        let byte = byte?;
        line.push(byte);
        if byte == b'\n' || keys.iter().any(|&(key, _)| key == byte) {
            break;
        }
    }
    Ok(line)
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
