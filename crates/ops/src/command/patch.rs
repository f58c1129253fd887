//! Converts operations and values of a configuration from and to JSON. Keys keep their order, and a
//! duplicate key is an error.

use std::fmt;

use config::edit::{self, Action, Operation, Value};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use super::fields::KeysSeen;
use super::form::{Form, Misread, brief};

/// A configuration value that is read from or written as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Json<V = Value>(pub V);

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Json(&self.0).serialize(serializer)
    }
}

impl Serialize for Json<&Value> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Null => serializer.serialize_unit(),
            Value::Bool(value) => serializer.serialize_bool(*value),
            Value::Number(text) => match text.parse::<serde_json::Number>() {
                Ok(number) => number.serialize(serializer),
                Err(_) => serializer.serialize_str(text),
            },
            Value::Text(text) => serializer.serialize_str(text),
            Value::List(items) => serializer.collect_seq(items.iter().map(Json)),
            Value::Map(entries) => {
                serializer.collect_map(entries.iter().map(|(k, v)| (k, Json(v))))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue).map(Self)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Number(format!("{value:?}")))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Json(item)) = access.next_element()? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        let mut names = KeysSeen::default();
        while let Some((key, Json(value))) = access.next_entry::<String, Json>()? {
            names.add(&key)?;
            entries.push((key, value));
        }
        Ok(Value::Map(entries))
    }
}

/// The form of a patch.
pub(super) const FORM: Form = Form {
    is: "a JSON Patch (RFC 6902): a list",
    example: r#"[{"op":"replace","path":"/log/level","value":"debug"}]"#,
    required: &[],
    without: &[],
};

/// The operations of a change, as JSON like a JSON Patch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patch(pub Vec<Operation>);

impl Serialize for Patch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|Operation { path, action }| {
            let (op, value) = match action {
                Action::Add(value) => ("add", Some(value)),
                Action::Replace(value) => ("replace", Some(value)),
                Action::Test(value) => ("test", Some(value)),
                Action::Remove => ("remove", None),
            };
            let text = |text: &str| Value::Text(text.to_owned());
            let mut members = vec![("op".to_owned(), text(op)), ("path".to_owned(), text(path))];
            members.extend(value.map(|value| ("value".to_owned(), value.clone())));
            Json(Value::Map(members))
        }))
    }
}

impl<'de> Deserialize<'de> for Patch {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let items = Vec::<Json>::deserialize(deserializer)?;
        let all = items.into_iter().map(|Json(item)| operation(item).map_err(D::Error::custom));
        all.collect::<Result<_, _>>().map(Self)
    }
}

/// Reads the operations of a JSON Patch (RFC 6902 section 4) without `move` and `copy`. Members
/// that the RFC does not define are ignored, as it demands.
///
/// # Errors
/// The body is not such a patch. The message names the index of the operation, and contains an
/// example.
pub fn operations(body: &[u8]) -> Result<Vec<Operation>, Misread> {
    FORM.syntax(body)?;
    let wrong = |why: &str| Misread::Data(format!("{why}; {}", FORM.must()));
    let Json(value) = serde_json::from_slice(body).map_err(|e: serde_json::Error| {
        wrong(&format!("a key is given twice before line {}, column {}", e.line(), e.column()))
    })?;
    match value {
        Value::List(items) => {
            edit::check_number(items.len()).map_err(|why| wrong(&why))?;
            let numbered = items.into_iter().enumerate();
            let read =
                |(i, item)| operation(item).map_err(|why| wrong(&format!("operation {i}: {why}")));
            numbered.map(read).collect()
        }
        Value::Map(_) => Err(wrong("an object without a list around it")),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Text(_) => {
            Err(Misread::Data(FORM.must()))
        }
    }
}

/// Reads a change of the file: a patch, or `{"text":"…"}`.
pub(super) fn change(body: &[u8]) -> Result<(Patch, Option<String>), Misread> {
    FORM.syntax(body)?;
    // The library also reads a list of the values as an object.
    if body.trim_ascii_start().starts_with(b"{")
        && let Ok(Whole { text }) = serde_json::from_slice(body)
    {
        return Ok((Patch::default(), Some(text)));
    }
    operations(body).map(|operations| (Patch(operations), None))
}

/// The whole text of a file.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Whole {
    text: String,
}

fn operation(item: Value) -> Result<Operation, String> {
    let Value::Map(members) = item else { return Err("not an object".to_owned()) };
    let (mut op, mut path, mut value) = (None, None, None);
    for (key, member) in members {
        match (key.as_str(), member) {
            ("op", Value::Text(text)) => op = Some(text),
            ("path", Value::Text(text)) => path = Some(text),
            ("op" | "path", _) => return Err(format!("`{key}` is no text")),
            // An explicit `null` is a value.
            ("value", member) => value = Some(member),
            _ => {}
        }
    }
    let op = op.ok_or("`op` is missing: add, replace, remove or test")?;
    let path = path.ok_or("`path` is missing: such as /log/level")?;
    edit::check_path(&path)?;
    let value = || value.ok_or_else(|| format!("`value` is missing, which `{op}` needs"));
    let action = match op.as_str() {
        "add" => Action::Add(value()?),
        "replace" => Action::Replace(value()?),
        "test" => Action::Test(value()?),
        "remove" => Action::Remove,
        "move" | "copy" => return Err(format!("`{op}` is not supported: use `remove` and `add`")),
        other => {
            let other = brief(other);
            return Err(format!(
                "unknown `op` `{other}`: add, replace, remove and test are possible"
            ));
        }
    };
    Ok(Operation { path, action })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::fields::Fields;
    use super::*;

    #[test]
    fn values_come_and_go_with_their_order_and_their_kind() {
        for text in [
            "{\"z\":1,\"a\":[null,true,-5,1.5,\"x\"],\"m\":{}}",
            "18446744073709551615",
            "\"\\u0000\"",
        ] {
            let Json(value) = serde_json::from_str::<Json>(text).unwrap();
            assert_eq!(serde_json::to_string(&Json(&value)).unwrap(), text);
        }
        assert!(serde_json::from_str::<Json>("{\"a\":1,\"a\":2}").is_err());
    }

    /// Reads an object of this number of keys as a value and as fields.
    fn read_object(keys: usize) -> Duration {
        let members: Vec<_> = (0..keys).map(|n| format!("\"{n:06}\":1")).collect();
        let text = format!("{{{}}}", members.join(","));
        let start = Instant::now();
        let Json(value) = serde_json::from_str(&text).unwrap();
        let fields = Fields::of_json(text.as_bytes()).unwrap();
        let took = start.elapsed();
        let Value::Map(entries) = value else { panic!("an object") };
        assert!(entries.is_sorted_by_key(|(key, _)| key) && entries.len() == keys);
        assert_eq!(fields.names().count(), keys);
        took
    }

    #[test]
    fn a_large_object_keeps_its_keys_in_their_order() {
        read_object(2_000);
    }

    #[test]
    #[ignore = "measures time: the long step `timed`"]
    fn the_time_of_an_object_grows_with_the_number_of_its_keys() {
        let (few, many) = (read_object(2_000), read_object(200_000));
        println!("{few:?} for 2,000 keys, {many:?} for 200,000");
        // A comparison of each key with all others takes 10,000 times as long.
        assert!(many < few * 1_000);
    }

    #[test]
    fn an_operation_has_what_it_needs() {
        let read = |text: &str| operations(text.as_bytes());
        let null = Action::Add(Value::Null);
        let good = read("[{\"op\":\"add\",\"path\":\"/a\",\"value\":null,\"more\":1}]").unwrap();
        assert_eq!(good, [Operation { path: "/a".into(), action: null }]);
        assert_eq!(read("[]").unwrap(), []);
        let again = serde_json::to_string(&Patch(good.clone())).unwrap();
        assert_eq!(serde_json::from_str::<Patch>(&again).unwrap(), Patch(good));
        let example = r#"[{"op":"replace","path":"/log/level","value":"debug"}]"#;
        let must = format!("the body must be a JSON Patch (RFC 6902): a list such as {example}");
        assert_eq!(read(example).unwrap().len(), 1);
        for (bad, why) in [
            ("{}", "an object without a list around it"),
            (r#"{"op":"remove","path":"/a"}"#, "an object without a list around it"),
            ("[1]", "operation 0: not an object"),
            ("[{}]", "operation 0: `op` is missing: add, replace, remove or test"),
            (r#"[{"op":"remove"}]"#, "operation 0: `path` is missing: such as /log/level"),
            (r#"[{"op":1,"path":"/a"}]"#, "operation 0: `op` is no text"),
            (r#"[{"op":"remove","path":["a"]}]"#, "operation 0: `path` is no text"),
            (r#"[{"op":"add","path":"/a"}]"#, "operation 0: `value` is missing, which `add` needs"),
            (
                r#"[{"op":"remove","path":"/a"},{"op":"move","path":"/a","from":"/b"}]"#,
                "operation 1: `move` is not supported: use `remove` and `add`",
            ),
            (r#"[{"op":"remove","path":"a"}]"#, "operation 0: a path begins with `/` (RFC 6901)"),
            (
                r#"[{"op":"Replace","path":"/a","value":1}]"#,
                "operation 0: unknown `op` `Replace`: add, replace, remove and test are possible",
            ),
            (
                r#"[{"op":"add","path":"/a","value":{"b":1,"b":2}}]"#,
                "a key is given twice before line 1, column 46",
            ),
        ] {
            let said = Misread::Data(format!("{why}; {must}"));
            assert_eq!(read(bad), Err(said), "{bad}");
        }
        let long = format!("[{}]", vec![r#"{"op":"remove","path":""}"#; 101].join(","));
        let said = Misread::Data(format!("101 operations: at most 100 at a time; {must}"));
        assert_eq!(read(&long), Err(said));
        assert!(read(r#"[{"op":"remove","path":"/a~2"}]"#).is_err(), "no escape of RFC 6901");
        for bad in ["\"x\"", "null", "3"] {
            assert_eq!(read(bad), Err(Misread::Data(must.clone())), "{bad}");
        }
        for (bad, why) in [
            ("", "the body is empty"),
            ("[{", "the body ends amid a JSON value"),
            ("[{'op'", "the body is not JSON from line 1, column 3 on"),
            ("op=add", "the body is not JSON from line 1, column 1 on"),
        ] {
            assert_eq!(read(bad), Err(Misread::Syntax(format!("{why}; {must}"))), "{bad}");
        }
    }
}
