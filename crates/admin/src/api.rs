//! The running admin API: a bound port and a thread that answers requests.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener as StdListener};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use config::Admin;
use ops::{ConsoleLink, Daemon, Life};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::guard::Guard;
use crate::routes::{self, Api};
use crate::serve;
use crate::sessions::{KEY_LASTS, Sessions};

/// The interval between attempts to listen at an address that this machine does not have.
const AGAIN: Duration = Duration::from_secs(15);

/// Access to the web console of a running API. Clones share their state.
#[derive(Clone, Debug)]
pub struct ConsoleAccess {
    url: String,
    sessions: Sessions,
}

impl ConsoleAccess {
    /// Makes a link to the console that is valid once. The key follows `#`, so browsers do not send
    /// it to a server (RFC 9110 section 7.1), and it appears in no log.
    ///
    /// # Errors
    /// The system provides no random bytes.
    pub fn link(&self) -> anyhow::Result<ConsoleLink> {
        self.link_for(KEY_LASTS)
    }

    /// As [`Self::link`], with a different lifetime.
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
    /// Whether the address was available at the start.
    is_bound: bool,
    console: ConsoleAccess,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// Keeps targets away from the port.
    _guard: net::guarded::Guard,
}

/// Listens at the address.
fn listen(at: SocketAddr) -> io::Result<StdListener> {
    let group = net::listen_group(at, 1)?;
    net::inherited::store(&group);
    group.into_iter().next().ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Waits until this machine has the address, and listens there.
async fn come(at: SocketAddr) -> StdListener {
    loop {
        sleep(AGAIN).await;
        match listen(at) {
            Ok(listener) => {
                tracing::info!("admin API on http://{at}");
                return listener;
            }
            Err(error) => tracing::debug!(%error, "the admin API waits for its address {at}"),
        }
    }
}

impl AdminApi {
    /// Binds the port and starts a thread that answers requests. Binding is retried while this
    /// machine does not have the address. `life` is the phase of the daemon, which a request can
    /// advance.
    ///
    /// # Errors
    /// The address is in use, the token is invalid, or there are no resources for the runtime or
    /// the thread.
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
        let listener = match listen(at) {
            // The address may arrive later, by a DHCP lease or by VRRP.
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                tracing::warn!(
                    "the admin API waits for its address: {at}: {error} (this machine does not have \
                     that address; it is tried again every {} s)",
                    AGAIN.as_secs()
                );
                None
            }
            outcome => Some(outcome.with_context(|| format!("admin API on {at}"))?),
        };
        let is_bound = listener.is_some();
        let address = listener.as_ref().map_or(Ok(at), StdListener::local_addr)?;
        let url = format!("http://{address}");
        // A target that leads here would let visitors in.
        let guard_of_port = net::guarded::Guard::port(address);
        let mut api = Api::new(daemon, life);
        // A different port at each start would be a different origin for a browser, which has no
        // session there.
        if let Some(folder) = state.filter(|_| at.port() != 0) {
            let seal = Guard::seal(settings)?;
            api.sessions = Sessions::kept_in(folder, &at.to_string(), seal);
        }
        let guard = Guard::new(settings, api.sessions.clone())?;
        let console = ConsoleAccess {
            url: format!("http://{}", from_here(address)),
            sessions: api.sessions.clone(),
        };
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let serve = move || {
            let following = api.live.clone().follow(Arc::clone(&api.daemon));
            let app = routes::app(api, guard);
            runtime.block_on(async {
                let serving = async {
                    let listener = match listener {
                        Some(listener) => listener,
                        None => come(at).await,
                    };
                    serve::serve(listener, app).await;
                };
                tokio::select! {
                    () = serving => {}
                    () = following => {}
                    // The sender never sends; its drop also completes this future.
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("tunnel-admin".into()).spawn(serve)?;
        let _guard = guard_of_port;
        Ok(Self { url, is_bound, console, stop: Some(stop), thread: Some(thread), _guard })
    }

    /// The URL of the API, `http://` and the bound address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Whether the API listens, that is, whether its address was available at the start.
    pub const fn is_bound(&self) -> bool {
        self.is_bound
    }

    /// Access to the web console.
    pub fn console(&self) -> ConsoleAccess {
        self.console.clone()
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
