//! Static files: a directory as a target that speaks HTTP/1.1.
//!
//! GET and HEAD are supported, with `index.html` for a directory, a single range, entity tags,
//! conditional requests, content types, and compressed variants beside a file. A directory without
//! `index.html` is listed if the configuration allows it, and otherwise denied with 403. Names
//! that begin with a dot are not served, except `/.well-known`, and symbolic links are followed
//! only inside the directory.
//!
//! * `path`: the paths that may name a file;
//! * `look`: the lookup of a path: a file, a variant of it, a listing, a fallback;
//! * `list`: the page of a listing;
//! * `beneath`: opening a path;
//! * `opened`: reading an open file;
//! * `body`: the body of a response;
//! * `text`: detection of text in UTF-8.
//!
//! `ServeDir` of tower-http builds the responses with files: type, tag, conditions and range. It
//! gets a file that is already open. Its own path lookup would make three more file system calls,
//! accept a variant older than its file, and give two codings the same tag.

mod beneath;
mod body;
mod list;
mod look;
mod opened;
mod path;
mod text;

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri, server::conn::http1};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tower_http::services::ServeDir;
use tower_http::services::fs::ServeFileSystemResponseBody;

use crate::account::{Account, H1, Hold, REQUEST};
use crate::body::Answer;
use crate::coding::Accepted;
use crate::fields;
use crate::gate::{Gate, NO_MEMORY, Progress};
use crate::page::{self, Pages};
use crate::serve;
use crate::watch::{HEAD, IDLE_H1, Watch};
use crate::{Protocol, Refusal};
use beneath::Beneath;
pub use beneath::Withheld;
use body::FileBody;
pub use look::FileOptions;
use look::{Found, Look};
use opened::Opened;

/// The request fields that affect the response.
const FIELDS: [HeaderName; 6] = [
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
    header::IF_RANGE,
    header::RANGE,
];

/// The characters of a path that are not escaped for `ServeDir`.
const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The minimum interval between two log lines about unlisted directories, in seconds.
const BARE_PAUSE: u64 = 60;

/// A directory whose files are served. Its clones share a limit of concurrent file system calls,
/// also across threads.
#[derive(Clone, Debug)]
pub struct Files {
    beneath: Beneath,
    options: Arc<FileOptions>,
    complaints: Arc<Told>,
}

/// The rate limit for log lines about unlisted directories.
#[derive(Debug)]
struct Told {
    since: Instant,
    /// When the next line may be logged, in seconds after `since`.
    next: AtomicU64,
}

/// The result of a request, before the response has a body.
enum Outcome {
    /// A file, and the size of one read in bytes.
    File(Box<Response<ServeFileSystemResponseBody>>, usize),
    /// A redirect, for example to the path with a trailing slash.
    Slash(HeaderValue),
    Listing(String, Hold),
}

impl Files {
    /// The files below `dir`. The directory is looked up for each request, so it may be replaced,
    /// also by retargeting a symbolic link.
    ///
    /// # Errors
    /// `dir` is currently not a directory, or cannot be opened.
    pub fn new(dir: impl AsRef<Path>, options: FileOptions) -> io::Result<Self> {
        let complaints = Told { since: Instant::now(), next: AtomicU64::new(0) };
        Ok(Self {
            beneath: Beneath::new(dir.as_ref())?,
            options: Arc::new(options),
            complaints: Arc::new(complaints),
        })
    }

    /// Hides files and directories for which the rule is true, whatever path leads to them.
    #[must_use]
    pub fn withholding(self, withheld: Withheld) -> Self {
        Self { beneath: self.beneath.withholding(withheld), ..self }
    }

    /// Serves a visitor until its connection ends. An incomplete header is refused after 10 s, and
    /// an idle connection is closed after 75 s. Dropping the future closes the connection at once.
    /// `account` is charged for the memory of the connection.
    ///
    /// Each type of `io` adds another copy of an HTTP server to the binary.
    pub async fn serve<T>(&self, io: T, account: Rc<Account>)
    where
        T: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        if !account.extend(H1) {
            return account.count_refusal();
        }
        let progress = Rc::new(Progress::new());
        let mut gate = Gate::new(io, Rc::clone(&progress), &account, 0);
        // `choose` does not wait if the protocol is HTTP/1.
        if gate.choose(Protocol::H1).await.is_err() {
            return;
        }
        let mut builder = http1::Builder::new();
        builder
            .header_read_timeout(None)
            .max_headers(h1::FIELDS)
            .max_buf_size(serve::READ_BUFFER)
            .half_close(true);
        let service = service_fn(|request: Request<Incoming>| {
            let (site, progress) = (self.clone(), Rc::clone(&progress));
            let account = Rc::clone(&account);
            async move { Ok::<_, Infallible>(site.answer(request, &progress, &account).await) }
        });
        let served = builder.serve_connection(TokioIo::new(gate), service);
        let stop = pin!(std::future::pending());
        let watch = Watch::new(&progress, HEAD, IDLE_H1, stop);
        let (end, gate, _) = serve::drive_h1(served, watch).await;
        serve::end_h1(end, gate, &progress).await;
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        progress: &Rc<Progress>,
        account: &Rc<Account>,
    ) -> Response<FileBody> {
        let (number, refused) = progress.called();
        let held = account.take(REQUEST + fields::length(request.headers()) as u64);
        let is_short = held.is_none() && refused.is_none();
        if is_short {
            account.count_refusal();
        }
        let answer = Answer::new(progress, held.unwrap_or_else(|| account.refuse()), None);
        let is_head = request.method() == Method::HEAD;
        progress.unstuck().await;
        let outcome = match refused {
            Some(refusal) => Err(refusal),
            None if is_short => Err(NO_MEMORY),
            None => self.find(&request, account).await,
        };
        progress.no_upgrade(number);
        match outcome {
            Ok(Outcome::File(response, piece)) => {
                response.map(|body| FileBody::file(body, piece, answer))
            }
            Ok(Outcome::Slash(location)) => {
                let mut response = Response::new(FileBody::page(Bytes::new(), None, answer));
                *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
                let fields = response.headers_mut();
                fields.insert(header::LOCATION, location);
                fields.insert(header::CONTENT_LENGTH, HeaderValue::from(0));
                response
            }
            Ok(Outcome::Listing(page, held)) => listing(page, held, is_head, answer),
            Err(refusal) => page(refusal, is_head, answer),
        }
    }

    /// The response to a request: a file, a listing, a redirect, or the result of a condition.
    async fn find<B>(
        &self,
        request: &Request<B>,
        account: &Rc<Account>,
    ) -> Result<Outcome, Refusal> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Err(Refusal::new(405, "Files are only read: by GET or HEAD."));
        }
        let Some(path) = path::normal(request.uri().path()) else { return Err(ABSENT) };
        let decoded = percent_decode_str(&path).decode_utf8().map_err(|_| ABSENT)?.into_owned();
        if let Some(only) = &self.options.only {
            match decoded.strip_prefix('/').unwrap_or(&decoded) {
                "" => return leads_to(only),
                name if name == &**only => {}
                _ => return Err(ABSENT),
            }
        }
        let mut held = None;
        if self.options.list && path.ends_with('/') {
            let Some(hold) = account.take(list::COST) else {
                account.count_refusal();
                return Err(NO_MEMORY);
            };
            held = Some(hold);
        }
        let (accepted, options) = (Accepted::of(request.headers()), Arc::clone(&self.options));
        let looked = {
            let decoded = decoded.clone();
            self.beneath.call(move |root| look::look(root, &decoded, accepted, &options)).await
        };
        match (looked.map_err(|error| unreadable(&error))?, held) {
            (Look::File(found), held) => {
                // No listing is generated.
                drop(held);
                let piece = opened::piece(found.facts.length, account);
                let response = self.serve_found(request, found, piece).await?;
                Ok(Outcome::File(Box::new(response), piece))
            }
            (Look::Listing(page), Some(held)) => {
                held.set(page.len() as u64);
                Ok(Outcome::Listing(page, held))
            }
            (Look::Directory, _) => slash(&path, request.uri().query()),
            (Look::Bare | Look::Listing(_), _) => {
                self.tell_bare(&decoded);
                Err(Refusal::new(403, "The directory has no index, and it is not listed."))
            }
            (Look::Absent, _) => Err(ABSENT),
        }
    }

    /// Logs why visitors of a directory get 403, at most once a minute.
    fn tell_bare(&self, path: &str) {
        let now = self.complaints.since.elapsed().as_secs();
        let due = |next| (now >= next).then_some(now + BARE_PAUSE);
        let order = Ordering::Relaxed;
        if self.complaints.next.fetch_update(order, order, due).is_err() {
            return;
        }
        let folder = self.beneath.path().join(path.trim_matches('/'));
        let service = &*self.options.service;
        tracing::warn!(
            service,
            "service {service}: the directory {folder:?} has no index.html, and visitors get 403: \
             `list: true` shows its files, `try_files` names a file to serve instead"
        );
    }

    /// The response with a file.
    async fn serve_found<B>(
        &self,
        request: &Request<B>,
        found: Found,
        piece: usize,
    ) -> Result<Response<ServeFileSystemResponseBody>, Refusal> {
        let Found { path, file, facts, coding, varies, is_utf8 } = found;
        let mut wanted = Request::new(());
        *wanted.method_mut() = request.method().clone();
        let uri = format!("/{}", utf8_percent_encode(&path, PATH));
        *wanted.uri_mut() = Uri::builder().path_and_query(uri).build().map_err(|_| ABSENT)?;
        let resumes;
        (*wanted.headers_mut(), resumes) = conditions(request.method(), request.headers());
        let site = ServeDir::with_backend(
            "",
            Opened { file, facts, most: piece, calls: Arc::clone(self.beneath.calls()) },
        )
        .ignore_multi_range_requests(true)
        .with_buf_chunk_size(piece);
        let call = async |wanted: Request<()>| {
            site.clone().try_call(wanted).await.map_err(|error| unreadable(&error))
        };
        let mut response = call(wanted.clone()).await?;
        if resumes && response.status() == StatusCode::PRECONDITION_FAILED {
            for field in [header::IF_MATCH, header::RANGE] {
                wanted.headers_mut().remove(field);
            }
            response = call(wanted).await?;
        }
        let status = response.status();
        let fields = response.headers_mut();
        if let Some(coding) = coding.filter(|_| status.is_success()) {
            fields.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
        }
        if varies {
            fields.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
        }
        finished(response, is_utf8)
    }
}

const ABSENT: Refusal = Refusal::new(404, "There is no such file.");

fn unreadable(error: &io::Error) -> Refusal {
    if error.kind() == io::ErrorKind::NotFound {
        return ABSENT;
    }
    tracing::debug!(%error, "a file cannot be read");
    Refusal::new(503, "The file cannot be read at present.")
}

/// The redirect for the path of a directory without a trailing slash: the links of the page are
/// relative to the directory. The location is relative, too, because a proxy in front may have
/// removed a prefix of the path.
fn slash(path: &str, query: Option<&str>) -> Result<Outcome, Refusal> {
    let name = path.rsplit('/').next().unwrap_or_default();
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    let location = HeaderValue::try_from(format!("./{name}/{query}")).map_err(|_| ABSENT)?;
    Ok(Outcome::Slash(location))
}

/// The redirect from a directory to its only served file.
fn leads_to(only: &str) -> Result<Outcome, Refusal> {
    let location = format!("./{}", utf8_percent_encode(only, PATH));
    Ok(Outcome::Slash(HeaderValue::try_from(location).map_err(|_| ABSENT)?))
}

/// The request fields that `ServeDir` needs. True: `If-Match` was added because the range applies
/// to one version of the file only. For another version the whole file is requested.
fn conditions(method: &Method, fields: &HeaderMap) -> (HeaderMap, bool) {
    let mut conditions = HeaderMap::new();
    for field in FIELDS {
        let mut values = fields.get_all(&field).into_iter();
        if let (Some(value), None) = (values.next(), values.next()) {
            conditions.insert(field, value.clone());
        }
    }
    // A range applies only to GET (RFC 9110 section 14.2).
    let has_range = *method == Method::GET
        && conditions.get(header::RANGE).is_some_and(|range| is_range(range.as_bytes()));
    let version = conditions.remove(header::IF_RANGE);
    let Some(version) = version.filter(|_| has_range) else {
        if !has_range {
            conditions.remove(header::RANGE);
        }
        return (conditions, false);
    };
    // A date is not a reliable validator, and a weak tag is not allowed (RFC 9110 section 13.1.5).
    // The whole file is always correct.
    let is_strong = version.as_bytes().starts_with(b"\"");
    if !is_strong || conditions.contains_key(header::IF_MATCH) {
        conditions.remove(header::RANGE);
        return (conditions, false);
    }
    conditions.insert(header::IF_MATCH, version);
    (conditions, true)
}

/// Whether the value is a single well-formed byte range. Every other range is ignored, as RFC 9110
/// section 14.2 permits: many small ranges would cost more than the file.
fn is_range(value: &[u8]) -> bool {
    let Some((unit, range)) = value.split_at_checked("bytes=".len()) else { return false };
    let mut ends = range.splitn(2, |byte| *byte == b'-');
    let (first, last) = (ends.next().unwrap_or_default(), ends.next());
    unit == b"bytes="
        && last.is_some_and(|last| {
            !(first.is_empty() && last.is_empty())
                && first.iter().chain(last).all(u8::is_ascii_digit)
        })
}

/// Completes a response of `ServeDir`. A response without a file becomes a page.
fn finished(
    mut response: Response<ServeFileSystemResponseBody>,
    is_utf8: bool,
) -> Result<Response<ServeFileSystemResponseBody>, Refusal> {
    match response.status() {
        StatusCode::NOT_FOUND => return Err(ABSENT),
        StatusCode::PRECONDITION_FAILED => {
            return Err(Refusal::new(412, "The file is another version than the request wants."));
        }
        _ => {}
    }
    let fields = response.headers_mut();
    fields.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    let kind = fields.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    // `text/html; charset=utf-8` for a page in another encoding would garble it.
    let of_text = |kind: &&str| is_utf8 && kind.starts_with("text/") && !kind.contains(';');
    if let Some(kind) = kind.filter(of_text)
        && let Ok(kind) = HeaderValue::try_from(format!("{kind}; charset=utf-8"))
    {
        fields.insert(header::CONTENT_TYPE, kind);
    }
    Ok(response)
}

/// The page of a listing.
fn listing(page: String, held: Hold, is_head: bool, answer: Answer) -> Response<FileBody> {
    let page = Bytes::from(page);
    let length = HeaderValue::from(page.len());
    let body = if is_head { Bytes::new() } else { page };
    let mut response = Response::new(FileBody::page(body, Some(held), answer));
    let fields = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, page::CONTENT_TYPE),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, list::POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        fields.insert(name, HeaderValue::from_static(value));
    }
    fields.insert(header::CONTENT_LENGTH, length);
    response
}

/// A response generated by the server itself.
fn page(refusal: Refusal, is_head: bool, answer: Answer) -> Response<FileBody> {
    let Refusal { status, reason } = refusal;
    let page = Bytes::from(page::body(status, &reason, &Pages::default()));
    let length = HeaderValue::from(page.len());
    let body = if is_head { Bytes::new() } else { page };
    let mut response = Response::new(FileBody::page(body, None, answer));
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(page::CONTENT_TYPE));
    fields.insert(header::CONTENT_LENGTH, length);
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if status == 405 {
        fields.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    if matches!(status, 400 | 408 | 414 | 431 | 501 | 505) {
        fields.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_workers_share_the_files_of_a_directory() {
        const fn is_shared<T: Clone + Send + Sync>() {}
        is_shared::<Files>();
    }

    #[test]
    fn a_range_of_a_version_becomes_a_condition_and_an_uncertain_one_the_whole_file() {
        let of = |method: Method, list: &[(HeaderName, &'static str)]| {
            let fields =
                list.iter().map(|(name, text)| (name.clone(), HeaderValue::from_static(text)));
            let (kept, resumes) = conditions(&method, &fields.collect());
            (kept.contains_key(header::RANGE), kept.contains_key(header::IF_MATCH), resumes)
        };
        let range = (header::RANGE, "bytes=1-");
        let tag = (header::IF_RANGE, "\"a\"");
        let table = [
            (vec![range.clone()], (true, false, false)),
            (vec![range.clone(), tag.clone()], (true, true, true)),
            (vec![tag.clone()], (false, false, false)),
            (vec![range.clone(), (header::IF_RANGE, "W/\"a\"")], (false, false, false)),
            (vec![range.clone(), tag.clone(), (header::IF_MATCH, "*")], (false, true, false)),
            (vec![(header::RANGE, "bytes=1-2,3-4")], (false, false, false)),
        ];
        for (fields, expected) in table {
            assert_eq!(of(Method::GET, &fields), expected, "{fields:?}");
        }
        assert_eq!(of(Method::HEAD, &[range, tag]), (false, false, false));
    }
}
