//! Connections of the admin API: so many at a time, none for long.

use std::net::TcpListener as StdListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use logging::RepeatLimit;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

/// A few scrapers and a page with its requests.
const CONNECTIONS: usize = 32;

/// How long the head of a request may take.
const HEAD: Duration = Duration::from_secs(10);

/// How long a connection may last: a scraper makes another one then.
const WHOLE: Duration = Duration::from_secs(600);

/// Bytes of a head.
const HEAD_MAX: usize = 16 << 10;

/// Wait after an error of the listener: out of descriptors, mostly.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// Answers until dropped.
pub(super) async fn serve(listener: StdListener, app: Router) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "admin API"),
    };
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let complaints = RepeatLimit::new();
    loop {
        // Never closed, so always `Ok`.
        let place = Arc::clone(&places).acquire_owned().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let service = TowerToHyperService::new(app.clone());
                tokio::spawn(async move {
                    let _place = place;
                    let mut http = http1::Builder::new();
                    http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(HEAD_MAX);
                    let serving = http.serve_connection(TokioIo::new(stream), service);
                    // The other end knows its own trouble.
                    drop(timeout(WHOLE, serving).await);
                });
            }
            Err(error) => {
                if complaints.pass((), Instant::now()).is_some() {
                    tracing::warn!(%error, "admin API");
                }
                sleep(EXHAUSTED).await;
            }
        }
    }
}
