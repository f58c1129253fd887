//! A repeated status query: each one reports the changes since the previous one.

use std::any::Any;
use std::fmt;

use crate::clients::Client;
use crate::status::{Session, Status};

/// The state of a caller's previous query, in the form of the daemon. The first query with a new
/// value reports everything. Dropping it ends the series of queries, and frees the daemon's state.
#[derive(Default)]
pub struct Cursor(Option<Box<dyn Any + Send>>);

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cursor").field(&self.0.is_some()).finish()
    }
}

impl Cursor {
    /// Takes the state of the previous query. `None`: there was no previous query. An aborted query
    /// leaves no state, so the next query reports everything.
    pub fn take<T: 'static>(&mut self) -> Option<T> {
        self.0.take()?.downcast().ok().map(|state| *state)
    }

    /// Keeps the state of a complete query.
    pub fn keep<T: Send + 'static>(&mut self, state: T) {
        self.0 = Some(Box::new(state));
    }
}

/// The changes since the previous query.
#[derive(Clone, Debug, Default)]
pub struct StatusDelta {
    /// Whether everything is reported, so that unreported items are gone.
    pub whole: bool,
    /// The status without sessions. A daemon may omit values that do not change by themselves.
    pub status: Status,
    /// The new and changed sessions, with the numbers that identify them in the next query. Neither
    /// the seconds since an event nor packets without payload count as a change.
    pub sessions: Vec<(u64, Session)>,
    /// The numbers of the sessions that have ended.
    pub gone: Vec<u64>,
    /// The clients of a server; absent in any other role.
    pub clients: Option<ClientChanges>,
}

/// The clients of a server that have changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientChanges {
    /// New and changed clients.
    pub list: Vec<Client>,
    /// The names of the clients that the server no longer knows.
    pub gone: Vec<String>,
}

impl StatusDelta {
    /// A query result that reports everything.
    pub fn whole(mut status: Status, clients: Option<Vec<Client>>) -> Self {
        let sessions = std::mem::take(&mut status.sessions);
        let clients = clients.map(|list| ClientChanges { list, gone: Vec::new() });
        let sessions = (0..).zip(sessions).collect();
        Self { whole: true, status, sessions, gone: Vec::new(), clients }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::sample;

    #[test]
    fn notes_are_taken_once_and_by_their_own_type() {
        let mut cursor = Cursor::default();
        assert_eq!(cursor.take::<u8>(), None);
        cursor.keep(7_u8);
        assert_eq!((cursor.take::<u8>(), cursor.take::<u8>()), (Some(7), None));
        cursor.keep(7_u8);
        assert_eq!((cursor.take::<u16>(), cursor.take::<u8>()), (None, None));
    }

    #[test]
    fn a_whole_delta_has_all_sessions_apart_from_the_status() {
        let status = sample();
        let count = status.sessions.len();
        let delta = StatusDelta::whole(status, Some(vec![Client::default()]));
        assert!(delta.whole && count > 0 && delta.status.sessions.is_empty());
        assert!(delta.sessions.iter().map(|(id, _)| *id).eq(0..count as u64));
        assert_eq!(delta.clients.unwrap().list.len(), 1);
    }
}
