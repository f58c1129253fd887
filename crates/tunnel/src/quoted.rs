//! Texts as YAML, in files that this program writes.

/// A text as a quoted YAML scalar, written as a JSON string, which YAML accepts. `${` is escaped,
/// so that the configuration does not expand environment variables.
pub(crate) fn quoted(text: &str) -> String {
    serde_json::Value::from(text.replace("${", "$${")).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_text_expands_to_itself() {
        assert_eq!(quoted("a\"b\n${HOME} $x"), r#""a\"b\n$${HOME} $x""#);
    }
}
