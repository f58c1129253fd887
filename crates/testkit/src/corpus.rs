//! Replays the stored corpus of a crate's fuzz targets through the fuzzing harness, on stable Rust.

use std::fs;
use std::path::Path;

#[cfg(feature = "full")]
use proptest::{collection::vec, prelude::*, sample::Index, sample::select};

/// The name of a fuzz target, and the function that the target runs on an input.
pub type Target = (&'static str, fn(&[u8]));

/// Runs every stored input. Each target has a folder of inputs in `fuzz/corpus` of the crate at
/// `root`, and each file of `fuzz/fuzz_targets` must be listed in `targets`.
///
/// # Panics
///
/// Panics when a harness panics on a stored input, and when a target or a corpus is missing.
pub fn replay(root: &str, targets: &[Target]) {
    let fuzz = Path::new(root).join("fuzz");
    for (target, harness) in targets {
        let mut replayed = 0;
        for input in files(&fuzz.join("corpus").join(target)) {
            harness(&fs::read(input).expect("a kept input can be read"));
            replayed += 1;
        }
        assert!(replayed > 0, "{target} has a corpus");
    }
    for source in files(&fuzz.join("fuzz_targets")) {
        let name = source.file_stem().expect("a source has a name").to_string_lossy();
        assert!(targets.iter().any(|(target, _)| **target == *name), "{name} is not replayed");
    }
}

/// The stored inputs of a target, in the order of their names.
///
/// # Panics
///
/// Panics when there are none.
#[must_use]
pub fn inputs(root: &str, target: &str) -> Vec<Vec<u8>> {
    let mut paths: Vec<_> = files(&Path::new(root).join("fuzz/corpus").join(target)).collect();
    paths.sort();
    paths.into_iter().map(|path| fs::read(path).expect("a kept input can be read")).collect()
}

/// Stored inputs of a target, with some bytes replaced, added or removed.
#[cfg(feature = "full")]
pub fn changed(root: &str, target: &str) -> impl Strategy<Value = Vec<u8>> + use<> {
    let bytes = prop_oneof![any::<u8>(), select(&b"\r\n \t\0:,;/.0159afHh"[..])];
    let change = (any::<Index>(), 0..3_usize, bytes);
    (select(inputs(root, target)), vec(change, 0..6), any::<u8>()).prop_map(
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

fn files(folder: &Path) -> impl Iterator<Item = std::path::PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    entries.map(|entry| entry.expect("a readable folder").path())
}
