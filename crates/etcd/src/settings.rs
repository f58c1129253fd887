//! Who the members are, who logs in, and how large and how late an answer may be.

use std::fmt;
use std::time::Duration;

/// The members of etcd, and the bounds of each call.
#[derive(Clone, Debug)]
pub struct EtcdSettings {
    /// The address of each member, `HOST:PORT`: it is the field `Host` of each request and the name
    /// of the member in errors. [`Connect`](crate::Connect) gets the address and its index.
    pub members: Vec<String>,
    /// The user. `None`: no token is sent.
    pub log_in: Option<LogIn>,
    /// The most time for one request at one member, from the dial to the end of the answer. A call
    /// takes at most this time for each member, and once more for each log-in.
    pub deadline: Duration,
    /// The most bytes of an answer. An answer of a watch, which is a line, has at most twice this
    /// number of bytes.
    pub answer_bytes: usize,
}

impl EtcdSettings {
    /// Settings for these members, without a user. 1 s for each request: without a quorum etcd
    /// answers only after 7 s, and a stopped member never (measured with 3.4.23). 8 MiB
    /// for each answer: a request has at most 1.5 MiB (etcd, `--max-request-bytes`), which base64
    /// makes 2 MiB, and 1,000 records of a page have 0.2 MiB.
    #[must_use]
    pub const fn new(members: Vec<String>) -> Self {
        Self { members, log_in: None, deadline: Duration::from_secs(1), answer_bytes: 8 << 20 }
    }
}

/// A user of etcd, which is asked for a token.
#[derive(Clone)]
pub struct LogIn {
    /// The name.
    pub user: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for LogIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogIn").field("user", &self.user).finish_non_exhaustive()
    }
}

/// The settings name no member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("etcd has no member")]
pub struct NoMember;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_in_debug_output() {
        let log_in = LogIn { user: "u".to_owned(), password: "hunter2".to_owned() };
        let mut settings = EtcdSettings::new(vec!["a:1".to_owned()]);
        settings.log_in = Some(log_in);
        let text = format!("{settings:?}");
        assert!(text.contains("\"u\"") && !text.contains("hunter2"), "{text}");
    }
}
