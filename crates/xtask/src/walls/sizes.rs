//! Sizes that a person can hold in mind: a file has at most 800 lines, a function at most 100, and
//! a comment at most 100 columns. What is longer is named in `walls.toml`.

use std::collections::BTreeMap;

use super::links::{COLUMNS, is_too_long};
use super::list::{List, PATH};
use super::sources::Sources;

/// Lines of a file.
pub(super) const FILE_LINES: usize = 800;

/// Lines of a function, from the word `fn` to the closing brace.
pub(super) const FUNCTION_LINES: usize = 100;

/// How far the bound of a file may be above its size, so that not each removed line changes the
/// list; a function has a tenth of it.
const SLACK: usize = 50;

/// Long files: path and lines.
pub(super) fn files(sources: &Sources) -> Vec<(&str, usize)> {
    let sizes = sources.files.iter().map(|(path, source)| (&**path, source.text.lines().count()));
    sizes.filter(|(_, lines)| *lines > FILE_LINES).collect()
}

/// Long functions: path, line, name and lines.
pub(super) fn functions(sources: &Sources) -> Vec<(&str, usize, &str, usize)> {
    let all = sources.files.iter().flat_map(|(path, source)| {
        let functions = source.facts.functions.iter();
        functions.map(move |function| (&**path, function.line, &*function.name, function.lines))
    });
    all.filter(|(.., lines)| *lines > FUNCTION_LINES).collect()
}

/// Comment lines that are too long: their numbers, by file.
pub(super) fn comments(sources: &Sources) -> BTreeMap<&str, Vec<usize>> {
    let mut found: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (path, source) in &sources.files {
        let long = (1..).zip(source.text.lines()).filter(|(_, line)| is_long_comment(line));
        let numbers: Vec<usize> = long.map(|(number, _)| number).collect();
        if !numbers.is_empty() {
            found.insert(path, numbers);
        }
    }
    found
}

fn is_long_comment(line: &str) -> bool {
    let Some(behind) = line.trim_start().strip_prefix("//") else { return false };
    let text = behind.trim_start_matches(['/', '!']);
    line.chars().count() > COLUMNS && is_too_long(text, COLUMNS - (line.len() - text.len()))
}

/// Everything that is too long, and every bound that is too high.
pub(super) fn breaches(sources: &Sources, list: &List) -> Vec<String> {
    let mut found = file_breaches(sources, list);
    found.extend(function_breaches(sources, list));
    found.extend(comment_breaches(sources, list));
    found
}

fn file_breaches(sources: &Sources, list: &List) -> Vec<String> {
    let mut found = Vec::new();
    for (path, lines) in files(sources) {
        let listed = list.files.iter().find(|listed| listed.path == path);
        let bound = listed.map_or(FILE_LINES, |listed| listed.lines);
        if lines > bound {
            found.push(format!(
                "{path}:{}: the file has {lines} lines, {bound} are allowed: move one of its \
                 concerns into a file of its own",
                bound + 1
            ));
        }
    }
    for listed in &list.files {
        let at = list.at(&[&listed.path]);
        let lines = sources.files.get(&listed.path).map(|source| source.text.lines().count());
        found.extend(too_high(&at, &listed.path, lines, listed.lines, FILE_LINES, SLACK));
    }
    found
}

fn function_breaches(sources: &Sources, list: &List) -> Vec<String> {
    let long = functions(sources);
    let mut found = Vec::new();
    for (path, line, name, lines) in &long {
        let mut listed = list.functions.iter().filter(|each| each.path == *path);
        let bound =
            listed.find(|each| each.name == *name).map_or(FUNCTION_LINES, |each| each.lines);
        if *lines > bound {
            found.push(format!(
                "{path}:{line}: {name} has {lines} lines, {bound} are allowed: make functions of its \
                 parts, each with the name of what it does"
            ));
        }
    }
    for listed in &list.functions {
        let at = list.at(&[&listed.name, &listed.path]);
        let of_it =
            long.iter().filter(|(path, _, name, _)| *path == listed.path && *name == listed.name);
        let lines = of_it.map(|(.., lines)| *lines).max();
        let what = format!("{} of {}", listed.name, listed.path);
        found.extend(too_high(&at, &what, lines, listed.lines, FUNCTION_LINES, SLACK / 10));
    }
    found
}

fn too_high(
    at: &str,
    what: &str,
    lines: Option<usize>,
    bound: usize,
    limit: usize,
    slack: usize,
) -> Option<String> {
    match lines {
        Some(lines) if lines > limit => (bound >= lines + slack).then(|| {
            format!("{at}: {what} has {lines} lines now and {bound} are allowed: write {lines}")
        }),
        _ => Some(format!("{at}: {what} has at most {limit} lines, or is gone: remove the entry")),
    }
}

fn comment_breaches(sources: &Sources, list: &List) -> Vec<String> {
    let long = comments(sources);
    let mut found = Vec::new();
    for (path, numbers) in &long {
        let bound = list.comments.get(*path).copied().unwrap_or(0);
        if numbers.len() > bound {
            found.extend(numbers.iter().map(|number| {
                format!("{path}:{number}: a comment of more than {COLUMNS} columns: wrap it")
            }));
        }
    }
    for (path, bound) in &list.comments {
        let lines = long.get(path.as_str()).map_or(0, Vec::len);
        if lines < *bound {
            found.push(format!(
                "{}: {path} has {lines} comments of more than {COLUMNS} columns now and {PATH} \
                 allows {bound}: write {lines}, or remove the line for 0",
                list.at_key(path)
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(list: &str, text: &str) -> Vec<String> {
        let list = List::parse(list.to_owned()).unwrap();
        breaches(&Sources::sample(&[("crates/a/src/b.rs", text)]), &list)
    }

    fn function(lines: usize) -> String {
        format!("\nfn long() {{\n{}}}\n", "    f();\n".repeat(lines - 2))
    }

    fn file(lines: usize) -> String {
        "// A line.\n".repeat(lines)
    }

    #[test]
    fn a_long_file_is_refused_from_its_first_line_too_many() {
        assert_eq!(of("", &file(FILE_LINES)), [""; 0]);
        let found = of("", &file(FILE_LINES + 1));
        let begin = "crates/a/src/b.rs:801: the file has 801 lines, 800 are allowed: move";
        assert!(found[0].starts_with(begin), "{found:?}");
    }

    #[test]
    fn the_bound_of_a_file_is_near_its_size() {
        let list = |lines: usize| {
            format!(
                "[[file]]\npath = \"crates/a/src/b.rs\"\nlines = {lines}\nreason = \"one list\"\n"
            )
        };
        assert_eq!(of(&list(900), &file(900)), [""; 0]);
        assert_eq!(of(&list(900), &file(880)), [""; 0]);
        assert!(of(&list(900), &file(901))[0].contains("901 lines, 900 are allowed"));
        let high = of(&list(900), &file(850));
        assert!(high[0].starts_with("crates/xtask/walls.toml:2: "), "{high:?}");
        assert!(high[0].contains("write 850"), "{high:?}");
        assert!(of(&list(900), &file(700))[0].contains("remove the entry"));
    }

    #[test]
    fn a_long_function_is_refused_at_its_first_line() {
        assert_eq!(of("", &function(FUNCTION_LINES)), [""; 0]);
        let found = of("", &function(FUNCTION_LINES + 1));
        let begin = "crates/a/src/b.rs:2: long has 101 lines, 100 are allowed: make";
        assert!(found[0].starts_with(begin), "{found:?}");
    }

    #[test]
    fn the_bound_of_a_function_is_near_its_size() {
        let list = |lines: usize| {
            format!(
                "[[function]]\npath = \"crates/a/src/b.rs\"\nname = \"long\"\nlines = {lines}\n\
                 reason = \"one list\"\n"
            )
        };
        assert_eq!(of(&list(120), &function(120)), [""; 0]);
        assert!(of(&list(120), &function(121))[0].contains("121 lines, 120 are allowed"));
        assert!(of(&list(120), &function(110))[0].contains("write 110"));
        assert!(of(&list(120), &function(50))[0].contains("remove the entry"));
    }

    #[test]
    fn a_long_comment_is_refused_and_rows_of_tables_and_links_are_not() {
        let words = "word ".repeat(25);
        for good in [
            format!("//! | {words} |"),
            format!("/// <https://example.com/{}>", "x".repeat(100)),
            format!("//! {}", &words[..96]),
            format!("const A: &str = \"{words}\";"),
        ] {
            assert_eq!(of("", &format!("{good}\nfn f() {{}}")), [""; 0], "{good}");
        }
        let found = of("", &format!("\n    // {words}"));
        let long = "crates/a/src/b.rs:2: a comment of more than 100 columns: wrap it";
        assert_eq!(found, [long]);
        let list = |lines: usize| format!("[comments]\n\"crates/a/src/b.rs\" = {lines}\n");
        assert_eq!(of(&list(1), &format!("// {words}")), [""; 0]);
        assert_eq!(of(&list(1), &format!("// {words}\n// {words}")).len(), 2);
        let high = of(&list(1), "// short");
        assert!(high[0].starts_with("crates/xtask/walls.toml:2: "), "{high:?}");
    }
}
