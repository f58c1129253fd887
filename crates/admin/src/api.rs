//! The admin API as a value: a bound port and a thread that answers.

use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Context;
use config::Admin;
use ops::Daemon;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use crate::guard::Guard;
use crate::{routes, serve};

/// A running API; it ends with the value.
#[derive(Debug)]
pub struct AdminApi {
    url: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl AdminApi {
    /// Binds, and answers on a thread of its own.
    pub fn start(settings: &Admin, source: Arc<dyn Daemon>) -> anyhow::Result<Self> {
        let at = settings.listen;
        let listener = TcpListener::bind(at).with_context(|| format!("admin API on {at}"))?;
        listener.set_nonblocking(true)?;
        let url = format!("http://{}", listener.local_addr()?);
        let guard = Guard::new(&settings.token)?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let serve = move || {
            let app = routes::app(source, guard);
            runtime.block_on(async {
                tokio::select! {
                    () = serve::serve(listener, app) => {}
                    // Also when the value was dropped.
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("tunnel-admin".into()).spawn(serve)?;
        Ok(Self { url, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it answers.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for AdminApi {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The port is free then. A panic was told by the hook of the log.
            drop(thread.join());
        }
    }
}
