//! A listener that closes with its entrance.

use ops::socket_file::SocketFile;
use relay::{Listening, ListeningFlows, ListeningUnix};

/// Closes the listener on drop.
#[derive(Debug)]
pub(super) enum Guard {
    Tcp(#[expect(dead_code, reason = "held for its drop")] Listening),
    Udp(ListeningFlows),
    /// The file is removed first: a visitor that connects meanwhile finds no file, instead of a
    /// socket from which nobody accepts.
    Unix(
        #[expect(dead_code, reason = "held for its drop")] Option<SocketFile>,
        #[expect(dead_code, reason = "held for its drop")] ListeningUnix,
    ),
}
