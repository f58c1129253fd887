//! The long step `miri`: the crate with `unsafe`, interpreted by Miri, which finds what the
//! compiler may take for granted and the code does not keep.
//!
//! Miri asks no CPU which instructions it has, but knows those of the kernels: they are switched on
//! at compile time, so that the tests find all kernels beside the portable one.

use std::process::Command;

use anyhow::Result;

use xtask::child::{capture, run_tests};
use xtask::site::Site;
use xtask::verdict::Verdict;

/// The instructions of the fastest kernel, which include those of the others.
const FEATURES: &str = "-Ctarget-feature=+avx2,+gfni";

pub(super) fn check(site: &Site) -> Result<Verdict> {
    let miri = ["run", "nightly", "cargo", "miri"];
    if !capture(Command::new("rustup").args(miri).arg("--version")).is_ok_and(|(good, _)| good) {
        let how = "rustup component add miri --toolchain nightly";
        return Ok(Verdict::Skipped(format!("the nightly toolchain has no Miri: {how}")));
    }
    let mut test = Command::new("rustup");
    test.current_dir(&site.root).args(miri).args(["test", "--package", "gf256"]);
    // The variables of the running cargo would send the other toolchain to this one's compiler.
    for name in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN", "RUSTC_WRAPPER"] {
        test.env_remove(name);
    }
    test.env("CARGO_TARGET_DIR", site.target.join("miri")).env("RUSTFLAGS", FEATURES);
    // Property tests look for files with cases that failed before.
    test.env("MIRIFLAGS", "-Zmiri-disable-isolation");
    run_tests(&mut test)?;
    Ok(Verdict::PASSED)
}
