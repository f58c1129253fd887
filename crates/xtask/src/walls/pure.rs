//! Pure crates refuse clocks, files, environment, threads, sockets and locks by a `.clippy.toml` of
//! their own. Their build for wasm32 alone does not: the standard library of that target has all
//! names, and fails when they are called.

use std::fs;
use std::path::Path;

use serde_json::Value;
use xtask::site::KCP_GO;

/// Crates without sockets, clock, threads and randomness.
pub(crate) const PURE: &[&str] = &[
    "browser",
    "cluster",
    "config",
    "congestion",
    "gf256",
    "h1",
    "import",
    "kcp",
    "proto",
    "punch",
];

/// The pure crates of the workspace `crates/kcp-go`, and their folders in it.
pub(crate) const PURE_OF_KCP_GO: &[(&str, &str)] = &[("kcp-go", "sessions")];

/// What each of the files refuses: method or type, by key of the file.
const REFUSED: &[(&str, &[&str])] = &[
    (
        "disallowed-methods",
        &[
            "std::env::set_var",
            "std::env::var",
            "std::env::var_os",
            "std::fs::File::open",
            "std::fs::read",
            "std::fs::read_to_string",
            "std::fs::write",
            "std::thread::sleep",
            "std::thread::spawn",
            "std::time::Instant::elapsed",
            "std::time::Instant::now",
            "std::time::SystemTime::now",
        ],
    ),
    (
        "disallowed-types",
        &[
            "std::collections::hash_map::RandomState",
            "std::net::TcpListener",
            "std::net::TcpStream",
            "std::net::UdpSocket",
            "std::sync::Condvar",
            "std::sync::Mutex",
            "std::sync::RwLock",
        ],
    ),
];

/// The pure crates without such a file, and files that refuse too little.
pub(super) fn breaches(root: &Path) -> Vec<String> {
    let crates = PURE.iter().map(|name| (*name, format!("crates/{name}")));
    let beside = PURE_OF_KCP_GO.iter().map(|(name, folder)| (*name, format!("{KCP_GO}/{folder}")));
    crates.chain(beside).flat_map(|(name, folder)| of_crate(root, name, &folder)).collect()
}

fn of_crate(root: &Path, name: &str, folder: &str) -> Vec<String> {
    let path = format!("{folder}/.clippy.toml");
    let Ok(text) = fs::read_to_string(root.join(&path)) else {
        return vec![format!(
            "{path}:1: {name} is pure and has no such file: copy that of another pure crate"
        )];
    };
    let file: Value = match basic_toml::from_str(&text) {
        Ok(file) => file,
        Err(error) => return vec![format!("{path}:1: {error}")],
    };
    let mut found = Vec::new();
    for (key, names) in REFUSED {
        let entries = file[key].as_array().map_or(&[][..], Vec::as_slice);
        for name in *names {
            if !entries.iter().any(|entry| entry["path"].as_str() == Some(name)) {
                let at = text.lines().position(|line| line.starts_with(key)).unwrap_or(0) + 1;
                found.push(format!("{path}:{at}: `{key}` lacks {name}: add it with a reason"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pure_crate_without_the_file_or_with_a_gap_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("crates/kcp");
        fs::create_dir_all(&folder).unwrap();
        let none = "crates/kcp/.clippy.toml:1: kcp is pure and has no such file: copy that of another \
                    pure crate";
        assert_eq!(of_crate(dir.path(), "kcp", "crates/kcp"), [none]);

        let model = include_str!("../../../proto/.clippy.toml");
        let put = |text: &str| fs::write(folder.join(".clippy.toml"), text).unwrap();
        put(model);
        assert_eq!(of_crate(dir.path(), "kcp", "crates/kcp"), [""; 0]);
        let gap = model.lines().filter(|line| !line.contains("Instant::now"));
        put(&gap.collect::<Vec<_>>().join("\n"));
        let lacks = "crates/kcp/.clippy.toml:7: `disallowed-methods` lacks std::time::Instant::now: \
                     add it with a reason";
        assert_eq!(of_crate(dir.path(), "kcp", "crates/kcp"), [lacks]);
    }
}
