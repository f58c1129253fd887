//! Which address is dialled for the visitors of a target.

use config::Over;
use relay::TargetAddr;

/// The address of a target that is dialled for visitors of this protocol. `None`: the target is not
/// an address, or is not reached over the protocol.
pub(super) fn address(target: &config::Target, over: Over) -> Option<TargetAddr> {
    match (target, over) {
        (config::Target::Unix(address), Over::Tcp) => Some(TargetAddr::Unix(address.clone())),
        (config::Target::Unix(_), Over::Udp) => None,
        _ => {
            let (host, port) = target.port()?;
            let host = host.bare();
            Some(match over {
                Over::Tcp => TargetAddr::Tcp { host, port },
                Over::Udp => TargetAddr::Udp { host, port },
            })
        }
    }
}
