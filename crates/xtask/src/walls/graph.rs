//! The dependency graph, from the output of `cargo tree`. `cargo metadata` would be easier to read,
//! but it names crates that only an inactive optional feature would pull in.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

/// Packages by name and version.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    packages: BTreeMap<String, Package>,
}

/// A crate in the graph.
#[derive(Debug, Default)]
pub(crate) struct Package {
    /// As the crate states it; empty if it states none.
    pub(crate) licence: String,
    /// The direct dependencies, by name and version.
    pub(crate) needs: BTreeSet<String>,
}

impl Graph {
    /// The graph of the whole workspace, tests included.
    pub(super) fn of_workspace(root: &Path) -> Result<Self> {
        Self::of(root, &["--workspace", "--edges", "normal,build,dev"])
    }

    /// The graph of one crate built alone: crates that are linked or run at build time, without
    /// tests.
    pub(super) fn of_crate(root: &Path, name: &str) -> Result<Self> {
        Self::of(root, &["--package", name, "--edges", "normal,build"])
    }

    /// The graph of a selection of packages, targets and features, in the words of `cargo tree`.
    pub(crate) fn of(root: &Path, selection: &[&str]) -> Result<Self> {
        let format = ["--prefix=depth", "--format={p}|{l}"];
        Self::parse(&tree(root, &[&format, selection].concat())?)
    }

    /// Parses lines like `2name v1.2.3 (proc-macro)|MIT OR ISC (*)`: depth, package, licence, and a
    /// star if the dependencies of the package were printed before.
    fn parse(tree: &str) -> Result<Self> {
        let mut graph = Self::default();
        let mut path: Vec<String> = Vec::new();
        for line in tree.lines().filter(|line| !line.is_empty()) {
            let name_at = line.find(|c: char| !c.is_ascii_digit()).unwrap_or(line.len());
            let (depth, rest) = line.split_at(name_at);
            let depth: usize = depth.parse().with_context(|| format!("cargo tree: {line}"))?;
            let (package, licence) =
                rest.split_once('|').with_context(|| format!("cargo tree: {line}"))?;
            let mut words = package.split(' ');
            let (Some(name), Some(version)) = (words.next(), words.next()) else {
                bail!("cargo tree: {line}");
            };
            let package = format!("{name} {version}");
            path.truncate(depth);
            if let Some(parent) = path.last() {
                let parent = graph.packages.entry(parent.clone()).or_default();
                parent.needs.insert(package.clone());
            }
            licence
                .trim_end_matches(" (*)")
                .clone_into(&mut graph.packages.entry(package.clone()).or_default().licence);
            path.push(package);
        }
        Ok(graph)
    }

    /// All packages, by name and version (`serde v1.0.0`).
    pub(crate) fn packages(&self) -> impl Iterator<Item = (&str, &Package)> {
        self.packages.iter().map(|(package, about)| (package.as_str(), about))
    }

    /// Names of all packages.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.packages.keys().map(|package| name_of(package))
    }

    /// Names of the direct dependents of a package.
    pub(super) fn dependents(&self, name: &str) -> BTreeSet<&str> {
        self.packages
            .iter()
            .filter(|(_, package)| package.needs.iter().any(|need| name_of(need) == name))
            .map(|(dependent, _)| name_of(dependent))
            .collect()
    }

    /// Each package with its licence; the licence is empty if the package states none.
    pub(super) fn licences(&self) -> impl Iterator<Item = (&str, &str)> {
        self.packages.iter().map(|(name, package)| (name.as_str(), package.licence.as_str()))
    }
}

fn tree(root: &Path, args: &[&str]) -> Result<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    let output = command.current_dir(root).args(["tree", "--color=never"]).args(args).output();
    let output = output.context("starting cargo tree")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo tree: {said}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn name_of(package: &str) -> &str {
    package.split(' ').next().unwrap_or(package)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Graph {
        pub(in super::super) fn sample(tree: &str) -> Self {
            Self::parse(tree).unwrap()
        }
    }

    #[test]
    fn a_printed_tree_becomes_a_graph() {
        let graph = Graph::sample(
            "0a v1.0.0 (/x/a)|MIT\n1b v2.0.0 (proc-macro)|MIT OR ISC\n2c v1.0.0|\n1d v1.0.0|ISC\n\
             \n0d v1.0.0|ISC\n1b v2.0.0|MIT OR ISC (*)\n",
        );
        assert_eq!(graph.names().collect::<Vec<_>>(), ["a", "b", "c", "d"]);
        assert_eq!(graph.dependents("b"), BTreeSet::from(["a", "d"]));
        assert_eq!(graph.dependents("c"), BTreeSet::from(["b"]));
        let licences: Vec<_> = graph.licences().collect();
        assert_eq!(licences[1], ("b v2.0.0", "MIT OR ISC"));
        assert_eq!(licences[2], ("c v1.0.0", ""));
        assert!(Graph::parse("nothing of cargo's").is_err());
    }
}
