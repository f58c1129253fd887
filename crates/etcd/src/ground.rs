//! What all calls to the members share: the settings, the way to open a connection, the token of
//! the user and the id of the cluster.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hyper::header::HeaderValue;

use crate::connection::Connect;
use crate::error::Reason;
use crate::settings::EtcdSettings;

/// What all calls share.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) settings: EtcdSettings,
    pub(crate) connect: Box<dyn Connect>,
    pass: Mutex<Pass>,
    /// 0: no member has answered yet.
    cluster: AtomicU64,
}

/// What a request needs to be let in.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Nobody has asked yet.
    Unknown,
    /// etcd has no authentication now.
    Off,
    /// A token. Its value is marked as sensitive.
    Token(HeaderValue),
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "Unknown",
            Self::Off => "Off",
            Self::Token(_) => "Token(…)",
        })
    }
}

impl Ground {
    /// Nobody has asked a member yet.
    pub(crate) const fn new(settings: EtcdSettings, connect: Box<dyn Connect>) -> Self {
        let pass = Mutex::new(Pass::Unknown);
        Self { settings, connect, pass, cluster: AtomicU64::new(0) }
    }

    /// The id of the cluster. 0: no member has answered yet.
    pub(crate) fn cluster(&self) -> u64 {
        self.cluster.load(Ordering::Relaxed)
    }

    /// What lets a request in now.
    pub(crate) fn pass(&self) -> Pass {
        self.pass.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces what lets a request in.
    pub(crate) fn set_pass(&self, pass: Pass) {
        *self.pass.lock().unwrap_or_else(PoisonError::into_inner) = pass;
    }

    /// Forgets what let a request in before, unless other calls have a newer pass by now.
    pub(crate) fn forget(&self, used: &Pass) {
        let mut pass = self.pass.lock().unwrap_or_else(PoisonError::into_inner);
        if *pass == *used {
            *pass = Pass::Unknown;
        }
    }

    /// Compares the cluster of an answer with that of the first answer. 0 is in no answer of etcd.
    pub(crate) fn check_cluster(&self, found: u64) -> Result<(), Reason> {
        if found == 0 {
            return Ok(());
        }
        match self.cluster.compare_exchange(0, found, Ordering::Relaxed, Ordering::Relaxed) {
            Err(expected) if expected != found => Err(Reason::OtherCluster { expected, found }),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// The most time for one request at one member.
    pub(crate) const fn deadline(&self) -> Duration {
        self.settings.deadline
    }

    /// The address of a member.
    pub(crate) fn address(&self, member: usize) -> &str {
        self.settings.members.get(member).map_or("?", String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_token_is_in_debug_output() {
        let text = format!("{:?}", Pass::Token(HeaderValue::from_static("hunter2")));
        assert!(!text.contains("hunter2"), "{text}");
    }
}
