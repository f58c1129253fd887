//! `tunnel demo`: server, client and a small web origin in one process on free loopback ports.

mod assemble;
mod body;
mod fetch;
mod origin;

use std::future::pending;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::{fmt, io, thread};

use anyhow::Context as _;
use ops::enrol::GOOD_FOR;
use ops::status::bytes;
use ops::term::{self, Unwritten};
use ops::{Life, Phase, Serving};
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use crate::daemon;
use crate::runtime::slow_runtime;
use crate::signals::Signals;

pub(crate) use assemble::assemble;

/// Size of the download of `--once`, in bytes: long enough to leave slow start, and short enough
/// for a slow build.
const DOWNLOAD: u64 = 256 << 20;

/// The tunnel of the demo.
pub(crate) struct Assembly {
    /// The server's public port that leads to the origin.
    pub(crate) public: SocketAddr,
    /// The server's address as the client dials it, for the printed diagram:
    /// `tls://127.0.0.1:40000`.
    pub(crate) server: String,
    /// The link to the page by which a browser visits the origin as a private service. The link
    /// contains a code, which is secret.
    pub(crate) page: Option<String>,
    /// The running roles, in the order in which they must be closed: the client first.
    pub(crate) roles: Vec<Arc<dyn Serving>>,
}

impl fmt::Debug for Assembly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Assembly").field("public", &self.public).finish_non_exhaustive()
    }
}

/// Runs the demo. `assemble` makes a tunnel to the origin at the given address. With `once`, the
/// demo ends after one fetch, else at the first signal. Must run inside the slow runtime.
pub(crate) async fn demo(
    once: bool,
    assemble: impl AsyncFnOnce(SocketAddr) -> anyhow::Result<Assembly>,
) -> anyhow::Result<()> {
    let life = Life::new();
    let signals = Signals::catch()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    // The origin and the signal task end with this function. The origin has its own thread: with
    // the visitor on the same thread, these two would be the slowest part of the path.
    let (demo, end) = oneshot::channel();
    thread::Builder::new().name("demo-origin".to_owned()).spawn(move || serve(listener, end))?;
    let mut tasks = JoinSet::new();
    tasks.spawn(signals.steer(life.clone()));

    let assembly = assemble(address).await?;
    let shown = async {
        introduce(assembly.public, address, &assembly.server)?;
        if once {
            return fetch_once(assembly.public).await;
        }
        // The server, which comes last, sees both sides.
        let server = assembly.roles.last().context("the demo has no server")?;
        let api = daemon::console(Arc::clone(server), &life)?;
        let link = api.console().link_for(GOOD_FOR)?;
        recommend(assembly.public, assembly.page.as_deref(), &link.url)?;
        pending().await
    };
    let outcome = tokio::select! {
        outcome = shown => outcome,
        () = life.reached(Phase::Draining) => Ok(()),
    };
    for role in &assembly.roles {
        role.close().await;
    }
    drop(demo);
    outcome
}

/// Runs the origin until the demo ends.
fn serve(listener: TcpListener, end: oneshot::Receiver<()>) {
    let serve = || -> io::Result<()> {
        listener.set_nonblocking(true)?;
        slow_runtime()?.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            tokio::select! {
                () = origin::serve(listener) => {}
                _ = end => {}
            }
            Ok(())
        })
    };
    if let Err(error) = serve() {
        tracing::error!("the origin: {error}");
    }
}

fn introduce(public: SocketAddr, origin: SocketAddr, server: &str) -> Result<(), Unwritten> {
    term::out(format_args!(
        "\
A server, a client and a web origin are running in this process.

  visitor  -->  http://{public}/   the server's public port
                  {server}    the encrypted link
                http://{origin}/   the origin, which only the client asks
"
    ))
}

/// Prints suggestions while the demo runs.
fn recommend(public: SocketAddr, page: Option<&str>, console: &str) -> Result<(), Unwritten> {
    let minutes = GOOD_FOR.as_secs() / 60;
    let page = page.map_or_else(String::new, |page| {
        format!(
            "\
The origin is a private service as well, which has no port: a browser on this machine visits it
through the page of the server, by this link, once and within {minutes} minutes:

  {page}

"
        )
    });
    term::out(format_args!(
        "\
Open http://{public}/ in a browser, or try:

  curl http://{public}/
  curl -o /dev/null http://{public}/bytes/1000000000

{page}The web console of the server, by this link, once and within {minutes} minutes:

  {console}

Ctrl-C ends it. On two machines: `tunnel server` on one, and what it prints on the other.
"
    ))
}

async fn fetch_once(public: SocketAddr) -> anyhow::Result<()> {
    let page = fetch::page(public, "/").await?;
    anyhow::ensure!(page.status.contains(" 200 "), "{}", page.status);
    let title = page.text.lines().find(|line| line.starts_with("<h1>")).unwrap_or_default();
    let title = title.trim_start_matches("<h1>").trim_end_matches("</h1>");
    term::out(format_args!("fetched http://{public}/: {}, \"{title}\"", page.status))?;
    let figure = fetch::download(public, DOWNLOAD).await?;
    Ok(term::out(format_args!(
        "fetched {} in {:.2} s through the tunnel, every byte compared: {:.2} Gbit/s",
        bytes(figure.bytes),
        figure.elapsed.as_secs_f64(),
        figure.gigabits(),
    ))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn once_fetches_from_the_public_address_and_ends() {
        // There is no tunnel here: the assembly publishes the origin itself.
        let assemble = async |origin| {
            Ok(Assembly { public: origin, server: "none".into(), page: None, roles: Vec::new() })
        };
        demo(true, assemble).await.unwrap();
    }
}
