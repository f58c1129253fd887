//! Members that refuse, stop, answer late or write nonsense, in virtual time.

mod calls;
mod log_in;
mod watch;

/// An answer with an empty range at this revision.
fn empty(revision: u64) -> String {
    format!(r#"{{"header":{{"cluster_id":"1","member_id":"2","revision":"{revision}"}}}}"#)
}
