//! Carriers that reach a server without their link, which passes them on to the server with the
//! link.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use proto::InstanceId;
use proto::greeting::{Name, Refusal};
use transport::{Carrier, CarrierError, Dialer, LocalFuture, Transport};

use crate::rig::{
    Appetite, Client, Rules, Server, Tls, open, path, plan, really, serve, until, virtually,
};

/// Bytes in each direction between two carriers.
const PIECE: u64 = 40_000;

/// A balancer in front of two servers.
#[derive(Debug)]
struct Balancer {
    dialer: Rc<dyn Dialer>,
    others: Rc<dyn Dialer>,
    ports: [u16; 2],
    /// New connections reach the second server.
    leads_to_second: Cell<bool>,
}

impl Dialer for Balancer {
    fn dial(&self, _: SocketAddr) -> LocalFuture<'static, Result<Carrier, CarrierError>> {
        let is_second = self.leads_to_second.get();
        let dialer = if is_second { &self.others } else { &self.dialer };
        let port = self.ports[usize::from(is_second)];
        dialer.dial(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    fn transport(&self) -> Transport {
        self.dialer.transport()
    }
}

/// Two servers: the second leads carriers without a link to the first.
struct Two {
    a: Server,
    b: Server,
    balancer: Rc<Balancer>,
}

impl Two {
    fn new(a: Server, b: Server, dialers: [Rc<dyn Dialer>; 2], ports: [u16; 2]) -> Self {
        let [dialer, others] = dialers;
        let leads_to_second = Cell::new(false);
        *b.state.home.borrow_mut() = Some(Rc::clone(&a.state));
        Self { a, b, balancer: Rc::new(Balancer { dialer, others, ports, leads_to_second }) }
    }

    fn client(&self) -> Client {
        let balancer: Rc<dyn Dialer> = Rc::<Balancer>::clone(&self.balancer);
        Client::start(plan(vec![path(balancer, 1)]))
    }

    /// A stream goes on over the second server.
    async fn moves(&self) {
        let client = self.client();
        let link = client.live().await;
        let stream = open(&link, "echo", Appetite::SOME);
        let (sent, far) = tokio::join!(stream.send_some(0, PIECE), self.a.owner().next_tap());
        assert!(sent && far.send_some(0, PIECE).await);
        for (n, leads_to_second) in (1..).zip([true, true, false, true]) {
            self.balancer.leads_to_second.set(leads_to_second);
            let greeted = self.a.state.greeted.get();
            assert!(self.a.link().cut());
            let (up, down) =
                tokio::join!(stream.send_some(n * PIECE, PIECE), far.send_some(n * PIECE, PIECE));
            assert!(up && down);
            until("the next carrier", || self.a.state.greeted.get() > greeted).await;
        }
        stream.finish();
        far.finish();
        until("both ends", || stream.is_over() && far.is_over()).await;
        far.assert_pattern(5 * PIECE);
        stream.assert_pattern(5 * PIECE);
        assert_eq!((client.links.get(), self.a.links().len(), self.b.links().len()), (1, 1, 0));
        assert_eq!((self.b.state.passed.get(), self.b.state.greeted.get()), (3, 0));
    }
}

fn two_in_memory() -> Two {
    let ((a, first), (b, second)) = (serve(), serve());
    Two::new(a, b, [Rc::new(first), Rc::new(second)], [1, 1])
}

/// Forgets all links and ends their carriers, without a word to the clients.
fn lose_links(server: &Server) {
    let links = std::mem::take(&mut *server.state.links.borrow_mut());
    for (link, ..) in links.into_values() {
        assert!(link.cut());
    }
}

/// Gives each of two links the secret of the other.
fn swap_secrets(server: &Server) {
    let mut links = server.state.links.borrow_mut();
    let mut secrets: Vec<_> = links.values().map(|(_, secret, _)| secret.clone()).collect();
    secrets.rotate_left(1);
    links.values_mut().zip(secrets).for_each(|((_, own, _), other)| *own = other);
}

#[test]
fn a_stream_goes_on_when_its_carrier_comes_back_at_another_server() {
    virtually(async {
        two_in_memory().moves().await;
    });
}

#[test]
fn a_stream_goes_on_over_tls_at_another_server() {
    really(async {
        let tls = Tls::new();
        let ((first, a), (second, b)) = (tls.listen(), tls.listen());
        let start = |listener| Server::start(vec![listener], Rules::default());
        let dialers: [Rc<dyn Dialer>; 2] = [tls.dialer(), tls.dialer()];
        let two = Two::new(start(first), start(second), dialers, [a, b]);
        two.moves().await;
    });
}

#[test]
fn a_link_that_no_server_has_begins_anew() {
    virtually(async {
        let two = two_in_memory();
        let client = two.client();
        client.live().await;
        two.balancer.leads_to_second.set(true);
        lose_links(&two.a);
        until("a new link", || two.b.links().len() == 1).await;
        client.live().await;
        assert_eq!((client.links.get(), two.b.state.passed.get()), (2, 0));
    });
}

#[test]
fn the_server_with_the_link_refuses_a_client_without_its_secret() {
    virtually(async {
        let two = two_in_memory();
        let client = two.client();
        client.live().await;
        let mut other = plan(vec![path(Rc::<Balancer>::clone(&two.balancer), 1)]);
        (other.name, other.instance) = (Name::new("client-2").unwrap(), InstanceId([8; 16]));
        let _other = Client::start(other);
        until("both links", || two.a.links().len() == 2).await;
        swap_secrets(&two.a);
        two.balancer.leads_to_second.set(true);
        assert!(client.live().await.cut());
        until("its error", || !two.a.state.errors.borrow().is_empty()).await;
        let refusal = two.a.state.errors.borrow().last().and_then(link::GreetError::refusal);
        assert_eq!(refusal, Some(Refusal::UnknownLink));
        // The client begins a new link where it is.
        until("a new link", || two.b.links().len() == 1).await;
        assert_eq!(two.b.state.passed.get(), 1, "the refusal is that of the other server");
    });
}
