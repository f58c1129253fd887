//! Walls between crates, checked on the resolved dependency graph. The pure crates reach no
//! runtime, the crates that serve every transport reach no TLS, and bans and licences are taken
//! from `.deny.toml`. The daemon is built without some features. Beside the graph, `links` checks the
//! documents, `proc` what is read in `/proc`, and `states` who reads the text of a state.

pub(crate) mod graph;
mod licence;
mod links;
mod proc;
mod states;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use graph::Graph;

/// Crates without sockets, clock, threads and randomness.
pub(crate) const PURE: &[&str] =
    &["browser", "config", "congestion", "gf256", "h1", "import", "kcp", "proto", "punch"];

/// Crates that a pure crate must not reach, at any depth.
const IMPURE: &[&str] = &["tokio", "mio", "socket2", "rustix", "getrandom", "rand", "rustls"];

/// Crates without TLS: they serve every transport, or send commands to a daemon.
const WITHOUT_TLS: &[&str] = &[
    "admin",
    "control",
    "files",
    "kcp-tokio",
    "link",
    "logging",
    "net",
    "ops",
    "relay",
    "transport",
];

/// Crates that [`WITHOUT_TLS`] must not reach, at any depth.
const TLS: &[&str] = &["aws-lc-rs", "rcgen", "ring", "rustls", "x509-parser"];

/// Crates with a feature that the daemon is built without: sessions for peers of kcp-go.
const NOT_OF_THE_DAEMON: &[(&str, &str)] = &[("kcp", "compat"), ("kcp-crypto", "compat")];

/// Checks all walls and reports every breach at once.
pub(crate) fn check(root: &Path) -> Result<()> {
    let graph = Graph::of_workspace(root)?;
    let text = std::fs::read_to_string(root.join(".deny.toml")).context("reading .deny.toml")?;
    let rules: Value = basic_toml::from_str(&text).context("parsing .deny.toml")?;
    let mut breaches = ban_breaches(&graph, &rules)?;
    breaches.extend(licence_breaches(&graph, &rules)?);
    breaches.extend(links::breaches(root)?);
    breaches.extend(proc::breaches(root)?);
    breaches.extend(states::breaches(root)?);
    for pure in PURE {
        breaches.extend(reached(pure, "is pure", IMPURE, &Graph::of_crate(root, pure)?));
    }
    for plain in WITHOUT_TLS {
        breaches.extend(reached(plain, "has no TLS", TLS, &Graph::of_crate(root, plain)?));
    }
    breaches.extend(not_of_the_daemon(&graph::features(root, "tunnel")?));
    if breaches.is_empty() {
        println!("{} packages, no breach", graph.names().count());
        return Ok(());
    }
    bail!("breaches:\n  {}", breaches.join("\n  "))
}

/// The breaches of a crate's promise: the crates of `forbidden` that it reaches.
fn reached(name: &str, promise: &str, forbidden: &[&str], graph: &Graph) -> Vec<String> {
    let reached = graph.names().filter(|name| forbidden.contains(name));
    reached.map(|reached| format!("{name} {promise} and reaches {reached}")).collect()
}

fn not_of_the_daemon(features: &BTreeSet<(String, String)>) -> Vec<String> {
    let is_on = |(name, feature): &&(&str, &str)| {
        features.contains(&((*name).to_owned(), (*feature).to_owned()))
    };
    let breaches = NOT_OF_THE_DAEMON.iter().filter(is_on);
    breaches.map(|(name, feature)| format!("the daemon has {name} with {feature}")).collect()
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
        let features = [("kcp".to_owned(), "compat".to_owned())].into();
        assert_eq!(not_of_the_daemon(&features), ["the daemon has kcp with compat"]);
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
