//! The checkout, its build folders, and the strictness of the run.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::child::{cargo, run};

/// Arguments of cargo for the daemon of glibc, with the allocator of the static binary.
/// glibc's allocator gives memory of 64 KiB back to the kernel after each batch of packets and
/// faults it in again, which costs 7 % of the processor time of a bulk stream over `quic://`.
pub const OF_GLIBC: [&str; 4] = ["--package", "tunnel", "--features", "mimalloc"];

/// The variable with a binary to measure in place of a new static binary.
const BINARY: &str = "TUNNEL_BINARY";

/// The folder of the workspace with the sessions that kcp-go understands, from the top level. The
/// step `kcp-interop` builds and tests it, and the walls read it.
pub const KCP_GO: &str = "crates/kcp-go";

/// The folders and binaries of a run.
#[derive(Debug)]
pub struct Site {
    /// The top level of the checkout.
    pub root: PathBuf,
    /// The build folder of cargo.
    pub target: PathBuf,
    /// The binary whose speed is measured, the static binary that users get;
    /// [`Site::build_static`] builds it.
    pub tunnel: PathBuf,
    /// The release build for glibc: the static binary is compared with it, and it has WebRTC.
    /// [`Site::build_with_glibc`] builds it.
    pub glibc: PathBuf,
    /// `TUNNEL_FORMER`: an older binary, measured beside the present one in the same run.
    pub former: Option<PathBuf>,
    /// The folder where `cargo xtask peers` installs: `TUNNEL_PEERS`, else a folder inside the
    /// build folder.
    pub peers: PathBuf,
    /// `CI=true`: a step that cannot run is a failure.
    pub ci: bool,
}

impl Site {
    pub fn here() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .nth(2)
            .context("xtask lies in crates/xtask")?
            .to_path_buf();
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| root.join("target"), |dir| root.join(dir));
        let tunnel = std::env::var_os(BINARY)
            .map_or_else(|| target.join("static/tunnel"), |file| root.join(file));
        let peers = std::env::var_os("TUNNEL_PEERS")
            .map_or_else(|| target.join("peers"), |dir| root.join(dir));
        Ok(Self {
            former: std::env::var_os("TUNNEL_FORMER").map(|file| root.join(file)),
            glibc: target.join("release/tunnel"),
            root,
            target,
            tunnel,
            peers,
            ci: std::env::var_os("CI").is_some_and(|ci| ci == "true"),
        })
    }

    /// Builds the binary whose speed is measured, unless `TUNNEL_BINARY` is set.
    pub fn build_static(&self) -> Result<()> {
        if std::env::var_os(BINARY).is_some() {
            return Ok(());
        }
        run(Command::new("./build-static.sh").current_dir(&self.root))
    }

    /// Builds the binary for glibc.
    pub fn build_with_glibc(&self) -> Result<()> {
        run(cargo(&self.root, &["build", "--release"]).args(OF_GLIBC))
    }

    /// Builds the binary that the end-to-end tests run as well, and returns its path.
    pub fn daemon(&self) -> Result<PathBuf> {
        run(&mut cargo(&self.root, &["build", "--profile", "e2e", "--package", "tunnel"]))?;
        Ok(self.target.join("e2e/tunnel"))
    }
}
