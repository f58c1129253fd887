//! Commented files with every key, for `tunnel generate config server|client|proxy`. Keys without a
//! default are active lines; the other keys are comments. A comment that begins with a key or a
//! list item (`# key:`, `# - value`) becomes a line of the file when its `# ` is removed. `# or
//! key:` after a value names an alternative key.

/// A server.yaml.
pub const SERVER: &str = include_str!("sample/server.yaml");

/// A proxy.yaml.
pub const PROXY: &str = include_str!("sample/proxy.yaml");

/// A client.yaml.
pub const CLIENT: &str = include_str!("sample/client.yaml");

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::mistakes::parse;
    use crate::reference::TABLES;
    use crate::yaml::{At, Kind, Node};
    use crate::{
        ClientFlags, Problem, ProxyFlags, ServerFlags, Sources, Text, load_client, load_proxy,
        load_server,
    };

    fn uncommented(sample: &str) -> String {
        let line = |line: &str| {
            let (indent, rest) = line.split_at(line.find(|c| c != ' ').unwrap_or(line.len()));
            let Some(comment) = rest.strip_prefix("# ") else { return line.to_owned() };
            let text = comment.trim_start();
            let of_key = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            let word = text.find(|c| !of_key(c)).unwrap_or(0);
            let key = word > 0 && text[word..].starts_with(':');
            if key || text.starts_with("- ") { format!("{indent}{comment}") } else { line.into() }
        };
        sample.lines().map(|l| line(l) + "\n").collect()
    }

    /// The paths of all keys, including keys that a comment names as an alternative.
    fn mentioned(text: &str) -> BTreeSet<String> {
        fn walk(node: &Node, path: &str, found: &mut BTreeMap<String, usize>) {
            match &node.kind {
                Kind::Scalar { .. } => {}
                Kind::List(items) => {
                    items.iter().for_each(|item| walk(item, &format!("{path}[]"), found));
                }
                Kind::Map(entries) => {
                    for entry in entries {
                        let dot = if path.is_empty() { "" } else { "." };
                        let path = format!("{path}{dot}{}", entry.key);
                        let At::Text { line, .. } = entry.at else { unreachable!("a file") };
                        // The names of header fields are free.
                        let is_free = match entry.key.as_str() {
                            "headers" => !path.starts_with("services"),
                            "set" => true,
                            _ => false,
                        };
                        if !is_free {
                            walk(&entry.value, &path, found);
                        }
                        found.entry(path).or_insert(line);
                    }
                }
            }
        }
        let mut found = BTreeMap::new();
        walk(&parse("", text).unwrap(), "", &mut found);
        let lines: Vec<&str> = text.lines().collect();
        let others = found.iter().flat_map(|(path, line)| {
            let section = path.rfind('.').map_or("", |dot| &path[..=dot]);
            let others = lines[line - 1].split("# or ").skip(1);
            others.filter_map(move |other| Some(format!("{section}{}", other.split_once(':')?.0)))
        });
        others.chain(found.keys().cloned()).collect()
    }

    fn load(name: &str, text: &str) -> Result<Vec<Problem>, Vec<Problem>> {
        // A token of its own for each file: some must differ.
        let read = |path: &std::path::Path| match path.to_str() {
            Some("blocked.txt") => Ok("203.0.113.0/24\n".to_owned()),
            Some("countries.csv") => Ok("203.0.113.0/25,DE\n203.0.113.128/25,AT\n".to_owned()),
            _ => Ok(format!("q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi{}", path.display())),
        };
        let sources = Sources { env: &|_| None, read: &read };
        let file = Some(Text { name, text });
        match name {
            "server" => load_server(file, &ServerFlags::default(), &sources).map(|l| l.warnings),
            "proxy" => load_proxy(file, &ProxyFlags::default(), &sources).map(|l| l.warnings),
            _ => load_client(file, &ClientFlags::default(), &sources).map(|l| l.warnings),
        }
    }

    #[test]
    fn samples_load_as_they_are_and_with_every_comment_made_a_key() {
        for (name, sample) in [("server", SERVER), ("client", CLIENT), ("proxy", PROXY)] {
            assert_eq!(load(name, sample), Ok(Vec::new()));
            let all = uncommented(sample);
            assert_eq!(load(name, &all), Ok(Vec::new()), "{all}");
            let left = all.lines().filter(|l| l.trim_start().starts_with('#')).count();
            let headings = if name == "client" { 3 } else { 2 };
            assert_eq!(left, headings, "only the headings are still comments:\n{all}");
        }
    }

    #[test]
    fn every_key_is_mentioned_in_its_own_section_and_no_other_one_is() {
        for (name, sample) in [("server", SERVER), ("client", CLIENT), ("proxy", PROXY)] {
            let mut known = BTreeSet::new();
            for table in TABLES {
                let (role, path) = table.path.split_once(':').unwrap();
                let dot = if path.is_empty() { "" } else { "." };
                // A proxy has no links.
                let is_of_links = ["window", "quic", "kcp"].contains(&path);
                if role == name || role == "both" && !(name == "proxy" && is_of_links) {
                    known.extend(table.keys.iter().map(|key| format!("{path}{dot}{key}")));
                }
            }
            assert_eq!(mentioned(&uncommented(sample)), known);
        }
    }
}
