//! Replays the stored corpus of a crate's fuzz targets through the fuzzing harness, on stable Rust.

use std::fs;
use std::path::Path;

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

fn files(folder: &Path) -> impl Iterator<Item = std::path::PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    entries.map(|entry| entry.expect("a readable folder").path())
}
