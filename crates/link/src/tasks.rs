//! The handles of a carrier's tasks.

use std::fmt;

use proto::CarrierNumber;
use tokio::task::AbortHandle;
use transport::Peer;

/// The tasks of a carrier. Dropping the value ends the tasks and closes the connection.
pub(crate) struct CarrierTasks {
    pub(crate) number: CarrierNumber,
    pub(crate) peer: Peer,
    /// Whether its lane takes payload as pages.
    pub(crate) takes_pages: bool,
    pub(crate) reading: AbortHandle,
    /// Accepts the lanes that the peer opens, if the transport has lanes.
    pub(crate) accepting: Option<AbortHandle>,
    /// Receives datagrams, if the transport has datagrams.
    pub(crate) receiving: Option<AbortHandle>,
    /// `None` after the writer was detached to send the last frame.
    pub(crate) writing: Option<AbortHandle>,
}

impl fmt::Debug for CarrierTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("number", &self.number).finish_non_exhaustive()
    }
}

impl CarrierTasks {
    /// Ends reading. The writer sends the remaining frames, GOAWAY last, and closes the connection.
    pub(crate) fn retire(mut self) {
        self.writing = None;
    }
}

impl Drop for CarrierTasks {
    fn drop(&mut self) {
        self.reading.abort();
        self.accepting.iter().chain(&self.receiving).for_each(AbortHandle::abort);
        if let Some(writing) = &self.writing {
            writing.abort();
        }
    }
}
