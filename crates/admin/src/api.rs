//! The running admin API: a bound port and a thread that answers requests.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use config::Admin;
use ops::{ConsoleLink, Daemon, Life};
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use crate::guard::Guard;
use crate::routes::{self, Api};
use crate::serve;
use crate::sessions::{KEY_LASTS, Sessions};

/// The way of a person into the web console of a running API. Clones are one.
#[derive(Clone, Debug)]
pub struct Door {
    url: String,
    sessions: Sessions,
}

impl Door {
    /// Makes a link to the console that is good once. The key stands behind `#`, so a browser sends
    /// it to no server (RFC 9110 section 7.1), and no log has it.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn link(&self) -> anyhow::Result<ConsoleLink> {
        self.link_for(KEY_LASTS)
    }

    /// As [`Self::link`], within another time.
    ///
    /// # Errors
    /// As [`Self::link`].
    pub fn link_for(&self, lasts: Duration) -> anyhow::Result<ConsoleLink> {
        let url = format!("{}/#k={}", self.url, self.sessions.key_for(lasts)?);
        Ok(ConsoleLink { url, valid_seconds: lasts.as_secs() })
    }
}

/// A running API. It ends when this value is dropped.
#[derive(Debug)]
pub struct AdminApi {
    url: String,
    door: Door,
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
        Self::start_with(settings, daemon, life, None)
    }

    /// As [`Self::start`]; the sessions of the console outlive the process in this folder.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_with(
        settings: &Admin,
        daemon: Arc<dyn Daemon>,
        life: Life,
        state: Option<&Path>,
    ) -> anyhow::Result<Self> {
        let at = settings.listen;
        let group = net::listen_group(at, 1).with_context(|| format!("admin API on {at}"))?;
        net::inherited::store(&group);
        let listener = group.into_iter().next().context("no socket")?;
        let address = listener.local_addr()?;
        let url = format!("http://{address}");
        let mut api = Api::new(daemon, life);
        // Another port at each start is another place for a browser, which has no session there.
        if let Some(folder) = state.filter(|_| at.port() != 0) {
            let seal = Guard::seal(settings)?;
            api.sessions = Sessions::kept_in(folder, &at.to_string(), seal);
        }
        let guard = Guard::new(settings, api.sessions.clone())?;
        let door =
            Door { url: format!("http://{}", from_here(address)), sessions: api.sessions.clone() };
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let serve = move || {
            let following = api.live.clone().follow(Arc::clone(&api.daemon));
            let app = routes::app(api, guard);
            runtime.block_on(async {
                tokio::select! {
                    () = serve::serve(listener, app) => {}
                    () = following => {}
                    // The sender never sends; its drop also completes this future.
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("tunnel-admin".into()).spawn(serve)?;
        Ok(Self { url, door, stop: Some(stop), thread: Some(thread) })
    }

    /// The URL of the API, `http://` and the bound address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The way into the web console.
    pub fn door(&self) -> Door {
        self.door.clone()
    }
}

/// An address by which a program of this machine reaches a listener.
fn from_here(bound: SocketAddr) -> SocketAddr {
    let ip = match bound.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(ip, bound.port())
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
