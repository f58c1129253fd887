//! The tasks of a carrier, as its link holds them.

use std::fmt;

use proto::CarrierNumber;
use tokio::task::AbortHandle;
use transport::Peer;

/// The tasks of a carrier; dropping it ends them and closes the connection.
pub(crate) struct CarrierTasks {
    pub(crate) number: CarrierNumber,
    pub(crate) peer: Peer,
    pub(crate) reading: AbortHandle,
    /// Takes the lanes that the peer opens, where there are some.
    pub(crate) accepting: Option<AbortHandle>,
    /// `None` once it was left to say farewell.
    pub(crate) writing: Option<AbortHandle>,
}

impl fmt::Debug for CarrierTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("number", &self.number).finish_non_exhaustive()
    }
}

impl CarrierTasks {
    /// Reads no more; the writer sends what is left, the farewell last, and closes.
    pub(crate) fn retire(mut self) {
        self.writing = None;
    }
}

impl Drop for CarrierTasks {
    fn drop(&mut self) {
        self.reading.abort();
        self.accepting.iter().for_each(AbortHandle::abort);
        if let Some(writing) = &self.writing {
            writing.abort();
        }
    }
}
