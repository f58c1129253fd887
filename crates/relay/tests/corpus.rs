//! Replays the kept inputs of the fuzz targets, and runs their harnesses on random inputs.

use proptest::prelude::*;
use relay::fuzz;
use testkit::corpus::{self, replay};

#[test]
fn no_kept_input_breaks_a_decoder() {
    replay(
        env!("CARGO_MANIFEST_DIR"),
        &[
            ("connect", fuzz::connect),
            ("first", fuzz::first),
            ("hello", fuzz::hello),
            ("socks5", fuzz::socks5),
        ],
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
    fn a_hello_means_the_same_in_any_pieces(input in changed("hello")) {
        fuzz::hello(&input);
    }

    #[test]
    fn both_sniffers_know_the_same_requests(input in changed("first")) {
        fuzz::first(&input);
    }

    #[test]
    fn a_request_of_connect_means_the_same_in_any_pieces(input in changed("connect")) {
        fuzz::connect(&input);
    }

    #[test]
    fn messages_of_socks5_mean_the_same_in_any_pieces(input in changed("socks5")) {
        fuzz::socks5(&input);
    }
}
