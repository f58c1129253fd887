//! Replays the kept inputs of the fuzz targets, and runs their harnesses on random inputs.

use h1::fuzz;
use proptest::collection::vec;
use proptest::prelude::*;
use testkit::corpus::replay;

#[test]
fn no_kept_input_breaks_a_decoder() {
    replay(env!("CARGO_MANIFEST_DIR"), &[("head", fuzz::head), ("tracker", fuzz::tracker)]);
}

/// The kept inputs of a target, as seeds for changed inputs.
#[expect(clippy::disallowed_methods, reason = "the test reads files, and the crate does not")]
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = format!("{}/fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let files = std::fs::read_dir(folder).expect("a corpus");
    let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
    paths.sort();
    paths.into_iter().map(|path| std::fs::read(path).expect("a readable file")).collect()
}

/// A kept input with some bytes replaced, removed or repeated.
fn changed(target: &str) -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop_oneof![any::<u8>(), proptest::sample::select(&b"\r\n \t\0:,;/.0159afHh"[..]),];
    let change = (any::<prop::sample::Index>(), 0..3_usize, bytes);
    (proptest::sample::select(seeds(target)), vec(change, 0..6), any::<u8>()).prop_map(
        |(mut input, changes, first)| {
            input[0] = first;
            for (place, kind, byte) in changes {
                let at = place.index(input.len());
                match kind {
                    0 => input[at] = byte,
                    1 => input.insert(at, byte),
                    _ if input.len() > 1 => drop(input.remove(at)),
                    _ => {}
                }
            }
            input
        },
    )
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
