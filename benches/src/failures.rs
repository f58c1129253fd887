//! Failures, counted by kind, so that a report has causes and not only a number.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;

use serde::Serialize;

/// The kinds of failures, with their names in reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// No socket listens at the target.
    Refused,
    /// The connection was reset.
    Reset,
    /// The connection ended during an answer or in place of an answer.
    Closed,
    /// There was no answer within the time.
    Timeout,
    /// The answer was wrong.
    Wrong,
    /// There is no network or no route.
    Unreachable,
    /// There is no free local port.
    NoPort,
    /// This process has no free descriptor.
    NoDescriptor,
    /// Any other failure.
    Other,
}

impl Kind {
    /// The kind of a socket's error.
    #[must_use]
    pub fn of(error: &io::Error) -> Self {
        // std has no error kind for "too many open files".
        let errno = rustix::io::Errno::from_io_error(error);
        if errno == Some(rustix::io::Errno::MFILE) || errno == Some(rustix::io::Errno::NFILE) {
            return Self::NoDescriptor;
        }
        #[expect(clippy::wildcard_enum_match_arm, reason = "std may add kinds at any time")]
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::Refused,
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe => Self::Reset,
            io::ErrorKind::UnexpectedEof => Self::Closed,
            io::ErrorKind::TimedOut => Self::Timeout,
            io::ErrorKind::InvalidData => Self::Wrong,
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Self::Unreachable,
            io::ErrorKind::AddrNotAvailable | io::ErrorKind::AddrInUse => Self::NoPort,
            _ => Self::Other,
        }
    }
}

/// The number of failures of each kind. The tasks of a program share it.
#[derive(Debug, Default)]
pub struct Failures(RefCell<BTreeMap<Kind, u64>>);

impl Failures {
    /// Counts one failure of this kind.
    pub fn count(&self, kind: Kind) {
        self.add(kind, 1);
    }

    /// Counts `count` failures of this kind.
    pub fn add(&self, kind: Kind, count: usize) {
        if count > 0 {
            *self.0.borrow_mut().entry(kind).or_default() += count as u64;
        }
    }

    /// The number of all failures.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.borrow().values().sum()
    }

    /// The counts for the report.
    #[must_use]
    pub fn by_kind(&self) -> BTreeMap<Kind, u64> {
        self.0.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_apart_and_counted() {
        let failures = Failures::default();
        for error in [
            rustix::io::Errno::CONNREFUSED,
            rustix::io::Errno::CONNRESET,
            rustix::io::Errno::PIPE,
            rustix::io::Errno::MFILE,
            rustix::io::Errno::ADDRNOTAVAIL,
        ] {
            failures.count(Kind::of(&error.into()));
        }
        failures.count(Kind::of(&io::ErrorKind::UnexpectedEof.into()));
        assert_eq!(failures.total(), 6);
        assert_eq!(
            serde_json::to_string(&failures.by_kind()).unwrap(),
            r#"{"refused":1,"reset":2,"closed":1,"no_port":1,"no_descriptor":1}"#
        );
    }
}
