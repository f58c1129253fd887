//! Replays the kept corpus of every fuzz target through the same harness, on stable.

#![allow(clippy::disallowed_methods, reason = "a test reads what is kept beside the code")]

use std::fs;
use std::path::Path;

type Harness = fn(&[u8]);

/// Fuzz targets and their harnesses; a folder of `fuzz/corpus` each.
const TARGETS: &[(&str, Harness)] =
    &[("ws_frames", transport_ws::fuzz::frames), ("ws_heads", transport_ws::fuzz::heads)];

#[test]
fn no_kept_input_breaks_a_decoder() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    for (target, harness) in TARGETS {
        let mut replayed = 0;
        for entry in fs::read_dir(corpus.join(target)).unwrap() {
            harness(&fs::read(entry.unwrap().path()).unwrap());
            replayed += 1;
        }
        assert!(replayed > 0, "{target} has a corpus");
    }
}

#[test]
fn every_fuzz_target_is_replayed() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/fuzz_targets");
    for entry in fs::read_dir(sources).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(TARGETS.iter().any(|(target, _)| *target == name), "{name} is missing in TARGETS");
    }
}
