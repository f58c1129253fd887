//! `tunnel demo`: server, client and a small web origin in one process on free loopback ports.

mod body;
pub(crate) mod fetch;
pub(crate) mod origin;

use std::net::SocketAddr;

use crate::status::bytes;
use crate::term;

/// What `--once` downloads: long enough to leave slow start behind, short enough for a slow build.
const DOWNLOAD: u64 = 256 << 20;

/// Tells what runs and what to try.
pub(crate) fn introduce(public: SocketAddr, origin: SocketAddr, server: &str) {
    term::out(format_args!(
        "\
A server, a client and a web origin are running in this process.

  visitor --> http://{public}/  (public port of the server)
                 |
              {server}  (encrypted link)
                 |
              http://{origin}/  (origin, reached by the client only)

Open http://{public}/ in a browser, or try:

  curl http://{public}/
  curl -o /dev/null http://{public}/bytes/1000000000

Ctrl-C ends it. On two machines: `tunnel server` there, and the line that it prints here."
    ));
}

/// Fetches through the tunnel, prints the answer and a throughput figure.
pub(crate) async fn fetch_once(public: SocketAddr) -> anyhow::Result<()> {
    let page = fetch::page(public, "/").await?;
    anyhow::ensure!(page.status.contains(" 200 "), "{}", page.status);
    let title = page.text.lines().find(|line| line.starts_with("<h1>")).unwrap_or_default();
    let title = title.trim_start_matches("<h1>").trim_end_matches("</h1>");
    term::out(format_args!("http://{public}/ -> {}: \"{title}\"", page.status));
    let figure = fetch::download(public, DOWNLOAD).await?;
    term::out(format_args!(
        "{} in {:.2} s through the tunnel, every byte compared: {:.2} Gbit/s",
        bytes(figure.bytes),
        figure.elapsed.as_secs_f64(),
        figure.gigabits(),
    ));
    Ok(())
}
