//! QUIC over a direct path passes the conformance suite of all transports, and lets nobody in who
//! has not proved that the peer signalled with it.

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

mod ends;
mod strangers;
mod weather;

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

use ends::{answer, connected, puncher, visit};
use testkit::conformance::{Fixture, check};
use tokio::sync::mpsc;
use transport::{Carrier, CarrierError, Dialer, Incoming, Listener, LocalFuture, Transport};
use transport_quic::punched::{DIRECT, Puncher};

/// What a visitor hands to its publisher: signals to the publisher, and from it.
type Visit = (mpsc::Receiver<Vec<u8>>, mpsc::Sender<Vec<u8>>);

#[derive(Debug)]
struct Punched;

impl Fixture for Punched {
    fn make(&self) -> (Box<dyn Listener>, Box<dyn Dialer>) {
        let (asks, asked) = mpsc::channel(64);
        let asked = Rc::new(RefCell::new(asked));
        let publisher = Publisher { puncher: puncher(), asked, next: None };
        (Box::new(publisher), Box::new(Visitor { puncher: puncher(), asks }))
    }

    fn shakes_hands(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct Visitor {
    puncher: Puncher,
    asks: mpsc::Sender<Visit>,
}

impl Dialer for Visitor {
    fn dial(&self, _: SocketAddr) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        let (says, said) = mpsc::channel(64);
        let (hears, heard) = mpsc::channel(64);
        let puncher = self.puncher.clone();
        let sent = self.asks.try_send((said, hears));
        Box::pin(async move {
            sent.map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
            visit(&puncher, says, heard).await.map_err(CarrierError::from)
        })
    }

    fn transport(&self) -> Transport {
        DIRECT
    }
}

struct Publisher {
    puncher: Puncher,
    asked: Rc<RefCell<mpsc::Receiver<Visit>>>,
    next: Option<LocalFuture<'static, io::Result<Box<dyn Incoming>>>>,
}

impl Listener for Publisher {
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Box<dyn Incoming>>> {
        let next = self.next.get_or_insert_with(|| {
            let (puncher, asked) = (self.puncher.clone(), Rc::clone(&self.asked));
            Box::pin(async move {
                let visit = std::future::poll_fn(|cx| asked.borrow_mut().poll_recv(cx)).await;
                let (said, says) = visit.ok_or(io::ErrorKind::BrokenPipe)?;
                answer(&puncher, said, says).await.map_err(io::Error::other)
            })
        });
        let done = std::task::ready!(next.as_mut().poll(cx));
        self.next = None;
        Poll::Ready(done)
    }

    fn local_addr(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 9))
    }

    fn transport(&self) -> Transport {
        DIRECT
    }
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Publisher")
    }
}

#[test]
fn quic_over_a_punched_pair_conforms() {
    check(&Punched);
}

#[test]
fn both_ends_have_the_same_keying_material_and_name_the_pair() {
    ends::run(async {
        let ends = connected().await;
        let (dialled, accepted) = (&ends.dialled.peer, &ends.accepted.peer);
        assert!(dialled.exporter.is_some() && dialled.exporter == accepted.exporter);
        assert_eq!(accepted.certificate_name, None);
        let pair = ends.visitor.path().pair().unwrap();
        assert_eq!(pair.remote.1, dialled.address);
        assert_eq!(pair.local.unwrap().1, accepted.address);
        assert_eq!(ends.publisher.path().pair().unwrap().remote.1, accepted.address);
    });
}
