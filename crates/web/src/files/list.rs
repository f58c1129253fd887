//! The listing of a directory: a page without scripts and external resources.

use std::cmp::Ordering;
use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::SystemTime;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustix::fs::{Dir, OFlags};
use rustix::io::Errno;

use super::beneath::Root;
use super::opened::Facts;
use super::path::{is_foreign, is_hidden};
use crate::page::escaped;

/// The maximum number of entries of a listing. Nobody reads longer pages, and each entry costs file
/// system calls.
const ENTRIES: usize = 5_000;

/// The maximum length of the HTML, in bytes: 5,000 entries with names of 80 characters.
const LONGEST: usize = 1 << 20;

/// The maximum cost of a listing while it is generated, in bytes: the HTML, and as much for the
/// entries.
pub(super) const COST: u64 = 2 * LONGEST as u64;

/// The content security policy of the page: only its own style.
pub(super) const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// The characters of a path segment that are not escaped (RFC 3986 section 2.3).
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

const STYLE: &str = "body{font:1rem/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;\
                     padding:0 1rem}table{border-collapse:collapse;width:100%}\
                     th,td{padding:.2rem .8rem .2rem 0;text-align:left}\
                     td{border-top:1px solid #8884;overflow-wrap:anywhere}\
                     .n{text-align:right;white-space:nowrap}";

struct Entry {
    name: String,
    facts: Facts,
}

/// The HTML of the listing of `folder`, which is at `path` below the root. Entries that no request
/// could reach are omitted: hidden names, links out of the root, names that are not text, and
/// anything but files and directories.
pub(super) fn page(root: &Root, folder: File, path: &str) -> io::Result<String> {
    let (mut entries, mut is_whole) = (Vec::new(), true);
    let mut held = 0;
    for entry in Dir::new(folder)? {
        let entry = match entry {
            Ok(entry) => entry,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        let Ok(name) = entry.file_name().to_str() else { continue };
        if is_hidden(name.as_bytes(), false) || name.contains(is_foreign) {
            continue;
        }
        held += name.len() + size_of::<Entry>();
        if entries.len() == ENTRIES || held > LONGEST {
            is_whole = false;
            break;
        }
        let at = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
        if let Ok((_, facts)) = root.find(Path::new(&at), OFlags::PATH) {
            entries.push(Entry { name: name.to_owned(), facts });
        }
    }
    entries.sort_unstable_by(order);
    Ok(html(path, &entries, is_whole))
}

/// Directories come first. Sort keys are not cached: they would take more memory than the entries,
/// and only the entries are charged.
fn order(one: &Entry, other: &Entry) -> Ordering {
    fn folded(entry: &Entry) -> impl Iterator<Item = char> {
        entry.name.chars().flat_map(char::to_lowercase)
    }
    let kinds = other.facts.is_dir.cmp(&one.facts.is_dir);
    kinds.then_with(|| folded(one).cmp(folded(other))).then_with(|| one.name.cmp(&other.name))
}

fn html(path: &str, entries: &[Entry], mut is_whole: bool) -> String {
    let title = if path.is_empty() { "/".to_owned() } else { escaped(&format!("/{path}/")) };
    let mut html = format!(
        "<!DOCTYPE html>\n<html><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>Index of {title}</title><style>{STYLE}</style></head>\n\
         <body><h1>Index of {title}</h1>\n<table>\
         <tr><th>Name</th><th class=\"n\">Size</th><th class=\"n\">Changed (UTC)</th></tr>\n"
    );
    if !path.is_empty() {
        html.push_str("<tr><td><a href=\"../\">../</a></td><td></td><td></td></tr>\n");
    }
    let mut shown = 0;
    for Entry { name, facts } in entries {
        let slash = if facts.is_dir { "/" } else { "" };
        let size = if facts.is_dir { String::new() } else { size(facts.length) };
        let row = format!(
            // Without `./` a name with a colon would be parsed as a URL with a scheme.
            "<tr><td><a href=\"./{}{slash}\">{}{slash}</a></td><td class=\"n\">{size}</td>\
             <td class=\"n\">{}</td></tr>\n",
            utf8_percent_encode(name, KEPT),
            escaped(name),
            facts.modified.map(time).unwrap_or_default(),
        );
        if html.len() + row.len() > LONGEST {
            is_whole = false;
            break;
        }
        html.push_str(&row);
        shown += 1;
    }
    html.push_str("</table>\n");
    if shown == 0 && is_whole {
        html.push_str("<p>The directory is empty.</p>\n");
    }
    if !is_whole {
        let _ = writeln!(
            html,
            "<p>The listing ends after {shown} entries: the directory has more, and the others \
             are reached by their names.</p>"
        );
    }
    html.push_str("</body></html>\n");
    html
}

/// A human-readable size: `812 B`, `1.5 KiB`.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    // Tenths of the unit, so that no float rounds 1023.96 up to 1024.0.
    let (mut tenths, mut unit) = (u128::from(bytes) * 10 / 1024, 0);
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

/// A human-readable time: `06 Nov 1994 08:49`.
fn time(time: SystemTime) -> String {
    // The relevant part of `Sun, 06 Nov 1994 08:49:37 GMT`.
    let date = httpdate::fmt_http_date(time);
    date.get(5..22).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn sizes_and_times_are_for_people() {
        for (bytes, expected) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (1024 * 1024 - 1, "1023.9 KiB"),
            (1024 * 1024, "1.0 MiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            assert_eq!(size(bytes), expected);
        }
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        assert_eq!(time(at), "06 Nov 1994 08:49");
    }

    #[test]
    fn directories_come_first_and_the_case_of_names_decides_last() {
        let facts = |is_dir| Facts { is_dir, length: 1, modified: None };
        let entry = |name: &str| Entry { name: name.to_owned(), facts: facts(name == "z") };
        let mut entries: Vec<Entry> = ["é", "b", "É", "A", "ab", "B", "a", "z"].map(entry).into();
        entries.sort_unstable_by(order);
        let names: Vec<&str> = entries.iter().map(|entry| &*entry.name).collect();
        assert_eq!(names, ["z", "A", "a", "ab", "B", "b", "É", "é"]);
    }

    #[test]
    fn a_long_page_ends_with_a_sentence() {
        let facts = Facts { is_dir: false, length: 1, modified: None };
        let entry = |n: usize| Entry { name: format!("{n:0>250}"), facts };
        let entries: Vec<Entry> = (0..5_000).map(entry).collect();
        let html = html("", &entries, true);
        assert!(html.len() < LONGEST + 1000, "{}", html.len());
        assert!(html.contains("The listing ends after "));
        assert!(html.ends_with("</html>\n"));
    }
}
