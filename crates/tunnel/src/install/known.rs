//! The secrets of a configuration, and the search for them in a text.

use config::{ClientConfig, Common, Field, ServerConfig};
use zeroize::Zeroizing;

use super::secrets::dotted;

/// The secrets of a file's model.
#[derive(Debug, Default)]
pub(super) struct Secrets {
    /// The place of the key without `_file`, the index in the list, the token.
    pub(super) tokens: Vec<(String, usize, Zeroizing<String>)>,
    /// The key of each other secret, and the value with its variables expanded.
    pub(super) others: Vec<(&'static str, Zeroizing<String>)>,
}

impl Secrets {
    pub(super) fn token(&mut self, place: impl Into<String>, nth: usize, token: &str) {
        self.tokens.push((place.into(), nth, Zeroizing::new(token.to_owned())));
    }

    fn fields(&mut self, key: &'static str, fields: &[Field]) {
        let values = fields.iter().map(|field| field.value.reveal());
        self.others.extend(values.map(|value| (key, Zeroizing::new(value.to_owned()))));
    }

    fn common(&mut self, common: &Common) {
        if let Some(admin) = &common.admin {
            self.token("/admin/token", 0, admin.token.secret.reveal());
            if let Some(token) = &admin.read_token {
                self.token("/admin/read_token", 0, token.secret.reveal());
            }
        }
        if let Some(otlp) = &common.otlp {
            self.fields("otlp.headers", &otlp.headers);
        }
    }

    /// The secrets of a client.
    pub(super) fn of_client(config: &ClientConfig) -> Self {
        let mut all = Self::default();
        if let Some(token) = &config.token {
            all.token("/token", 0, token.secret.reveal());
        }
        all.common(&config.common);
        for path in &config.servers {
            all.fields("headers", &path.headers);
            let pairs = path.proxy.iter().filter_map(|proxy| proxy.credentials.as_ref());
            for (user, password) in pairs {
                // Some proxies expect a token in the place of the user.
                let secret = if password.reveal().is_empty() { user } else { password.reveal() };
                all.others.push(("proxy", Zeroizing::new(secret.to_owned())));
            }
        }
        all
    }

    /// The secrets of a server.
    pub(super) fn of_server(config: &ServerConfig) -> Self {
        let mut all = Self::default();
        for (i, client) in config.clients.iter().enumerate() {
            for (nth, token) in client.tokens.iter().enumerate() {
                all.token(format!("/clients/{i}/token"), nth, token.secret.reveal());
            }
        }
        all.common(&config.common);
        if let Some(auth) = &config.auth {
            all.fields("auth.http.headers", &auth.path.headers);
        }
        all
    }

    /// The key of a secret that is in a text.
    pub(super) fn left_in(&self, text: &str) -> Option<String> {
        let tokens = self.tokens.iter().map(|(place, _, token)| (dotted(place), token));
        let others = self.others.iter().map(|(key, secret)| ((*key).to_owned(), secret));
        tokens.chain(others).find(|(_, secret)| holds(text, secret)).map(|(key, _)| key)
    }
}

/// The shortest secret in bytes that is searched for. Every text contains shorter values.
const SECRET_MIN: usize = 4;

/// Below this number of bytes a secret may be a part of a longer word by chance.
const WORD_MAX: usize = 8;

/// Whether a text contains a secret. A short secret has to be a word of its own.
fn holds(text: &str, secret: &str) -> bool {
    let is_apart = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    secret.len() >= SECRET_MIN
        && text.match_indices(secret).any(|(at, _)| {
            secret.len() >= WORD_MAX
                || is_apart(text[..at].chars().next_back())
                    && is_apart(text[at + secret.len()..].chars().next())
        })
}
