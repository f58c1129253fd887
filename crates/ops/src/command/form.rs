//! The form of a body, and why a request is refused. Every mistake is answered in the terms of the
//! API, with an example of what is right: the messages of the JSON library name types of this
//! program.

use serde::de::{DeserializeOwned, IgnoredAny};

use super::fields::{self, Fields, Unread, fields_of};

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

impl Misread {
    /// The refusal of a query. `must`: an example of a right query, or nothing for a route that
    /// needs no query.
    pub(super) fn query(why: Unread, must: &str) -> Self {
        Self::Query(match why {
            Unread::NoBool(name) => format!("`{name}` is true or false"),
            Unread::Names(_) | Unread::Value { .. } | Unread::Other if must.is_empty() => {
                "a field of the path or of the query is wrong or missing".to_owned()
            }
            Unread::Names(_) | Unread::Value { .. } | Unread::Other => {
                format!("the query must be such as {must}")
            }
        })
    }
}

/// The form of a body.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// Begins a sentence: `the body must be …`.
    pub is: &'static str,
    pub example: &'static str,
    /// The keys without which the body is refused.
    pub required: &'static [&'static str],
    /// The fields of the type that the body may not have.
    pub without: &'static [&'static str],
}

impl Form {
    /// The form of an object with all fields of its type.
    pub const fn object(example: &'static str, required: &'static [&'static str]) -> Self {
        Self { is: "an object", example, required, without: &[] }
    }

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

    /// Reads an object. `texts`: the fields that the path has, which the body may not have.
    ///
    /// # Errors
    /// The body is not such an object. The message ends with the form.
    pub fn read<T: DeserializeOwned>(
        &self,
        body: &[u8],
        texts: &[(String, String)],
    ) -> Result<T, Misread> {
        let fields = self.fields(body, texts, fields_of::<T>())?;
        fields::read(fields).map_err(|why| self.wrong_value(why.position(body)))
    }

    /// The fields of the body and the path. `known`: the fields of the type that is read.
    fn fields<'a>(
        &self,
        body: &'a [u8],
        texts: &'a [(String, String)],
        known: &[&str],
    ) -> Result<Fields<'a>, Misread> {
        self.syntax(body)?;
        let mut fields = Fields::of_json(body).map_err(|why| {
            if body.trim_ascii_start().starts_with(b"{") {
                self.wrong_value((why.line(), why.column()))
            } else {
                Misread::Data(self.must())
            }
        })?;
        let is_known = |key: &str| {
            known.contains(&key)
                && !self.without.contains(&key)
                && texts.iter().all(|(name, _)| name != key)
        };
        if let Some(key) = fields.names().find(|key| !is_known(key)) {
            return Err(self.wrong(&format!("unknown key `{}`", brief(key))));
        }
        for key in self.required {
            match fields.is_null(key) {
                None => return Err(self.wrong(&format!("`{key}` is missing"))),
                // The type may take `null` for a field that is missing.
                Some(true) => return Err(self.wrong(&format!("`{key}` is null"))),
                Some(false) => {}
            }
        }
        fields.add(texts.iter().map(|(name, text)| (name.as_str(), text.as_str())));
        Ok(fields)
    }

    fn wrong(&self, why: &str) -> Misread {
        Misread::Data(format!("{why}; {}", self.must()))
    }

    fn wrong_value(&self, (line, column): (usize, usize)) -> Misread {
        self.wrong(&format!("a wrong value at line {line}, column {column}"))
    }
}

/// The beginning of a text of the request.
pub(super) fn brief(text: &str) -> String {
    text.chars().take(32).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fields::Sample;
    use super::*;

    const FORM: Form = Form { without: &["on"], ..Form::object(r#"{"name":"a"}"#, &["name"]) };

    #[test]
    fn a_wrong_query_is_refused_with_a_right_one() {
        let refused = |why| Misread::query(why, "count=1, where count is a number").to_string();
        let must = "the query must be such as count=1, where count is a number";
        assert_eq!(refused(Unread::Other), must);
        assert_eq!(refused(Unread::NoBool("on".into())), "`on` is true or false");
        let without_example = Misread::query(Unread::Other, "").to_string();
        assert_eq!(without_example, "a field of the path or of the query is wrong or missing");
    }

    #[test]
    fn an_object_is_read_with_the_texts_of_its_path() {
        let path = [("name".to_owned(), "a".to_owned())];
        let read = |body: &[u8]| FORM.read::<Sample>(body, &[]);
        let one = |count| Sample { name: "a".into(), on: false, count };
        assert_eq!(read(br#"{"name":"a","count":1}"#), Ok(one(Some(1))));
        let inner = Form { required: &[], ..FORM };
        assert_eq!(inner.read(br#"{"count":1}"#, &path), Ok(one(Some(1))));
        let must = FORM.must();
        let refused = |why: &str| Err(Misread::Data(format!("{why}; {must}")));
        assert_eq!(inner.read::<Sample>(br#"{"name":"b"}"#, &path), refused("unknown key `name`"));
        assert_eq!(read(br#"{"name":"a","on":true}"#), refused("unknown key `on`"));
        assert_eq!(read(b"{}"), refused("`name` is missing"));
        assert_eq!(read(br#"{"name":1}"#), refused("a wrong value at line 1, column 9"));
        let counted = Form { required: &["count"], ..FORM };
        let null = counted.read::<Sample>(br#"{"name":"a","count":null}"#, &[]);
        assert_eq!(null, refused("`count` is null"));
        assert_eq!(read(b"[\"a\"]"), Err(Misread::Data(must.clone())));
        let lines = b"{\"name\":\n\"a\",\"count\":\n  [\n-]}";
        assert!(matches!(read(lines), Err(Misread::Syntax(_))));
        let lines = b"{\"name\":\n\"a\", \"count\":-1}";
        assert_eq!(read(lines), refused("a wrong value at line 2, column 15"));
        let twice = br#"{"name":"a","name":"b"}"#;
        assert_eq!(read(twice), refused("a wrong value at line 1, column 18"));
    }
}
