//! Who reads the text of a state: a person. Programs read the word beside it, so no code names the
//! field of the text but the type of states (`ops::status::Told`), whose text cannot be compared.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::proc::sources;

/// The crate of this rule.
const OWN: &[&str] = &["xtask"];

/// The file of the type, and the test that each state of an answer has its text.
const ALLOWED: [&str; 2] = ["crates/ops/src/status/state.rs", "crates/admin/src/tests.rs"];

/// The field.
const TEXT: &str = "state_text";

/// Every breach in the sources of the crates below `root`.
pub(super) fn breaches(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for path in sources(root, OWN)? {
        let at = path.strip_prefix(root).unwrap_or(&path);
        if !ALLOWED.iter().any(|file| at == Path::new(file)) {
            let lines = named(&fs::read_to_string(&path)?);
            let breach = |n| format!("{}:{n}: `{TEXT}` is for a person", at.display());
            found.extend(lines.into_iter().map(breach));
        }
    }
    Ok(found)
}

/// The numbers of the lines with the field.
fn named(code: &str) -> Vec<usize> {
    code.lines().zip(1..).filter(|(line, _)| line.contains(TEXT)).map(|(_, n)| n).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_code_reads_the_text_of_a_state() {
        assert_eq!(named("a[\"state\"] == \"up\"\na[\"state_text\"] == \"up\""), [2]);
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for file in ALLOWED {
            assert!(fs::read_to_string(root.join(file)).unwrap().contains(TEXT), "{file}");
        }
        assert_eq!(breaches(&root).unwrap(), [""; 0]);
    }
}
