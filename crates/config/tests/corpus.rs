//! Checks that no stored fuzz input breaks the loaders or the editor.

use testkit::corpus::{Target, replay};

#[path = "../fuzz/harness.rs"]
mod harness;

#[test]
fn no_kept_input_breaks_the_loaders_or_the_editor() {
    let targets: [Target; 2] = [("config", harness::fuzz), ("edit", harness::fuzz_edit)];
    replay(env!("CARGO_MANIFEST_DIR"), &targets);
}
