//! A relay in front of a server that cuts a TCP connection after a given number of bytes, and
//! records the bytes of the client.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

/// Where the next connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// After this number of bytes from the client.
    Sent(usize),
    /// After this number of bytes from the server.
    Received(usize),
}

pub(crate) struct Killer {
    pub(crate) port: u16,
    state: Rc<State>,
    task: AbortHandle,
}

#[derive(Default)]
struct State {
    cut: Cell<Option<Cut>>,
    /// Of the first connection: bytes of the client, and how many of the server.
    heard: RefCell<Vec<u8>>,
    answered: Cell<usize>,
    fired: Cell<bool>,
}

impl Killer {
    pub(crate) async fn start(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Rc::<State>::default();
        let of_task = Rc::clone(&state);
        let task = tokio::task::spawn_local(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
                let state = Rc::clone(&of_task);
                tokio::task::spawn_local(relay(client, server, state));
            }
        });
        Self { port, state, task: task.abort_handle() }
    }

    /// Cuts the next connection there.
    pub(crate) fn cut(&self, cut: Cut) {
        self.state.fired.set(false);
        self.state.cut.set(Some(cut));
    }

    pub(crate) fn has_fired(&self) -> bool {
        self.state.fired.get()
    }

    pub(crate) fn heard(&self) -> Vec<u8> {
        self.state.heard.borrow().clone()
    }

    pub(crate) fn answered(&self) -> usize {
        self.state.answered.get()
    }
}

impl Drop for Killer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn relay(mut client: TcpStream, mut server: TcpStream, state: Rc<State>) {
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (mut sent, mut received) = match state.cut.take() {
        Some(Cut::Sent(n)) => (n, usize::MAX),
        Some(Cut::Received(n)) => (usize::MAX, n),
        None => (usize::MAX, usize::MAX),
    };
    let (mut up, mut down) = ([0; 16384], [0; 16384]);
    loop {
        if sent == 0 || received == 0 {
            state.fired.set(true);
            return;
        }
        let (sent_most, received_most) = (sent.min(up.len()), received.min(down.len()));
        tokio::select! {
            n = client.read(&mut up[..sent_most]) => match n {
                Ok(n) if n > 0 && server.write_all(&up[..n]).await.is_ok() => {
                    sent -= n;
                    state.heard.borrow_mut().extend_from_slice(&up[..n]);
                }
                Ok(_) | Err(_) => return,
            },
            n = server.read(&mut down[..received_most]) => match n {
                Ok(n) if n > 0 && client.write_all(&down[..n]).await.is_ok() => {
                    received -= n;
                    state.answered.set(state.answered.get() + n);
                }
                Ok(_) | Err(_) => return,
            },
        }
    }
}
