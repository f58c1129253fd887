//! Routing by path, without I/O.

use std::borrow::Cow;

/// Normalises a path for comparison: letters, digits and `-._~` are unescaped (RFC 3986 section
/// 6.2.2.2), `.` and `..` are resolved, and repeated slashes are merged.
///
/// The target still sees the path as the visitor sent it. A path that does not begin with a slash
/// (`*`) is unchanged.
#[must_use]
pub fn normal_path(path: &str) -> Cow<'_, str> {
    if !path.starts_with('/') || !(path.contains('%') || path.contains("//") || path.contains("/."))
    {
        return Cow::Borrowed(path);
    }
    let plain = unescaped(path);
    let mut segments: Vec<&str> = Vec::new();
    let mut last = "";
    for segment in plain.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            _ => segments.push(segment),
        }
        last = segment;
    }
    let mut normal = String::with_capacity(plain.len());
    for segment in &segments {
        normal.push('/');
        normal.push_str(segment);
    }
    if segments.is_empty() || matches!(last, "" | "." | "..") {
        normal.push('/');
    }
    Cow::Owned(normal)
}

/// Whether `path`, in normal form, is `prefix` or is below it: `/api` and `/api/v1` are below
/// `/api`, `/apis` is not. A trailing slash of the prefix is ignored.
#[must_use]
pub fn is_below(prefix: &str, path: &str) -> bool {
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    path.strip_prefix(prefix)
        .is_some_and(|rest| prefix.is_empty() || rest.is_empty() || rest.starts_with('/'))
}

/// Of the entries of one host, the entry with the longest prefix that contains `path`. An entry
/// without a prefix matches every path that no other entry matches.
#[must_use]
pub fn longest<'p, T>(
    entries: impl IntoIterator<Item = (Option<&'p str>, T)>,
    path: &str,
) -> Option<T> {
    entries
        .into_iter()
        .filter(|(prefix, _)| prefix.is_none_or(|prefix| is_below(prefix, path)))
        .max_by_key(|(prefix, _)| prefix.map_or(0, |prefix| prefix.trim_end_matches('/').len() + 1))
        .map(|(_, entry)| entry)
}

/// The path that a target gets for a request of a service whose prefix is replaced by `to`. `path`
/// is the path of the visitor, and `normal` its normal form, which is below `prefix`.
///
/// The target gets the rest as the visitor wrote it, unless its meaning changes without the prefix
/// (`/api/../api/x`), or it begins with `//`, which targets parse as the start of a host. Then the
/// target gets the rest in normal form.
pub(crate) fn replaced(prefix: &str, to: &str, path: &str, normal: &str) -> String {
    // `OPTIONS *` has no path.
    if !normal.starts_with('/') {
        return path.to_owned();
    }
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    let plain = normal.strip_prefix(prefix).unwrap_or(normal);
    let is_plain = |rest: &&str| {
        let is_path = rest.starts_with('/') && !rest.starts_with("//");
        rest.is_empty() || is_path && normal_path(rest) == plain
    };
    let rest = path.strip_prefix(prefix).filter(is_plain).unwrap_or(plain);
    let path = [to.strip_suffix('/').unwrap_or(to), rest].concat();
    if path.is_empty() { "/".to_owned() } else { path }
}

/// Whether a target may see a step to the parent where [`normal_path`] sees none: `..` next to an
/// escaped slash or a backslash, or with a parameter (`..;`). Such a path could leave the prefix of
/// a service, so a service with a prefix refuses it.
pub(crate) fn is_ambiguous(path: &str) -> bool {
    if !path.contains("..") && !path.contains('%') {
        return false;
    }
    let plain = unescaped(path);
    let plain = plain.to_ascii_lowercase().replace("%2f", "\\").replace("%5c", "\\");
    plain.split('/').any(|segment| {
        segment != ".." && segment.split('\\').any(|part| part == ".." || part.starts_with("..;"))
    })
}

/// The path without redundant escapes.
fn unescaped(path: &str) -> Cow<'_, str> {
    if !path.contains('%') {
        return Cow::Borrowed(path);
    }
    let mut plain = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        let (before, escape) = rest.split_at(at);
        plain.push_str(before);
        let decoded = escape.get(1..3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match decoded.map(char::from) {
            Some(c) if c.is_ascii_alphanumeric() || "-._~".contains(c) => {
                plain.push(c);
                rest = &escape[3..];
            }
            _ => {
                plain.push('%');
                rest = &escape[1..];
            }
        }
    }
    plain.push_str(rest);
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_segments_escapes_and_double_slashes_are_resolved() {
        for (path, normal) in [
            ("/", "/"),
            ("*", "*"),
            ("/a/b.html", "/a/b.html"),
            ("/api/../admin", "/admin"),
            ("/api/%2e%2E/admin", "/admin"),
            ("/%61pi/x", "/api/x"),
            ("//api///v1/", "/api/v1/"),
            ("/../../x", "/x"),
            ("/a/.", "/a/"),
            ("/a/..", "/"),
            ("/a/...", "/a/..."),
            ("/.well-known/x", "/.well-known/x"),
            ("/a%2fb", "/a%2fb"),
            ("/a%", "/a%"),
            ("/a%zz%4", "/a%zz%4"),
            ("/%ä", "/%ä"),
            ("/a%20b", "/a%20b"),
        ] {
            assert_eq!(normal_path(path), normal, "{path}");
        }
        assert!(matches!(normal_path("/a/b?"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_prefix_ends_at_a_segment() {
        for (prefix, path, below) in [
            ("/api", "/api", true),
            ("/api", "/api/", true),
            ("/api", "/api/v1", true),
            ("/api/", "/api", true),
            ("/api/", "/api/v1", true),
            ("/api", "/apis", false),
            ("/api", "/ap", false),
            ("/api", "/", false),
            ("/", "/anything", true),
            ("/api", "*", false),
        ] {
            assert_eq!(is_below(prefix, path), below, "{prefix} {path}");
        }
    }

    #[test]
    fn the_longest_prefix_wins_and_an_entry_without_prefix_takes_the_rest() {
        let entries = [(None, 0), (Some("/api"), 1), (Some("/api/v1"), 2), (Some("/"), 3)];
        for (path, entry) in [("/api/v1/x", 2), ("/api/v2", 1), ("/apis", 3), ("*", 3)] {
            assert_eq!(longest(entries, path), Some(entry), "{path}");
        }
        assert_eq!(longest([(Some("/api"), 1)], "/admin"), None);
    }

    #[test]
    fn a_prefix_is_replaced_and_no_spelling_leaves_the_place() {
        for (to, path, wanted) in [
            ("/", "/api", "/"),
            ("/", "/api/", "/"),
            ("/", "/api/v1/x", "/v1/x"),
            ("/app", "/api", "/app"),
            ("/app", "/api/", "/app/"),
            ("/app", "/api/v1", "/app/v1"),
            // As the visitor wrote it.
            ("/", "/api/a//b%2fc%41", "/a//b%2fc%41"),
            ("/", "/api/./v1/..", "/./v1/.."),
            // The prefix in another spelling.
            ("/", "/%61pi/v1", "/v1"),
            ("/", "//api/v1", "/v1"),
            ("/", "/x/../api/v1", "/v1"),
            // The meaning of the rest would change.
            ("/", "/api/../api/v1", "/v1"),
            ("/", "/api/x/../../api", "/"),
            ("/app", "/api/x/../../api", "/app"),
            ("/", "/api//evil.example/x", "/evil.example/x"),
        ] {
            assert_eq!(replaced("/api", to, path, &normal_path(path)), wanted, "{to} {path}");
        }
        assert_eq!(replaced("/", "/app", "/v1", "/v1"), "/app/v1");
        assert_eq!(replaced("/", "/", "//v1", "/v1"), "/v1");
        assert_eq!(replaced("/", "/app", "*", "*"), "*");
    }

    #[test]
    fn a_step_upwards_that_only_some_targets_see_is_ambiguous() {
        for path in [
            "/api/..%2fadmin",
            "/api/%2e%2e%2Fadmin",
            "/api/x%2f..%2fadmin",
            "/api/..\\admin",
            "/api/..%5cadmin",
            "/api/..;/admin",
            "/api/%2e%2e;x/admin",
            "/api/x%2f..",
        ] {
            assert!(is_ambiguous(path), "{path}");
        }
        for path in ["/api/../x", "/api/a%2fb", "/api/a..b", "/api/%2fx", "/api", "/api/...", "/a%"]
        {
            assert!(!is_ambiguous(path), "{path}");
        }
    }
}
