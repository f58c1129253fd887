//! Tells the socket that the packets that quinn has just built should be sent twice.
//!
//! The controller of a connection decides that ([`congestion::Copies`]) when quinn reports the
//! packets to it. The next call of quinn hands them to the socket, in the same turn of the same
//! thread, and the socket does not know of which connection they are. So the message is passed
//! through a variable of the thread. If the socket has no room, the packets are sent later, and
//! only once.

use std::cell::Cell;

thread_local! {
    static TWICE: Cell<bool> = const { Cell::new(false) };
}

/// Sets whether the packets that are handed over next are sent twice.
pub(crate) fn set(is_twice: bool) {
    TWICE.set(is_twice);
}

/// Whether the packets that are handed over now are sent twice.
pub(crate) fn take() -> bool {
    TWICE.take()
}
