//! The connections of the admin API, limited in number and duration.

use std::net::TcpListener as StdListener;
use std::time::{Duration, Instant};

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use logging::RepeatLimit;
use tokio::net::TcpListener;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use super::guard::Remote;
use super::places::{Places, Socket};

/// Time limit for the header of a request.
const HEAD: Duration = Duration::from_secs(10);

/// Longest lifetime of a connection. A scraper opens a new connection after that.
const WHOLE: Duration = Duration::from_secs(600);

/// Longest header of a request, in bytes.
const HEAD_MAX: usize = 16 << 10;

/// Pause after an error of the listener. The usual cause is a full descriptor table.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// Accepts and serves connections until the future is dropped.
pub(super) async fn serve(listener: StdListener, app: Router) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the admin API cannot start: {error}"),
    };
    net::handover::serving().await;
    let places = Places::default();
    let complaints = RepeatLimit::new();
    loop {
        match listener.accept().await {
            Ok((stream, remote)) => {
                let (place, closed) = places.take().await;
                let app = TowerToHyperService::new(app.clone());
                let socket = Socket::new(stream, place.handle().clone());
                let handle = place.handle().clone();
                // A listener of both families sees IPv4 clients as mapped addresses.
                let ip = remote.ip().to_canonical();
                let service = service_fn(move |mut request: Request<Incoming>| {
                    request.extensions_mut().insert(Remote(ip));
                    request.extensions_mut().insert(handle.clone());
                    app.call(request)
                });
                tokio::spawn(async move {
                    let _place = place;
                    let mut http = http1::Builder::new();
                    http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_buf_size(HEAD_MAX);
                    let serving =
                        http.serve_connection(TokioIo::new(socket), service).with_upgrades();
                    tokio::select! {
                        // The client notices an error of its connection itself.
                        _ = timeout(WHOLE, serving) => {}
                        _ = closed => {}
                    }
                });
                // Requests that have arrived are read before another connection may close their
                // connection.
                yield_now().await;
            }
            Err(error) => {
                if complaints.pass((), Instant::now()).is_some() {
                    tracing::warn!(%error, "the admin API cannot accept connections: {error}");
                }
                sleep(EXHAUSTED).await;
            }
        }
    }
}
