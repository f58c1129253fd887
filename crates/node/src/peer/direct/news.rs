//! Notices that this machine has other addresses: another network, or a network again.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

/// The period of the looks at the addresses of this machine. A look costs 10 µs with few interfaces.
const LOOK: Duration = Duration::from_secs(5);

/// Ready when the addresses of this machine are others than at the begin.
pub(super) async fn other_addresses() {
    let before = addresses();
    loop {
        sleep(LOOK).await;
        let now = addresses();
        if now.is_some() && now != before {
            return;
        }
    }
}

/// `None`: the system does not say.
fn addresses() -> Option<Arc<[IpAddr]>> {
    net::own::addresses().ok()
}
