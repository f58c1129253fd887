//! Replays the kept inputs of the fuzz targets, and runs their harnesses on changed inputs.

use proptest::prelude::*;
use punch::fuzz;
use testkit::corpus::{self, replay};

#[test]
fn no_kept_input_breaks_a_decoder() {
    replay(
        env!("CARGO_MANIFEST_DIR"),
        &[("signal", fuzz::signal), ("stun", fuzz::stun), ("router", fuzz::router)],
    );
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
    fn a_signal_is_read_as_it_was_written(input in changed("signal")) {
        fuzz::signal(&input);
    }

    #[test]
    fn only_the_router_is_asked_whatever_it_answers(input in changed("router")) {
        fuzz::router(&input);
    }

    #[test]
    fn an_answer_of_stun_is_small_and_exact(input in changed("stun")) {
        fuzz::stun(&input);
    }
}
