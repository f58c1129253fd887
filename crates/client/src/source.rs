//! The source from which a client reloads its configuration.

use config::ClientConfig;
use ops::{Loaded, WrongConfig};

/// Reads the configuration again: from its source, or from the given text.
pub type ConfigSource =
    Box<dyn Fn(Option<String>) -> Result<Loaded<ClientConfig>, WrongConfig> + Send + Sync>;
