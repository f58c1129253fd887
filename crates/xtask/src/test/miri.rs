//! The long step `miri`: the crate with `unsafe`, interpreted by Miri, which finds what the
//! compiler may take for granted and the code does not keep.
//!
//! Miri asks no CPU which instructions it has, so that the first run is about the portable kernel.
//! It knows the vector instructions all the same: the second run has them switched on.

use std::process::Command;

use anyhow::Result;

use xtask::child::{capture, run_tests};
use xtask::site::Site;
use xtask::verdict::Verdict;

/// The features that choose each kernel in turn.
const FEATURES: [&str; 3] = ["", "-Ctarget-feature=+ssse3", "-Ctarget-feature=+avx2,+gfni"];

pub(super) fn check(site: &Site) -> Result<Verdict> {
    let miri = ["run", "nightly", "cargo", "miri"];
    if !capture(Command::new("rustup").args(miri).arg("--version")).is_ok_and(|(good, _)| good) {
        let how = "rustup component add miri --toolchain nightly";
        return Ok(Verdict::Skipped(format!("the nightly toolchain has no Miri: {how}")));
    }
    for features in FEATURES {
        let mut test = Command::new("rustup");
        test.current_dir(&site.root).args(miri).args(["test", "--package", "gf256"]);
        // The variables of the running cargo would send the other toolchain to this one's compiler.
        for name in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN", "RUSTC_WRAPPER"] {
            test.env_remove(name);
        }
        test.env("CARGO_TARGET_DIR", site.target.join("miri")).env("RUSTFLAGS", features);
        // Property tests look for files with cases that failed before.
        test.env("MIRIFLAGS", "-Zmiri-disable-isolation");
        run_tests(&mut test)?;
    }
    Ok(Verdict::PASSED)
}
