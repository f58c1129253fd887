//! The secrets of a checked configuration.

use super::url::in_query;
use super::{Holds, is_secret_field};
use crate::model::{ClientConfig, Common, Field, Proof, ProxyConfig, Token};
use crate::{Proxy, Secret, ServerConfig};

/// A secret of a configuration, with its variables expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The position of the key, as a path of the editor: `/clients/0/token`. Settings of servers
    /// have the position at the top of the file.
    pub place: String,
    /// The index in a list of secrets.
    pub nth: usize,
    /// [`Holds::Token`], [`Holds::Passwords`], [`Holds::Fields`] or [`Holds::Url`].
    pub kind: Holds,
    /// The secret alone: the password of a pair `user:password`.
    pub secret: Secret,
}

impl Held {
    /// A token at a position.
    #[must_use]
    pub fn token(place: impl Into<String>, token: &str) -> Self {
        Self::new(place, 0, Holds::Token, token)
    }

    fn new(place: impl Into<String>, nth: usize, kind: Holds, secret: &str) -> Self {
        Self { place: place.into(), nth, kind, secret: Secret::new(secret) }
    }
}

/// The secrets of a client.
#[must_use]
pub fn of_client(config: &ClientConfig) -> Vec<Held> {
    let mut all = Vec::new();
    if let Some(token) = &config.token {
        all.push(Held::new("/token", 0, Holds::Token, token.secret.reveal()));
    }
    common(&config.common, &mut all);
    for (i, server) in config.servers.iter().enumerate() {
        tokens(&format!("/servers/{i}/token"), server.token.iter(), &mut all);
    }
    if let Some(from) = &config.servers_from {
        tokens("/servers_from/token", from.token.iter(), &mut all);
        fields("/servers_from/headers", &from.path.headers, &mut all);
        all.extend(from.path.proxy.iter().filter_map(proxy));
        let secret = from.path.endpoint.path.as_deref().and_then(in_query);
        all.extend(secret.map(|secret| Held::new("/servers_from", 0, Holds::Url, secret)));
        fields("/headers", &config.path_defaults.headers, &mut all);
    }
    for path in config.paths() {
        fields("/headers", &path.headers, &mut all);
        all.extend(path.proxy.iter().filter_map(proxy));
        let secret = path.endpoint.path.as_deref().and_then(in_query);
        all.extend(secret.map(|secret| Held::new("/servers", 0, Holds::Url, secret)));
    }
    for (i, service) in config.services.iter().enumerate() {
        let place = format!("/services/{i}");
        let http = &service.terms.http;
        let inline = service.user_file.as_ref().map_or(http.hashes.len(), |file| file.inline);
        let pairs = http.basic_auth.iter().chain(http.hashes.iter().take(inline));
        let pairs = pairs.map(String::as_str);
        let pairs = pairs.chain(service.exit.basic_auth.iter().map(Secret::reveal));
        passwords(&place, pairs, &mut all);
        for (n, visitor) in service.private.iter().flat_map(|own| own.visitors.iter().enumerate()) {
            tokens(&format!("{place}/visitors/{n}/token"), visitor.tokens.iter(), &mut all);
        }
        let edits = [
            ("headers", &service.terms.http.request),
            ("response_headers", &service.terms.http.response),
        ];
        for (key, edits) in edits {
            let place = format!("{place}/{key}/set");
            let secret = edits.set.iter().filter(|(name, value)| is_secret_field(name, value));
            all.extend(
                secret
                    .enumerate()
                    .map(|(nth, (_, value))| Held::new(place.clone(), nth, Holds::Fields, value)),
            );
        }
    }
    for (i, forward) in config.forwards.iter().enumerate() {
        let pairs = forward.basic_auth.iter().map(Secret::reveal);
        passwords(&format!("/forwards/{i}"), pairs, &mut all);
        tokens(&format!("/forwards/{i}/token"), forward.token.iter(), &mut all);
    }
    for (i, visit) in config.visits.iter().enumerate() {
        if let Proof::Token(token) = &visit.proof {
            tokens(&format!("/visits/{i}/token"), [token].into_iter(), &mut all);
        }
    }
    all
}

/// The secrets of a server.
#[must_use]
pub fn of_server(config: &ServerConfig) -> Vec<Held> {
    let mut all = Vec::new();
    for (i, client) in config.clients.iter().enumerate() {
        tokens(&format!("/clients/{i}/token"), client.tokens.iter(), &mut all);
    }
    common(&config.common, &mut all);
    if let Some(auth) = &config.auth {
        fields("/auth/http/headers", &auth.path.headers, &mut all);
    }
    let secrets = config.cluster.iter().flat_map(|cluster| &cluster.secrets);
    tokens("/cluster/secret", secrets, &mut all);
    if let Some(user) = config.cluster.as_ref().and_then(|node| node.directory.log_in.as_ref()) {
        all.push(Held::token("/cluster/directory/password", user.password.reveal()));
    }
    all
}

/// The secrets of a proxy's configuration.
#[must_use]
pub fn of_proxy(config: &ProxyConfig) -> Vec<Held> {
    let mut all = Vec::new();
    common(&config.common, &mut all);
    all
}

fn common(common: &Common, all: &mut Vec<Held>) {
    if let Some(admin) = &common.admin {
        tokens("/admin/token", [&admin.token].into_iter(), all);
        tokens("/admin/read_token", admin.read_token.iter(), all);
    }
    if let Some(otlp) = &common.otlp {
        fields("/otlp/headers", &otlp.headers, all);
    }
}

fn tokens<'a>(place: &str, tokens: impl Iterator<Item = &'a Token>, all: &mut Vec<Held>) {
    all.extend(
        tokens
            .enumerate()
            .map(|(nth, token)| Held::new(place, nth, Holds::Token, token.secret.reveal())),
    );
}

fn fields(place: &str, fields: &[Field], all: &mut Vec<Held>) {
    let secret = fields.iter().filter(|field| is_secret_field(&field.name, field.value.reveal()));
    all.extend(
        secret
            .enumerate()
            .map(|(nth, field)| Held::new(place, nth, Holds::Fields, field.value.reveal())),
    );
}

fn passwords<'a>(place: &str, pairs: impl Iterator<Item = &'a str>, all: &mut Vec<Held>) {
    all.extend(pairs.enumerate().map(|(nth, pair)| {
        let password = pair.split_once(':').map_or(pair, |(_, password)| password);
        Held::new(format!("{place}/basic_auth"), nth, Holds::Passwords, password)
    }));
}

fn proxy(proxy: &Proxy) -> Option<Held> {
    let (user, password) = proxy.credentials.as_ref()?;
    // Some proxies expect a token as the user name.
    let secret = if password.reveal().is_empty() { user } else { password.reveal() };
    Some(Held::new("/proxy", 0, Holds::Url, secret))
}

/// The shortest secret, in bytes, that is searched for. Shorter values occur in every text.
pub(super) const SECRET_MIN: usize = 4;

/// A secret with fewer bytes than this may be part of a longer word by chance.
pub(super) const WORD_MAX: usize = 8;

/// Whether a text contains a secret. A short secret must be a word of its own.
#[must_use]
pub fn stands_in(text: &str, secret: &str) -> bool {
    let is_apart = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    secret.len() >= SECRET_MIN
        && text.match_indices(secret).any(|(at, _)| {
            secret.len() >= WORD_MAX
                || is_apart(text[..at].chars().next_back())
                    && is_apart(text[at + secret.len()..].chars().next())
        })
}
