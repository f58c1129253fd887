//! The options of a service by HTTP name.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;

use proto::{
    CREDENTIALS_MAX, EDITS_MAX, FieldEdits, HttpOptionError, HttpOptions, Redirect, Sticky,
    TargetProtocol,
};

use super::spread::Listed;
use crate::htpasswd::{check, check_password, htpasswd, is_hashed};
use crate::model::entry::{self, Written};
use crate::model::{Public, UserFile};
use crate::section::{Item, Reading, Section};
use crate::yaml::Kind;
use crate::{BadValue, NameKind, secrecy, values};

/// The keys that need every message, in documentation order.
pub(super) const PROXIED: [&str; 14] = [
    BASIC_AUTH,
    BASIC_AUTH_FILE,
    "host_rewrite",
    "headers",
    "response_headers",
    "forwarded",
    "path",
    "strip_prefix",
    "redirect",
    "hsts",
    "preflight",
    "compress",
    "sticky",
    "limits.source.requests_per_second",
];

pub(super) const BASIC_AUTH: &str = "basic_auth";

const BASIC_AUTH_FILE: &str = "basic_auth_file";

/// The keys that concern requests to a target and its responses.
const OF_TARGET: [&str; 8] = [
    "host_rewrite",
    "headers",
    "response_headers",
    "forwarded",
    "strip_prefix",
    "proxy_protocol",
    "health",
    "target_tls",
];

const PASS_THROUGH: &str = "pass_through";

/// The key that records the requests of visitors for inspection, on the client.
pub(super) const REQUESTS: &str = "requests";

/// The decoded keys that concern HTTP.
pub(super) struct Read {
    pub(super) options: HttpOptions,
    /// The file of `basic_auth_file`.
    pub(super) file: Option<UserFile>,
    /// `forwarded: false`, which differs from the default of `https://` names.
    pub(super) unforwarded: bool,
}

/// Decodes the options. The result is incomplete only after a problem was reported. `basic_auth` of
/// an exit is not an HTTP option.
pub(super) fn options(
    s: &Section<'_>,
    written: &Written,
    is_exit: bool,
    redirect: Redirects,
    target: TargetProtocol,
) -> Read {
    let Redirects { to: redirect, none: no_https_redirect } = redirect;
    let pairs = if is_exit { Vec::new() } else { credentials(s) };
    let (mut hashes, basic_auth) = pairs.into_iter().partition::<Vec<_>, _>(|pair| is_hashed(pair));
    let inline = hashes.len();
    let file = file(s, &mut hashes);
    if let Err(why @ (HttpOptionError::Hashes | HttpOptionError::Twice)) =
        (HttpOptions { hashes: hashes.clone(), ..HttpOptions::default() }).check()
    {
        let key = if file.is_some() { BASIC_AUTH_FILE } else { BASIC_AUTH };
        s.bad(key, refused(why));
    }
    let options = HttpOptions {
        target,
        pass_through: written.pass_through,
        basic_auth,
        hashes,
        host_rewrite: written.host_rewrite.clone(),
        request: edits(s, "headers"),
        response: edits(s, "response_headers"),
        forwarded: written.forwarded.unwrap_or_default(),
        path: written.path.clone(),
        strip_prefix: strip_prefix(s),
        redirect,
        no_https_redirect,
        hsts: written.hsts,
        preflight_pass: preflight(s),
        compress: written.compress,
        sticky: written.sticky,
        requests_per_second: written.limits.requests_per_second(),
        ports: Vec::new(),
    };
    if options.pass_through && options.need_proxy() {
        let with = PROXIED.iter().find(|key| s.has(key));
        let with = with.unwrap_or(&"a target over HTTP/2 (h2c://)");
        let bad = BadValue::new(format!("pass_through with {with}, which needs every request"));
        s.bad(PASS_THROUGH, bad.hint("remove one of the two keys"));
    }
    let file = file.map(|path| UserFile { path, inline });
    Read { options, file, unforwarded: written.forwarded == Some(false) }
}

/// Adds the users of `basic_auth_file`. Returns the path unchanged.
fn file(s: &Section<'_>, hashes: &mut Vec<String>) -> Option<PathBuf> {
    s.value(BASIC_AUTH_FILE, |text| {
        if text.is_empty() {
            return Err(BadValue::new("an empty path"));
        }
        let path = PathBuf::from(text);
        let read = s.cx.read(&path, Reading::SECRET);
        let read = read.map_err(|why| secrecy::unreadable(text, &why))?;
        hashes.extend(htpasswd(read.reveal())?);
        Ok(path)
    })
}

/// The value of `redirect`.
#[derive(Default)]
pub(super) struct Redirects {
    /// The service has no target; its visitors are redirected to this address.
    pub(super) to: Option<Redirect>,
    /// Visitors are not redirected from `http://` to `https://`.
    none: bool,
}

/// Decodes `redirect`: a boolean, or an address.
pub(super) fn redirect(s: &Section<'_>) -> Redirects {
    let read = |text: &str| {
        if let Ok(is_on) = values::switch(text) {
            return Ok(Redirects { to: None, none: !is_on });
        }
        let hint = "https://www.example.com{uri} for a service that redirects alone; false for \
                    https:// names to which no http:// leads";
        match Redirect::new(text) {
            Ok(to) => Ok(Redirects { to: Some(to), none: false }),
            Err(why) => Err(BadValue::new(why.to_string()).hint(hint)),
        }
    };
    let redirect = s.value("redirect", read).unwrap_or_default();
    if redirect.to.is_some() {
        for key in OF_TARGET {
            s.no_effect(key, ": the service redirects alone", "remove the key");
        }
    }
    redirect
}

fn strip_prefix(s: &Section<'_>) -> Option<String> {
    let read = |text: &str| match values::switch(text) {
        Ok(true) => Ok(Some("/".to_owned())),
        Ok(false) => Ok(None),
        Err(_) => entry::path(text).map(Some),
    };
    let to = s.value("strip_prefix", read)??;
    if !s.has("path") {
        let bad = BadValue::new("strip_prefix without `path`, which is what it removes");
        s.bad("strip_prefix", bad.hint("add `path`, or remove the key"));
        return None;
    }
    Some(to)
}

fn preflight(s: &Section<'_>) -> bool {
    let read = |text: &str| match text {
        "pass" => Ok(true),
        _ => Err(BadValue::new(format!("`{text}` is no way to treat preflights"))
            .hint("`pass` lets preflights of browsers through without a password")),
    };
    let passes = s.value("preflight", read).unwrap_or_default();
    if passes && [BASIC_AUTH, BASIC_AUTH_FILE].iter().all(|key| !s.has(key)) {
        s.no_effect("preflight", " without `basic_auth`", "remove the key");
    }
    passes
}

/// Checks that the options fit the public addresses of the service. At a port or a `tls://` name,
/// visitors would bypass them.
pub(super) fn fit(s: &Section<'_>, options: &HttpOptions, is_exit: bool, public: &[Public]) {
    let other = public.iter().find(|public| !public.is_http());
    if let Some(other) = other {
        let keys = [PASS_THROUGH, REQUESTS].into_iter().chain(PROXIED);
        for key in keys.filter(|key| !(is_exit && *key == BASIC_AUTH)) {
            let hint = "it is for http:// and https:// names: remove the key, or publish the names \
                        as another service";
            s.no_effect(key, &format!(" at {other}"), hint);
        }
    }
    let is_https = |public: &Public| matches!(public, Public::Name { kind: NameKind::Https, .. });
    if options.pass_through && public.iter().any(is_https) {
        let bad = BadValue::new("pass_through with an https:// name, whose TLS the server ends");
        let hint = "remove pass_through; tls:// in the place of https:// passes TLS through";
        s.bad(PASS_THROUGH, bad.hint(hint));
    }
}

fn refused(why: HttpOptionError) -> BadValue {
    BadValue::new(why.to_string())
}

fn credentials(s: &Section<'_>) -> Vec<String> {
    let Some(item) = s.key(BASIC_AUTH) else { return Vec::new() };
    let items = s.cx.one_or_list(&item);
    if items.is_empty() {
        let bad = BadValue::new("an empty list, which would let everybody visit");
        s.bad(BASIC_AUTH, bad.hint("list `user:password`, or remove the key"));
    }
    let mut plain = 0;
    // No problem repeats the text, which is a secret.
    let mut read = |text: &str| {
        HttpOptions::check_credential(text)
            .map_err(|why| refused(why).hint("for example \"ann:${APP_PASSWORD}\""))?;
        check_password(text)?;
        if is_hashed(text) {
            check(text)?;
        } else if plain == CREDENTIALS_MAX {
            let bad = refused(HttpOptionError::Credentials);
            return Err(bad.hint("use hashes, or `basic_auth_file`"));
        } else {
            plain += 1;
        }
        Ok(text.to_owned())
    };
    items.iter().filter_map(|item| s.cx.value(item, &mut read)).collect()
}

/// Decodes whether a cookie binds visitors to one of these `targets`, if the targets were decoded.
/// `shared`: the service may have several clients.
pub(super) fn settle(
    s: &Section<'_>,
    sticky: Sticky,
    targets: Option<&Listed>,
    shared: bool,
) -> Sticky {
    match targets {
        _ if sticky == Sticky::Off => Sticky::Off,
        Some(targets) if !targets.others.is_empty() => Sticky::Target,
        Some(_) if !shared => {
            let hint = "remove the key, or name several targets, or add `shared: true`";
            s.no_effect("sticky", ": there is one target", hint);
            Sticky::Off
        }
        Some(_) | None => Sticky::Client,
    }
}

/// Decodes `set` and `remove`.
fn edits(s: &Section<'_>, key: &str) -> FieldEdits {
    let Some(s) = s.section::<Written>(key) else { return FieldEdits::default() };
    let edits = FieldEdits { set: set(&s), remove: s.each("remove", name) };
    for (key, count) in [("set", edits.set.len()), ("remove", edits.remove.len())] {
        if count > EDITS_MAX {
            s.bad(key, BadValue::new(format!("more than {EDITS_MAX} fields")));
        }
    }
    edits
}

fn name(text: &str) -> Result<String, BadValue> {
    match FieldEdits::check_name(text) {
        Ok(()) => Ok(text.to_owned()),
        Err(why) => Err(wrong_name(text, why)),
    }
}

fn wrong_name(name: &str, why: HttpOptionError) -> BadValue {
    let bad = BadValue::new(why.to_string());
    if why != HttpOptionError::FixedField {
        return bad;
    }
    if name.eq_ignore_ascii_case("host") {
        return bad.hint("`host_rewrite` sets Host");
    }
    bad.hint("remove it: the server sets it as needed")
}

/// Decodes a map from names to values. The values may be secrets.
fn set(s: &Section<'_>) -> Vec<(String, String)> {
    let Some(item) = s.key("set") else { return Vec::new() };
    let Kind::Map(entries) = &item.node.kind else {
        let _: Option<()> = s.cx.wrong_type(&item, "a map of names to values", "something else");
        return Vec::new();
    };
    let (mut seen, mut fields) = (BTreeSet::new(), Vec::new());
    for entry in entries {
        let name = entry.key.clone();
        let path = format!("{}.{}", item.path, secrecy::key(&name));
        if let Err(why) = FieldEdits::check_name(&name) {
            s.cx.problem(entry.at, &path, wrong_name(&name, why));
            continue;
        }
        if !seen.insert(name.to_ascii_lowercase()) {
            let bad = BadValue::new("the field is given twice").hint("remove one of them");
            s.cx.problem(entry.at, &path, bad);
            continue;
        }
        let item = Item { node: Rc::clone(&entry.value), path };
        let value = s.cx.value(&item, |text| match FieldEdits::check_value(text) {
            Ok(()) => Ok(text.to_owned()),
            Err(why) => Err(refused(why)),
        });
        fields.extend(value.map(|value| (name, value)));
    }
    fields
}
