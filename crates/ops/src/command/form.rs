//! Reads the fields of a command: from the JSON object of a line or of a body, and from the texts
//! of a path and a query. Every mistake is answered in the terms of the API, with an example of
//! what is right: the messages of the JSON library name types of this program.
//!
//! The names of the fields come from the type that is read, so no list repeats them.

use std::fmt;

use serde::de::value::MapDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, IntoDeserializer, MapAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};

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

impl de::Error for Misread {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Data(message.to_string())
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
        self.syntax(body)?;
        let wrong = |why: &str| Misread::Data(format!("{why}; {}", self.must()));
        let Ok(map) = serde_json::from_slice::<Map<String, Value>>(body) else {
            return Err(Misread::Data(self.must()));
        };
        let is_known = |key: &str| {
            fields_of::<T>().contains(&key)
                && !self.without.contains(&key)
                && texts.iter().all(|(name, _)| name != key)
        };
        if let Some(key) = map.keys().find(|key| !is_known(key)) {
            return Err(wrong(&format!("unknown key `{}`", brief(key))));
        }
        if let Some(key) = self.required.iter().find(|key| !map.contains_key(**key)) {
            return Err(wrong(&format!("`{key}` is missing")));
        }
        let read = read_object(body, texts, None).map_err(|error| {
            wrong(&format!("a wrong value at line {}, column {}", error.line(), error.column()))
        })?;
        // The type may take `null` for a field that is missing.
        match self.required.iter().find(|key| map.get(**key).is_some_and(Value::is_null)) {
            Some(key) => Err(wrong(&format!("`{key}` is null"))),
            None => Ok(read),
        }
    }
}

/// The beginning of a text of the request.
pub(super) fn brief(text: &str) -> String {
    text.chars().take(32).collect()
}

/// The names of the fields of a struct.
pub(super) fn fields_of<T: DeserializeOwned>() -> &'static [&'static str] {
    match T::deserialize(FieldsProbe) {
        Err(Fields(fields)) => fields,
        Ok(_) => &[],
    }
}

/// A deserializer that only learns the names of the fields.
struct FieldsProbe;

/// The names, as the error of a type that is not read any further.
#[derive(Debug)]
struct Fields(&'static [&'static str]);

impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl std::error::Error for Fields {}

impl de::Error for Fields {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self(&[])
    }
}

impl<'de> Deserializer<'de> for FieldsProbe {
    type Error = Fields;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Fields> {
        Err(Fields(&[]))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Fields> {
        Err(Fields(fields))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// Reads a struct from texts. `must` is the example of a right query.
pub(super) fn read_texts<'a, T: DeserializeOwned>(
    texts: impl Iterator<Item = (&'a str, &'a str)>,
    must: &str,
) -> Result<T, Misread> {
    let texts = texts.map(|(name, text)| (name, TextValue { name, text }));
    T::deserialize(MapDeserializer::new(texts)).map_err(|why| {
        let is_data = matches!(why, Misread::Data(_));
        if is_data { Misread::Query(format!("the query must be such as {must}")) } else { why }
    })
}

/// A value of a path or a query.
#[derive(Clone, Copy)]
struct TextValue<'a> {
    name: &'a str,
    text: &'a str,
}

impl<'de> IntoDeserializer<'de, Misread> for TextValue<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for TextValue<'_> {
    type Error = Misread;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misread> {
        visitor.visit_str(self.text)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misread> {
        visitor.visit_some(self)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misread> {
        match self.text.parse() {
            Ok(value) => visitor.visit_bool(value),
            Err(_) => Err(Misread::Query(format!("`{}` is true or false", self.name))),
        }
    }

    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misread> {
        self.deserialize_u64(visitor)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misread> {
        self.deserialize_u64(visitor)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Misread> {
        visitor.visit_u64(self.text.parse().map_err(de::Error::custom)?)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Misread> {
        visitor.visit_enum(self.text.into_deserializer())
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u16 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// Reads a struct from a JSON object without its key `left_out`, together with fields that are
/// texts.
pub(super) fn read_object<T: DeserializeOwned>(
    json: &[u8],
    texts: &[(String, String)],
    left_out: Option<&str>,
) -> serde_json::Result<T> {
    let mut object = serde_json::Deserializer::from_slice(json);
    let read = T::deserialize(JoinedObject { source: &mut object, texts, left_out })?;
    object.end()?;
    Ok(read)
}

/// The deserializer of such an object, the visitor of its map, and the map: each passes on all but
/// the entries.
struct JoinedObject<'a, S> {
    source: S,
    texts: &'a [(String, String)],
    left_out: Option<&'a str>,
}

impl<'de, S: Deserializer<'de>> Deserializer<'de> for JoinedObject<'_, S> {
    type Error = S::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, S::Error> {
        let Self { source, texts, left_out } = self;
        source.deserialize_map(JoinedObject { source: visitor, texts, left_out })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier
        ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for JoinedObject<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        let Self { source, texts, left_out } = self;
        source.visit_map(JoinedMap { map, texts: texts.iter(), text: None, left_out })
    }
}

struct JoinedMap<'a, A> {
    map: A,
    /// The texts that were not read yet. They precede the entries of the object.
    texts: std::slice::Iter<'a, (String, String)>,
    /// The text whose name was read.
    text: Option<&'a str>,
    left_out: Option<&'a str>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for JoinedMap<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        if let Some((name, text)) = self.texts.next() {
            self.text = Some(text);
            return seed.deserialize(name.as_str().into_deserializer()).map(Some);
        }
        while let Some(key) = self.map.next_key::<String>()? {
            if Some(key.as_str()) != self.left_out {
                return seed.deserialize(key.into_deserializer()).map(Some);
            }
            self.map.next_value::<IgnoredAny>()?;
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        match self.text.take() {
            Some(text) => seed.deserialize(text.into_deserializer()),
            None => self.map.next_value_seed(seed),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Sample {
        name: String,
        #[serde(default)]
        on: bool,
        #[serde(default)]
        count: Option<u32>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(transparent)]
    struct Around(Sample);

    const FORM: Form = Form { without: &["on"], ..Form::object(r#"{"name":"a"}"#, &["name"]) };

    #[test]
    fn the_names_of_fields_are_those_of_the_type() {
        assert_eq!(fields_of::<Sample>(), ["name", "on", "count"]);
        assert_eq!(fields_of::<Around>(), ["name", "on", "count"]);
        assert!(fields_of::<u8>().is_empty());
    }

    #[test]
    fn texts_become_the_types_of_their_fields() {
        let read = |texts: &[(&str, &str)]| {
            read_texts::<Around>(texts.iter().copied(), "count=1, where count is a number")
        };
        let all = Around(Sample { name: "a".into(), on: true, count: Some(7) });
        assert_eq!(read(&[("name", "a"), ("on", "true"), ("count", "7")]), Ok(all));
        let must = "the query must be such as count=1, where count is a number";
        for wrong in [&[("name", "a"), ("count", "many")][..], &[("count", "1")]] {
            assert_eq!(read(wrong), Err(Misread::Query(must.into())));
        }
        let is = Misread::Query("`on` is true or false".into());
        assert_eq!(read(&[("name", "a"), ("on", "1")]), Err(is));
    }

    #[test]
    fn an_object_is_read_with_the_texts_of_its_path_and_without_a_key() {
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

        let line = br#"{"command":"x","name":"a","count":2}"#;
        assert_eq!(read_object::<Sample>(line, &[], Some("command")).unwrap(), one(Some(2)));
        let twice = br#"{"name":"a","name":"b"}"#;
        assert!(read_object::<Sample>(twice, &[], None).is_err());
    }
}
