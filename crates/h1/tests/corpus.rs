//! Replays the kept inputs of the fuzz targets, and runs their harnesses on random inputs.

use h1::fuzz;
use proptest::collection::vec;
use proptest::prelude::*;
use testkit::corpus::{self, replay};

#[test]
fn no_kept_input_breaks_a_decoder() {
    replay(env!("CARGO_MANIFEST_DIR"), &[("head", fuzz::head), ("tracker", fuzz::tracker)]);
}

/// Kept inputs of a target, with some bytes changed.
fn changed(target: &str) -> impl Strategy<Value = Vec<u8>> + use<> {
    corpus::changed(env!("CARGO_MANIFEST_DIR"), target)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        // A found case becomes a file of the corpus.
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_tracker_keeps_its_rules_in_any_conversation(input in vec(any::<u8>(), 0..400)) {
        fuzz::conversation(&input);
    }

    #[test]
    fn a_head_means_the_same_in_any_pieces(input in changed("head")) {
        fuzz::head(&input);
    }

    #[test]
    fn boundaries_are_the_same_in_any_pieces(input in changed("tracker")) {
        fuzz::tracker(&input);
    }
}
