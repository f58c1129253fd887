//! The settings of proxies: which users may use the proxy (`basic_auth`), and which destinations
//! they may reach (`allow`). Services with an exit as their target and forwards that are proxies
//! have these settings.

use proto::{CREDENTIALS_MAX, HttpOptions};

use crate::htpasswd::is_hashed;
use crate::model::Exit;
use crate::section::Section;
use crate::{BadValue, ForwardRight, ForwardRights, Secret};

/// Longest user and longest password in bytes (RFC 1929 section 2).
const PART_MAX: usize = 255;

/// Most entries of `allow`. Each destination of a visitor is compared with every entry.
const ALLOW_MAX: usize = 256;

/// Decodes the settings of an exit. The result is incomplete only after a problem was reported.
pub(super) fn exit(s: &Section<'_>) -> Exit {
    Exit { basic_auth: users(s), allow: allow(s) }
}

/// The settings of a service that is not an exit. Reports a key that only exits have.
pub(super) fn none(s: &Section<'_>) -> Exit {
    if s.has("allow") {
        let bad = BadValue::new("`allow` lists what the visitors of a proxy may reach");
        s.bad("allow", bad.hint("it is for a `target` of socks5 or http-proxy: remove it"));
    }
    Exit::default()
}

/// Decodes `basic_auth` of a proxy. No problem repeats the text, which is a secret.
pub(super) fn users(s: &Section<'_>) -> Vec<Secret> {
    let Some(item) = s.key("basic_auth") else { return Vec::new() };
    let items = s.cx.one_or_list(&item);
    if items.is_empty() {
        let bad = BadValue::new("an empty list, which would ask nobody for a password");
        s.bad("basic_auth", bad.hint("list `user:password`, or remove the key"));
    }
    if items.len() > CREDENTIALS_MAX {
        let bad = BadValue::new(format!("more than {CREDENTIALS_MAX} users"));
        s.bad("basic_auth", bad);
        return Vec::new();
    }
    items.iter().filter_map(|item| s.cx.value(item, user)).collect()
}

fn user(text: &str) -> Result<Secret, BadValue> {
    let hint = "for example \"ann:${PROXY_PASSWORD}\"";
    if let Err(why) = HttpOptions::check_credential(text) {
        return Err(BadValue::new(why.to_string()).hint(hint));
    }
    if is_hashed(text) {
        let bad = BadValue::new("a hash of a password is for http:// and https:// names");
        return Err(bad.hint("the password itself: \"ann:${PROXY_PASSWORD}\""));
    }
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let fits = |part: &str| (1..=PART_MAX).contains(&part.len());
    if !fits(user) || !fits(password) {
        let bad = format!("user and password of a proxy have 1 to {PART_MAX} bytes each");
        return Err(BadValue::new(bad).hint(hint));
    }
    Ok(Secret::new(text))
}

/// Decodes `allow` of an exit.
fn allow(s: &Section<'_>) -> Option<ForwardRights> {
    let items = s.cx.one_or_list(&s.key("allow")?);
    if items.len() > ALLOW_MAX {
        s.bad("allow", BadValue::new(format!("more than {ALLOW_MAX} entries")));
        return None;
    }
    if items.is_empty() {
        let bad = BadValue::new("an empty list lets visitors reach nothing");
        s.warn("allow", bad.hint("without the key, all ordinary destinations"));
    }
    let read = |text: &str| {
        let right: ForwardRight = text.parse()?;
        if right.is_unix() {
            let bad = BadValue::new("no visitor of a proxy can ask for a Unix socket");
            return Err(bad.hint("host:port, network/prefix:ports or *:ports"));
        }
        Ok(right)
    };
    Some(ForwardRights(items.iter().filter_map(|item| s.cx.value(item, read)).collect()))
}
