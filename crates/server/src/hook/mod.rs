//! `auth.http`: an external HTTP service is queried about clients that the configuration does not
//! name. Only a clear positive answer admits a client. A connected client stays connected while the
//! service does not answer.

mod asking;
mod http;

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use arc_swap::ArcSwapOption;
use bytes::Bytes;
use config::{ClientGrant, ServerConfig, Sources, Text};
use http_body_util::Full;
use hyper::http::{HeaderName, HeaderValue, Request, header};
use logging::RepeatLimit;
use net::source::prefix;
use tokio::sync::{Notify, Semaphore};

pub(super) use asking::keep_asking;
use families::Way;

/// The maximum number of concurrent queries, over all clients.
const AT_A_TIME: usize = 16;

/// The maximum number of concurrent queries for one source address, so that a source that invents
/// names leaves room for others.
const OF_A_SOURCE: usize = 4;

/// The longest validity of a negative answer, so that a client that was just added to the service
/// does not wait long.
const NO: Duration = Duration::from_secs(10);

/// The maximum length of an answer, in bytes. An answer is the entry of one client.
const ANSWER_MAX: usize = 64 << 10;

/// The source of a client whose address is unknown.
const UNKNOWN: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The queried service, if one is configured. A server has one hook.
#[derive(Debug)]
pub(super) struct Hook {
    asked: ArcSwapOption<HookSettings>,
    changed: Notify,
    room: Arc<Semaphore>,
    /// The number of pending queries by source.
    sources: Arc<Mutex<HashMap<IpAddr, usize>>>,
    complaints: Mutex<RepeatLimit<()>>,
}

/// The address of the service, and the parts of a query.
pub(super) struct HookSettings {
    url: String,
    way: Way,
    place: String,
    fields: Vec<(HeaderName, HeaderValue)>,
    timeout: Duration,
    cache: Duration,
    public_bind: IpAddr,
}

impl fmt::Debug for HookSettings {
    /// Shows the URL only, because header fields may be credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HookSettings({})", self.url)
    }
}

impl HookSettings {
    /// Reads the settings and the certificates that they name; `None` without `auth.http`.
    pub(super) fn new(config: &ServerConfig) -> anyhow::Result<Option<Arc<Self>>> {
        let Some(auth) = &config.auth else { return Ok(None) };
        let way = Way::of_http(&auth.path).context("auth.http")?;
        Ok(Some(Arc::new(Self {
            url: auth.url(),
            way,
            place: auth.path.endpoint.path.clone().unwrap_or_else(|| "/".to_owned()),
            fields: families::http::fields(&auth.path).context("auth.http.headers")?,
            timeout: auth.timeout.duration(),
            cache: auth.cache.duration(),
            public_bind: config.public_bind,
        })))
    }

    /// Queries the service about a client. Returns its entry; `None`: there is no such client.
    async fn ask(&self, name: &str) -> anyhow::Result<Option<ClientGrant>> {
        let question = serde_json::to_vec(&serde_json::json!({ "name": name }))?;
        let mut request = Request::post(self.place.as_str())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .header(header::CONNECTION, "close");
        for (name, value) in &self.fields {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::from(question)))?;
        let answer = async {
            let carrier = link::dial(&self.way.path()).await?;
            families::http::ask(carrier.lane, request, ANSWER_MAX).await
        };
        let late = || format!("no answer within {:?}", self.timeout);
        let answer = tokio::time::timeout(self.timeout, answer).await.with_context(late)??;
        http::entry(name, answer.status(), answer.body())?.map(|text| self.grant(&text)).transpose()
    }

    /// Parses an entry by the rules of the configuration. The entry must not refer to files or
    /// environment variables of this machine.
    fn grant(&self, text: &str) -> anyhow::Result<ClientGrant> {
        let sources = Sources {
            env: &|_| None,
            read: &|_: &Path| Err("a file is not for others to name".to_owned()),
        };
        let text = Text { name: "its answer", text };
        match config::load_grant(text, self.public_bind, config::GUEST_PORTS, &sources) {
            Ok(loaded) => Ok(loaded.config),
            Err(problems) => {
                let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
                anyhow::bail!("{}", problems.join("; "))
            }
        }
    }
}

impl Hook {
    pub(super) fn new(asked: Option<Arc<HookSettings>>) -> Self {
        Self {
            asked: ArcSwapOption::new(asked),
            changed: Notify::new(),
            room: Arc::new(Semaphore::new(AT_A_TIME)),
            sources: Arc::default(),
            complaints: Mutex::new(RepeatLimit::new()),
        }
    }

    /// Replaces the service and returns the previous one. Connected clients are checked at once.
    pub(super) fn replace(&self, asked: Option<Arc<HookSettings>>) -> Option<Arc<HookSettings>> {
        let before = self.asked.swap(asked);
        self.changed.notify_one();
        before
    }

    /// Reserves one of the concurrent queries of a source; dropping the result releases it. `None`
    /// when the source has [`OF_A_SOURCE`] pending queries.
    fn of_source(&self, source: IpAddr) -> Option<OfSource> {
        let source = prefix(source);
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let count = sources.entry(source).or_default();
        if *count >= OF_A_SOURCE {
            return None;
        }
        *count += 1;
        Some(OfSource { source, sources: Arc::clone(&self.sources) })
    }

    /// Whether a service is configured.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.load().is_some()
    }

    /// Waits until connected clients are due for another check.
    async fn due(&self) {
        let cache = self.asked.load().as_ref().map(|asked| asked.cache);
        let pause = async {
            match cache {
                Some(cache) => tokio::time::sleep(cache).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! { () = pause => {}, () = self.changed.notified() => {} }
    }

    fn complain(&self, url: &str, name: &str, why: &anyhow::Error) {
        let complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(more) = complaints.pass((), Instant::now()) {
            tracing::warn!(
                client = name,
                more,
                "auth.http: {url} did not decide about client `{name}`: {why:#}"
            );
        }
    }
}

#[derive(Debug)]
struct OfSource {
    source: IpAddr,
    sources: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

impl Drop for OfSource {
    fn drop(&mut self) {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = sources.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                sources.remove(&self.source);
            }
        }
    }
}
