//! No kept input of a fuzz target breaks the loaders.

use testkit::corpus::replay;

#[test]
fn no_kept_input_breaks_the_loaders() {
    replay(env!("CARGO_MANIFEST_DIR"), &[("config", config::fuzz)]);
}
