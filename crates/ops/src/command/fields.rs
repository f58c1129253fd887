//! The fields of a command: those of a JSON object, and texts of a path and a query.
//!
//! Every command is read from [`Fields`] alone. With several deserializers, the code of each type
//! would exist several times: of the binary, 37 types with four deserializers took 170 KB.
//!
//! The names of the fields come from the type that is read, so no list repeats them.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::value::{BorrowedStrDeserializer, StrDeserializer};
use serde::de::{
    self, Deserialize, DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::value::RawValue;

/// The fields of an object, in their order.
#[derive(Debug)]
pub(super) struct Fields<'a>(Vec<(Cow<'a, str>, RawField<'a>)>);

/// The value of a field.
#[derive(Clone, Copy, Debug)]
enum RawField<'a> {
    /// A text of a path or a query, which is read as the type of its field.
    Text(&'a str),
    Json(&'a RawValue),
}

/// Why fields are not read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// The type has these fields. Only [`fields_of`] asks for them.
    Names(&'static [&'static str]),
    /// The named field is true or false, and its text is neither.
    NoBool(String),
    /// The JSON has a wrong value that begins at `address` in memory: line and column, both counted
    /// from 1 at the beginning of the value.
    Value { address: usize, line: usize, column: usize },
    /// A field is missing, given twice, or does not have the form of its type.
    Other,
}

impl Unread {
    /// Line and column in the JSON, both counted from 1. An error of the whole object is at its
    /// end.
    pub(super) fn position(&self, json: &[u8]) -> (usize, usize) {
        let end = |part: &[u8]| {
            let line = part.iter().filter(|&&byte| byte == b'\n').count();
            let column = part.iter().rev().take_while(|&&byte| byte != b'\n').count();
            (line, column)
        };
        let (before, line, column) = match self {
            Self::Value { address, line, column } => {
                let offset = address.saturating_sub(json.as_ptr().addr());
                (json.get(..offset).unwrap_or(json), *line, *column)
            }
            Self::Names(_) | Self::NoBool(_) | Self::Other => (json.trim_ascii_end(), 1, 0),
        };
        match end(before) {
            (lines, columns) if line == 1 => (lines + 1, columns + column),
            (lines, _) => (lines + line, column),
        }
    }
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Unread {}

impl de::Error for Unread {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::Other
    }
}

impl<'a> Fields<'a> {
    /// The fields of a JSON object.
    ///
    /// # Errors
    /// It is no object, or has a key twice.
    pub(super) fn of_json(json: &'a [u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(json)
    }

    /// Fields that are texts.
    pub(super) fn of_texts(texts: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut fields = Self(Vec::new());
        fields.add(texts);
        fields
    }

    /// Adds fields that are texts.
    pub(super) fn add(&mut self, texts: impl Iterator<Item = (&'a str, &'a str)>) {
        self.0.extend(texts.map(|(name, text)| (Cow::Borrowed(name), RawField::Text(text))));
    }

    /// The names of the fields.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_ref())
    }

    /// Whether the field is the word `null`. `None`: there is no such field.
    pub(super) fn is_null(&self, name: &str) -> Option<bool> {
        let (_, value) = self.0.iter().find(|(key, _)| key == name)?;
        Some(matches!(value, RawField::Json(json) if json.get() == "null"))
    }

    /// Takes a field out. It is JSON if the fields came from JSON.
    pub(super) fn take(&mut self, name: &str) -> Option<&'a str> {
        let (_, value) = self.0.remove(self.0.iter().position(|(key, _)| key == name)?);
        Some(match value {
            RawField::Text(text) => text,
            RawField::Json(json) => json.get(),
        })
    }
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::new();
                let mut names = KeysSeen::default();
                while let Some(name) = map.next_key::<String>()? {
                    names.add(&name)?;
                    fields.push((Cow::Owned(name), RawField::Json(map.next_value()?)));
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(Object)
    }
}

/// The names of an object, which a stranger may have written: a set finds a name among hundreds of
/// thousands without a comparison with each.
#[derive(Default)]
pub(super) struct KeysSeen(HashSet<String>);

impl KeysSeen {
    /// Adds a name.
    ///
    /// # Errors
    /// The object has the name already.
    pub(super) fn add<E: de::Error>(&mut self, name: &str) -> Result<(), E> {
        if self.0.insert(name.to_owned()) {
            return Ok(());
        }
        Err(E::custom("a key is given twice"))
    }
}

/// The names of the fields of a struct.
pub(super) fn fields_of<T: DeserializeOwned>() -> &'static [&'static str] {
    match T::deserialize(StructReader::Probe) {
        Err(Unread::Names(names)) => names,
        Err(_) | Ok(_) => &[],
    }
}

/// Reads a struct.
pub(super) fn read<'a, T: Deserialize<'a>>(fields: Fields<'a>) -> Result<T, Unread> {
    T::deserialize(StructReader::Fields(fields))
}

/// The deserializer of a struct, which reads it or only learns the names of its fields.
enum StructReader<'a> {
    Fields(Fields<'a>),
    Probe,
}

impl<'de> Deserializer<'de> for StructReader<'de> {
    type Error = Unread;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        self.deserialize_struct("", &[], visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unread> {
        match self {
            Self::Fields(Fields(fields)) => {
                visitor.visit_map(Entries { fields: fields.into_iter(), next: None })
            }
            Self::Probe => Err(Unread::Names(names)),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

struct Entries<'a> {
    fields: std::vec::IntoIter<(Cow<'a, str>, RawField<'a>)>,
    /// The field whose name was read.
    next: Option<Value<'a>>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Unread;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Unread> {
        let Some((name, given)) = self.fields.next() else { return Ok(None) };
        let key = seed.deserialize(StrDeserializer::new(&name))?;
        self.next = Some(Value { name, given });
        Ok(Some(key))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Unread> {
        seed.deserialize(self.next.take().ok_or(Unread::Other)?)
    }
}

/// The deserializer of the value of a field.
struct Value<'a> {
    name: Cow<'a, str>,
    given: RawField<'a>,
}

/// Reads JSON by the same method of the JSON library, and a text by the expression.
macro_rules! read {
    ($($method:ident($self:ident, $text:ident, $visitor:ident $(, $arg:ident: $type:ty)*) $read:block)*) => {
        $(fn $method<V: Visitor<'de>>($self $(, $arg: $type)*, $visitor: V) -> Result<V::Value, Unread> {
            match $self.given {
                RawField::Text($text) => $read,
                RawField::Json(json) => {
                    let text = json.get();
                    let mut json = serde_json::Deserializer::from_str(text);
                    json.$method($($arg,)* $visitor).map_err(|why| Unread::Value {
                        address: text.as_ptr().addr(),
                        line: why.line(),
                        column: why.column(),
                    })
                }
            }
        })*
    };
}

impl<'de> Deserializer<'de> for Value<'de> {
    type Error = Unread;

    read! {
        deserialize_any(self, text, visitor) { visitor.visit_borrowed_str(text) }

        deserialize_option(self, text, visitor) {
            visitor.visit_some(Self { name: self.name, given: RawField::Text(text) })
        }

        deserialize_bool(self, text, visitor) {
            match text.parse() {
                Ok(value) => visitor.visit_bool(value),
                Err(_) => Err(Unread::NoBool(self.name.into_owned())),
            }
        }

        deserialize_u64(self, text, visitor) {
            visitor.visit_u64(text.parse().map_err(de::Error::custom)?)
        }

        deserialize_enum(self, text, visitor, name: &'static str, of: &'static [&'static str]) {
            BorrowedStrDeserializer::new(text).deserialize_enum(name, of, visitor)
        }

        deserialize_newtype_struct(self, text, visitor, name: &'static str) {
            let _ = name;
            visitor.visit_newtype_struct(Self { name: self.name, given: RawField::Text(text) })
        }
    }

    fn deserialize_u8<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        self.deserialize_u64(visitor)
    }

    fn deserialize_u16<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        self.deserialize_u64(visitor)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unread> {
        self.deserialize_u64(visitor)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

/// A command for tests.
#[cfg(test)]
#[derive(Debug, PartialEq, serde::Deserialize)]
pub(super) struct Sample {
    pub(super) name: String,
    #[serde(default)]
    pub(super) on: bool,
    #[serde(default)]
    pub(super) count: Option<u32>,
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(transparent)]
    struct Around(Sample);

    #[test]
    fn the_names_of_fields_are_those_of_the_type() {
        assert_eq!(fields_of::<Sample>(), ["name", "on", "count"]);
        assert_eq!(fields_of::<Around>(), ["name", "on", "count"]);
        assert!(fields_of::<u8>().is_empty());
    }

    #[test]
    fn texts_become_the_types_of_their_fields() {
        let read = |texts: &[(&'static str, &'static str)]| {
            read::<Around>(Fields::of_texts(texts.iter().copied()))
        };
        let all = Around(Sample { name: "a".into(), on: true, count: Some(7) });
        assert_eq!(read(&[("name", "a"), ("on", "true"), ("count", "7")]), Ok(all));
        for wrong in [&[("name", "a"), ("count", "many")][..], &[("count", "1")]] {
            assert_eq!(read(wrong), Err(Unread::Other));
        }
        assert_eq!(read(&[("name", "a"), ("on", "1")]), Err(Unread::NoBool("on".into())));
    }

    #[test]
    fn json_is_read_without_a_field_that_was_taken() {
        let line = br#"{"command":"x","name":"a","count":2}"#;
        let mut fields = Fields::of_json(line).unwrap();
        assert_eq!(fields.take("command"), Some("\"x\""));
        assert_eq!(fields.take("command"), None);
        let sample = Sample { name: "a".into(), on: false, count: Some(2) };
        assert_eq!(read::<Sample>(fields), Ok(sample));
        for wrong in ["[1]", r#"{"name":"a","name":"b"}"#] {
            assert!(Fields::of_json(wrong.as_bytes()).is_err());
        }
    }

    #[test]
    fn an_error_knows_its_position_in_the_json() {
        let at = |json: &[u8]| {
            let read = read::<Sample>(Fields::of_json(json).unwrap());
            read.map_err(|why| why.position(json)).unwrap_err()
        };
        assert_eq!(at(b"{\"name\":1}"), (1, 9));
        assert_eq!(at(b"{\n \"name\":\"a\",\n \"count\": \"a\"}"), (3, 13));
        assert_eq!(at(b"{\"count\":\n1}\n"), (2, 2));
    }
}
