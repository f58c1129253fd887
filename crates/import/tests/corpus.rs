//! Replays the kept inputs of the fuzz target, and runs its harness on changed inputs. Whatever a
//! file has, it ends in an error of one line, or in files that our own decoder takes.

use import::fuzz;
use proptest::prelude::*;
use testkit::corpus::{self, replay};

#[test]
fn no_kept_input_breaks_an_import() {
    replay(env!("CARGO_MANIFEST_DIR"), &[("import", fuzz)]);
}

/// Kept inputs with some bytes changed.
fn changed() -> impl Strategy<Value = Vec<u8>> + use<> {
    corpus::changed(env!("CARGO_MANIFEST_DIR"), "import")
}

/// A kept input with a word of it in the place of another one.
fn mixed() -> impl Strategy<Value = Vec<u8>> {
    let inputs = corpus::inputs(env!("CARGO_MANIFEST_DIR"), "import");
    let place = any::<prop::sample::Index>;
    (prop::sample::select(inputs), prop::collection::vec((place(), place()), 1..4)).prop_map(
        |(input, swaps)| {
            let text = String::from_utf8_lossy(&input).into_owned();
            let mut words: Vec<&str> = text.split_inclusive([' ', '\n', '"', ':', '=']).collect();
            for (one, other) in swaps {
                let (one, other) = (one.index(words.len()), other.index(words.len()));
                words[one] = words[other];
            }
            words.concat().into_bytes()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100,
        // A found case becomes a file of the corpus.
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_changed_file_becomes_files_of_ours_or_an_error(input in changed()) {
        fuzz(&input);
    }

    #[test]
    fn a_file_with_other_values_becomes_files_of_ours_or_an_error(input in mixed()) {
        fuzz(&input);
    }
}
