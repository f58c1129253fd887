//! `tunnel connect`: the connection of a command to the control socket becomes the byte stream to a
//! target on the server's side.

pub use config::Target;

use crate::WrongConfig;

/// The line that tells the command that the target is connected. The bytes of the target follow it.
/// It is the answer `ok` of the control socket, in JSON.
pub const CONNECTED: &[u8] = b"\"ok\"\n";

/// Reads the target of the command: `host:port`, `tcp://host:port` or `unix:///path`. An IPv6
/// address may lack brackets (`::1:22`), as ssh writes `%h:%p`.
///
/// # Errors
/// The text is not such a target.
pub fn target(text: &str) -> Result<Target, WrongConfig> {
    config::connect_target(text).map_err(|bad| WrongConfig::one(bad.line()))
}
