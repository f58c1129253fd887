//! Dials that take turns. Thousands of clients of one process share a thread, unlike clients on
//! machines of their own. If handshakes cost much of that thread's time and all begin at once, all
//! of them end too late.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Semaphore;
use transport::{Carrier, CarrierError, Dialer, Dialled, EarlyDataFn, LocalFuture, Transport};

/// Handshakes in progress over QUIC or KCP. Each costs about 2 ms here, so that they end well
/// before dial's limit of ten seconds, and before the three seconds after which a second handshake
/// is begun.
const UNDER_WAY: usize = 250;

/// A dialer with a limit on its dials in progress; further dials wait, which costs nothing.
#[derive(Debug)]
struct Turns {
    inner: Rc<dyn Dialer>,
    free: Arc<Semaphore>,
}

/// Wraps `dialer`, so that its dials take turns if its handshakes are expensive.
pub(crate) fn taking_turns(dialer: &Rc<dyn Dialer>) -> Rc<dyn Dialer> {
    let inner = Rc::clone(dialer);
    if ![transport_quic::QUIC, transport_kcp::KCP].contains(&inner.transport()) {
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

    fn dial_early(&self, address: SocketAddr, say: EarlyDataFn) -> LocalFuture<'static, Dialled> {
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
