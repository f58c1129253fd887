//! Keeps floods of first packets out of the socket of a server ([`net::udp::Fence`]).

use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use net::Current;
use net::source::Proxies;
use net::udp::{Fence, Form};
use quinn::udp::RecvMeta;
use quinn::{Runtime, TokioRuntime};
use tokio::time::sleep_until;

/// The fence of a socket.
#[derive(Debug)]
pub(crate) struct Fenced {
    socket: Arc<UdpSocket>,
    proxies: Current<Proxies>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    fence: Fence,
    /// A task waits for the expiry of the fences.
    is_awaited: bool,
}

impl Fenced {
    pub(crate) fn new(socket: Arc<UdpSocket>, proxies: Current<Proxies>) -> Arc<Self> {
        let fence = Fence::new(Form::Quic, &socket);
        Arc::new(Self { socket, proxies, state: Mutex::new(State { fence, is_awaited: false }) })
    }

    /// Removes the first packets of sources that send too many of them from a received message. All
    /// datagrams of a message except the last have one size, and this is kept. A message without
    /// first packets takes no lock.
    pub(crate) fn sift(self: &Arc<Self>, buf: &mut [u8], meta: &mut RecvMeta) {
        let length = meta.len.min(buf.len());
        let Some(buf) = buf.get_mut(..length) else { return };
        let stride = meta.stride.max(1);
        if !buf.chunks(stride).any(|datagram| Form::Quic.is_first(datagram)) {
            return;
        }
        let (now, from) = (now(), meta.addr);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kept = 0;
        for start in (0..length).step_by(stride) {
            let end = (start + stride).min(length);
            if self.takes(&mut state.fence, now, from, &buf[start..end]) {
                if kept < start {
                    buf.copy_within(start..end, kept);
                }
                kept += end - start;
            }
        }
        meta.len = kept;
        state.fence.settle(now, &self.socket);
        if state.fence.due().is_some() && !std::mem::replace(&mut state.is_awaited, true) {
            TokioRuntime.spawn(Box::pin(ended(Arc::downgrade(self))));
        }
    }

    fn takes(&self, fence: &mut Fence, now: Instant, from: SocketAddr, datagram: &[u8]) -> bool {
        fence.takes(now, from, || self.proxies.get().include(from.ip()), datagram)
    }

    /// Updates the fence. Returns when it must be updated again.
    fn settle(&self) -> Option<Instant> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.fence.settle(now(), &self.socket);
        let due = state.fence.due();
        state.is_awaited = due.is_some();
        due
    }
}

/// The time of tokio, which tests may pause.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Removes the fence when its time is over: a fenced source wakes no task.
async fn ended(fenced: Weak<Fenced>) {
    loop {
        let Some(due) = fenced.upgrade().and_then(|fenced| fenced.settle()) else { return };
        sleep_until(due.into()).await;
    }
}
