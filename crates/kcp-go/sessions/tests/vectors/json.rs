//! Reads the file of vectors.

use serde_json::Value;

/// A section of the file.
pub(crate) fn section(name: &str) -> Value {
    let mut all: Value = serde_json::from_str(include_str!("kcp-go-vectors.json")).unwrap();
    all[name].take()
}

/// The cases of a section that is a list.
pub(crate) fn cases(name: &str) -> Vec<Value> {
    let Value::Array(cases) = section(name) else { panic!("{name} is no list") };
    assert!(!cases.is_empty(), "{name} is empty");
    cases
}

/// A string of hexadecimal digits.
pub(crate) fn hex(value: &Value) -> Vec<u8> {
    let digits = value.as_str().unwrap_or_else(|| panic!("no hexadecimal digits: {value}"));
    assert!(digits.len().is_multiple_of(2), "half a byte");
    (0..digits.len() / 2)
        .map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap())
        .collect()
}

/// A number in the range of its type.
pub(crate) fn number<N: TryFrom<i64, Error: std::fmt::Debug>>(value: &Value) -> N {
    let number = value.as_i64().unwrap_or_else(|| panic!("no number: {value}"));
    number.try_into().unwrap()
}
