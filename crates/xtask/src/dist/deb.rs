//! The package of Debian. `dpkg-deb` packs it: the program that every Debian has, and the one that
//! says what a package is. cargo-deb would be compiled for minutes to write the same two archives.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::tree::{Tree, gzip};
use super::{COMPLETIONS, Source};
use xtask::child::capture;

/// Where the documents of a package lie.
const DOCUMENTS: &str = "usr/share/doc/tunnel";

/// What lintian is told not to report, with the reason.
const OVERRIDES: &str = "\
# The program is static by intention: one file for every system, and nothing to depend on.
tunnel: statically-linked-binary [usr/bin/tunnel]
# It is taken for a library because its addresses are free (static-pie).
tunnel: shared-library-lacks-prerequisites [usr/bin/tunnel]
# Instances of templates, which deb-systemd-invoke cannot name.
tunnel: maintainer-script-calls-systemctl [prerm:*]
# It is not made for the archive of Debian.
tunnel: initial-upload-closes-no-bugs *
";

/// How a package is compressed: small for a release, quickly for a test.
pub(super) const SMALL: &[&str] = &["-Zxz", "--threads-max=1"];
pub(super) const QUICK: &[&str] = &["-Zgzip", "-z1"];

/// Writes the package into a folder; returns its path. `work` is a folder for files in between.
pub(super) fn package(
    source: &Source,
    revision: &str,
    compression: &[&str],
    [work, to]: [&Path; 2],
) -> Result<PathBuf> {
    let version = format!("{}-{revision}", source.version);
    let files = files(source, &version)?;
    let root = work.join("deb");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    fs::create_dir_all(root.join("DEBIAN"))?;
    // A restrictive umask must not reach the package.
    for folder in [&root, &root.join("DEBIAN")] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    }
    files.write(&root)?;
    let mut about = Tree::default();
    about.file("control", 0o644, control(source, &version, &files)?);
    about.file("md5sums", 0o644, md5sums(&root, &files)?);
    for script in ["postinst", "prerm", "postrm"] {
        let text = fs::read(source.root.join("crates/xtask/debian").join(script))?;
        about.file(script, 0o755, text);
    }
    about.write(&root.join("DEBIAN"))?;
    let package = to.join(format!("tunnel_{version}_{}.deb", source.arch.of_debian()));
    let mut pack = Command::new("dpkg-deb");
    pack.arg("--root-owner-group").args(compression).arg("--build").arg(&root).arg(&package);
    // The files are newer than this moment, so all of them get it.
    pack.env("SOURCE_DATE_EPOCH", source.epoch.to_string());
    let (good, said) = capture(&mut pack)?;
    ensure!(good, "dpkg-deb: {}", said.trim());
    fs::remove_dir_all(&root)?;
    Ok(package)
}

fn files(source: &Source, version: &str) -> Result<Tree> {
    let mut tree = Tree::default();
    tree.file("usr/bin/tunnel", 0o755, source.program.clone());
    for (name, text) in &source.completions {
        let place =
            COMPLETIONS.iter().find(|of| of.name == name).context("a shell without a place")?;
        tree.file(place.debian, 0o644, text.clone());
    }
    for (name, text) in &source.manual {
        tree.file(&format!("usr/share/man/man1/{name}.gz"), 0o644, gzip(text)?);
    }
    for (name, text) in &source.units {
        let place = match name.as_str() {
            "sysusers.conf" => "usr/lib/sysusers.d/tunnel.conf".to_owned(),
            "tmpfiles.conf" => "usr/lib/tmpfiles.d/tunnel.conf".to_owned(),
            "sysctl.conf" => "usr/lib/sysctl.d/60-tunnel.conf".to_owned(),
            unit if unit.ends_with(".service") => format!("usr/lib/systemd/system/{unit}"),
            document => format!("{DOCUMENTS}/systemd/{document}"),
        };
        tree.file(&place, 0o644, text.clone());
    }
    tree.extend(source.documents()?.below(DOCUMENTS));
    let changes = fs::read(source.root.join("crates/tunnel/CHANGELOG.md"))?;
    tree.file(&format!("{DOCUMENTS}/changelog.gz"), 0o644, gzip(&changes)?);
    let packaged = format!(
        "tunnel ({version}) unstable; urgency=medium\n\n  * Release {}: see changelog.gz.\n\n \
         -- {}  {}\n",
        source.version,
        source.maintainer,
        source.date("%a, %d %b %Y %H:%M:%S +0000")?,
    );
    tree.file(&format!("{DOCUMENTS}/changelog.Debian.gz"), 0o644, gzip(packaged.as_bytes())?);
    tree.file(&format!("{DOCUMENTS}/copyright"), 0o644, copyright(source));
    tree.file("usr/share/lintian/overrides/tunnel", 0o644, OVERRIDES);
    Ok(tree)
}

/// Machine-readable (DEP-5). Both licences are in `/usr/share/common-licenses` or short.
fn copyright(source: &Source) -> String {
    let mit = source.licences.iter().find(|(name, _)| name == "LICENSE-MIT");
    let mit = mit.map(|(_, text)| String::from_utf8_lossy(text).into_owned()).unwrap_or_default();
    let holder = mit.lines().find_map(|line| line.strip_prefix("Copyright (c) "));
    let text: String = mit
        .lines()
        .skip_while(|line| !line.starts_with("Permission"))
        .map(|line| if line.is_empty() { " .\n".to_owned() } else { format!(" {line}\n") })
        .collect();
    format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Comment: The program contains the crates whose licences are in third-party.txt.gz.\n\n\
         Files: *\nCopyright: {}\nLicense: MIT or Apache-2.0\n\n\
         License: MIT\n{text}\n\
         License: Apache-2.0\n On Debian systems the text is in \
         /usr/share/common-licenses/Apache-2.0.\n",
        holder.unwrap_or_default(),
    )
}

fn control(source: &Source, version: &str, files: &Tree) -> Result<String> {
    let bytes: usize = files.files().map(|(_, content)| content.len()).sum();
    Ok(format!(
        "Package: tunnel\nVersion: {version}\nArchitecture: {}\nMaintainer: {}\n\
         Installed-Size: {}\nSection: net\nPriority: optional\n\
         Description: TCP and UDP services behind NAT through a public server\n \
         A client behind NAT connects to a server, which publishes services of the\n \
         client at its own ports and names. Connections live on when a carrier dies.\n \
         Transports are TLS, TCP, QUIC, KCP and WebSocket.\n .\n \
         The package starts and enables nothing. An upgrade of the package makes\n \
         running daemons go on in the new program without an interruption.\n",
        source.arch.of_debian(),
        source.maintainer,
        bytes.div_ceil(1024),
    ))
}

/// The sums that `dpkg --verify` compares.
fn md5sums(root: &Path, files: &Tree) -> Result<String> {
    let mut sums = Command::new("md5sum");
    sums.current_dir(root).args(files.files().map(|(path, _)| path));
    let (good, said) = capture(&mut sums)?;
    ensure!(good, "md5sum: {}", said.trim());
    Ok(said)
}
