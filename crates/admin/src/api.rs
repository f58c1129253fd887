//! The running admin API: a bound port and a thread that answers requests.

use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Context;
use config::Admin;
use ops::{Daemon, Life};
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use crate::guard::Guard;
use crate::routes::{self, Api};
use crate::serve;

/// A running API. It ends when this value is dropped.
#[derive(Debug)]
pub struct AdminApi {
    url: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl AdminApi {
    /// Binds the port and starts a thread that answers requests. `life` is the phase of the daemon,
    /// which a request can advance.
    ///
    /// # Errors
    /// The address is in use or not available, the token is not valid, or there are no resources
    /// for the runtime or the thread.
    pub fn start(settings: &Admin, daemon: Arc<dyn Daemon>, life: Life) -> anyhow::Result<Self> {
        let at = settings.listen;
        let group = net::listen_group(at, 1).with_context(|| format!("admin API on {at}"))?;
        let listener = group.into_iter().next().context("no socket")?;
        let url = format!("http://{}", listener.local_addr()?);
        let guard = Guard::new(settings)?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let serve = move || {
            let app = routes::app(Api::new(daemon, life), guard);
            runtime.block_on(async {
                tokio::select! {
                    () = serve::serve(listener, app) => {}
                    // The sender never sends; its drop also completes this future.
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("tunnel-admin".into()).spawn(serve)?;
        Ok(Self { url, stop: Some(stop), thread: Some(thread) })
    }

    /// The URL of the API, `http://` and the bound address.
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for AdminApi {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // After the thread has ended, the port is free. A panic was logged by the panic hook.
            drop(thread.join());
        }
    }
}
