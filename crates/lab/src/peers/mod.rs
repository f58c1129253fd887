//! `cargo xtask peers`: installs other projects' tunnels and proxies into a folder of their own, so
//! that `cargo xtask bench` can compare `tunnel` with them.
//!
//! | module | what |
//! |---|---|
//! | `list` | the peers and their versions |
//! | `install` | runs cargo, go and apt-get and shows their progress |
//! | `record` | the result for each peer, kept in the folder |
//!
//! A peer that cannot be installed on a machine is no failure: the reason is kept, and `bench`
//! prints it.

mod install;
mod list;
mod record;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};

use list::{PEERS, Peer, Source};
use record::Record;
use xtask::child;
use xtask::options;
use xtask::site::Site;

/// `cargo xtask peers [NAME…]`.
pub(crate) fn main(args: impl Iterator<Item = String>) -> ExitCode {
    let named: BTreeSet<_> = args.collect();
    options::then(check_names(&named), || install_all(&Site::here()?, &named))
}

/// The reason why this peer cannot be run on this machine, if there is one.
pub(crate) fn lacking(site: &Site, name: &str) -> Option<String> {
    let Some(peer) = PEERS.iter().find(|peer| peer.name == name) else {
        return Some(format!("{name} is not one of the peers"));
    };
    if peer.programs.iter().all(|program| peer.find(site, program).is_some()) {
        return None;
    }
    Some(Record::read(&site.peers, name).map_or_else(
        || format!("not installed: cargo xtask peers {name}"),
        |record| record.reason(peer.version),
    ))
}

/// The installed version of this peer.
pub(crate) fn version(site: &Site, name: &str) -> Option<String> {
    let peer = PEERS.iter().find(|peer| peer.name == name)?;
    lacking(site, name).is_none().then(|| peer.installed_version())
}

/// The path of a peer's program.
///
/// # Errors
/// The reason why the program is missing.
pub(crate) fn program(site: &Site, program: &str) -> Result<PathBuf> {
    let peer = PEERS.iter().find(|peer| peer.programs.contains(&program));
    let peer = peer.with_context(|| format!("no peer has a program {program}"))?;
    if let Some(found) = peer.find(site, program) {
        return Ok(found);
    }
    let reason = lacking(site, peer.name);
    bail!("{program}: {}", reason.as_deref().unwrap_or("gone meanwhile"))
}

impl Peer {
    fn find(&self, site: &Site, program: &str) -> Option<PathBuf> {
        if let Source::Debian(_) = self.source {
            return child::find(program);
        }
        let current = Record::read(&site.peers, self.name)?.is_installed(self.version);
        let file = site.peers.join("bin").join(program);
        (current && file.is_file()).then_some(file)
    }

    fn installed_version(&self) -> String {
        let packaged = match self.source {
            Source::Debian(package) => install::debian_version(package),
            Source::Crate { .. } | Source::Go { .. } => None,
        };
        packaged.unwrap_or_else(|| self.version.to_owned())
    }
}

fn check_names(named: &BTreeSet<String>) -> Result<()> {
    match named.iter().find(|name| PEERS.iter().all(|peer| peer.name != **name)) {
        Some(unknown) => {
            let names: Vec<_> = PEERS.iter().map(|peer| peer.name).collect();
            bail!("no such peer: {unknown}; there are {}", names.join(", "))
        }
        None => Ok(()),
    }
}

/// Installs the missing peers. A failure is an error only for peers that the command line names.
fn install_all(site: &Site, named: &BTreeSet<String>) -> Result<()> {
    let folder = &site.peers;
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    println!("into {}", folder.display());
    let wanted = |peer: &&Peer| named.is_empty() || named.contains(peer.name);
    let mut rows = Vec::new();
    let mut failed = Vec::new();
    for peer in PEERS.iter().filter(wanted) {
        let mut state = lacking(site, peer.name);
        if state.is_some() {
            install::install(peer, folder)?.write(folder, peer.name)?;
            state = lacking(site, peer.name);
        }
        if state.is_some() {
            failed.push(peer.name);
        }
        let version = version(site, peer.name).unwrap_or_else(|| peer.version.to_owned());
        rows.push([peer.name.to_owned(), version, state.unwrap_or_else(|| "installed".into())]);
    }
    println!("\n{}", table(&rows));
    ensure!(named.is_empty() || failed.is_empty(), "not installed: {}", failed.join(", "));
    Ok(())
}

/// A table of names, versions and results.
fn table(rows: &[[String; 3]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let (names, versions) = (width(0), width(1));
    let line = |[name, version, state]: &[String; 3]| {
        format!("{name:names$}  {version:versions$}  {state}\n")
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_belongs_to_one_peer() {
        let programs: Vec<_> = PEERS.iter().flat_map(|peer| peer.programs).collect();
        assert_eq!(programs.iter().collect::<BTreeSet<_>>().len(), programs.len());
        assert!(check_names(&["bore".to_owned()].into()).is_ok());
        let error = check_names(&["frp".to_owned()].into()).unwrap_err().to_string();
        assert!(error.contains("no such peer: frp") && error.contains("rathole"), "{error}");
    }

    #[test]
    fn the_table_has_columns() {
        let row = |row: [&str; 3]| row.map(str::to_owned);
        let text = table(&[row(["bore", "0.6.0", "installed"]), row(["x", "v1", "no: never"])]);
        assert_eq!(text, "bore  0.6.0  installed\nx     v1     no: never\n");
    }

    #[test]
    fn a_peer_is_there_when_its_record_and_its_program_are() {
        let dir = std::env::temp_dir().join(format!("peers-{}", std::process::id()));
        let none = PathBuf::new;
        let site = Site {
            root: none(),
            target: none(),
            former: None,
            tunnel: none(),
            glibc: none(),
            peers: dir.clone(),
            ci: false,
        };
        let bin = dir.join("bin");
        fs::create_dir_all(&bin).unwrap();
        let reason = lacking(&site, "bore").unwrap();
        assert!(reason.contains("cargo xtask peers bore"), "{reason}");
        fs::write(bin.join("bore"), "").unwrap();
        assert!(program(&site, "bore").is_err(), "nobody knows of which version it is");
        Record::installed("0.6.0").write(&dir, "bore").unwrap();
        assert_eq!(lacking(&site, "bore"), None);
        assert_eq!(program(&site, "bore").unwrap(), bin.join("bore"));
        Record::refused("0.6.0", "404").write(&dir, "bore").unwrap();
        assert_eq!(lacking(&site, "bore").as_deref(), Some("404"));
        fs::remove_dir_all(dir).unwrap();
    }
}
