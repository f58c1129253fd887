//! The hash of a token with which a client logs in.

use std::io::{self, IsTerminal};
use std::path::Path;

use anyhow::Context;
use ops::{WrongConfig, term};
use proto::greeting::Token;
use zeroize::Zeroizing;

use crate::input::first_line;
use crate::material;

/// Longer than any token, in bytes.
const LINE_MAX: u64 = 4096;

/// The stored form of a token, which a server can keep instead of the token. The token comes from
/// `file`, or from the first line of standard input.
pub(crate) fn hash(file: Option<&Path>) -> anyhow::Result<Zeroizing<String>> {
    let text = match file {
        Some(file) => material::read_token(file).with_context(|| file.display().to_string())?,
        None => {
            if io::stdin().is_terminal() {
                term::err("the token, and Enter:");
            }
            first_line(LINE_MAX)?
        }
    };
    let text = Zeroizing::new(text);
    let token = Token::new(text.trim()).map_err(|why| WrongConfig::one(why.to_string()))?;
    Ok(token.stored().text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_made_of_a_token_and_of_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        std::fs::write(&file, format!("{}\n", ops::token().unwrap())).unwrap();
        let text = hash(Some(&file)).unwrap();
        proto::greeting::StoredCredential::of(&text).unwrap();
        for wrong in [text.as_str(), "weak", ""] {
            std::fs::write(&file, wrong).unwrap();
            assert!(hash(Some(&file)).unwrap_err().is::<WrongConfig>());
        }
    }
}
