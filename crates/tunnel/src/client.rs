//! A client's wiring.

use std::sync::Arc;

use anyhow::bail;
use config::ClientConfig;

use crate::daemon::Role;
use crate::life::Life;

/// Starts workers, links and the listeners of forwards.
#[expect(clippy::unused_async, reason = "the wiring awaits")]
pub(crate) async fn start(_config: ClientConfig, _life: Life) -> anyhow::Result<Arc<dyn Role>> {
    bail!("clients are not wired yet")
}
