//! The files of the web console. They are the same for every user and hold no secret, so they need
//! no token. The console is a client of `/api/v1` like any other.

mod files;

use std::fmt::Write as _;
use std::sync::LazyLock;

use axum::extract::Request;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use files::FILES;
use sha2::{Digest, Sha256};

use crate::answer::problem;

/// The URL of a page. A page has no other URL, because its links are relative to this URL.
const PAGE: &str = "/";

/// The file of the page of the console.
const CONSOLE: &str = "index.html";

/// The file of the set-up page, which is served at a port of its own.
const SET_UP: &str = "setup.html";

/// The folder of all other files of the console.
const FOLDER: &str = "/console/";

/// The route of [`FOLDER`].
pub(crate) const ROUTE: &str = "/console/{*path}";

/// Header fields of every response. A page of this origin runs only scripts of this origin, and no
/// other page can frame or read it.
pub(crate) const PROTECTION: [(HeaderName, &str); 5] = [
    (
        HeaderName::from_static("content-security-policy"),
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    (HeaderName::from_static("referrer-policy"), "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("x-content-type-options"), "nosniff"),
];

/// A file with the header fields of its response.
struct File {
    path: &'static str,
    bytes: &'static [u8],
    media: &'static str,
    /// Changes with the content.
    tag: HeaderValue,
}

static ALL: LazyLock<Vec<File>> = LazyLock::new(|| {
    let file = |(path, bytes): &(&'static str, &'static [u8])| {
        Some(File { path, bytes, media: media(path)?, tag: tag(bytes)? })
    };
    FILES.iter().filter_map(file).collect()
});

/// The media type of a file; `None`: files of this kind are not served.
fn media(path: &str) -> Option<&'static str> {
    let (_, kind) = path.rsplit_once('.')?;
    Some(match kind {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => return None,
    })
}

/// The entity tag of the content (RFC 9110 section 8.8.3), with its quotes.
#[must_use]
pub fn tag_of(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for byte in &Sha256::digest(bytes)[..16] {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.push('"');
    text
}

fn tag(bytes: &[u8]) -> Option<HeaderValue> {
    HeaderValue::from_str(&tag_of(bytes)).ok()
}

/// Whether a request asks for a file of the console.
pub(crate) fn is_file(request: &Request) -> bool {
    let path = request.uri().path();
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    reads && (path == PAGE || path.starts_with(FOLDER))
}

/// Responds with a file of the console.
pub(crate) async fn file(request: Request) -> Response {
    answer(&request, CONSOLE)
}

/// Responds with a file of the set-up page.
pub(crate) async fn file_of_set_up(request: Request) -> Response {
    answer(&request, SET_UP)
}

fn answer(request: &Request, page: &str) -> Response {
    let path = match request.uri().path() {
        PAGE => page,
        path => match path.strip_prefix(FOLDER).unwrap_or(path) {
            CONSOLE | SET_UP => "",
            path => path,
        },
    };
    let Some(file) = ALL.iter().find(|file| file.path == path) else {
        return problem(StatusCode::NOT_FOUND, "no such file of the console");
    };
    // A new version of the daemon has different files, so a browser revalidates each time.
    let fields = [(ETAG, file.tag.clone()), (CACHE_CONTROL, HeaderValue::from_static("no-cache"))];
    if is_known(request.headers(), &file.tag) {
        return (StatusCode::NOT_MODIFIED, fields).into_response();
    }
    (fields, [(CONTENT_TYPE, file.media)], file.bytes).into_response()
}

/// Whether the browser has the current file (RFC 9110 section 13.1.2).
fn is_known(headers: &HeaderMap, tag: &HeaderValue) -> bool {
    let (all, tag) = (headers.get_all(IF_NONE_MATCH).iter(), tag.to_str().unwrap_or_default());
    let mut each = all.filter_map(|field| field.to_str().ok()).flat_map(|field| field.split(','));
    each.any(|one| one.trim().trim_start_matches("W/") == tag)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    /// The largest sum of all files in bytes.
    const ALL_MAX: usize = 300 << 10;

    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { walk(&path, found) } else { found.push(path) }
        }
    }

    #[test]
    fn the_list_is_the_folder_and_stays_within_its_budget() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("console");
        let mut found = Vec::new();
        walk(&root, &mut found);
        let path = |file: &PathBuf| file.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        // Notes and licences for readers of the source are not served.
        let is_note = |path: &String| path.ends_with(".md") || path.contains("LICENSE");
        let found: BTreeSet<_> = found.iter().map(path).filter(|path| !is_note(path)).collect();
        let listed: Vec<_> = FILES.iter().map(|(path, _)| (*path).to_owned()).collect();
        assert!(listed.is_sorted(), "{listed:?}");
        assert_eq!(listed.iter().cloned().collect::<BTreeSet<_>>(), found);
        assert_eq!(ALL.len(), FILES.len(), "a file has no media type");
        let bytes: usize = FILES.iter().map(|(_, bytes)| bytes.len()).sum();
        assert!(bytes <= ALL_MAX, "{bytes} bytes");
    }

    /// The policy of the console forbids what these texts do.
    #[test]
    fn no_own_file_writes_markup_evaluates_text_or_names_another_host() {
        for (path, bytes) in FILES.iter().filter(|(path, _)| !path.starts_with("vendor/")) {
            let text = std::str::from_utf8(bytes).expect(path);
            for wrong in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "new Function",
                "dangerouslySetInnerHTML",
                "document.cookie",
                "(\"http",
                "from \"http",
                "url(http",
            ] {
                assert!(!text.contains(wrong), "{path} has `{wrong}`");
            }
        }
    }

    #[test]
    fn a_tag_changes_with_the_content_and_is_compared_in_a_list() {
        let (one, other) = (tag(b"a").unwrap(), tag(b"b").unwrap());
        assert_ne!(one, other);
        let text = one.to_str().unwrap();
        for (field, known) in [
            (text.to_owned(), true),
            (format!("W/{text}"), true),
            (format!("\"x\", {text}"), true),
            ("\"x\"".to_owned(), false),
            (text.trim_matches('"').to_owned(), false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(IF_NONE_MATCH, HeaderValue::from_str(&field).unwrap());
            assert_eq!(is_known(&headers, &one), known, "{field}");
        }
    }
}
