//! Dials that take turns. Very many clients of one process share one thread, which their machines out
//! in the world do not: where a handshake costs much of it, all of them begun at once are all too late.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Semaphore;
use transport::{Carrier, CarrierError, Dialer, Dialled, LocalFuture, Say, Transport};

/// Handshakes under way over QUIC. Each costs some 2 ms here, so that they end well before the dial's ten
/// seconds, and before the three after which a second one is begun.
const UNDER_WAY: usize = 250;

/// A dialer of which so many dials are under way; further ones wait, which costs nothing.
#[derive(Debug)]
struct Turns {
    inner: Rc<dyn Dialer>,
    free: Arc<Semaphore>,
}

/// Lets the dials of `dialer` take turns where a handshake is dear.
pub(crate) fn taking_turns(dialer: &Rc<dyn Dialer>) -> Rc<dyn Dialer> {
    let inner = Rc::clone(dialer);
    if inner.transport() != transport_quic::QUIC {
        return inner;
    }
    Rc::new(Turns { inner, free: Arc::new(Semaphore::new(UNDER_WAY)) })
}

impl Dialer for Turns {
    fn dial(&self, address: SocketAddr) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        let (inner, free) = (Rc::clone(&self.inner), Arc::clone(&self.free));
        Box::pin(async move {
            let _turn = free.acquire().await;
            inner.dial(address).await
        })
    }

    fn dial_early(&self, address: SocketAddr, say: Say) -> LocalFuture<'static, Dialled> {
        let (inner, free) = (Rc::clone(&self.inner), Arc::clone(&self.free));
        Box::pin(async move {
            let _turn = free.acquire().await;
            inner.dial_early(address, say).await
        })
    }

    fn transport(&self) -> Transport {
        self.inner.transport()
    }
}
