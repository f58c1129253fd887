//! The result of a test of a service: its targets are dialled from the same place as for visitors,
//! and each step is reported with its duration.

use serde::{Deserialize, Serialize};

use crate::SendFuture;

/// The outcome of a test of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tested {
    pub service: String,
    /// On a server, the client that provides the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Whether every target is healthy.
    pub ok: bool,
    /// On a server, one round trip over the link to the client, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_micros: Option<u64>,
    /// The targets, at most [`TARGETS`].
    pub targets: Vec<TestedTarget>,
}

/// The largest number of targets of a service that are tested.
pub const TARGETS: usize = 16;

/// One target of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TestedTarget {
    pub target: String,
    /// Whether the target is healthy, as far as the steps show.
    pub ok: bool,
    /// The successful steps, in order.
    pub steps: Vec<Step>,
    /// The reason why the next step failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A step of a test.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Step {
    /// The action: `resolve`, `connect`, `tls`, `first_byte` (of the answer to a request over
    /// HTTP), `open` (of a folder), `inside` (the client itself is the target, and nothing is
    /// dialled), `unheard` (UDP: nothing was sent, because no reply could be expected). Further
    /// words may be added.
    pub step: String,
    /// The duration, in microseconds.
    pub micros: u64,
    /// The result: an address, an HTTP status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
}

/// Tests of services.
pub trait Tester: Send + Sync {
    /// Tests a service; on a server, a service of the given client. The caller sets no deadline:
    /// each test ends after some seconds.
    ///
    /// # Errors
    /// There is no such service, several clients have a service of this name and none was
    /// specified, too many tests are in progress, or the client does not respond.
    fn test(
        &self,
        service: String,
        client: Option<String>,
    ) -> SendFuture<'_, anyhow::Result<Tested>>;
}
