//! The opening end of streams: an accepted socket becomes a stream of a link.

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use proto::{Open, ResetCode};
use tokio::task::spawn_local;
use tokio::time::sleep;
use transport::{Connector, OpenError};

use crate::pipe::{Http, Layered, Pipe, Pump, RetryHandler};
use crate::{Permit, Settings, Socket};

/// The fallback of a visitor whose stream may be refused.
#[derive(Debug)]
pub struct Retry {
    /// Takes the visitor of a stream that is refused before a byte has reached a target.
    pub handler: Box<dyn RetryHandler>,
    /// The bytes already read from the visitor's socket. The bytes of an HTTP visitor are in
    /// [`Http::first`].
    pub first: BytesMut,
}

/// Opens a stream for `socket` and spawns the pump of the stream on this thread's local runtime.
/// The pump owns the socket and the permit, and ends with the stream. A link that ends resets its
/// streams. `is_announced`: the address of the socket differs from that of the visitor. `http`: set
/// for an HTTP visitor. `retry`: the handler that takes the visitor if the far side refuses the
/// stream.
///
/// # Errors
/// No stream was opened. The caller gets the socket back, and must refuse and count the visitor.
pub fn serve_visitor(
    (socket, is_announced): (Socket, bool),
    connector: &dyn Connector,
    open: Open,
    settings: &Rc<Settings>,
    permit: Option<Permit>,
    http: Option<Http>,
    retry: Option<Retry>,
) -> Result<(), (Socket, OpenError)> {
    let pipe = Pipe::guarded(Rc::clone(settings), (open.visitor.into(), is_announced), http);
    match connector.open(open, Rc::<Pipe>::clone(&pipe)) {
        Ok(inlet) => {
            pipe.connect(socket);
            let pump = Pump::new(pipe, inlet, permit);
            spawn_local(match retry {
                Some(Retry { handler, first }) => pump.with_retry(handler, first),
                None => pump,
            });
            Ok(())
        }
        Err(error) => Err((socket, error)),
    }
}

/// Opens a stream for an HTTP visitor whose bytes pass through a layer, and spawns the pump of the
/// stream as [`serve_visitor`] does. The connection ends once no request is in progress after
/// `stop` is ready, or after no request was in progress for between one and two times `idle`.
///
/// # Errors
/// No stream was opened. The refusal is not counted.
pub fn serve_layered(
    (visitor, http, retry): (Layered, Http, Option<Retry>),
    connector: &dyn Connector,
    open: Open,
    settings: &Rc<Settings>,
    permit: Option<Permit>,
    stop: impl Future<Output = ()> + 'static,
    idle: Duration,
) -> Result<(), OpenError> {
    let pipe = Pipe::guarded(Rc::clone(settings), (open.visitor.into(), true), Some(http));
    let inlet = connector.open(open, Rc::<Pipe>::clone(&pipe))?;
    pipe.connect_layered(visitor);
    spawn_local(async move {
        let pump = Pump::new(Rc::clone(&pipe), inlet, permit);
        let mut pump = pin!(match retry {
            Some(Retry { handler, first }) => pump.with_retry(handler, first),
            None => pump,
        });
        let over = async {
            tokio::select! {
                () = stop => {}
                () = unused(&pipe, idle) => {}
            }
        };
        tokio::select! {
            biased;
            () = &mut pump => return,
            () = over => {}
        }
        pipe.close_when_idle();
        pump.await;
    });
    Ok(())
}

/// Waits until no request was in progress for `idle`.
async fn unused(pipe: &Pipe, idle: Duration) {
    loop {
        sleep(idle).await;
        if pipe.is_unused() {
            return;
        }
    }
}

/// Resets the socket of a visitor without a service.
pub fn drop_socket(socket: Socket) {
    socket.reset_on_close();
    drop(socket);
}

/// Rejects a visitor whose address is not permitted: counts the visitor and resets the socket. For
/// the visitor this looks like a service that refuses, and the system keeps no state of the
/// connection.
pub fn bar_socket(socket: Socket, settings: &Settings) {
    settings.stats.count_barred();
    socket.reset_on_close();
    drop(socket);
}

/// Refuses a visitor: counts the refusal under `code` and resets the socket, because a clean end
/// would look like an empty answer from the service. (A Unix socket has no reset and ends cleanly.)
pub fn refuse_socket(socket: Socket, settings: &Settings, code: ResetCode) {
    settings.stats.count_refused(code);
    socket.reset_on_close();
    drop(socket);
}
