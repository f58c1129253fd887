//! The source from which a server reloads its configuration.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use config::ServerConfig;
use ops::{Loaded, WrongConfig};

use crate::enrolments::Enrolled;

/// Reads the configuration again: from the file, or from the given text.
type Load = Box<dyn Fn(Option<String>) -> Result<Loaded<ServerConfig>, WrongConfig> + Send + Sync>;

/// The source from which a server reads its configuration again.
pub struct ConfigSource {
    /// Reads the file and the flags.
    pub load: Load,
    /// The state directory. It has the certificate that the server made itself.
    pub state: PathBuf,
    /// The store of the clients that were enrolled by a code.
    pub enrolled: Arc<dyn Enrolled>,
}

impl fmt::Debug for ConfigSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigSource").field("state", &self.state).finish_non_exhaustive()
    }
}
