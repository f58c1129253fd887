//! Reads the JSON body of a request. Every mistake is answered in the terms of the API, with an
//! example of a valid body: the messages of the JSON library name types of this program.

use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misread {
    /// No object has this name.
    #[error("{0}")]
    Unknown(&'static str),
    /// The query string is invalid.
    #[error("{0}")]
    Query(String),
    /// The bytes of the body are not JSON.
    #[error("{0}")]
    Syntax(String),
    /// The JSON does not have the form that this request needs.
    #[error("{0}")]
    Data(String),
}

/// The form of a body.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// Begins a sentence: `the body must be …`.
    pub is: &'static str,
    pub example: &'static str,
    /// The keys of an object, the required key first.
    pub keys: &'static [&'static str],
    /// The number of required keys: 0 or 1.
    pub required: usize,
}

impl Form {
    /// The sentence that ends each message.
    pub fn must(&self) -> String {
        format!("the body must be {} such as {}", self.is, self.example)
    }

    /// Checks that the bytes are JSON.
    pub(super) fn syntax(&self, body: &[u8]) -> Result<(), Misread> {
        let why = match serde_json::from_slice::<IgnoredAny>(body) {
            Ok(_) => return Ok(()),
            Err(_) if body.trim_ascii().is_empty() => "the body is empty".to_owned(),
            Err(e) if e.is_eof() => "the body ends amid a JSON value".to_owned(),
            Err(e) => {
                format!("the body is not JSON from line {}, column {} on", e.line(), e.column())
            }
        };
        Err(Misread::Syntax(format!("{why}; {}", self.must())))
    }

    /// Reads an object.
    ///
    /// # Errors
    /// The body is not such an object. The message ends with the form.
    pub fn object<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, Misread> {
        self.syntax(body)?;
        // The library reads an array of the values as an object, too.
        if !body.trim_ascii_start().starts_with(b"{") {
            return Err(Misread::Data(self.must()));
        }
        serde_json::from_slice(body).map_err(|error| {
            let value = serde_json::from_slice::<Value>(body).ok();
            let map = value.as_ref().and_then(Value::as_object);
            let why = map.and_then(|map| {
                let unknown = map.keys().find(|key| !self.keys.contains(&key.as_str()));
                let mut required = self.keys.iter().take(self.required);
                let missing = required.find(|key| !map.contains_key(**key));
                unknown
                    .map(|key| format!("unknown key `{}`", brief(key)))
                    .or_else(|| missing.map(|key| format!("`{key}` is missing")))
            });
            let elsewhere =
                || format!("a wrong value at line {}, column {}", error.line(), error.column());
            Misread::Data(format!("{}; {}", why.unwrap_or_else(elsewhere), self.must()))
        })
    }
}

/// The beginning of a text of the request.
pub(super) fn brief(text: &str) -> String {
    text.chars().take(32).collect()
}
