//! Which file of a crate imports which, and the circles among them.
//!
//! An import leads to the file that defines the name: re-exports are followed. `mod` alone is no
//! import, and neither is a re-export, unless the file itself mentions the name. Tests are left
//! out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use anyhow::{Result, bail};

use super::facts::{Child, Module};
use super::sources::Sources;

/// The imports between the files of a target: a library, or a program.
#[derive(Debug, Default)]
pub(super) struct Imports {
    /// Paths of the files from the root of the repository, in order.
    pub(super) files: Vec<String>,
    /// From a file to a file, by index: the first place.
    pub(super) edges: BTreeMap<(usize, usize), Place>,
}

/// Where a file imports something.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) line: usize,
    /// As written.
    pub(super) path: String,
}

/// The targets of a package that is in this folder: libraries and programs.
pub(super) fn targets(sources: &Sources, package: &str) -> Vec<String> {
    let src = format!("{package}/src/");
    let is_root = |path: &str| {
        path.strip_prefix(&src).is_some_and(|rest| {
            let is_program = rest.strip_prefix("bin/").is_some_and(|rest| {
                !rest.contains('/') || rest.ends_with("/main.rs") && rest.matches('/').count() == 1
            });
            rest == "lib.rs" || rest == "main.rs" || is_program
        })
    };
    sources.files.keys().filter(|path| is_root(path)).cloned().collect()
}

impl Imports {
    /// Reads the target whose first file is `root`.
    pub(super) fn of(sources: &Sources, root: &str) -> Result<Self> {
        let mut tree = Tree::default();
        tree.add_file(sources, root, None)?;
        let mut edges = BTreeMap::new();
        for (here, node) in tree.nodes.iter().enumerate() {
            for used in
                node.module.uses.iter().filter(|used| !used.passes_on && used.name.is_some())
            {
                tree.join(&mut edges, here, &used.path, used.line, &mut BTreeSet::new());
            }
            for mention in &node.module.mentions {
                tree.join(&mut edges, here, &mention.path, mention.line, &mut BTreeSet::new());
            }
        }
        Ok(Self { files: tree.files, edges })
    }

    /// The circles: files each of which reaches each other, two or more, the largest circle first.
    pub(super) fn circles(&self) -> Vec<Vec<usize>> {
        self.circles_without(None)
    }

    /// The circles that are left without an edge.
    pub(super) fn circles_without(&self, edge: Option<(usize, usize)>) -> Vec<Vec<usize>> {
        let mut next = vec![Vec::new(); self.files.len()];
        for &(from, to) in self.edges.keys().filter(|each| Some(**each) != edge) {
            next[from].push(to);
        }
        let mut circles = components(&next);
        circles.retain(|circle| circle.len() > 1);
        circles.sort_by_key(|circle| (std::cmp::Reverse(circle.len()), circle[0]));
        circles
    }
}

/// A definition that a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    /// A module, by its node.
    Module(usize),
    /// Anything else, by its file.
    Item(usize),
}

/// The modules of a target.
#[derive(Debug, Default)]
struct Tree<'a> {
    files: Vec<String>,
    nodes: Vec<Node<'a>>,
}

#[derive(Debug)]
struct Node<'a> {
    file: usize,
    parent: Option<usize>,
    module: &'a Module,
    children: Vec<(&'a str, usize)>,
}

/// The names that were looked up on the way to a name: imports may lead in a circle.
type Asked<'a> = BTreeSet<(usize, String)>;

impl<'a> Tree<'a> {
    /// Adds a file with the modules in it and below it; returns the node of the file.
    fn add_file(
        &mut self,
        sources: &'a Sources,
        path: &str,
        parent: Option<usize>,
    ) -> Result<usize> {
        let Some(source) = sources.files.get(path) else { bail!("{path}: no such file") };
        let file = self.files.len();
        self.files.push(path.to_owned());
        let first = self.nodes.len();
        let modules = source.facts.modules.iter();
        self.nodes.extend(modules.map(|module| Node {
            file,
            parent,
            module,
            children: Vec::new(),
        }));
        for (inside, module) in source.facts.modules.iter().enumerate() {
            let here = first + inside;
            for child in &module.children {
                let node = match child.inside {
                    Some(inside) => {
                        self.nodes[first + inside].parent = Some(here);
                        first + inside
                    }
                    None => {
                        let path = file_of(sources, path, module, child)?;
                        self.add_file(sources, &path, Some(here))?
                    }
                };
                self.nodes[here].children.push((child.name.as_str(), node));
            }
        }
        Ok(first)
    }

    /// Notes the files that a path in a module leads to.
    fn join(
        &self,
        edges: &mut BTreeMap<(usize, usize), Place>,
        here: usize,
        path: &[String],
        line: usize,
        asked: &mut Asked<'a>,
    ) {
        let from = self.nodes[here].file;
        for found in self.resolve(here, path, asked) {
            if let Found::Item(to) = found
                && to != from
            {
                let place = || Place { line, path: path.join("::") };
                edges.entry((from, to)).or_insert_with(place);
            }
        }
    }

    /// The definitions of a path as written in a module. A path to another crate has none.
    fn resolve(&self, here: usize, path: &[String], asked: &mut Asked<'a>) -> BTreeSet<Found> {
        let Some((first, mut rest)) = path.split_first() else { return BTreeSet::new() };
        let mut found = match first.as_str() {
            "crate" => [Found::Module(0)].into(),
            "self" => [Found::Module(here)].into(),
            "Self" => BTreeSet::new(),
            "super" => self.nodes[here].parent.map(Found::Module).into_iter().collect(),
            name => self.look_up(here, name, asked),
        };
        while let Some((name, behind)) = rest.split_first() {
            rest = behind;
            // A function may have the name of a module, and a path leads on through the module
            // alone.
            if found.iter().any(|found| matches!(found, Found::Module(_))) {
                found.retain(|found| matches!(found, Found::Module(_)));
            }
            let steps = found.into_iter().map(|found| match found {
                Found::Module(node) if name == "super" => {
                    self.nodes[node].parent.map(Found::Module).into_iter().collect()
                }
                Found::Module(node) => self.look_up(node, name, asked),
                Found::Item(_) => BTreeSet::from([found]),
            });
            found = steps.flatten().collect();
        }
        found
    }

    /// The definitions of a name in a module: as type, as value, as macro and as module.
    fn look_up(&self, node: usize, name: &str, asked: &mut Asked<'a>) -> BTreeSet<Found> {
        let mut found = BTreeSet::new();
        if !asked.insert((node, name.to_owned())) {
            return found;
        }
        let Node { file, module, children, .. } = &self.nodes[node];
        if module.items.contains(name) {
            found.insert(Found::Item(*file));
        }
        let named = children.iter().filter(|(child, _)| *child == name);
        found.extend(named.map(|&(_, child)| Found::Module(child)));
        for used in module.uses.iter().filter(|used| used.name.as_deref() == Some(name)) {
            found.extend(self.resolve(node, &used.path, asked));
        }
        if found.is_empty() {
            for glob in module.uses.iter().filter(|used| used.name.is_none()) {
                for opened in self.resolve(node, &glob.path, asked) {
                    if let Found::Module(opened) = opened {
                        found.extend(self.look_up(opened, name, asked));
                    }
                }
            }
        }
        asked.remove(&(node, name.to_owned()));
        found
    }
}

/// The file of a module that is declared in `module` of the file at `path`.
fn file_of(sources: &Sources, path: &str, module: &Module, child: &Child) -> Result<String> {
    let file = Path::new(path);
    let folder = file.parent().unwrap_or_else(|| Path::new(""));
    let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let is_top = ["lib", "main", "mod"].contains(&stem);
    if let Some(written) = &child.path {
        // Inside an inline module the path begins in the folder of that module.
        let mut base = folder.to_owned();
        if !module.path.is_empty() {
            base.extend((!is_top).then_some(stem));
            base.extend(&module.path);
        }
        return Ok(text(&base.join(written)));
    }
    let mut base = folder.to_owned();
    base.extend((!is_top).then_some(stem));
    base.extend(&module.path);
    let flat = text(&base.join(format!("{}.rs", child.name)));
    let deep = text(&base.join(&child.name).join("mod.rs"));
    // A program in `src/bin` has its modules beside it.
    let beside = text(&folder.join(format!("{}.rs", child.name)));
    for candidate in [flat, deep, beside] {
        if sources.files.contains_key(&candidate) {
            return Ok(candidate);
        }
    }
    bail!("{path}:{}: no file of module {}", child.line, child.name)
}

/// A path without `..`.
fn text(path: &Path) -> String {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            Component::Normal(_) | Component::RootDir | Component::Prefix(_) => plain.push(part),
        }
    }
    plain.to_string_lossy().into_owned()
}

/// The strongly connected components of a graph (Tarjan 1972), each in order.
fn components(next: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut search = Search { next, marks: vec![None; next.len()], ..Search::default() };
    for node in 0..next.len() {
        if search.marks[node].is_none() {
            search.visit(node);
        }
    }
    search.found
}

#[derive(Default)]
struct Search<'a> {
    next: &'a [Vec<usize>],
    marks: Vec<Option<Mark>>,
    count: usize,
    stack: Vec<usize>,
    found: Vec<Vec<usize>>,
}

#[derive(Clone, Copy)]
struct Mark {
    index: usize,
    is_open: bool,
}

impl Search<'_> {
    /// Returns the lowest index that the node reaches. The depth is bounded by the files of a
    /// crate.
    fn visit(&mut self, node: usize) -> usize {
        let index = self.count;
        self.count += 1;
        self.stack.push(node);
        let mut low = index;
        self.marks[node] = Some(Mark { index, is_open: true });
        for &to in &self.next[node] {
            low = low.min(match self.marks[to] {
                None => self.visit(to),
                Some(mark) if mark.is_open => mark.index,
                Some(_) => low,
            });
        }
        if low == index {
            let at = self.stack.iter().rposition(|&each| each == node).unwrap_or(0);
            let mut circle = self.stack.split_off(at);
            for &each in &circle {
                if let Some(mark) = &mut self.marks[each] {
                    mark.is_open = false;
                }
            }
            circle.sort_unstable();
            self.found.push(circle);
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The imports of a library: `from:line path -> to`, files by their name.
    fn imports(files: &[(&str, &str)]) -> Vec<String> {
        let named: Vec<_> =
            files.iter().map(|(name, text)| (format!("a/src/{name}"), *text)).collect();
        let files: Vec<_> = named.iter().map(|(name, text)| (name.as_str(), *text)).collect();
        let imports = Imports::of(&Sources::sample(&files), "a/src/lib.rs").unwrap();
        let name = |file: usize| imports.files[file].trim_start_matches("a/src/").to_owned();
        let edges = imports.edges.iter();
        edges
            .map(|(&(from, to), place)| {
                format!("{}:{} {} -> {}", name(from), place.line, place.path, name(to))
            })
            .collect()
    }

    #[test]
    fn a_re_export_is_followed_to_the_defining_file() {
        let found = imports(&[
            ("lib.rs", "mod b;\nmod c;\npub use b::Thing;"),
            ("b/mod.rs", "mod deep;\npub use deep::*;"),
            ("b/deep.rs", "pub struct Thing;"),
            ("c.rs", "\nuse crate::Thing as T;"),
        ]);
        assert_eq!(found, ["c.rs:2 crate::Thing -> b/deep.rs"]);
    }

    #[test]
    fn a_re_export_is_an_import_where_the_file_mentions_the_name() {
        let found = imports(&[
            ("lib.rs", "mod b;\npub use b::Thing;\nfn f(_: Thing) {}"),
            ("b.rs", "pub struct Thing;"),
        ]);
        assert_eq!(found, ["lib.rs:3 Thing -> b.rs"]);
    }

    #[test]
    fn paths_by_super_by_a_module_and_by_a_glob_are_imports() {
        let found = imports(&[
            ("lib.rs", "mod b;\nmod c;\nconst ONE: u8 = 1;\nmod inner { use super::b::two; }"),
            ("b.rs", "use super::*;\npub fn two() -> u8 { ONE }"),
            ("c.rs", "use crate::b;\nfn three() { b::two(); std::b::two(); }"),
        ]);
        let expected =
            ["lib.rs:4 super::b::two -> b.rs", "b.rs:2 ONE -> lib.rs", "c.rs:2 b::two -> b.rs"];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_module_alone_is_no_import_and_imports_in_a_circle_end() {
        let found = imports(&[
            ("lib.rs", "mod b;\nuse b::x::Lost;\nuse b as c;"),
            ("b.rs", "pub use crate::b::y as x;\npub use crate::b::x as y;"),
        ]);
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn a_path_leads_through_the_module_and_not_through_the_function_of_its_name() {
        let found = imports(&[
            ("lib.rs", "mod walls;\nmod step;\nfn walls() {}"),
            ("walls.rs", "pub fn check() {}"),
            ("step.rs", "fn f() { crate::walls::check() }"),
        ]);
        assert_eq!(found, ["step.rs:1 crate::walls::check -> walls.rs"]);
    }

    #[test]
    fn a_module_has_the_file_of_its_path_attribute() {
        let found = imports(&[
            ("lib.rs", "#[path = \"other/place.rs\"]\nmod b;\nfn f() { b::g() }"),
            ("other/place.rs", "pub fn g() {}"),
        ]);
        assert_eq!(found, ["lib.rs:3 b::g -> other/place.rs"]);
        let lost = Sources::sample(&[("a/src/lib.rs", "\nmod gone;")]);
        let error = Imports::of(&lost, "a/src/lib.rs").unwrap_err().to_string();
        assert_eq!(error, "a/src/lib.rs:2: no file of module gone");
    }

    #[test]
    fn circles_are_found_and_chains_are_none() {
        let next = [vec![1], vec![2], vec![0, 3], vec![4], vec![3], vec![0]];
        let mut found = components(&next);
        found.retain(|circle| circle.len() > 1);
        found.sort();
        assert_eq!(found, [vec![0, 1, 2], vec![3, 4]]);
        assert!(components(&[vec![1], vec![2], vec![]]).iter().all(|circle| circle.len() == 1));
    }

    #[test]
    fn the_targets_of_a_package_are_its_library_and_its_programs() {
        let paths = ["a/src/lib.rs", "a/src/main.rs", "a/src/bin/x.rs", "a/src/bin/y/main.rs"];
        let others = ["a/src/bin/y/z.rs", "a/src/b.rs", "a/tests/main.rs"];
        let files: Vec<_> = paths.iter().chain(&others).map(|path| (*path, "")).collect();
        let mut expected = paths;
        expected.sort_unstable();
        assert_eq!(targets(&Sources::sample(&files), "a"), expected);
    }
}
