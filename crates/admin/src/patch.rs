//! Converts operations and values of a configuration from and to JSON. Keys keep their order, and a
//! duplicate key is an error.

use std::fmt;

use config::edit::{Action, Operation, Value};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

/// A configuration value that is read from or written as JSON.
#[derive(Debug)]
pub(super) struct Json<V = Value>(pub(super) V);

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
        let mut entries: Vec<(String, Value)> = Vec::new();
        while let Some((key, Json(value))) = access.next_entry::<String, Json>()? {
            if entries.iter().any(|(other, _)| *other == key) {
                return Err(A::Error::custom("a key is given twice"));
            }
            entries.push((key, value));
        }
        Ok(Value::Map(entries))
    }
}

/// An operation of JSON Patch (RFC 6902 section 4).
#[derive(Debug, serde::Deserialize)]
pub(super) struct Patch {
    op: Op,
    path: String,
    /// An explicit `null` is a value; only a missing `value` is `None`.
    #[serde(default, deserialize_with = "given")]
    value: Option<Json>,
}

#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Op {
    Add,
    Replace,
    Remove,
    Test,
}

fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

/// Converts the operations of a request.
///
/// # Errors
/// Names the index of an `add`, `replace` or `test` without a value.
pub(super) fn operations(patch: Vec<Patch>) -> Result<Vec<Operation>, String> {
    let operation = |(i, Patch { op, path, value }): (usize, Patch)| {
        let value = value.map(|Json(value)| value);
        let action = match (op, value) {
            (Op::Add, Some(value)) => Action::Add(value),
            (Op::Replace, Some(value)) => Action::Replace(value),
            (Op::Test, Some(value)) => Action::Test(value),
            (Op::Remove, _) => Action::Remove,
            (Op::Add | Op::Replace | Op::Test, None) => {
                return Err(format!("operation {i}: no `value`"));
            }
        };
        Ok(Operation { path, action })
    };
    patch.into_iter().enumerate().map(operation).collect()
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn an_operation_has_what_it_needs() {
        let read = |text: &str| {
            let patch: Vec<Patch> = serde_json::from_str(text).map_err(|e| e.to_string())?;
            operations(patch)
        };
        let null = Action::Add(Value::Null);
        let good = read("[{\"op\":\"add\",\"path\":\"/a\",\"value\":null,\"more\":1}]").unwrap();
        assert_eq!(good, [Operation { path: "/a".into(), action: null }]);
        assert_eq!(read("[]").unwrap(), []);
        for bad in [
            "[{\"op\":\"add\",\"path\":\"/a\"}]",
            "[{\"op\":\"move\",\"path\":\"/a\",\"from\":\"/b\"}]",
            "[{\"op\":\"remove\"}]",
            "{}",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
