//! System errors when there is no network, address, descriptor or memory for a connection: the
//! client retries soon and endlessly, and reports the pause.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use link::Retry;
use rustix::io::Errno;
use transport::memory::MEMORY;
use transport::memory::{Breaker, MemoryDialer};
use transport::{Carrier, CarrierError, Dialer, LocalFuture, Transport};

use crate::rig::{Client, path, plan, serve, until, virtually};

const WEATHER: [Errno; 11] = [
    Errno::NETUNREACH,
    Errno::NETDOWN,
    Errno::HOSTUNREACH,
    Errno::ADDRNOTAVAIL,
    Errno::ADDRINUSE,
    Errno::MFILE,
    Errno::NFILE,
    Errno::NOBUFS,
    Errno::NOMEM,
    Errno::ACCESS,
    Errno::TIMEDOUT,
];

/// How often each error occurs.
const ROUNDS: usize = 5;

/// Fails a number of times, each time with the next error.
#[derive(Debug)]
struct Stormy {
    inner: MemoryDialer,
    dials: Cell<usize>,
    bad: Cell<usize>,
}

impl Dialer for Stormy {
    fn dial(&self, address: SocketAddr) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        let n = self.dials.replace(self.dials.get() + 1);
        if n < self.bad.get() {
            let error = io::Error::from(WEATHER[n % WEATHER.len()]);
            return Box::pin(std::future::ready(Err(error.into())));
        }
        let inner = self.inner.clone();
        Box::pin(async move { inner.dial(address).await })
    }

    fn transport(&self) -> Transport {
        MEMORY
    }
}

#[test]
fn no_error_of_the_system_ends_a_client_and_none_makes_it_wait_long() {
    virtually(async {
        let (_server, memory) = serve();
        let bad = Cell::new(ROUNDS * WEATHER.len());
        let dialer = Rc::new(Stormy { inner: memory, dials: Cell::new(0), bad });
        let retry = Retry::default();
        let way = path(Rc::<Stormy>::clone(&dialer), 1);
        let client = Client::start(link::client::Client { retry, ..plan(vec![way]) });
        let begin = tokio::time::Instant::now();
        let link = client.live().await;
        let took = begin.elapsed();
        let failures = client.failures.borrow().clone();
        assert_eq!(failures.len(), ROUNDS * WEATHER.len());
        assert!(failures.iter().all(|(_, pause)| *pause <= retry.max), "{failures:?}");
        assert!(took > retry.max * 20 && took < retry.max * 55, "{took:?}");
        for errno in WEATHER {
            let words = io::Error::from(errno).to_string();
            assert!(failures.iter().any(|(text, _)| text.contains(&words)), "{words}");
        }

        // The same while a link waits for its next carrier: it resumes within its time.
        dialer.bad.set(dialer.dials.get() + WEATHER.len());
        dialer.inner.breakers().iter().for_each(Breaker::kill);
        until("the link is live again", || link.is_live() && client.connected.borrow().len() == 2)
            .await;
        assert_eq!(client.connected.borrow()[1], (1, true));
        assert!(!link.has_ended());
        tokio::time::sleep(Duration::from_secs(1)).await;
    });
}
