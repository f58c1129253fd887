//! A server's wiring.

use std::sync::Arc;

use anyhow::bail;
use config::ServerConfig;
use transport::tls::Identity;

use crate::daemon::Role;
use crate::life::Life;

/// Starts listeners and workers. `identity` is there when one of the listeners speaks TLS.
#[expect(clippy::unused_async, reason = "the wiring awaits")]
pub(crate) async fn start(
    _config: ServerConfig,
    _identity: Option<Identity>,
    _life: Life,
) -> anyhow::Result<Arc<dyn Role>> {
    bail!("servers are not wired yet")
}
