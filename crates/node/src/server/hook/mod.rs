//! `auth.http`: somebody else knows which clients there are, and is asked about those that stand
//! nowhere here. What is not a clear yes lets nobody in; who is connected stays while nothing can
//! be heard.

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
use config::{ClientGrant, HttpAuth, ServerConfig, Sources, Text};
use http_body_util::Full;
use hyper::http::{HeaderName, HeaderValue, Request, header};
use logging::RepeatLimit;
use proto::greeting::Refusal;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use super::registry::Registry;
use crate::session::Handle;
use crate::transports::Way;

/// Questions at a time, however many clients come.
const AT_A_TIME: usize = 16;

/// Of these, for one source: whoever invents names leaves room for others.
const OF_A_SOURCE: usize = 4;

/// A no counts for so long at most: who was just made a client there shall not wait for long.
const NO: Duration = Duration::from_secs(10);

/// Whoever's address is not known.
const UNKNOWN: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Whom to ask, if anybody. One per server.
#[derive(Debug)]
pub(super) struct Hook {
    asked: ArcSwapOption<HookSettings>,
    changed: Notify,
    room: Arc<Semaphore>,
    /// Questions at the moment, by whom they are about to let in.
    sources: Arc<Mutex<HashMap<IpAddr, usize>>>,
    complaints: Mutex<RepeatLimit<()>>,
}

/// Who is asked, and how.
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
    /// Fields may be credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HookSettings({})", self.url)
    }
}

impl HookSettings {
    /// Reads the certificates that it names.
    pub(super) fn new(config: &ServerConfig) -> anyhow::Result<Option<Arc<Self>>> {
        let Some(auth) = &config.auth else { return Ok(None) };
        let way = Way::of_http(&auth.path).context("auth.http")?;
        Ok(Some(Arc::new(Self {
            url: auth.url(),
            way,
            place: auth.path.endpoint.path.clone().unwrap_or_else(|| "/".to_owned()),
            fields: fields(auth).context("auth.http.headers")?,
            timeout: auth.timeout.duration(),
            cache: auth.cache.duration(),
            public_bind: config.public_bind,
        })))
    }

    /// What there is of a client: its entry, or `None` where it is none.
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
            http::ask(carrier.lane, request).await
        };
        let late = || format!("no answer within {:?}", self.timeout);
        let (status, body) =
            tokio::time::timeout(self.timeout, answer).await.with_context(late)??;
        http::entry(name, status, &body)?.map(|text| self.grant(&text)).transpose()
    }

    /// An entry under the rules of the configuration; but it names nothing of this machine.
    fn grant(&self, text: &str) -> anyhow::Result<ClientGrant> {
        let sources = Sources {
            env: &|_| None,
            read: &|_: &Path| Err("a file is not for others to name".to_owned()),
        };
        let text = Text { name: "its answer", text };
        match config::load_grant(text, self.public_bind, &sources) {
            Ok(loaded) => Ok(loaded.config),
            Err(problems) => {
                let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
                anyhow::bail!("{}", problems.join("; "))
            }
        }
    }
}

/// `Host`, and what the configuration adds or puts in its place.
fn fields(auth: &HttpAuth) -> anyhow::Result<Vec<(HeaderName, HeaderValue)>> {
    let own = crate::transports::request(&auth.path)?;
    let mut fields = Vec::new();
    for (name, value) in own.fields() {
        let mut value = HeaderValue::from_str(value).with_context(|| name.clone())?;
        value.set_sensitive(true);
        fields.push((HeaderName::from_bytes(name.as_bytes())?, value));
    }
    Ok(fields)
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

    /// Somebody else is asked from now on, about those who are connected at once. Returns who was
    /// before.
    pub(super) fn replace(&self, asked: Option<Arc<HookSettings>>) -> Option<Arc<HookSettings>> {
        let before = self.asked.swap(asked);
        self.changed.notify_one();
        before
    }

    /// A place among the questions of a source; given back when it is dropped.
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

    /// Whether anybody is asked.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.load().is_some()
    }

    /// Ready when those who are connected are to be asked about again.
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
            tracing::warn!(client = name, more, "auth.http: {url}: {why:#}");
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

/// What one customer of a provider has at least: of IPv6 a network of 64 bits.
fn prefix(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V4(ip) => IpAddr::V4(ip),
        IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) >> 64 << 64).into()),
    }
}

impl Registry {
    /// Sees to it that it is known whether there is a client of this name, which somebody from
    /// `source` says he is.
    ///
    /// # Errors
    /// Nothing clear was heard, or this source asks too much.
    pub(super) async fn ask_about(
        self: &Arc<Self>,
        name: &str,
        source: Option<IpAddr>,
    ) -> Result<(), Refusal> {
        let clients = &self.shared().clients;
        if clients.are_told_of(name) || !self.shared().hook.is_asked() {
            return Ok(());
        }
        let is_known = || {
            clients.is_answered(name, Instant::now())
                // Of who is connected somebody sees to it.
                || clients.is_asked(name) && self.is_connected(name)
        };
        if is_known() {
            return Ok(());
        }
        let hook = &self.shared().hook;
        let Some(place) = hook.of_source(source.unwrap_or(UNKNOWN)) else {
            return Err(Refusal::Unavailable);
        };
        let Ok(room) = Arc::clone(&hook.room).acquire_owned().await else {
            return Err(Refusal::Unavailable);
        };
        if is_known() {
            return Ok(());
        }
        let (registry, own) = (Arc::clone(self), name.to_owned());
        // In a task of its own: a greeting may be cut off at any moment, and what was heard is not
        // to be applied by half.
        let work = async move {
            let _held = (place, room);
            registry.ask_again(&own).await
        };
        match tokio::task::spawn_local(work).await {
            Ok(Ok(())) => Ok(()),
            // Who is in without being known there stays while nothing can be heard.
            _ if clients.is_stranger(name) && self.is_connected(name) => Ok(()),
            Ok(Err(())) | Err(_) => Err(Refusal::Unavailable),
        }
    }

    /// Asks, and lets the answer count. The error was told.
    async fn ask_again(&self, name: &str) -> Result<(), ()> {
        let (clients, hook) = (&self.shared().clients, &self.shared().hook);
        let generation = clients.generation();
        let Some(asked) = hook.asked.load_full() else { return Ok(()) };
        let learnt = asked.ask(name).await.and_then(|answer| {
            let counts = if answer.is_some() { asked.cache } else { asked.cache.min(NO) };
            let counts = (Instant::now() + counts, generation);
            clients.learn(name, answer.as_ref(), counts, |name| self.is_connected(name))
        });
        match learnt {
            Ok(changes) => {
                for line in changes.lines() {
                    tracing::info!(target: logging::AUDIT, "auth.http: {line}");
                }
                self.follow(&changes).await;
                Ok(())
            }
            Err(why) => {
                hook.complain(&asked.url, name, &why);
                Err(())
            }
        }
    }
}

/// Asks about those who are connected, again and again, on one of the workers.
pub(super) async fn keep_asking(registry: Arc<Registry>, worker: &Handle) -> anyhow::Result<()> {
    let work = async move {
        loop {
            registry.shared().hook.due().await;
            let names = registry.shared().clients.asked_names();
            let mut questions = JoinSet::new();
            for name in names {
                if !registry.is_connected(&name) {
                    registry.shared().clients.forget_answer(&name, Instant::now());
                    continue;
                }
                if questions.len() >= AT_A_TIME {
                    questions.join_next().await;
                }
                let registry = Arc::clone(&registry);
                questions.spawn_local(async move { registry.ask_again(&name).await });
            }
            while questions.join_next().await.is_some() {}
        }
    };
    worker.run(move |_| drop(tokio::task::spawn_local(work))).await.context("a worker is gone")
}
