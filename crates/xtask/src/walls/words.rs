//! One word, one idea: names that five types or more have. Such a name says little where it is
//! read, and often stands for several ideas. `walls.toml` has the names of today with their
//! numbers.

use std::collections::BTreeMap;

use super::list::List;
use super::proc::DEV;
use super::sources::Sources;

/// From so many types on a name is in the list.
pub(super) const MANY: usize = 5;

/// The places of each name that many types of the product have: path and line.
pub(super) fn names(sources: &Sources) -> BTreeMap<&str, Vec<String>> {
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (path, source) in &sources.files {
        let folder = path.strip_prefix("crates/").and_then(|path| path.split_once("/src/"));
        if folder.is_none_or(|(name, _)| DEV.contains(&name)) {
            continue;
        }
        for named in &source.facts.types {
            places.entry(&named.name).or_default().push(format!("{path}:{}", named.line));
        }
    }
    places.retain(|_, places| places.len() >= MANY);
    places
}

/// Names that are not in the list or stand more often than the list says, and numbers that are too
/// high.
pub(super) fn breaches(sources: &Sources, list: &List) -> Vec<String> {
    let names = names(sources);
    let mut found = Vec::new();
    for (name, places) in &names {
        let bound = list.names.get(*name).copied().unwrap_or(MANY - 1);
        if places.len() > bound {
            found.push(format!(
                "{}: `{name}` is the name of {} types, {bound} are allowed: a name that says which \
                 one is meant (the types: {})",
                places[0],
                places.len(),
                places.join(", ")
            ));
        }
    }
    for (name, bound) in &list.names {
        let types = names.get(name.as_str()).map_or(0, Vec::len);
        if types < *bound {
            let rest =
                if types == 0 { "remove the line".to_owned() } else { format!("write {types}") };
            found.push(format!(
                "{}: fewer types than {bound} have the name `{name}`: {rest}",
                list.at_key(name)
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(list: &str, files: usize) -> Vec<String> {
        let paths: Vec<_> = (0..files).map(|n| format!("crates/a/src/f{n}.rs")).collect();
        let mut files: Vec<_> =
            paths.iter().map(|path| (path.as_str(), "\nenum Kept {}")).collect();
        // Neither the automation nor a test counts.
        files.push(("crates/xtask/src/a.rs", "struct Kept;"));
        files.push(("crates/a/src/b.rs", "#[cfg(test)] mod tests { struct Kept; }"));
        breaches(&Sources::sample(&files), &List::parse(list.to_owned()).unwrap())
    }

    #[test]
    fn a_name_that_many_types_get_is_refused_with_their_places() {
        assert_eq!(of("", MANY - 1), [""; 0]);
        let found = of("", MANY);
        let begin = "crates/a/src/f0.rs:2: `Kept` is the name of 5 types, 4 are allowed";
        assert!(found[0].starts_with(begin), "{found:?}");
        assert!(found[0].contains("crates/a/src/f4.rs:2"), "{found:?}");
    }

    #[test]
    fn a_name_of_the_list_may_not_grow_and_its_number_shrinks_with_it() {
        assert_eq!(of("[names]\nKept = 6\n", 6), [""; 0]);
        assert!(of("[names]\nKept = 6\n", 7)[0].contains("7 types, 6 are allowed"));
        assert!(of("[names]\nKept = 6\n", 5)[0].starts_with("crates/xtask/walls.toml:2: "));
        assert!(of("[names]\nKept = 6\n", 5)[0].ends_with("write 5"));
        assert!(of("[names]\nKept = 6\n", 2)[0].ends_with("remove the line"));
    }
}
