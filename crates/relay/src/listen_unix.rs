//! The accept loop of a Unix socket. Unix sockets have no `SO_REUSEPORT`, so one worker accepts and
//! its handler distributes the visitors over the workers.

use std::cell::RefCell;
use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::rc::Rc;
use std::task::{Context, Poll};

use net::handover::serving;
use tokio::net::UnixListener;
use tokio::task::AbortHandle;

use crate::listen::AcceptLoop;
use crate::{Handler, Room};

/// Accepts visitors from `listener` in a task of this thread until the guard is dropped. `name`
/// appears in the log. The caller creates and removes the socket's file.
pub fn listen_unix(
    listener: StdListener,
    name: &str,
    handler: Rc<dyn Handler>,
    room: Room,
) -> io::Result<ListeningUnix> {
    listener.set_nonblocking(true)?;
    let socket = Rc::new(RefCell::new(Some(UnixListener::from_std(listener)?)));
    let source = Rc::clone(&socket);
    let accept = move |cx: &mut Context<'_>| {
        let source = source.borrow();
        let Some(listener) = source.as_ref() else { return Poll::Pending };
        // Most visitors of Unix sockets are unbound, so their address carries no information.
        listener.poll_accept(cx).map_ok(|(socket, _)| (socket.into(), None))
    };
    let accepting = AcceptLoop::new(accept, name.to_owned(), handler, room);
    let task = tokio::task::spawn_local(async move {
        serving().await;
        accepting.await;
    });
    Ok(ListeningUnix { socket, task: task.abort_handle() })
}

/// A live listener. Dropping it closes the socket at once.
#[derive(Debug)]
pub struct ListeningUnix {
    socket: Rc<RefCell<Option<UnixListener>>>,
    task: AbortHandle,
}

impl Drop for ListeningUnix {
    fn drop(&mut self) {
        // Only aborting the task would keep the socket open until the runtime drops the task.
        drop(self.socket.take());
        self.task.abort();
    }
}
