//! Tells the socket that the packets that quinn has just made are to leave twice.
//!
//! The controller of a connection decides that ([`congestion::Copies`]) when quinn reports the
//! packets to it. The next call of quinn hands them to the socket, in the same turn of the same
//! thread, and the socket does not know of which connection they are. So the word is passed by the
//! thread. If the socket has no room, the packets leave later and once.

use std::cell::Cell;

thread_local! {
    static TWICE: Cell<bool> = const { Cell::new(false) };
}

/// Says whether the packets that are handed over next leave twice.
pub(crate) fn set(is_twice: bool) {
    TWICE.set(is_twice);
}

/// Whether the packets that are handed over now leave twice.
pub(crate) fn take() -> bool {
    TWICE.take()
}
