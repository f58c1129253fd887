//! Defines what counts as a secret, for all code that writes, shows or logs a configuration.
//!
//! | question | answer |
//! |---|---|
//! | what may stand under a key | [`held_by`] |
//! | is the value of this header field a secret | [`is_secret_field`] |
//! | which part of a URL is a secret | [`in_url`] |
//! | which secrets does a configuration have | [`of_client`], [`of_server`], [`of_proxy`] |
//! | does a text contain a secret | [`stands_in`] |
//! | what hides the secrets of a file in a message | [`Secrets`] |
//!
//! Each key states its content in the [table of keys](crate::keys); a key that does not state it
//! holds no secret.

mod held;
mod texts;
pub(crate) mod url;

pub use crate::key_table::Holds;
use crate::keys;
pub use held::{Held, of_client, of_proxy, of_server, stands_in};
use held::{SECRET_MIN, WORD_MAX};
pub use texts::Secrets;
pub(crate) use texts::{is_random_word, looks_random};
use url::SECRET_WORDS;
pub use url::{in_url, without_userinfo};

/// The kind of content of a key. `None`: the decoder does not know the key, so its value may be
/// anything.
#[must_use]
pub fn held_by(key: &str) -> Option<Holds> {
    let mut holds = None;
    keys::any(|map| {
        let found = map.rows.iter().find(|row| row.key == key);
        holds = found.map(|row| row.holds).or(holds);
        found.is_some()
    });
    holds
}

/// Standard header fields whose values are public, although the name contains such a word or the
/// value looks random.
const PUBLIC_FIELDS: &[&str] = &[
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-origin",
    "access-control-expose-headers",
    "cache-control",
    "content-disposition",
    "content-language",
    "content-security-policy",
    "content-security-policy-report-only",
    "content-type",
    "etag",
    "link",
    "location",
    "nel",
    "permissions-policy",
    "proxy-authenticate",
    "public-key-pins",
    "report-to",
    "reporting-endpoints",
    "server",
    "strict-transport-security",
    "surrogate-key",
    "user-agent",
    "vary",
    "www-authenticate",
];

/// Words at the start of a value that is a credential (RFC 9110 section 11.4).
const SCHEMES: &[&str] = &["basic", "bearer", "digest", "negotiate", "token", "apikey"];

/// The shortest word, in bytes, that may be random text.
const RANDOM_MIN: usize = 16;

/// Whether the value of a header field is a secret: by the name of the field, by the scheme at the
/// start of the value, or because the value comes from variables or contains random text.
#[must_use]
pub fn is_secret_field(name: &str, value: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_public = PUBLIC_FIELDS.contains(&name.as_str());
    let is_named = || SECRET_WORDS.iter().any(|word| name.contains(word));
    let looks_random = || value.split(|c| !is_of_base64(c)).any(is_random);
    let is_scheme = |first: &str| SCHEMES.iter().any(|scheme| first.eq_ignore_ascii_case(scheme));
    let has_scheme = || {
        let mut words = value.split_ascii_whitespace();
        words.next().is_some_and(is_scheme) && words.next().is_some()
    };
    let is_of_variables = value.contains("${");
    !value.is_empty()
        && (is_of_variables
            || in_url(value).is_some()
            || !is_public && (is_named() || has_scheme() || looks_random()))
}

const fn is_of_base64(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '+' | '_')
}

/// Whether a word looks random: it is long, and mixes digits with letters.
pub(crate) fn is_random(word: &str) -> bool {
    let has = |is: fn(&u8) -> bool| word.as_bytes().iter().any(is);
    word.len() >= RANDOM_MIN && has(u8::is_ascii_digit) && has(u8::is_ascii_alphabetic)
}

#[cfg(test)]
mod tests {
    use testkit::secrets::examples;

    use super::*;
    use crate::reference::{self, TABLES};

    #[test]
    fn a_key_holds_the_same_in_every_map() {
        for key in reference::all() {
            assert_eq!(held_by(key.row.key), Some(key.row.holds), "{}: {}", key.role, key.path);
        }
        assert_eq!(held_by("unheard_of"), None);
    }

    /// Sections and keys whose value may be a URL, and whose decoder takes none with a secret.
    const PLAIN_URLS: &[(&str, &str)] = &[
        ("server:", "listen"),
        ("server:listen[]", "url"),
        ("server:listen[]", "default"),
        ("server:http", "listen"),
        ("server:tls_routes", "listen"),
        ("server:tls_routes.acme", "directory"),
        ("server:auth.http", "url"),
        ("server:cluster", "directory"),
        ("server:cluster.directory", "etcd"),
        ("server:cluster.peers", "listen"),
        ("server:cluster.peers", "advertise"),
        ("client:services[]", "servers"),
        ("client:services[]", "target"),
        ("client:services[].target[]", "url"),
        ("client:forwards[]", "listen"),
        ("client:forwards[]", "target"),
        ("proxy:proxies[]", "listen"),
        ("proxy:proxies[]", "target"),
        ("proxy:proxies[].target[]", "url"),
        ("both:admin", "listen"),
        ("both:admin", "origin"),
        ("both:otlp", "endpoint"),
    ];

    /// A text that may be a token, and stands nowhere else.
    const SENTINEL: &str = "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi";

    #[test]
    fn each_key_that_may_hold_a_secret_has_an_example() {
        let examples = examples(SENTINEL);
        for table in TABLES {
            for key in table.keys {
                let is_there =
                    examples.iter().any(|e| (e.section, e.key) == (table.path.as_str(), key));
                let is_plain = PLAIN_URLS.contains(&(table.path.as_str(), key));
                let wanted = match held_by(key) {
                    // The section above has the example.
                    Some(Holds::Fields) if key == "set" => false,
                    Some(Holds::Token | Holds::Passwords | Holds::Fields) => true,
                    Some(Holds::Url) => !is_plain,
                    Some(Holds::Nothing | Holds::TokenFile | Holds::KeyFile) | None => false,
                };
                assert_eq!(is_there, wanted, "{} {key}", table.path);
            }
        }
    }

    #[test]
    fn the_secret_of_each_example_is_found_and_never_shown() {
        let token = |_: &std::path::Path| Ok(SENTINEL.replace('q', "w"));
        let sources = crate::Sources { env: &|_| None, read: &token };
        for example in examples(SENTINEL) {
            let text = Some(crate::Text { name: "c.yaml", text: &example.text });
            let (held, shown) = if example.is_server() {
                let loaded = crate::load_server(text, &crate::ServerFlags::default(), &sources);
                let config = loaded.unwrap_or_else(|why| panic!("{example:?}: {why:?}")).config;
                (of_server(&config), format!("{config:?}"))
            } else {
                let loaded = crate::load_client(text, &crate::ClientFlags::default(), &sources);
                let config = loaded.unwrap_or_else(|why| panic!("{example:?}: {why:?}")).config;
                let servers = config.paths().map(|path| path.endpoint.to_string());
                (of_client(&config), format!("{config:?} {:?}", servers.collect::<Vec<_>>()))
            };
            let is_held = held.iter().any(|held| held.secret.reveal().contains(SENTINEL));
            assert!(is_held, "{example:?}: {held:?}");
            let echo = crate::edit::show("c.yaml", &example.text).unwrap();
            let echo = crate::edit::render::flow(&echo);
            for shown in [shown, echo, format!("{held:?}")] {
                assert!(!shown.contains(SENTINEL), "{} {}: {shown}", example.section, example.key);
            }
        }
    }

    #[test]
    fn no_problem_repeats_the_user_of_a_url() {
        let sources = crate::Sources { env: &|_| None, read: &|_| Err(String::new()) };
        let secret = "me:swordfish@";
        for (is_server, text) in [
            (true, "listen: \"tls://SECRET[::]:7000\""),
            (true, "listen: [{ url: \"mux://[::]:7000\", default: \"tcp://SECRETa:1\" }]"),
            (true, "auth: { http: { url: \"https://SECRETa/\" } }"),
            (true, "cluster: { name: c, directory: { etcd: \"https://SECRETa\" } }"),
            (true, "cluster: { name: c, peers: { listen: \"quic://SECRETa\" } }"),
            (true, "otlp: { endpoint: \"http://SECRETc:4318\" }"),
            (true, "admin: { listen: \"http://SECRET127.0.0.1:1\" }"),
            (true, "admin: { listen: \"127.0.0.1:1\", origin: \"https://SECRETa\" }"),
            (true, "tls_routes: { acme: { directory: \"https://SECRETa/d\" } }"),
            (false, "servers: \"tls://SECRETa:1\""),
            (false, "servers: \"wss://SECRETa/t\""),
            (false, "proxy: \"ftp://SECRETa:1\""),
            (false, "services: [{ name: s, target: \"tcp://SECRETa:1\", public: \"tcp://:1\" }]"),
            (false, "services: [{ name: s, target: \"tcp://a:1\", public: \"http://SECRETa\" }]"),
            (false, "services: [\"tcp://:1=http-proxy://SECRETa:1\"]"),
            (false, "forwards: [\"tcp://127.0.0.1:1=tcp://SECRETa:1\"]"),
            (false, "forwards: [{ listen: \"socks5://SECRET127.0.0.1:1\" }]"),
        ] {
            let text = text.replace("SECRET", secret);
            let whole = Some(crate::Text { name: "c.yaml", text: &text });
            let problems = if is_server {
                crate::load_server(whole, &crate::ServerFlags::default(), &sources).err()
            } else {
                crate::load_client(whole, &crate::ClientFlags::default(), &sources).err()
            };
            let said = problems.expect(&text).iter().map(ToString::to_string).collect::<String>();
            assert!(!said.contains("swordfish"), "{text}: {said}");
        }
    }

    #[test]
    fn a_header_field_is_secret_by_its_name_its_scheme_or_its_random_value() {
        for (name, value) in [
            ("Authorization", "Basic bWU6cHc="),
            ("Cookie", "a=b"),
            ("Set-Cookie", "sid=1"),
            ("X-Api-Key", "815"),
            ("X-Auth", "hunter2"),
            ("X-Shared-Secret", "a"),
            ("X-Amz-Security-Token", "a"),
            ("X-Password", "a"),
            ("X-Upstream", "Bearer abc"),
            ("X-Upstream", "${UPSTREAM}"),
            ("X-Upstream", "q7Xb2LmZ0aKc9RtYv4WnPs"),
            ("X-Upstream", "https://me:pw@host/"),
        ] {
            assert!(is_secret_field(name, value), "{name}: {value}");
        }
        for (name, value) in [
            ("X-Frame-Options", "DENY"),
            ("Strict-Transport-Security", "max-age=31536000; includeSubDomains; preload"),
            ("Content-Security-Policy", "default-src 'self' https://cdn.example.com"),
            ("Cache-Control", "no-store"),
            ("X-Robots-Tag", "noindex, nofollow"),
            ("Access-Control-Allow-Origin", "https://app.example.com"),
            ("Permissions-Policy", "geolocation=(), microphone=()"),
            (
                "Content-Security-Policy",
                "script-src 'sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob'",
            ),
            ("Access-Control-Allow-Credentials", "true"),
            ("WWW-Authenticate", "Basic realm=home"),
            ("X-Environment", "staging-2"),
            ("User-Agent", "Mozilla/5.0 (X11; Linux x86_64)"),
            ("Authorization", ""),
        ] {
            assert!(!is_secret_field(name, value), "{name}: {value}");
        }
    }

    #[test]
    fn the_secret_of_a_url_is_found_and_taken_out_of_messages() {
        for (url, secret) in [
            ("http://me:pw@p:1", Some("me:pw")),
            ("socks5://token@p:1", Some("token")),
            ("wss://a.example/t?access_token=abc", Some("abc")),
            ("wss://a.example/t?room=1", None),
            ("https://a.example/@me", None),
            ("file:///srv/@me", None),
            ("unix://@me", None),
            ("tcp://127.0.0.1:22", None),
            ("8080", None),
        ] {
            assert_eq!(in_url(url), secret, "{url}");
        }
        for (text, shown) in [
            ("`tls://me:pw@a:1` is no address", "`tls://…@a:1` is no address"),
            ("http://a:b@c and x://d@e", "http://…@c and x://…@e"),
            ("`tls://a:1` has no host", "`tls://a:1` has no host"),
            ("`me:pw@[::]:1` is ambiguous", "`…@[::]:1` is ambiguous"),
            ("`unix:@app` and unix://@app", "`unix:@app` and unix://@app"),
        ] {
            assert_eq!(without_userinfo(text), shown);
        }
    }
}
