//! The hostile client of `testkit`, before the server of a stage.

use std::rc::Rc;

pub(crate) use testkit::peer::{Peer, frame, open, open_frame};
use testkit::stage::Running;
use tls::Trust;
use transport::Dialer;

/// How to connect to the server of a stage.
pub(crate) fn dialer(running: &Running) -> Rc<dyn Dialer> {
    let file = std::fs::read_to_string(running.file("client.yaml")).unwrap();
    // Last the one that a service's target may have as well.
    let schemes = ["tls", "quic", "kcp", "wss", "ws", "tcp"];
    let has = |scheme: &&str| file.contains(&format!("\"{scheme}://"));
    let scheme = schemes.into_iter().find(has).unwrap();
    let path = if scheme.starts_with("ws") { "/tunnel" } else { "" };
    let pin = file.split("pin: \"").nth(1).and_then(|rest| rest.split('"').next());
    let trust = pin.map(|pin| Trust::Pins(vec![pin.parse().unwrap()]));
    let address = ([127, 0, 0, 1], running.server_port()).into();
    benches::server::dialer(scheme, address, path, trust).unwrap()
}

/// Logs in to the server of a stage.
pub(crate) async fn log_in(running: &Running, name: &str, token: &str) -> Peer {
    let server = ([127, 0, 0, 1], running.server_port()).into();
    Peer::log_in(&*dialer(running), server, name, token).await
}
