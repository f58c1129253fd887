//! `cargo xtask dist`: the packages of a release, from the static binary. The same sources,
//! compiler and moment give the same bytes.
//!
//! | module | content |
//! |---|---|
//! | `tree` | the files of a package; archives with sorted paths |
//! | `source` | what goes into packages: the program, and what it prints about itself |
//! | `deb` | the package of Debian |
//! | `oci` | images for containers |
//! | `sbom` | what is in the program, and under which licences |
//! | `check` | the step `dist`: the packages are installed, upgraded, removed and purged |

mod check;
mod deb;
mod oci;
mod sbom;
mod source;
mod tree;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail, ensure};

use sbom::Materials;
use source::Source;
use tree::{gzip, sha256};
use xtask::child::{capture, run};
use xtask::options;
use xtask::site::Site;

pub(crate) use check::{INSIDE, inside, long, step};

/// A processor that packages are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arch {
    X86_64,
    Aarch64,
    Armv7,
}

impl Arch {
    const ALL: [Self; 3] = [Self::X86_64, Self::Aarch64, Self::Armv7];

    /// In the words of the kernel.
    const fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
            Self::Armv7 => "armv7",
        }
    }

    /// In the words of Rust.
    const fn triple(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64-unknown-linux-musl",
            Self::Aarch64 => "aarch64-unknown-linux-musl",
            Self::Armv7 => "armv7-unknown-linux-musleabihf",
        }
    }

    /// In the words of dpkg.
    const fn of_debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
            Self::Armv7 => "armhf",
        }
    }

    /// In the words of images, which are those of Go.
    const fn of_go(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
            Self::Armv7 => "arm",
        }
    }

    /// The variant of the processor in images.
    const fn variant(self) -> Option<&'static str> {
        match self {
            Self::X86_64 => None,
            Self::Aarch64 => Some("v8"),
            Self::Armv7 => Some("v7"),
        }
    }

    /// Where `build-static.sh` puts the program.
    fn program(self, site: &Site) -> PathBuf {
        let folder = match self {
            Self::X86_64 => "static".to_owned(),
            Self::Aarch64 | Self::Armv7 => format!("static-{}", self.name()),
        };
        site.target.join(folder).join("tunnel")
    }
}

/// What an image runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Server,
    Client,
}

impl Role {
    const ALL: [Self; 2] = [Self::Server, Self::Client];

    const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
        }
    }
}

/// Where the completions of a shell go.
#[derive(Debug)]
struct Completions {
    /// The name of the file in the archive.
    name: &'static str,
    shell: &'static str,
    /// The place in a package of Debian.
    debian: &'static str,
}

const COMPLETIONS: [Completions; 3] = [
    Completions {
        name: "tunnel.bash",
        shell: "bash",
        debian: "usr/share/bash-completion/completions/tunnel",
    },
    Completions {
        name: "_tunnel",
        shell: "zsh",
        debian: "usr/share/zsh/vendor-completions/_tunnel",
    },
    Completions {
        name: "tunnel.fish",
        shell: "fish",
        debian: "usr/share/fish/vendor_completions.d/tunnel.fish",
    },
];

/// The file with the sums of all packages.
const SUMS: &str = "SHA256SUMS";

/// What a person asks for.
#[derive(Debug)]
struct Order {
    archs: Vec<Arch>,
    /// Takes programs that were built before.
    built: bool,
    revision: String,
    maintainer: String,
    /// `None`: `dist` in the build folder.
    output: Option<PathBuf>,
}

impl Default for Order {
    fn default() -> Self {
        Self {
            archs: vec![Arch::X86_64],
            built: false,
            revision: "1".to_owned(),
            maintainer: "The tunnel contributors <tunnel@example.com>".to_owned(),
            output: None,
        }
    }
}

impl Order {
    fn set(&mut self, name: &str, value: &str) -> Result<bool> {
        match name {
            "--arch" => {
                self.archs = match value {
                    "all" => Arch::ALL.to_vec(),
                    names => names.split(',').map(of_name).collect::<Result<_>>()?,
                }
            }
            "--build" => {
                self.built = match value {
                    "yes" => false,
                    "no" => true,
                    _ => bail!("--build wants yes or no, not {value}"),
                }
            }
            "--revision" => value.clone_into(&mut self.revision),
            "--maintainer" => value.clone_into(&mut self.maintainer),
            "--output" => self.output = Some(value.into()),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn of_name(name: &str) -> Result<Arch> {
    let found = Arch::ALL.into_iter().find(|arch| arch.name() == name);
    found.with_context(|| format!("--arch wants x86_64, aarch64, armv7 or all, not {name}"))
}

const HELP: &str = "\
cargo xtask dist                  packages of the static binary, in target/dist

  --arch NAMES                    x86_64, aarch64, armv7, or all [x86_64]
  --build no                      takes the programs that build-static.sh left
  --revision N                    of the packages of Debian [1]
  --maintainer 'NAME <MAIL>'      of the packages of Debian
  --output DIR                    in place of target/dist

SOURCE_DATE_EPOCH is the time of all files; without it, the time of the last commit.
";

pub(crate) fn main(args: impl Iterator<Item = String>) -> ExitCode {
    let args: Vec<_> = args.collect();
    if args.iter().any(|word| matches!(word.as_str(), "help" | "--help" | "-h")) {
        println!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let mut order = Order::default();
    let parsed = options::parse(args.into_iter(), |name, value| order.set(name, value));
    options::then(parsed, || {
        let site = Site::here()?;
        let output = order.output.clone().unwrap_or_else(|| site.target.join("dist"));
        let made = make(&site, &order, &output)?;
        println!("\n{}", fs::read_to_string(output.join(SUMS))?.trim_end());
        for lack in &made {
            println!("not made: {lack}");
        }
        Ok(())
    })
}

/// Makes the packages in an empty folder. The result names what cannot be had here, with the
/// reason.
fn make(site: &Site, order: &Order, output: &Path) -> Result<Vec<String>> {
    if output.exists() {
        fs::remove_dir_all(output)?;
    }
    fs::create_dir_all(output)?;
    let mut lacking = Vec::new();
    // The program of this machine prints what packages of all processors have.
    let printer = Arch::X86_64.program(site);
    for &arch in &order.archs {
        if !order.built
            && let Some(lack) = build(site, arch)?
        {
            lacking.push(lack);
            continue;
        }
        let source = Source::of(site, arch, &printer, &order.maintainer)?;
        packages(&source, &order.revision, &site.target, output)?;
    }
    if !lacking.is_empty() {
        fs::write(output.join("NOT-MADE.txt"), lacking.join("\n") + "\n")?;
    }
    fs::write(output.join(SUMS), sums(output)?)?;
    Ok(lacking)
}

/// Builds the static binary. `Some`: why it cannot be built here.
fn build(site: &Site, arch: Arch) -> Result<Option<String>> {
    let script = || {
        let mut script = Command::new("./build-static.sh");
        script.current_dir(&site.root);
        script
    };
    if arch == Arch::X86_64 {
        return run(&mut script()).map(|()| None);
    }
    let status = script().args(["--arch", arch.name()]).status().context("build-static.sh")?;
    if status.code() == Some(i32::from(xtask::verdict::SKIPPED)) {
        let triple = arch.triple();
        return Ok(Some(format!(
            "{}: the standard library for {triple} cannot be had",
            arch.name()
        )));
    }
    ensure!(status.success(), "build-static.sh --arch {}: {status}", arch.name());
    Ok(None)
}

/// Makes all packages of one processor.
fn packages(source: &Source, revision: &str, target: &Path, output: &Path) -> Result<()> {
    let materials = Materials::of(&source.root, source.arch.triple())?;
    let stem = format!("tunnel-{}-{}", source.version, source.arch.name());
    let notices = materials.notices(source.memory.as_ref())?;
    let source = &Source { notices, ..source.clone() };
    fs::write(output.join(format!("{stem}.cdx.json")), materials.bill(source)?)?;
    let archive = source.archive()?.below(&stem).tar(source.epoch)?;
    fs::write(output.join(format!("{stem}.tar.gz")), gzip(&archive)?)?;
    let work = target.join("dist-work");
    fs::create_dir_all(&work)?;
    deb::package(source, revision, deb::SMALL, [&work, output])?;
    let layer = oci::layer(source)?;
    for role in Role::ALL {
        let name =
            format!("tunnel-{}-{}-{}.oci.tar", role.name(), source.version, source.arch.name());
        fs::write(output.join(name), oci::image(source, role, &layer)?)?;
    }
    Ok(())
}

/// The sums of all files, in the form of sha256sum(1).
fn sums(folder: &Path) -> Result<String> {
    let mut names = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<Vec<_>>>()?;
    names.sort();
    let mut text = String::new();
    for name in names.iter().filter(|name| *name != SUMS) {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "{}  {name}", sha256(&fs::read(folder.join(name))?)?);
    }
    Ok(text)
}

/// What a program prints on standard output.
fn printed(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.stdin(std::process::Stdio::null()).output();
    let output = output.with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {}", said.trim());
    Ok(output.stdout)
}

/// The moment of the sources: `SOURCE_DATE_EPOCH`, or the last commit. Seconds since 1970.
fn epoch(root: &Path) -> Result<u64> {
    if let Ok(given) = std::env::var("SOURCE_DATE_EPOCH") {
        return given.parse().with_context(|| format!("SOURCE_DATE_EPOCH={given}"));
    }
    let (good, said) =
        capture(Command::new("git").current_dir(root).args(["log", "-1", "--format=%ct"]))?;
    ensure!(good, "no commit here: set SOURCE_DATE_EPOCH ({})", said.trim());
    said.trim().parse().with_context(|| format!("git log: {}", said.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_read_and_nonsense_is_named() {
        let mut order = Order::default();
        for (name, value) in [("--arch", "aarch64,armv7"), ("--build", "no"), ("--revision", "2")] {
            assert!(order.set(name, value).unwrap());
        }
        assert_eq!(order.archs, [Arch::Aarch64, Arch::Armv7]);
        assert!(order.built && order.revision == "2");
        assert!(order.set("--arch", "all").unwrap() && order.archs == Arch::ALL);
        assert!(!order.set("--nonsense", "").unwrap());
        for (name, value, complaint) in
            [("--arch", "mips", "not mips"), ("--build", "maybe", "not maybe")]
        {
            let error = order.set(name, value).unwrap_err().to_string();
            assert!(error.contains(complaint), "{error}");
        }
    }

    #[test]
    fn sums_are_those_of_sha256sum() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("b"), "abc").unwrap();
        fs::write(folder.path().join("a"), "").unwrap();
        let text = sums(folder.path()).unwrap();
        fs::write(folder.path().join(SUMS), &text).unwrap();
        let check = Command::new("sha256sum")
            .args(["--check", "--strict", SUMS])
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(check.status.success(), "{text}");
        assert_eq!(text.lines().count(), 2);
        assert_eq!(sums(folder.path()).unwrap(), text, "the sums have no sum");
    }
}
