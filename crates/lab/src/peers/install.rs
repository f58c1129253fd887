//! Installs one peer with the tool of its registry. The tool's output goes to `NAME.log` in the
//! folder of peers; the terminal shows the progress.

use std::fs::{self, File};
use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::list::{DEBIANS, Peer, Source};
use super::record::Record;
use xtask::child::{capture, cargo};
use xtask::{go, packages};

/// The interval of progress lines on a terminal, and in a log.
const TELL: Duration = Duration::from_secs(1);
const TELL_LINES: Duration = Duration::from_secs(15);

/// The most lines of the log that a reason shows.
const REASON_LINES: usize = 2;

/// Tries to install a peer. The record has the registry's answer; an error is about this machine's
/// files.
pub(super) fn install(peer: &Peer, folder: &Path) -> Result<Record> {
    let mut command = match peer.source {
        Source::Debian(package) => return Ok(debian(package)),
        Source::Crate { name, packages } => {
            let missing = packages.iter().filter(|package| debian_version(package).is_none());
            let missing: Vec<_> = missing.copied().collect();
            if !missing.is_empty() {
                // Other distributions name the packages differently. If a library is missing, cargo
                // reports it.
                let _ = packages::add(&missing);
            }
            let mut command = cargo(folder, &["install", "--version", peer.version, "--root"]);
            // cargo uses its own target folder and removes it.
            command.arg(folder).arg(name).env_remove("CARGO_TARGET_DIR");
            command
        }
        Source::Go { package, modules, sums } => {
            let go = match go::compiler() {
                Ok(go) => go,
                Err(reason) => return Ok(Record::refused(peer.version, &reason)),
            };
            let dir = folder.join("go").join(peer.name);
            fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
            fs::write(dir.join("go.mod"), go_mod(modules, peer.version))?;
            fs::write(dir.join("go.sum"), sums)?;
            let mut command = Command::new(go);
            command.current_dir(dir).env("GOWORK", "off").args(["build", "-mod=mod", "-o"]);
            command.arg(folder.join("bin").join(peer.name)).arg(package);
            command
        }
    };
    let log = folder.join(peer.name).with_extension("log");
    let what = format!("{} {}", peer.name, peer.version);
    if watched(&mut command, &what, &log)? {
        return Ok(Record::installed(peer.version));
    }
    let text = fs::read_to_string(&log).with_context(|| format!("reading {}", log.display()))?;
    Ok(Record::refused(peer.version, &reason(&text)))
}

/// Whether the command succeeded. Prints the elapsed seconds meanwhile.
fn watched(command: &mut Command, what: &str, log: &Path) -> Result<bool> {
    let start = Instant::now();
    let file = File::create(log).with_context(|| format!("making {}", log.display()))?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let mut child = command.spawn().with_context(|| format!("starting {command:?}"))?;
    let is_terminal = std::io::stdout().is_terminal();
    let (every, end) = if is_terminal { (TELL, '\r') } else { (TELL_LINES, '\n') };
    let mut next = Duration::ZERO;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if start.elapsed() >= next {
            next = start.elapsed() + every;
            print!("{what}: installing, {} s{end}", start.elapsed().as_secs());
            // A closed terminal is no reason to stop.
            let _ = std::io::stdout().flush();
        }
        thread::sleep(Duration::from_millis(50));
    };
    let verdict = if status.success() { "installed" } else { "refused" };
    println!("{what}: {verdict} after {} s", start.elapsed().as_secs());
    Ok(status.success())
}

/// A module that needs only the peer. `go install package@version` would need no module, but it
/// refuses a module with `replace` lines, as hysteria has, and it asks for the list of all
/// versions, which a registry may lack.
fn go_mod(modules: &[&str], version: &str) -> String {
    let lines = modules.iter().map(|module| format!("require {module} {version}\n"));
    // The oldest language version that chooses dependencies as today's does.
    ["module peer\n\ngo 1.21\n\n".to_owned()].into_iter().chain(lines).collect()
}

fn debian(package: &str) -> Record {
    // The output of apt-get is on the terminal.
    let hindered = packages::add(&[package]).unwrap_or_else(|e| Some(format!("{e:#}")));
    match (hindered, debian_version(package)) {
        (None, Some(version)) => Record::installed(&version),
        (hindered, _) => {
            let reason = hindered.unwrap_or_else(|| format!("apt-get did not install {package}"));
            Record::refused(DEBIANS, &reason)
        }
    }
}

/// The version of an installed package.
pub(super) fn debian_version(package: &str) -> Option<String> {
    let mut query = Command::new("dpkg-query");
    query.args(["-W", "-f", "${db:Status-Status} ${Version}", package]);
    let (_, text) = capture(&mut query).ok()?;
    text.strip_prefix("installed ").map(str::to_owned)
}

/// The reason for a failure from the tool's log: the first error line, else the last sentence.
fn reason(log: &str) -> String {
    let lines: Vec<_> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    let complains = |line: &&str| {
        ["error", "go: ", "fatal:"].iter().any(|word| line.starts_with(word))
            && !line.starts_with("go: downloading")
    };
    // An indented line belongs to the line before.
    let last = || lines.iter().rposition(|line| !line.starts_with(char::is_whitespace));
    let from = lines.iter().position(complains).or_else(last).unwrap_or(0);
    let found: Vec<_> = lines[from..].iter().take(REASON_LINES).map(|line| line.trim()).collect();
    if found.is_empty() { "the installer said nothing".to_owned() } else { found.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_first_complaint() {
        let go = "go: downloading example.com/x v1.0.0\n\
                  example.com/x@v1.0.0: reading …/v1.0.0.zip: 403 Forbidden\n\
                  \tserver response: not available\n";
        let expected = "example.com/x@v1.0.0: reading …/v1.0.0.zip: 403 Forbidden; \
                        server response: not available";
        assert_eq!(reason(go), expected);
        assert_eq!(reason(&go.replace("\nexample", "\ngo: example")), format!("go: {expected}"));
        let cargo = "    Updating index\nerror: could not find `x`\n\nmore\nmore\nmore\n";
        assert_eq!(reason(cargo), "error: could not find `x`; more");
        assert_eq!(reason("one\ntwo\n"), "two", "the last line where none complains");
        assert_eq!(reason(""), "the installer said nothing");
    }

    #[test]
    fn all_modules_of_a_peer_are_of_its_version() {
        assert_eq!(
            go_mod(&["example.com/app", "example.com/core"], "v1.2.3"),
            "module peer\n\ngo 1.21\n\n\
             require example.com/app v1.2.3\nrequire example.com/core v1.2.3\n"
        );
    }

    #[test]
    fn output_is_kept_and_the_verdict_is_the_status() {
        let log = std::env::temp_dir().join(format!("peers-log-{}", std::process::id()));
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo error: no >&2; exit 1"]);
        assert!(!watched(&mut command, "sh", &log).unwrap());
        assert_eq!(reason(&fs::read_to_string(&log).unwrap()), "error: no");
        fs::remove_file(log).unwrap();
    }
}
