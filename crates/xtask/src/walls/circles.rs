//! Circles of files inside a crate. The walls between crates hold no file apart from another inside
//! of one, and files that import each other can be read, tested and moved in one piece alone.
//!
//! A circle whose files are one thing is named in `walls.toml` with its reason. The circles of a
//! crate that join different things are bounded by their sizes, until they are opened.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::imports::{Imports, targets};
use super::list::{Circle, List, PATH};
use super::sources::Sources;

/// How many imports of a circle a breach names.
const NAMED: usize = 3;

/// What to do about a circle.
const REMEDY: &str = "move what both files need into a file below both, or hand it in as an \
                      argument or behind a trait";

/// The circles of a crate.
#[derive(Debug)]
pub(super) struct Package {
    /// Its folder below `crates`.
    pub(super) name: String,
    /// The folder of its sources.
    src: String,
    imports: Vec<Imports>,
    pub(super) circles: Vec<Found>,
}

/// A circle.
#[derive(Debug)]
pub(super) struct Found {
    /// The index of the target.
    target: usize,
    /// Indices of its files.
    members: Vec<usize>,
    /// Paths of its files below `src`.
    pub(super) files: BTreeSet<String>,
}

/// The crates that `sources` has files of.
pub(super) fn packages(sources: &Sources) -> Result<Vec<Package>> {
    let root_of = |path: &str| {
        let folder = path.strip_suffix("/src/lib.rs").or_else(|| path.strip_suffix("/src/main.rs"));
        folder.map(str::to_owned)
    };
    let folders: BTreeSet<_> = sources.files.keys().filter_map(|path| root_of(path)).collect();
    folders.into_iter().map(|folder| Package::read(sources, &folder)).collect()
}

/// The name of a crate in the list: its folder below `crates`.
fn name_of(folder: &str) -> &str {
    folder.strip_prefix("crates/").unwrap_or(folder)
}

impl Package {
    fn read(sources: &Sources, folder: &str) -> Result<Self> {
        let name = name_of(folder).to_owned();
        let src = format!("{folder}/src/");
        let targets = targets(sources, folder);
        let imports: Vec<_> =
            targets.iter().map(|root| Imports::of(sources, root)).collect::<Result<_>>()?;
        let below = |path: &str| path.strip_prefix(&src).unwrap_or(path).to_owned();
        let mut circles = Vec::new();
        for (target, imports) in imports.iter().enumerate() {
            circles.extend(imports.circles().into_iter().map(|members| {
                let files = members.iter().map(|&file| below(&imports.files[file])).collect();
                Found { target, members, files }
            }));
        }
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.files.len()));
        Ok(Self { name, src, imports, circles })
    }

    /// What the list does not allow.
    fn breaches(&self, list: &List) -> Vec<String> {
        let mut found = Vec::new();
        let mut rest: Vec<_> = self.circles.iter().collect();
        for listed in list.circles.iter().filter(|listed| listed.package == self.name) {
            let wanted: BTreeSet<_> = listed.files.iter().cloned().collect();
            let common = |circle: &&Found| circle.files.intersection(&wanted).count();
            let first = listed.files.first().map_or("", String::as_str);
            let at = list.at(&[first, &self.name]);
            let best = rest.iter().enumerate().max_by_key(|(_, circle)| common(circle));
            let Some((index, circle)) = best.filter(|(_, circle)| common(circle) > 1) else {
                let files = listed.files.join(", ");
                found.push(format!(
                    "{at}: {files} of {} are no circle any more: remove the entry",
                    self.name
                ));
                continue;
            };
            found.extend(self.differences(circle, listed, &wanted, &at));
            rest.remove(index);
        }
        let entries: Vec<_> = list.open.iter().filter(|open| open.package == self.name).collect();
        let bounds: Vec<_> = entries.iter().flat_map(|open| open.files.iter().copied()).collect();
        let sizes: Vec<_> = rest.iter().map(|circle| circle.files.len()).collect();
        if sizes == bounds {
            return found;
        }
        let has_grown = sizes.iter().sum::<usize>() > bounds.iter().sum::<usize>()
            || sizes.first() > bounds.first();
        if has_grown {
            for (index, circle) in rest.iter().enumerate() {
                let bound = bounds.get(index).copied().unwrap_or(0);
                if circle.files.len() > bound {
                    found.push(self.too_large(circle, bound));
                }
            }
        } else {
            let at = list.at(&[&self.name]);
            found.push(format!(
                "{at}: the circles of {} that are to be opened have {sizes:?} files and the list \
                 says {bounds:?}: write the present numbers, the largest first, or remove the entry",
                self.name
            ));
        }
        found
    }

    /// Files that joined a circle of the list, and files that left it.
    fn differences(
        &self,
        circle: &Found,
        listed: &Circle,
        wanted: &BTreeSet<String>,
        at: &str,
    ) -> Vec<String> {
        let mut found = Vec::new();
        let joined: BTreeSet<_> = circle.files.difference(wanted).collect();
        if !joined.is_empty() {
            let names: Vec<_> = joined.iter().map(|name| name.as_str()).collect();
            for (place, path, to) in self.openings(circle, wanted.len()) {
                found.push(format!(
                    "{place}: `{path}` of {to} makes {} a part of the circle ({}): {REMEDY}",
                    names.join(", "),
                    listed.reason
                ));
            }
        }
        for left in wanted.difference(&circle.files) {
            found.push(format!(
                "{at}: {left} of {} is no part of the circle any more: take it out of the entry",
                self.name
            ));
        }
        found
    }

    fn too_large(&self, circle: &Found, bound: usize) -> String {
        let allowed = match bound {
            0 => format!("and {PATH} does not name the circle"),
            bound => format!("and {PATH} allows {bound} files"),
        };
        let openings = self.openings(circle, bound.max(1));
        let size = circle.files.len();
        let mut names: Vec<_> = circle.files.iter().map(String::as_str).take(8).collect();
        if size > names.len() {
            names.push("…");
        }
        let first = openings.first().map_or_else(|| self.src.clone(), |(place, ..)| place.clone());
        let ways = openings.iter().map(|(place, path, to)| format!("`{path}` of {to} at {place}"));
        let ways = ways.collect::<Vec<_>>().join(", or ");
        format!(
            "{first}: a circle of {size} files ({}), {allowed}. It opens without {ways}: {REMEDY}. If \
             all its files are one thing, name them with the reason in {PATH}",
            names.join(", ")
        )
    }

    /// Imports without which at most `most` files of a circle are left in one circle, or else
    /// those that leave the fewest: place, path as written, and file that is imported.
    fn openings(&self, circle: &Found, most: usize) -> Vec<(String, String, String)> {
        let imports = &self.imports[circle.target];
        let is_inside = |file: &usize| circle.members.binary_search(file).is_ok();
        let inner = imports.edges.iter().filter(|((from, to), _)| is_inside(from) && is_inside(to));
        let mut ways: Vec<_> = inner
            .map(|(&edge, place)| {
                let left = imports.circles_without(Some(edge));
                let left = left.iter().filter(|circle| circle.iter().any(is_inside));
                (left.map(Vec::len).max().unwrap_or(1), edge, place)
            })
            .collect();
        ways.sort_by_key(|&(left, edge, _)| (left.max(most), left, edge));
        let ways = ways.into_iter().take(NAMED).map(|(_, (from, to), place)| {
            let from = &imports.files[from];
            (format!("{from}:{}", place.line), place.path.clone(), imports.files[to].clone())
        });
        ways.collect()
    }
}

/// Every circle that the list does not allow, and every entry that allows too much.
pub(super) fn breaches(packages: &[Package], list: &List) -> Vec<String> {
    let mut found: Vec<_> = packages.iter().flat_map(|package| package.breaches(list)).collect();
    let names: BTreeSet<_> = packages.iter().map(|package| package.name.as_str()).collect();
    let listed = list.circles.iter().map(|circle| &circle.package);
    let listed = listed.chain(list.open.iter().map(|open| &open.package));
    let unknown: BTreeSet<_> = listed.filter(|name| !names.contains(name.as_str())).collect();
    found.extend(
        unknown.into_iter().map(|name| {
            format!("{}: there is no crate {name}: remove the entry", list.at(&[name]))
        }),
    );
    found
}

/// Lines of a report: circles by crate.
pub(super) fn report(packages: &[Package], sources: &Sources) -> Vec<String> {
    let mut lines = Vec::new();
    for package in packages {
        for circle in &package.circles {
            let paths = circle.files.iter().map(|file| format!("{}{file}", package.src));
            let texts = paths.filter_map(|path| sources.files.get(&path));
            let code: usize = texts.map(|source| source.text.lines().count()).sum();
            let files: Vec<_> = circle.files.iter().map(String::as_str).collect();
            lines.push(format!(
                "{}: {} files, {code} lines: {}",
                package.name,
                files.len(),
                files.join(", ")
            ));
        }
    }
    lines
}

/// Lines of a report: the lines of each crate below `src`, the largest crate first.
pub(super) fn rooms(sources: &Sources) -> Vec<(String, usize)> {
    let mut rooms: BTreeMap<String, usize> = BTreeMap::new();
    for (path, source) in &sources.files {
        if let Some((folder, _)) = path.split_once("/src/") {
            *rooms.entry(name_of(folder).to_owned()).or_default() += source.text.lines().count();
        }
    }
    let mut rooms: Vec<_> = rooms.into_iter().collect();
    rooms.sort_by_key(|(_, lines)| std::cmp::Reverse(*lines));
    rooms
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The breaches of crate `a`, whose library has these modules, each with its code.
    fn of(list: &str, modules: &[(&str, &str)]) -> Vec<String> {
        let head: String = modules.iter().map(|(name, _)| format!("mod {name};\n")).collect();
        let mut files = vec![("crates/a/src/lib.rs".to_owned(), head)];
        files.extend(modules.iter().map(|(name, code)| {
            (format!("crates/a/src/{name}.rs"), format!("pub struct S;\n{code}"))
        }));
        let files: Vec<_> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let list = List::parse(list.to_owned()).unwrap();
        breaches(&packages(&Sources::sample(&files)).unwrap(), &list)
    }

    const TWO: &[(&str, &str)] = &[("b", "use crate::c::S as T;"), ("c", "use crate::b::S as T;")];
    const THREE: &[(&str, &str)] = &[
        ("b", "use crate::c::S as T;"),
        ("c", "use crate::b::S as T;"),
        ("d", "use crate::b::S as T;\nfn f(_: crate::c::S) {}"),
    ];

    fn entry(files: &[&str]) -> String {
        format!("[[circle]]\ncrate = \"a\"\nfiles = {files:?}\nreason = \"one machine\"\n")
    }

    fn bound(files: &[usize]) -> String {
        format!("[[open]]\ncrate = \"a\"\nfiles = {files:?}\nreason = \"to be opened\"\n")
    }

    #[test]
    fn a_chain_is_no_breach_and_a_circle_is_named_with_the_imports_that_make_it() {
        assert_eq!(of("", &[("b", "use crate::c::S as T;"), ("c", "")]), [""; 0]);
        let found = of("", TWO);
        assert_eq!(found.len(), 1);
        let begin = "crates/a/src/b.rs:2: a circle of 2 files (b.rs, c.rs), and \
                     crates/xtask/walls.toml does not name the circle. It opens without \
                     `crate::c::S` of crates/a/src/c.rs at crates/a/src/b.rs:2, or `crate::b::S` of \
                     crates/a/src/b.rs at crates/a/src/c.rs:2: move ";
        assert!(found[0].starts_with(begin), "{}", found[0]);
    }

    #[test]
    fn a_circle_of_the_list_may_stay_as_it_is() {
        assert_eq!(of(&entry(&["b.rs", "c.rs"]), TWO), [""; 0]);
        assert_eq!(of(&entry(&["b.rs", "c.rs"]), THREE), [""; 0]);
    }

    #[test]
    fn a_file_that_joins_a_circle_of_the_list_is_refused_with_its_import() {
        let mut three = THREE.to_vec();
        three[1].1 = "use crate::b::S as T;\nuse crate::d::S as U;";
        let found = of(&entry(&["b.rs", "c.rs"]), &three);
        let begin = "crates/a/src/c.rs:3: `crate::d::S` of crates/a/src/d.rs makes d.rs a part";
        assert!(found.iter().any(|breach| breach.starts_with(begin)), "{found:?}");
    }

    #[test]
    fn an_entry_of_files_that_left_or_of_a_circle_that_is_open_is_refused() {
        let found = of(&entry(&["b.rs", "c.rs", "d.rs"]), THREE);
        let left = "crates/xtask/walls.toml:3: d.rs of a is no part of the circle any more: take it \
                    out of the entry";
        assert_eq!(found, [left]);
        let found = of(&entry(&["b.rs", "c.rs"]), &[("b", ""), ("c", "")]);
        let open = "crates/xtask/walls.toml:3: b.rs, c.rs of a are no circle any more: remove the \
                    entry";
        assert_eq!(found, [open]);
    }

    #[test]
    fn a_circle_that_is_to_be_opened_may_not_grow_and_its_bound_shrinks_with_it() {
        assert_eq!(of(&bound(&[2]), TWO), [""; 0]);
        let mut three = THREE.to_vec();
        three[1].1 = "use crate::b::S as T;\nuse crate::d::S as U;";
        let found = of(&bound(&[2]), &three);
        assert!(found[0].contains("a circle of 3 files"), "{found:?}");
        assert!(found[0].contains("allows 2 files"), "{found:?}");
        assert!(found[0].contains("`crate::d::S` of crates/a/src/d.rs at crates/a/src/c.rs:3"));
        let found = of(&bound(&[3]), TWO);
        assert!(found[0].contains("have [2] files and the list says [3]: write"), "{found:?}");
        let found = of(&bound(&[2]), &[("b", ""), ("c", "")]);
        assert!(found[0].contains("have [] files and the list says [2]"), "{found:?}");
    }

    #[test]
    fn a_further_circle_beside_a_bounded_one_is_refused() {
        let mut four = TWO.to_vec();
        four.extend([("e", "use crate::g::S as T;"), ("g", "use crate::e::S as T;")]);
        let found = of(&bound(&[2]), &four);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("does not name the circle"), "{found:?}");
    }

    #[test]
    fn an_entry_of_a_crate_that_is_gone_is_refused() {
        let found = of(&bound(&[2]).replace("\"a\"", "\"z\""), &[("b", "")]);
        assert_eq!(found, ["crates/xtask/walls.toml:2: there is no crate z: remove the entry"]);
    }
}
