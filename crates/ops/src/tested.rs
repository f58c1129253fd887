//! The result of a test of a service: its targets are dialled from where they are dialled for
//! visitors, and each step is told with its time.

use serde::{Deserialize, Serialize};

use crate::SendFuture;

/// The outcome of a test of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tested {
    pub service: String,
    /// On a server, the client whose service it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Every target serves.
    pub ok: bool,
    /// On a server, one round trip over the link to the client, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_micros: Option<u64>,
    /// The targets, at most [`TARGETS`].
    pub targets: Vec<TestedTarget>,
}

/// Most targets of a service that are tested.
pub const TARGETS: usize = 16;

/// One target of a service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TestedTarget {
    pub target: String,
    /// The target serves, as far as the steps tell.
    pub ok: bool,
    /// The steps that have succeeded, in their order.
    pub steps: Vec<Step>,
    /// Why the next step has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A step of a test.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Step {
    /// What was done: `resolve`, `connect`, `tls`, `first_byte` (of the answer to a request over
    /// HTTP), `open` (of a folder), `inside` (the client itself is the target, and nothing is
    /// dialled), `unheard` (UDP: nothing was sent, because no answer would be expected). Words may
    /// be added.
    pub step: String,
    /// How long it took, in microseconds.
    pub micros: u64,
    /// What was found: an address, a status of HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
}

/// Tests of services.
pub trait Tester: Send + Sync {
    /// Tests a service, on a server that of this client. The caller sets no deadline: each test
    /// ends after some seconds.
    ///
    /// # Errors
    /// There is no such service, several clients have one of this name and none was named, too many
    /// tests are under way, or the client does not answer.
    fn test(
        &self,
        service: String,
        client: Option<String>,
    ) -> SendFuture<'_, anyhow::Result<Tested>>;
}
