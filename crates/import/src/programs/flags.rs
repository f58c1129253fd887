//! Command lines as trees: an option is a key, and `arguments` has the words without an option.

use crate::Program;
use crate::tree::{Entry, Kind, Node};

/// The command line syntax of a program.
#[derive(Debug)]
pub(crate) struct Grammar {
    /// Options without a value.
    pub(crate) switches: &'static [&'static str],
    /// Alternative names of options.
    pub(crate) aliases: &'static [(&'static str, &'static str)],
}

/// The program that a word of a command line starts, possibly by a path.
pub(crate) fn program(word: &str) -> Option<Program> {
    let name = word.rsplit('/').next()?;
    let mut programs = Program::ALL.into_iter().filter(|program| program.is_command());
    programs.find(|program| program.name() == name)
}

/// The tree of the words after the program name.
pub(crate) fn tree(grammar: &Grammar, words: &[Node]) -> Node {
    let mut entries: Vec<Entry> = Vec::new();
    let mut words = words.iter().filter_map(|word| Some((word.line, word.as_text()?)));
    let mut only_arguments = false;
    while let Some((line, word)) = words.next() {
        if !only_arguments && word == "--" {
            only_arguments = true;
            continue;
        }
        let is_option = word.len() > 1 && word.starts_with('-') && !only_arguments;
        if !is_option {
            let has_role = entries.iter().any(|entry| entry.key == "role");
            let key = if has_role { "arguments" } else { "role" };
            put(&mut entries, key, line, word);
            continue;
        }
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let name = grammar.name(name);
        match value {
            Some(value) => put(&mut entries, &name, line, value),
            None if grammar.switches.contains(&name.as_str()) => {
                put(&mut entries, &name, line, "true");
            }
            None => {
                let value = words.next().map(|(_, word)| word).unwrap_or_default();
                put(&mut entries, &name, line, value);
            }
        }
    }
    Node::new(entries.first().map_or(0, |entry| entry.line), Kind::Map(entries))
}

impl Grammar {
    /// The long name of an option, which Go programs also accept with a single dash.
    fn name(&self, written: &str) -> String {
        if let Some((_, name)) = self.aliases.iter().find(|(alias, _)| *alias == written) {
            return (*name).to_owned();
        }
        format!("--{}", written.trim_start_matches('-'))
    }
}

/// Options may be repeated, so each option is a list.
fn put(entries: &mut Vec<Entry>, key: &str, line: usize, value: &str) {
    let node = Node::text(line, value);
    if let Some(entry) = entries.iter_mut().find(|entry| entry.key == key)
        && let Kind::List(items) = &mut entry.node.kind
    {
        items.push(node);
        return;
    }
    let is_one = key == "role";
    let node = if is_one { node } else { Node::new(line, Kind::List(vec![node])) };
    entries.push(Entry { key: key.to_owned(), line, node });
}
