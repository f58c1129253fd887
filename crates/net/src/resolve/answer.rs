//! The result of a lookup in a form that can be cloned for each caller.

use std::io;
use std::net::IpAddr;

use super::services::ServiceRecords;

pub(super) type Answer = Result<Vec<IpAddr>, Failure>;

pub(super) type ServiceAnswer = Result<ServiceRecords, Failure>;

/// An error of the resolver.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    errno: Option<i32>,
    kind: io::ErrorKind,
    text: String,
}

impl Failure {
    pub(super) fn new(error: &io::Error) -> Self {
        Self { errno: error.raw_os_error(), kind: error.kind(), text: error.to_string() }
    }

    /// Rebuilds the error with its error number, on which callers decide.
    pub(super) fn again(self) -> io::Error {
        match self.errno {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::new(self.kind, self.text),
        }
    }
}
