//! What goes into packages: the static binary, what it prints about itself, and files of the
//! checkout.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::tree::{Tree, gzip};
use super::{Arch, COMPLETIONS, epoch, printed};
use xtask::site::Site;

/// A file by its name.
type Named = (String, Vec<u8>);

/// Everything of one processor.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// The top level of the checkout.
    pub(super) root: PathBuf,
    pub(super) arch: Arch,
    pub(super) version: String,
    /// SPDX expression.
    pub(super) licence: String,
    /// The time of all files, in seconds since 1970.
    pub(super) epoch: u64,
    /// Name and mail, as in a package of Debian.
    pub(super) maintainer: String,
    /// The version of the compiler, as `1.95.0`.
    pub(super) compiler: String,
    pub(super) program: Vec<u8>,
    /// The functions of memory that replace functions of the C library, if any.
    pub(super) memory: Option<Memory>,
    pub(super) completions: Vec<Named>,
    pub(super) manual: Vec<Named>,
    /// The files of `systemd/`.
    pub(super) units: Vec<Named>,
    /// The texts of the own licences.
    pub(super) licences: Vec<Named>,
    /// The licences of the crates in the program.
    pub(super) notices: String,
}

/// The functions of memory from zig's compiler-rt.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    pub(super) version: String,
    /// The text of its licence.
    pub(super) licence: String,
}

impl Memory {
    /// The functions that `build-static.sh` links into the program of a processor.
    fn of(site: &Site, arch: Arch, program: &Path) -> Result<Option<Self>> {
        if arch != Arch::X86_64 {
            return Ok(None);
        }
        let file = program.with_file_name("zig.LICENSE");
        let licence = fs::read_to_string(&file)
            .with_context(|| format!("{}: ./build-static.sh writes it", file.display()))?;
        let script = fs::read_to_string(site.root.join("build-static.sh"))?;
        let version = script
            .lines()
            .find_map(|line| line.strip_prefix("zig_version=")?.split_whitespace().next())
            .context("build-static.sh: zig_version=")?
            .to_owned();
        Ok(Some(Self { version, licence }))
    }
}

/// Documents that packages have, beside the manual. They lie as in the checkout, so that their
/// links lead somewhere.
const DOCUMENTS: &[&str] = &[
    "README.md",
    "crates/config/REFERENCE.md",
    "crates/proto/SPEC.md",
    "crates/tunnel/CHANGELOG.md",
];

impl Source {
    /// Reads the program of a processor. `printer` is the program that this machine can run.
    pub(super) fn of(site: &Site, arch: Arch, printer: &Path, maintainer: &str) -> Result<Self> {
        let program = arch.program(site);
        let bytes = fs::read(&program)
            .with_context(|| format!("{}: ./build-static.sh builds it", program.display()))?;
        let manifest = fs::read_to_string(site.root.join("Cargo.toml")).context("Cargo.toml")?;
        let manifest: Value = basic_toml::from_str(&manifest).context("Cargo.toml")?;
        let of_package = |key: &str| {
            let value = manifest["workspace"]["package"][key].as_str().map(str::to_owned);
            value.with_context(|| format!("Cargo.toml: workspace.package.{key}"))
        };
        let version = of_package("version")?;
        let said = printed(Command::new(printer).arg("--version"))?;
        let said = String::from_utf8_lossy(&said);
        ensure!(
            said.split_whitespace().any(|word| word == version),
            "{} is of another version: {}",
            printer.display(),
            said.trim()
        );
        let completions = COMPLETIONS.iter().map(|of| {
            let text = printed(Command::new(printer).args(["generate", "completions", of.shell]))?;
            Ok((of.name.to_owned(), text))
        });
        let compiler = String::from_utf8(printed(Command::new("rustc").arg("--version"))?)?;
        let licences = ["LICENSE-MIT", "LICENSE-APACHE"].map(|name| {
            let file = site.root.join("crates/tunnel").join(name);
            Ok((name.to_owned(), fs::read(&file).with_context(|| file.display().to_string())?))
        });
        Ok(Self {
            version,
            licence: of_package("license")?,
            epoch: epoch(&site.root)?,
            maintainer: maintainer.to_owned(),
            compiler: compiler.split(' ').nth(1).context("rustc has a version")?.to_owned(),
            memory: Memory::of(site, arch, &program)?,
            program: bytes,
            completions: completions.collect::<Result<_>>()?,
            manual: manual(site, printer)?,
            units: all_of(&site.root.join("systemd"))?,
            licences: licences.into_iter().collect::<Result<_>>()?,
            notices: String::new(),
            root: site.root.clone(),
            arch,
        })
    }

    /// The moment of the sources, by a format of date(1), in UTC.
    pub(super) fn date(&self, format: &str) -> Result<String> {
        let mut date = Command::new("date");
        date.args(["--utc", &format!("--date=@{}", self.epoch), &format!("+{format}")]);
        let text = printed(date.env("LC_ALL", "C"))?;
        Ok(String::from_utf8(text)?.trim().to_owned())
    }

    /// Documents, the manual, the examples, and the licences of the crates in the program.
    pub(super) fn documents(&self) -> Result<Tree> {
        let mut tree = Tree::default();
        for document in DOCUMENTS {
            let text =
                fs::read(self.root.join(document)).with_context(|| (*document).to_owned())?;
            tree.file(document, 0o644, text);
        }
        for folder in ["crates/tunnel/docs", "examples"] {
            tree.copies(&self.root.join(folder), folder)?;
        }
        tree.file("third-party.txt.gz", 0o644, gzip(self.notices.as_bytes())?);
        Ok(tree)
    }

    /// The files of the archive for every system.
    pub(super) fn archive(&self) -> Result<Tree> {
        let mut tree = self.documents()?;
        tree.file("tunnel", 0o755, self.program.clone());
        let folders = [
            ("completions", &self.completions),
            ("man/man1", &self.manual),
            ("systemd", &self.units),
        ];
        for (folder, files) in folders {
            for (name, text) in files {
                tree.file(&format!("{folder}/{name}"), 0o644, text.clone());
            }
        }
        for (name, text) in &self.licences {
            tree.file(name, 0o644, text.clone());
        }
        Ok(tree)
    }
}

/// The manual pages.
fn manual(site: &Site, printer: &Path) -> Result<Vec<Named>> {
    let folder = site.target.join("dist-work/man");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    printed(Command::new(printer).args(["generate", "man", "-o"]).arg(&folder))?;
    all_of(&folder)
}

/// All files of a folder, by name.
fn all_of(folder: &Path) -> Result<Vec<Named>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let name = entry.file_name().into_string().ok().context("a name in UTF-8")?;
        files.push((name, fs::read(entry.path())?));
    }
    files.sort();
    Ok(files)
}
