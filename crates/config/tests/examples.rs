//! Checks that every example loads without a problem.

use std::path::{Path, PathBuf};

use config::{
    ClientFlags, ProxyFlags, Role, ServerFlags, Sources, Text, load_client, load_proxy, load_server,
};

const TOKEN: &str = "q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi";

fn load(name: &str, text: &str) -> Result<Vec<String>, String> {
    let env = |name: &str| (!name.to_ascii_lowercase().ends_with("_proxy")).then(|| TOKEN.into());
    // Two token files of an example may have to differ.
    let read = |path: &Path| {
        let name = path.file_name().unwrap_or_default().display();
        Ok(format!("{TOKEN}{name}\n"))
    };
    let sources = Sources { env: &env, read: &read };
    let file = Some(Text { name, text });
    let shown = |problems: Vec<config::Problem>| format!("{problems:#?}");
    match Role::of(text).ok_or_else(|| format!("{name}: no role"))? {
        Role::Server => {
            load_server(file, &ServerFlags::default(), &sources).map(|l| l.config.summary())
        }
        Role::Client => {
            load_client(file, &ClientFlags::default(), &sources).map(|l| l.config.summary())
        }
        Role::Proxy => {
            load_proxy(file, &ProxyFlags::default(), &sources).map(|l| l.config.summary())
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

/// The files inside a manifest of Kubernetes: blocks below `NAME.yaml: |`, indented by 4 spaces.
fn inside(manifest: &str) -> Vec<String> {
    let mut files: Vec<String> = Vec::new();
    let mut is_inside = false;
    for line in manifest.lines() {
        match line.strip_prefix("    ") {
            Some(rest) if is_inside => {
                files.last_mut().expect("a file has begun").extend([rest, "\n"]);
            }
            Some(_) | None => {
                is_inside = line.ends_with(".yaml: |");
                files.extend(is_inside.then(String::new));
            }
        }
    }
    files
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a test reads the files it is about")]
fn every_example_loads() {
    let mut files = Vec::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples"), &mut files);
    assert!(files.len() >= 8);
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let is_manifest = text.lines().any(|line| line.starts_with("apiVersion: "));
        let files = if is_manifest { inside(&text) } else { vec![text] };
        assert!(!files.is_empty(), "{}", path.display());
        for text in files {
            let summary = load(&path.display().to_string(), &text).unwrap();
            assert!(!summary.is_empty());
        }
    }
}
