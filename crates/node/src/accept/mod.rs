//! The chain of stages that each visitor passes, from the accept to the stream of a backend. All
//! listeners run it: published ports, Unix sockets, forwards, balancers, doors, and the flows of
//! UDP ports. A listener says by [`AcceptRules`] what differs.
//!
//! ```text
//!                 accept            the first bytes       the service is known
//!   port, Unix    arrive ─> settle ──────────────────────> pick ─> admit ─> stream
//!   door          arrive ─> settle ─> look ─> names ─────> pick ─> admit ─> stream, or request
//!   flow          (by datagram, in `relay`) ─────────────> pick ─> admit ─> flow
//! ```
//!
//! | stage | file | what it does |
//! |---|---|---|
//! | [`arrive`] | `announced` | finds out whether a header of the PROXY protocol comes first |
//! | | `seat` | takes a descriptor of the holder's share |
//! | | `memory` | charges the memory of a visitor whose destination is not known |
//! | [`settle`] | `announced` | waits for the header, which has the address of the visitor |
//! | look | `doors/src/{http,tls,mux}.rs` | finds the service by the first bytes |
//! | pick | `lists` | checks the lists of visitors, before a backend is chosen |
//! | | `backends/` | chooses the backend |
//! | [`admit`] | `gate` | counts the visitor in the limits of the backend |
//! | | `options` | gives the socket the options of the service |
//!
//! A further stage is a file with one function, and a row in [`arrive`], [`settle`] or [`admit`].
//! The order of the rows is the order in which visitors are refused. A row costs a call for each
//! visitor, and nothing for each byte.

mod announced;
mod gate;
pub mod lists;
mod memory;
mod options;
mod seat;
mod visit;

use relay::Permit;

use crate::backends::Backend;
pub use visit::{AcceptRules, ArrivingVisitor, Guest, NotAccepted};

/// The stages that a visitor passes at once after the accept.
///
/// # Errors
/// The first stage that refuses the visitor.
pub fn arrive(rules: &impl AcceptRules, visitor: &mut ArrivingVisitor) -> Result<(), NotAccepted> {
    announced::expect(rules, visitor);
    seat::take(rules, visitor)?;
    memory::charge(rules, visitor)
}

/// The stages for which a visitor may have to wait ([`ArrivingVisitor::waits`]).
///
/// # Errors
/// The first stage that refuses the visitor.
pub async fn settle(visitor: &mut ArrivingVisitor) -> Result<(), NotAccepted> {
    announced::read(visitor).await
}

/// The stages of a visitor whose backend is picked. `None`: a limit is reached.
pub fn admit(backend: &Backend, guest: &impl Guest) -> Option<Permit> {
    let permit = gate::enter(backend, guest)?;
    options::give(backend, guest);
    Some(permit)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::net::SocketAddr;
    use std::sync::Arc;

    use net::SocketOptions;
    use proto::control::ServiceTerms;
    use proto::{Dscp, Target};
    use relay::{Gate, Held, Holder, Socket};
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::aim::Aim;
    use crate::backends::{Backends, Pick};
    use crate::session::Session;

    struct Rules {
        is_behind_a_balancer: bool,
        has_memory: bool,
    }

    impl AcceptRules for Rules {
        fn are_announced(&self, _: Option<SocketAddr>) -> bool {
            self.is_behind_a_balancer
        }

        fn holder<T>(&self, ask: impl FnOnce(Option<&Arc<Holder>>) -> T) -> T {
            ask(None)
        }

        fn hold(&self, _: Option<SocketAddr>) -> Result<Option<Held>, NotAccepted> {
            if self.has_memory { Ok(None) } else { Err(NotAccepted::Memory) }
        }
    }

    /// A visitor that sends these bytes, and its own end.
    async fn visitor(bytes: &[u8]) -> (ArrivingVisitor, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut far = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        far.write_all(bytes).await.unwrap();
        let (socket, peer) = listener.accept().await.unwrap();
        (ArrivingVisitor::new(Socket::from(socket), Some(peer)), far)
    }

    #[tokio::test]
    async fn a_visitor_waits_only_for_the_header_of_a_balancer() {
        let header = b"PROXY TCP4 192.0.2.7 203.0.113.1 4711 80\r\nhello";
        for is_behind_a_balancer in [false, true] {
            let (mut visitor, _far) = visitor(header).await;
            let peer = visitor.peer;
            let rules = Rules { is_behind_a_balancer, has_memory: true };
            arrive(&rules, &mut visitor).unwrap();
            assert_eq!(visitor.waits(), is_behind_a_balancer);
            settle(&mut visitor).await.unwrap();
            let announced = "192.0.2.7:4711".parse().ok();
            assert_eq!(visitor.peer, if is_behind_a_balancer { announced } else { peer });
            assert_eq!(visitor.announced.is_some(), is_behind_a_balancer);
        }
    }

    #[tokio::test]
    async fn a_visitor_that_a_stage_refuses_keeps_its_address() {
        let (mut refused, _far) = visitor(b"GET / HTTP/1.1\r\n\r\n").await;
        let peer = refused.peer;
        let rules = Rules { is_behind_a_balancer: true, has_memory: false };
        assert!(matches!(arrive(&rules, &mut refused), Err(NotAccepted::Memory)));
        let rules = Rules { has_memory: true, ..rules };
        arrive(&rules, &mut refused).unwrap();
        assert!(matches!(settle(&mut refused).await, Err(NotAccepted::Header(_))));
        assert!(refused.peer == peer && refused.announced.is_none());
    }

    #[derive(Default)]
    struct Flow(RefCell<Vec<u8>>);

    impl Guest for Flow {
        fn peer(&self) -> Option<SocketAddr> {
            None
        }

        fn obey(&self, options: &SocketOptions) {
            self.0.borrow_mut().push(options.dscp);
        }
    }

    #[test]
    fn a_guest_within_the_limits_gets_the_options_of_its_service() {
        let terms = ServiceTerms { dscp: Dscp::new(46).unwrap(), ..ServiceTerms::default() };
        let (name, target) = ("web".to_owned(), Target::Service("web".into()));
        let aim = Aim { name, target, terms, rules: None, proxy: None };
        let backends = Backends::new(aim, &Session::new("home", 1), Gate::new(Some(1)));
        let Pick::To(backend) = backends.pick(None, &[], None, |_| true) else {
            panic!("one backend")
        };
        let (first, second) = (Flow::default(), Flow::default());
        let permit = admit(&backend, &first);
        assert!(permit.is_some() && admit(&backend, &second).is_none());
        assert_eq!((first.0.into_inner(), second.0.into_inner()), (vec![46], vec![]));
        drop(permit);
        assert!(admit(&backend, &None).is_some());
    }
}
