//! What the packets of a dial are like: `dscp`. A path to a server, a service and an entry of a
//! proxy have the keys.

use proto::Dscp;

use crate::key_table::KeyTable;
use crate::values;

/// What the packets of a dial are like.
#[derive(Clone, Debug, Default, PartialEq, Eq, KeyTable)]
pub struct DialOptions {
    /// The DSCP mark of packets to visitors and targets {of}.
    ///
    /// Packets of a path go to the server, or to the proxy on the way.
    #[key("number 0-63, or a name such as `EF`, `AF41`, `CS1`, `LE`", default = "0",
        note = "best effort", read = values::dscp, only(Service, Balancer))]
    #[row(dscp: "number 0-63, or a name such as `EF`, `AF41`, `CS1`, `LE`", default = "0",
        note = "best effort", only(Path),
        text = "The DSCP mark of packets to the server on this path.")]
    pub dscp: Dscp,
}

impl DialOptions {
    /// The settings for people: `, dscp EF`. Empty without one.
    pub(crate) fn extras(&self) -> String {
        if self.dscp.is_default() { String::new() } else { format!(", dscp {}", self.dscp) }
    }
}
