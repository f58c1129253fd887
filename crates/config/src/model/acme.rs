//! `acme` of `tls_routes`: the accounts that get certificates for names.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::key_table::KeyTable;
use crate::section::{FromSection as _, Item, Reading, Section};
use crate::{BadValue, Endpoint, Host, Secret, Span, secrecy, values};

/// An account at an authority that issues certificates by ACME (RFC 8555). The owner of the file
/// has accepted its terms.
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
#[keys(first = first, check = check)]
#[row(accept_terms: "`true`", required,
    text = "Accepts the terms of service of the certificate authority.")]
pub struct Acme {
    /// The e-mail addresses to which the certificate authority writes.
    #[key("e-mail addresses, one or list", none, each, read = email)]
    pub email: Vec<String>,
    /// The URL of the ACME directory of the certificate authority.
    #[key("`https://` URL", default = "https://acme-v02.api.letsencrypt.org/directory",
        holds = Url, read = directory)]
    pub directory: String,
    /// The file of the authorities that verify the certificate of the ACME directory.
    #[key("path", absent = "authorities of the system", holds = KeyFile, with = values::path)]
    pub ca: Option<PathBuf>,
    /// The names whose certificates the account orders.
    ///
    /// Hosts, or `*.` and a domain for every name below it. Empty: every name.
    #[key("names, `*.` and a domain, one or list", absent = "every name", each, read = name)]
    pub names: Vec<String>,
    /// The name of the account's folder in `state_dir`, where accounts share a directory.
    #[key("name", none, read = values::name)]
    pub account: Option<String>,
    /// The external account binding, where the certificate authority demands a binding.
    ///
    /// RFC 8555 section 7.3.4.
    #[key(map, none)]
    pub eab: Option<AcmeBinding>,
    /// Proof of names by dns-01 challenges, which also permits wildcard certificates.
    #[key(map, absent = "proof by the ports")]
    pub dns: Option<AcmeDns>,
    /// Orders the certificate of a name below a published wildcard at its first visit.
    #[key("`true`, `false`", default = "false", read = values::switch)]
    pub on_demand: bool,
}

/// An external account binding.
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
pub struct AcmeBinding {
    /// The key identifier of the external account binding.
    #[key("text", required = "the authority gives both to the owner of an account", read = kid)]
    pub kid: String,
    /// The file with the HMAC key of the external account binding, in Base64.
    ///
    /// The key has the alphabet of URLs and no padding.
    #[key("path", name = "hmac_file", holds = TokenFile, with = hmac,
        required = "the authority gives both to the owner of an account")]
    pub hmac: Secret,
}

/// Proof by dns-01 (RFC 8555 section 8.4).
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
pub struct AcmeDns {
    /// The program that writes and removes the DNS records of dns-01 challenges.
    #[key("path", read = values::path_of,
        required = "the program that writes records, such as /usr/local/bin/dns-hook")]
    pub exec: PathBuf,
    /// The timeout of a call of the program in `dns.exec`.
    #[key("duration, up to 10m", default = "60s", read = exec_timeout)]
    pub timeout: Span,
    /// The time between a DNS record and its check; `auto` polls the zone's name servers.
    #[key("`auto`, or a duration up to 1h", default = "auto", with = wait)]
    pub wait: Option<Span>,
    /// The name servers that are queried for the zone of a record and its name servers.
    #[key("address, `address:port`, one or list", absent = "those of the system", each,
        read = resolver)]
    pub resolvers: Vec<SocketAddr>,
}

/// An example of a directory, which is the default.
const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// Most accounts.
const ACCOUNTS_MAX: usize = 32;

/// Longest HMAC key in characters.
const HMAC_MAX: usize = 1024;

/// The maximum of `dns.timeout` and of `dns.wait`. Only one order is in progress at a time, so a
/// long order delays the others.
const EXEC_MAX: Span = Span::from_millis(600_000);
const WAIT_MAX: Span = Span::from_millis(3_600_000);

const DNS_PORT: u16 = 53;

/// Decodes one account, or a list.
pub(crate) fn accounts(s: &Section<'_>, key: &str) -> Vec<Acme> {
    let Some(item) = s.key(key) else { return Vec::new() };
    let items = s.cx.one_or_list(&item);
    if items.len() > ACCOUNTS_MAX {
        s.bad(key, BadValue::new(format!("more than {ACCOUNTS_MAX} accounts")));
    }
    let mut all: Vec<Acme> = Vec::new();
    let mut every = None;
    for (n, item) in items.into_iter().take(ACCOUNTS_MAX).enumerate() {
        let (at, path) = (item.at(), item.path.clone());
        let Some(section) = Section::open(s.cx, item, Acme::MAP) else { continue };
        let Some(account) = Acme::read(&section) else { continue };
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

/// Checks `accept_terms` and an empty list of names. `None` after a problem with the terms.
pub(crate) fn first(s: &Section<'_>) -> Option<()> {
    let accepts = match s.key("accept_terms") {
        Some(_) => s.value("accept_terms", values::switch),
        None => Some(false),
    };
    if accepts == Some(false) {
        let bad = BadValue::new("the terms of the authority are not accepted");
        s.bad("accept_terms", bad.hint("read them, and write `accept_terms: true`"));
    }
    let is_empty = |item: Item| s.cx.one_or_list(&item).is_empty();
    if s.key("names").is_some_and(is_empty) {
        let bad = BadValue::new("an empty list, so that the account orders nothing");
        s.bad("names", bad.hint("list names, or remove the key"));
    }
    accepts.filter(|accepts| *accepts).map(drop)
}

/// Checks `on_demand`.
pub(crate) fn check(s: &Section<'_>, acme: Acme) -> Option<Acme> {
    if acme.on_demand && acme.dns.is_some() {
        let bad = BadValue::new("dns-01 proves the wildcard itself, so that no name is ordered");
        s.bad("on_demand", bad.hint("remove one of `on_demand` and `dns`"));
    }
    // A map with a problem has no value.
    let is_wrong = |key, is_none| s.has(key) && is_none;
    if is_wrong("eab", acme.eab.is_none()) || is_wrong("dns", acme.dns.is_none()) {
        return None;
    }
    Some(acme)
}

/// Parses a name of an account: a host, or a wildcard.
pub(crate) fn name(text: &str) -> Result<String, BadValue> {
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

pub(crate) fn kid(text: &str) -> Result<String, BadValue> {
    match text {
        "" => Err(BadValue::new("an empty key identifier")),
        _ => Ok(text.to_owned()),
    }
}

/// Reads `hmac_file`. No problem repeats the text of the file, which is a secret.
pub(crate) fn hmac(s: &Section<'_>, key: &str) -> Option<Secret> {
    s.required(key, "the authority gives both to the owner of an account", |text| {
        let read = s.cx.read(Path::new(text), Reading::SECRET);
        let read = read.map_err(|why| secrecy::unreadable(text, &why))?;
        let hmac = read.reveal().trim().trim_end_matches('=');
        let is_of_base64 = |b: u8| b.is_ascii_alphanumeric() || b"-_+/".contains(&b);
        if hmac.is_empty() || hmac.len() > HMAC_MAX || !hmac.bytes().all(is_of_base64) {
            return Err(BadValue::new("the file has no HMAC key in Base64")
                .hint("copy the key from what the authority shows, into a file of one line"));
        }
        Ok(Secret::new(hmac.replace('+', "-").replace('/', "_")))
    })
}

/// Parses `dns.timeout`.
pub(crate) fn exec_timeout(text: &str) -> Result<Span, BadValue> {
    at_most(Span::positive(text)?, EXEC_MAX)
}

/// Decodes `dns.wait`. `None`: `auto`.
pub(crate) fn wait(s: &Section<'_>, key: &str) -> Option<Span> {
    s.value(key, |text| match text {
        "auto" => Ok(None),
        _ => at_most(text.parse()?, WAIT_MAX).map(Some),
    })?
}

fn at_most(span: Span, most: Span) -> Result<Span, BadValue> {
    if span > most {
        let bad = BadValue::new(format!("{span} is more than an order can wait"));
        return Err(bad.hint(format!("at most {most}")));
    }
    Ok(span)
}

/// Parses the address of a name server; its port may be missing.
pub(crate) fn resolver(text: &str) -> Result<SocketAddr, BadValue> {
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

pub(crate) fn email(text: &str) -> Result<String, BadValue> {
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
pub(crate) fn directory(text: &str) -> Result<String, BadValue> {
    let bad = || {
        BadValue::new(format!("`{text}` is not the URL of an ACME directory"))
            .hint(format!("for example {LETS_ENCRYPT}"))
    };
    let rest = text.strip_prefix("https://").ok_or_else(bad)?;
    let endpoint = format!("wss://{rest}").parse::<Endpoint>().map_err(|_| bad())?;
    if endpoint.port == 0 { Err(bad()) } else { Ok(text.to_owned()) }
}
