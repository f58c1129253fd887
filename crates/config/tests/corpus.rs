//! Checks that no stored fuzz input breaks the loaders or the editor.

use testkit::corpus::replay;

#[test]
fn no_kept_input_breaks_the_loaders_or_the_editor() {
    replay(env!("CARGO_MANIFEST_DIR"), &[("config", config::fuzz), ("edit", config::fuzz_edit)]);
}
