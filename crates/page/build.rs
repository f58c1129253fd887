//! Builds the crate `browser` for wasm32 and compresses the files of the page. On a machine without
//! that target of Rust the page is left out, and the server says so when it is asked to offer it.
//! The bytes are those of the sources: none of them is kept in the repository, so none is outdated.
//!
//! Nothing is written but to the target folder of the build, so that the sources may be read-only.
//! What is built has no crate that the program lacks, so that nothing is downloaded.

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use flate2::Compression;
use flate2::write::GzEncoder;

const TARGET: &str = "wasm32-unknown-unknown";

/// Without it nothing is built: for a developer whose change does not concern the page.
const SKIP: &str = "TUNNEL_WITHOUT_PAGE";

/// What the second cargo gets of the environment. The flags and wrappers of the first one are for
/// another target, and may be those of a linter.
const KEPT: &[&str] = &[
    "PATH",
    "HOME",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "RUSTC",
    "TMPDIR",
    "LANG",
    "LD_LIBRARY_PATH",
    "CARGO_NET_OFFLINE",
];

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let Err(error) = build() else { return ExitCode::SUCCESS };
    // As lines, which a `Result` of `main` would print as one.
    let hint = format!(
        "the page for browsers (http.browser) was not built for {TARGET} (hint: {SKIP}=1 builds the \
         program without the page)"
    );
    for line in error.to_string().lines().chain([hint.as_str()]) {
        println!("cargo::error={line}");
    }
    ExitCode::FAILURE
}

fn build() -> Result<(), Failure> {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let crates = here.parent().ok_or("no folder of crates")?;
    for watched in
        ["browser/src", "browser/page", "browser/Cargo.toml", "proto/src", "proto/Cargo.toml"]
    {
        println!("cargo::rerun-if-changed={}", crates.join(watched).display());
    }
    println!("cargo::rerun-if-changed={}", crates.join("../Cargo.lock").display());
    println!("cargo::rerun-if-env-changed={SKIP}");
    // rustup writes this list when it adds the target. Where Rust is not of rustup, the folder
    // itself changes.
    let sysroot = asked(&["--print", "sysroot"])?;
    let targets = Path::new(&sysroot).join("lib/rustlib");
    let components = targets.join("components");
    let changes = if components.is_file() { components } else { targets };
    println!("cargo::rerun-if-changed={}", changes.display());
    let mut list = String::from("&[");
    if env::var_os(SKIP).is_none() && has_target()? {
        let mut files = vec![("link.wasm".to_owned(), link(crates, &out)?)];
        let mut pages: Vec<_> =
            fs::read_dir(crates.join("browser/page"))?.collect::<Result<_, _>>()?;
        pages.sort_by_key(fs::DirEntry::file_name);
        for page in pages {
            files.push((page.file_name().to_string_lossy().into_owned(), page.path()));
        }
        for (name, path) in files {
            let packed = out.join(format!("{name}.gz"));
            let mut gzip = GzEncoder::new(fs::File::create(&packed)?, Compression::best());
            gzip.write_all(&fs::read(path)?)?;
            gzip.finish()?;
            write!(list, "Asset {{ name: {name:?}, gzip: include_bytes!({packed:?}) }}, ")?;
        }
    } else {
        println!(
            "cargo::warning=this build has no page for browsers (http.browser): rustup target add {TARGET}"
        );
    }
    list.push(']');
    fs::write(out.join("assets.rs"), list)?;
    Ok(())
}

fn has_target() -> Result<bool, Failure> {
    Ok(Path::new(&asked(&["--print", "target-libdir", "--target", TARGET])?).is_dir())
}

/// What the compiler prints.
fn asked(args: &[&str]) -> Result<String, Failure> {
    let rustc = env::var("RUSTC")?;
    let said = Command::new(&rustc).args(args).output();
    let said = said.map_err(|error| format!("{rustc} does not start: {error}"))?;
    Ok(String::from_utf8(said.stdout)?.trim().to_owned())
}

/// Flags that keep folders of this machine out of the wasm: they are nobody's concern, and room.
fn flags(crates: &Path) -> Result<OsString, Failure> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let own = env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo"));
    let registries = home.or(own).map(|home| home.join("registry/src"));
    let registries = registries.into_iter().filter_map(|folder| fs::read_dir(folder).ok());
    let registries = registries.flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let top = crates.parent().ok_or("no folder above the crates")?;
    let mut flags = OsString::new();
    for folder in registries.chain([top.to_path_buf()]) {
        if !flags.is_empty() {
            flags.push("\u{1f}");
        }
        flags.push("--remap-path-prefix=");
        flags.push(folder);
        flags.push("/=");
    }
    Ok(flags)
}

/// Builds the link. All profiles share its folder, so that it is built once.
fn link(crates: &Path, out: &Path) -> Result<PathBuf, Failure> {
    // OUT_DIR is target/PROFILE/build/NAME/out, or target/TARGET/PROFILE/build/NAME/out.
    let above = out.ancestors().nth(4).unwrap_or(out);
    let is_of_target =
        above.file_name().is_some_and(|name| name == &*env::var("TARGET").unwrap_or_default());
    let folder = above.parent().filter(|_| is_of_target).unwrap_or(above).join("page");
    let kept = KEPT.iter().filter_map(|name| Some((name, env::var_os(name)?)));
    let cargo = env::var("CARGO")?;
    let built = Command::new(&cargo)
        .env_clear()
        .envs(kept)
        .env("CARGO_ENCODED_RUSTFLAGS", flags(crates)?)
        .args([
            "build",
            "--locked",
            "--package",
            "browser",
            "--profile",
            "page",
            "--target",
            TARGET,
        ])
        .arg("--target-dir")
        .arg(&folder)
        // As many compilers at a time as the build around this one may start.
        .args(env::var("NUM_JOBS").ok().map(|jobs| format!("--jobs={jobs}")))
        .current_dir(crates)
        .output()
        .map_err(|error| format!("{cargo} does not start: {error}"))?;
    if !built.status.success() {
        let said = String::from_utf8_lossy(&built.stderr);
        return Err(format!("{cargo} build --package browser: {}\n{said}", built.status).into());
    }
    Ok(folder.join(TARGET).join("page/browser.wasm"))
}
