//! `acme` of `tls_routes`: the accounts that get certificates for names.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use super::{Section, secrecy, values};
use crate::keys::{ACME, ACME_DNS, ACME_EAB};
use crate::model::{Acme, AcmeBinding, AcmeDns};
use crate::{BadValue, Endpoint, Host, Secret, Span};

/// Default of `directory`.
const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// Most accounts.
const ACCOUNTS_MAX: usize = 32;

/// Longest HMAC key in characters.
const HMAC_MAX: usize = 1024;

/// Default of `dns.timeout` and its maximum, and the maximum of `dns.wait`, in milliseconds. Only
/// one order is in progress at a time, so a long order delays the others.
const EXEC: u64 = 60_000;
const EXEC_MAX: u64 = 600_000;
const WAIT_MAX: u64 = 3_600_000;

const DNS_PORT: u16 = 53;

/// Decodes one account, or a list.
pub(super) fn accounts(s: &Section<'_>) -> Vec<Acme> {
    let Some(item) = s.key("acme") else { return Vec::new() };
    let items = s.cx.one_or_list(&item);
    if items.len() > ACCOUNTS_MAX {
        s.bad("acme", BadValue::new(format!("more than {ACCOUNTS_MAX} accounts")));
    }
    let mut all: Vec<Acme> = Vec::new();
    let mut every = None;
    for (n, item) in items.into_iter().take(ACCOUNTS_MAX).enumerate() {
        let (at, path) = (item.at(), item.path.clone());
        let Some(section) = Section::open(s.cx, item, &ACME) else { continue };
        let Some(account) = acme(&section) else { continue };
        let is_same = |other: &Acme| {
            (&other.directory, &other.account) == (&account.directory, &account.account)
        };
        if all.iter().any(is_same) {
            let bad = BadValue::new(format!("another account is at {}", account.directory));
            s.cx.problem(at, &path, bad.hint("give one of them a name: `account: NAME`"));
        }
        if let Some(every) = every {
            let bad = BadValue::new(format!("acme[{every}] orders every name before this account"));
            s.cx.problem(
                at,
                &path,
                bad.hint(format!("write acme[{every}] last, or give it `names`")),
            );
        }
        every = every.or_else(|| account.names.is_empty().then_some(n));
        all.push(account);
    }
    all
}

fn acme(s: &Section<'_>) -> Option<Acme> {
    let directory = match s.key("directory") {
        None => Some(LETS_ENCRYPT.to_owned()),
        Some(_) => s.value("directory", directory),
    };
    let accepts = match s.key("accept_terms") {
        Some(_) => s.value("accept_terms", values::switch),
        None => Some(false),
    };
    if accepts == Some(false) {
        let bad = BadValue::new("the terms of the authority are not accepted");
        s.bad("accept_terms", bad.hint("read them, and write `accept_terms: true`"));
    }
    let emails = s.key("email").map(|item| s.cx.one_or_list(&item)).unwrap_or_default();
    let email = emails.iter().filter_map(|item| s.cx.value(item, email)).collect();
    let names = s.key("names").map(|item| s.cx.one_or_list(&item)).unwrap_or_default();
    if s.key("names").is_some() && names.is_empty() {
        let bad = BadValue::new("an empty list, so that the account orders nothing");
        s.bad("names", bad.hint("list names, or remove the key"));
    }
    let names = names.iter().filter_map(|item| s.cx.value(item, name)).collect();
    let account = s.value("account", values::name);
    let eab = s.section("eab", &ACME_EAB).map(|eab| binding(&eab));
    let dns = s.section("dns", &ACME_DNS).map(|dns| self::dns(&dns));
    let on_demand = s.value("on_demand", values::switch).unwrap_or_default();
    if on_demand && dns.is_some() {
        let bad = BadValue::new("dns-01 proves the wildcard itself, so that no name is ordered");
        s.bad("on_demand", bad.hint("remove one of `on_demand` and `dns`"));
    }
    accepts.filter(|accepts| *accepts)?;
    let (eab, dns) = (transposed(eab)?, transposed(dns)?);
    let (directory, ca) = (directory?, values::path(s, "ca"));
    Some(Acme { email, directory, ca, names, account, eab, dns, on_demand })
}

/// `None` after a problem.
#[expect(clippy::option_option, reason = "absent, wrong, or right")]
fn transposed<T>(read: Option<Option<T>>) -> Option<Option<T>> {
    match read {
        None => Some(None),
        Some(None) => None,
        Some(read) => Some(read),
    }
}

/// Parses a name of an account: a host, or a wildcard.
fn name(text: &str) -> Result<String, BadValue> {
    let (star, bare) = text.strip_prefix("*.").map_or(("", text), |bare| ("*.", bare));
    match bare.parse::<Host>() {
        Ok(Host::Name(name)) => Ok(format!("{star}{name}")),
        Err(why) if !bare.is_ascii() => Err(why),
        Ok(Host::Ip(_) | Host::Scoped(_)) | Err(_) => {
            Err(BadValue::new(format!("`{text}` is not a host name"))
                .hint("for example app.example.com or *.home.example.com"))
        }
    }
}

fn binding(s: &Section<'_>) -> Option<AcmeBinding> {
    for key in ["kid", "hmac_file"] {
        if s.key(key).is_none() {
            s.missing(key, "the authority gives both to the owner of an account");
        }
    }
    let kid = s.value("kid", |text| match text {
        "" => Err(BadValue::new("an empty key identifier")),
        _ => Ok(text.to_owned()),
    });
    // No problem repeats the text of the file, which is a secret.
    let hmac = s.value("hmac_file", |text| {
        let read = (s.cx.sources.read)(Path::new(text)).map(Secret::new);
        let read = read.map_err(|why| secrecy::unreadable(text, &why))?;
        let hmac = read.reveal().trim().trim_end_matches('=');
        let is_of_base64 = |b: u8| b.is_ascii_alphanumeric() || b"-_+/".contains(&b);
        if hmac.is_empty() || hmac.len() > HMAC_MAX || !hmac.bytes().all(is_of_base64) {
            return Err(BadValue::new("the file has no HMAC key in Base64")
                .hint("copy the key from what the authority shows, into a file of one line"));
        }
        Ok(Secret::new(hmac.replace('+', "-").replace('/', "_")))
    });
    Some(AcmeBinding { kid: kid?, hmac: hmac? })
}

fn dns(s: &Section<'_>) -> Option<AcmeDns> {
    if s.key("exec").is_none() {
        s.missing("exec", "the program that writes records, such as /usr/local/bin/dns-hook");
    }
    let exec = values::path(s, "exec");
    let at_most = |key: &str, span: Span, most: u64| {
        if span > Span::from_millis(most) {
            let bad = BadValue::new(format!("{span} is more than an order can wait"));
            s.bad(key, bad.hint(format!("at most {}", Span::from_millis(most))));
        }
        span
    };
    let timeout = at_most("timeout", values::positive(s, "timeout", EXEC)?, EXEC_MAX);
    let wait = s.value("wait", |text| match text {
        "auto" => Ok(None),
        _ => text.parse::<Span>().map(Some),
    });
    let wait = wait.flatten().map(|wait| at_most("wait", wait, WAIT_MAX));
    let resolvers = s.key("resolvers").map(|item| s.cx.one_or_list(&item)).unwrap_or_default();
    let resolvers = resolvers.iter().filter_map(|item| s.cx.value(item, resolver)).collect();
    Some(AcmeDns { exec: exec?, timeout, wait, resolvers })
}

/// Parses the address of a name server; its port may be missing.
fn resolver(text: &str) -> Result<SocketAddr, BadValue> {
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let address = text.parse().ok().or_else(|| {
        let ip = bare.parse::<IpAddr>().ok()?;
        Some(SocketAddr::new(ip, DNS_PORT))
    });
    address.ok_or_else(|| {
        BadValue::new(format!("`{text}` is not the address of a name server"))
            .hint("for example 192.0.2.53 or 127.0.0.1:5353")
    })
}

fn email(text: &str) -> Result<String, BadValue> {
    let is_plain = text.bytes().all(|b| b.is_ascii_graphic() && !b"<>,;?:".contains(&b));
    match text.split_once('@') {
        Some((user, host)) if is_plain && !user.is_empty() && host.parse::<Host>().is_ok() => {
            Ok(text.to_owned())
        }
        _ => Err(BadValue::new(format!("`{text}` is not an e-mail address"))
            .hint("for example admin@example.com")),
    }
}

/// Parses the URL of a directory. The account's key signs every request, but `http://` would let an
/// attacker on the path issue the answers.
fn directory(text: &str) -> Result<String, BadValue> {
    let bad = || {
        BadValue::new(format!("`{text}` is not the URL of an ACME directory"))
            .hint(format!("for example {LETS_ENCRYPT}"))
    };
    let rest = text.strip_prefix("https://").ok_or_else(bad)?;
    let endpoint = format!("wss://{rest}").parse::<Endpoint>().map_err(|_| bad())?;
    if endpoint.port == 0 { Err(bad()) } else { Ok(text.to_owned()) }
}
