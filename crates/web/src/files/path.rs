//! Maps the path of a request to the path of a file, without I/O.

use percent_encoding::percent_decode_str;

/// The directory for well-known URIs (RFC 8615), the only name with a leading dot that is served.
const WELL_KNOWN: &str = ".well-known";

/// The path of a request, normalised to the path of a file: repeated slashes are merged. `None`: it
/// names no file that may be served. These are paths with `.` or `..`, with a name that begins with
/// a dot, or with a name that another program may interpret differently: an escaped slash, a
/// backslash, a control character, an escape that is malformed or not UTF-8.
///
/// A name is decoded once. An escape that remains then is part of the name.
pub(super) fn normal(path: &str) -> Option<String> {
    let mut normal = String::with_capacity(path.len());
    let rest = path.strip_prefix('/')?;
    for segment in rest.split('/').filter(|segment| !segment.is_empty()) {
        if !may_be_served(segment, normal.is_empty()) {
            return None;
        }
        normal.push('/');
        normal.push_str(segment);
    }
    if path.ends_with('/') {
        normal.push('/');
    }
    Some(normal)
}

/// Whether a name is hidden: it begins with a dot, and is therefore not served.
pub(super) fn is_hidden(name: &[u8], is_first: bool) -> bool {
    name.starts_with(b".") && !(is_first && name == WELL_KNOWN.as_bytes())
}

/// Whether another program may interpret a character of a name differently.
pub(super) fn is_foreign(c: char) -> bool {
    c == '/' || c == '\\' || c.is_control()
}

/// Whether a path without escapes, relative to the directory, names a file that may be served.
pub(super) fn may_be_path(path: &str) -> bool {
    let mut names = path.split('/').enumerate();
    names.all(|(nth, name)| {
        !name.is_empty() && !is_hidden(name.as_bytes(), nth == 0) && !name.contains(is_foreign)
    })
}

fn may_be_served(segment: &str, is_first: bool) -> bool {
    let Ok(name) = percent_decode_str(segment).decode_utf8() else { return false };
    !is_hidden(name.as_bytes(), is_first)
        && !name.contains(is_foreign)
        && has_whole_escapes(segment)
}

/// Whether each `%` begins a complete escape.
fn has_whole_escapes(segment: &str) -> bool {
    segment.split('%').skip(1).all(|rest| {
        rest.get(..2).is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_names_a_file_below_the_directory_or_none() {
        for (path, expected) in [
            ("/", Some("/")),
            ("/a.txt", Some("/a.txt")),
            ("/a/b/", Some("/a/b/")),
            ("//a///b//", Some("/a/b/")),
            ("/a%20b", Some("/a%20b")),
            ("/%C3%BC", Some("/%C3%BC")),
            ("/a..b", Some("/a..b")),
            ("/a...", Some("/a...")),
            ("/%252e%252e/a", Some("/%252e%252e/a")),
            ("/.well-known/acme", Some("/.well-known/acme")),
            ("/%2ewell-known/acme", Some("/%2ewell-known/acme")),
            ("/a/.well-known/acme", None),
            ("/.well-known/.hidden", None),
            ("/.well-knownx", None),
            ("/.git/config", None),
            ("/%2egit/config", None),
            ("/a/.htpasswd", None),
            ("/..", None),
            ("/../etc/passwd", None),
            ("/a/../b", None),
            ("/a/./b", None),
            ("/...", None),
            ("/%2e%2e/etc/passwd", None),
            ("/%2E%2e/etc/passwd", None),
            ("/.%2e/etc/passwd", None),
            ("/..%2fetc%2fpasswd", None),
            ("/a%2fb", None),
            ("/a%2F..%2Fb", None),
            ("/..\\etc\\passwd", None),
            ("/a%5c..%5cb", None),
            ("/a\\b", None),
            ("/a%00.txt", None),
            ("/a%0a", None),
            ("/a%7f", None),
            ("/a%", None),
            ("/a%2", None),
            ("/a%zz", None),
            ("/%ff", None),
            ("/%c0%ae%c0%ae/etc", None),
            ("", None),
            ("*", None),
            ("a", None),
        ] {
            assert_eq!(normal(path).as_deref(), expected, "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_path_leads_out_or_to_a_hidden_name(
            path in "/([a./%\\\\]|%2e|%2f|%5c|%00|\\.\\.|//){0,12}"
        ) {
            if let Some(normal) = normal(&path) {
                let decoded = percent_decode_str(&normal).decode_utf8().unwrap();
                prop_assert_eq!(decoded.split('/').count(), normal.split('/').count());
                prop_assert!(!decoded.contains('\\') && !decoded.contains('\0'));
                prop_assert!(decoded.split('/').all(|name| !name.starts_with('.')));
                prop_assert!(!normal.contains("//"));
            }
        }
    }
}
