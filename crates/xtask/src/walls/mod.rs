//! Walls between crates, checked on the resolved dependency graph, and walls inside crates, checked
//! on the sources. The pure crates reach no runtime, the crates that serve every transport reach no
//! TLS, and bans and licences are taken from `.deny.toml`. The workspace `crates/kcp-go` has the
//! same walls, and the versions of crates that the top level has.
//!
//! | module | content |
//! |---|---|
//! | `graph`, `licence` | the dependency graph, and expressions of licences |
//! | `sources`, `facts` | the files of Rust, and what the walls ask of each |
//! | `list` | `walls.toml`: what is allowed by name, with reason and bound |
//! | `imports`, `circles` | which file imports which, and circles of files |
//! | `sizes` | long files, functions and comments |
//! | `words` | names that many types have |
//! | `sockets` | who sets an option of a socket |
//! | `locks` | both `Cargo.lock` |
//! | `pure` | the `.clippy.toml` of each pure crate |
//! | `links` | the documents: links, anchors, columns |
//! | `claims` | the documents: paths, names of tests, tables of modules |
//! | `proc`, `states` | what is read in `/proc`, and who reads the text of a state |
//! | `report` | the figures of all walls |

mod circles;
mod claims;
mod facts;
pub(crate) mod graph;
mod imports;
mod licence;
mod links;
mod list;
mod locks;
mod proc;
mod pure;
mod report;
mod sizes;
mod sockets;
mod sources;
mod states;
mod words;

use std::collections::BTreeSet;
use std::path::Path;
use std::thread;

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::Value;

use graph::Graph;
use list::List;
pub(crate) use pure::{PURE, PURE_OF_KCP_GO};
pub(crate) use report::report;
use sources::Sources;
use xtask::site::KCP_GO;

/// Crates that a pure crate must not reach, at any depth.
const IMPURE: &[&str] = &["tokio", "mio", "socket2", "rustix", "getrandom", "rand", "rustls"];

/// Crates without TLS: they serve every transport, or send commands to a daemon.
const WITHOUT_TLS: &[&str] =
    &["admin", "control", "files", "link", "logging", "net", "ops", "relay", "transport"];

/// Crates that [`WITHOUT_TLS`] must not reach, at any depth.
const TLS: &[&str] = &["aws-lc-rs", "rcgen", "ring", "rustls", "x509-parser"];

/// The same of the workspace `crates/kcp-go`.
const WITHOUT_TLS_OF_KCP_GO: &[&str] = &["kcp-tokio"];

/// The crates of the workspace `crates/kcp-go`. No crate of the top level depends on them.
const OF_KCP_GO: &[&str] = &["kcp-go", "kcp-go-crypto", "kcp-tokio"];

/// Checks all walls and reports every breach at once.
pub(crate) fn check(root: &Path) -> Result<()> {
    // Cargo and the reader of the sources need a core each.
    let (files, graph) = thread::scope(|scope| {
        let files = scope.spawn(|| file_breaches(root));
        let graph = graph_breaches(root);
        (files.join().map_err(|_| anyhow!("the reader of the sources panicked")), graph)
    });
    let (packages, mut breaches) = graph?;
    breaches.extend(files??);
    if breaches.is_empty() {
        println!("{packages} packages, no breach");
        return Ok(());
    }
    bail!("breaches:\n  {}", breaches.join("\n  "))
}

/// The breaches in sources and documents.
fn file_breaches(root: &Path) -> Result<Vec<String>> {
    let list = List::read(root)?;
    let sources = Sources::read(root)?;
    let mut breaches = list.breaches();
    breaches.extend(circles::breaches(&circles::packages(&sources)?, &list));
    breaches.extend(sizes::breaches(&sources, &list));
    breaches.extend(words::breaches(&sources, &list));
    breaches.extend(sockets::breaches(&sources));
    breaches.extend(claims::breaches(root, &sources)?);
    breaches.extend(locks::breaches(root)?);
    breaches.extend(pure::breaches(root));
    breaches.extend(links::breaches(root)?);
    breaches.extend(proc::breaches(root)?);
    breaches.extend(states::breaches(root)?);
    Ok(breaches)
}

/// The number of packages, and the breaches in the graph of dependencies.
fn graph_breaches(root: &Path) -> Result<(usize, Vec<String>)> {
    let text = std::fs::read_to_string(root.join(".deny.toml")).context("reading .deny.toml")?;
    let rules: Value = basic_toml::from_str(&text).context("parsing .deny.toml")?;
    let pure: Vec<_> = PURE_OF_KCP_GO.iter().map(|(name, _)| *name).collect();
    let (packages, mut breaches) = of_workspace(root, &rules, PURE, WITHOUT_TLS)?;
    let beside = of_workspace(&root.join(KCP_GO), &rules, &pure, WITHOUT_TLS_OF_KCP_GO)?;
    breaches.extend(of_kcp_go(&packages));
    let names = packages.union(&beside.0).count();
    breaches.extend(beside.1);
    Ok((names, breaches))
}

/// The names of the packages of a workspace, and the breaches in its graph.
fn of_workspace(
    root: &Path,
    rules: &Value,
    pure: &[&str],
    without_tls: &[&str],
) -> Result<(BTreeSet<String>, Vec<String>)> {
    let graph = Graph::of_workspace(root)?;
    let mut breaches = ban_breaches(&graph, rules)?;
    breaches.extend(licence_breaches(&graph, rules)?);
    for pure in pure {
        breaches.extend(reached(pure, "is pure", IMPURE, &Graph::of_crate(root, pure)?));
    }
    for plain in without_tls {
        breaches.extend(reached(plain, "has no TLS", TLS, &Graph::of_crate(root, plain)?));
    }
    Ok((graph.names().map(str::to_owned).collect(), breaches))
}

/// The breaches of a crate's promise: the crates of `forbidden` that it reaches.
fn reached(name: &str, promise: &str, forbidden: &[&str], graph: &Graph) -> Vec<String> {
    let reached = graph.names().filter(|name| forbidden.contains(name));
    reached.map(|reached| format!("{name} {promise} and reaches {reached}")).collect()
}

/// The crates of the workspace `crates/kcp-go` among the packages of the top level.
fn of_kcp_go(packages: &BTreeSet<String>) -> Vec<String> {
    let found = OF_KCP_GO.iter().filter(|name| packages.contains(**name));
    found.map(|name| format!("the top level reaches {name}, a crate of {KCP_GO}")).collect()
}

/// `bans.deny`: a crate that may not be in the graph, or, with `wrappers`, only below the wrappers.
fn ban_breaches(graph: &Graph, rules: &Value) -> Result<Vec<String>> {
    let bans = rules["bans"]["deny"].as_array().context(".deny.toml: bans.deny is a list")?;
    let mut breaches = Vec::new();
    for ban in bans {
        let name = ban["crate"].as_str().context(".deny.toml: a ban names a crate")?;
        let reason = ban["reason"].as_str().context(".deny.toml: a ban has a reason")?;
        let wrappers = ban["wrappers"].as_array().map_or(&[][..], Vec::as_slice);
        for dependent in graph.dependents(name) {
            if !wrappers.iter().any(|wrapper| wrapper == dependent) {
                breaches.push(format!("{dependent} depends on {name}: {reason}"));
            }
        }
    }
    Ok(breaches)
}

/// `licenses.allow`: each package can be used under allowed licences only.
fn licence_breaches(graph: &Graph, rules: &Value) -> Result<Vec<String>> {
    let allowed = rules["licenses"]["allow"].as_array().context(".deny.toml: licenses.allow")?;
    let allowed: Vec<_> = allowed.iter().filter_map(Value::as_str).collect();
    let mut breaches = Vec::new();
    for (package, expression) in graph.licences() {
        if expression.is_empty() {
            breaches.push(format!("{package} states no licence"));
        } else if !licence::satisfied(expression, &allowed) {
            breaches.push(format!("{package} is under {expression}"));
        }
    }
    Ok(breaches)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Value {
        basic_toml::from_str(text).unwrap()
    }

    #[test]
    fn a_breach_of_each_kind_is_found_and_named() {
        let graph = Graph::sample(
            "0proto v1.0.0|MIT\n1sha2 v1.0.0|MIT\n2tokio v1.0.0|GPL-3.0\n\
             0relay v1.0.0|MIT\n1link v1.0.0|MIT\n0tunnel v1.0.0|MIT\n1link v1.0.0|MIT (*)\n",
        );
        assert_eq!(
            reached("proto", "is pure", IMPURE, &graph),
            ["proto is pure and reaches tokio"]
        );
        let packages = ["kcp-go".to_owned(), "kcp".to_owned()].into();
        assert_eq!(
            of_kcp_go(&packages),
            ["the top level reaches kcp-go, a crate of crates/kcp-go"]
        );
        let rules = rules(
            r#"
            licenses.allow = ["MIT"]
            bans.deny = [{ crate = "link", wrappers = ["tunnel"], reason = "walls" }]
            "#,
        );
        assert_eq!(ban_breaches(&graph, &rules).unwrap(), ["relay depends on link: walls"]);
        assert_eq!(licence_breaches(&graph, &rules).unwrap(), ["tokio v1.0.0 is under GPL-3.0"]);
    }
}
