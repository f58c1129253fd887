//! The end where streams begin: an accepted socket becomes a stream of a link.

use std::rc::Rc;

use proto::{Open, ResetCode};
use transport::{Connector, OpenError};

use crate::pipe::{Pipe, Pump};
use crate::stats::open_error_code;
use crate::{Permit, Settings, Socket};

/// Opens a stream for `socket` and spawns its pump on this thread's local runtime. The pump owns
/// socket and permit, and ends with the stream; a link that ends resets its streams.
///
/// On an error the visitor is refused ([`refuse_socket`]) and counted; the error says why, for the
/// log.
pub fn serve_visitor(
    socket: Socket,
    connector: &dyn Connector,
    open: Open,
    settings: &Rc<Settings>,
    permit: Option<Permit>,
) -> Result<(), OpenError> {
    let pipe = Pipe::new(Rc::clone(settings));
    match connector.open(open, Rc::<Pipe>::clone(&pipe)) {
        Ok(inlet) => {
            pipe.connect(socket);
            tokio::task::spawn_local(Pump::new(pipe, inlet, permit));
            Ok(())
        }
        Err(error) => {
            refuse_socket(socket, settings, open_error_code(error));
            Err(error)
        }
    }
}

/// Turns a visitor away: counted under `code`, and reset, because a clean end would look like an
/// empty answer of the service. (A Unix socket has nothing but that.)
pub fn refuse_socket(socket: Socket, settings: &Settings, code: ResetCode) {
    settings.stats.count_refused(code);
    socket.reset_on_close();
    drop(socket);
}
