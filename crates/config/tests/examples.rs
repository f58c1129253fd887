//! Every example and both samples load without a problem; the samples mention every key.

use std::path::{Path, PathBuf};

use config::{
    ClientFlags, Role, ServerFlags, Sources, Text, keys, load_client, load_server, sample,
};

const TOKEN: &str = "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi";

fn load(name: &str, text: &str) -> Result<Vec<String>, String> {
    let sources = Sources { env: &|_| Some(TOKEN.into()), read: &|_| Ok(format!("{TOKEN}\n")) };
    let file = Some(Text { name, text });
    let shown = |problems: Vec<config::Problem>| format!("{problems:#?}");
    match Role::of(text).ok_or_else(|| format!("{name}: no role"))? {
        Role::Server => {
            load_server(file, &ServerFlags::default(), &sources).map(|l| l.config.summary())
        }
        Role::Client => {
            load_client(file, &ClientFlags::default(), &sources).map(|l| l.config.summary())
        }
    }
    .map_err(shown)
}

fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in dir.read_dir().expect("the examples are there") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            walk(&path, found);
        } else if path.extension().is_some_and(|e| e == "yaml") {
            found.push(path);
        }
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a test reads the files it is about")]
fn every_example_loads() {
    let mut files = Vec::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples"), &mut files);
    assert!(files.len() >= 8);
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let summary = load(&path.display().to_string(), &text).unwrap();
        assert!(!summary.is_empty());
    }
}

#[test]
fn the_samples_load_and_mention_every_key() {
    load("server.yaml", sample::SERVER).unwrap();
    load("client.yaml", sample::CLIENT).unwrap();
    for table in keys::TABLES {
        for key in table.keys {
            let role = table.path.split(':').next().unwrap();
            for (name, text) in [("server", sample::SERVER), ("client", sample::CLIENT)] {
                if role == name || role == "both" {
                    assert!(text.contains(&format!("{key}:")) || *key == "token", "{name}: {key}");
                }
            }
        }
    }
}

#[test]
fn the_reference_has_exactly_the_keys_of_the_decoder() {
    let reference = include_str!("../REFERENCE.md");
    let mut documented: Vec<&str> =
        reference.lines().filter_map(|l| l.strip_prefix("| `")?.split('`').next()).collect();
    let mut known: Vec<String> = Vec::new();
    for table in keys::TABLES {
        let (role, path) = table.path.split_once(':').unwrap();
        let dot = if path.is_empty() { "" } else { "." };
        known.extend(table.keys.iter().map(|key| format!("{role}: {path}{dot}{key}")));
    }
    documented.sort_unstable();
    known.sort_unstable();
    assert_eq!(documented, known);
}
