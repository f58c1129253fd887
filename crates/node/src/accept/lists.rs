//! The lists of visitors (`allow_from`, `deny_from`): which addresses may visit. A visitor must be
//! let in by the lists of the server, and by those of the service.
//!
//! The lists are checked where a service is known, so a door still answers the challenges of an
//! authority of certificates, and a `mux://` listener the carriers of clients, from everywhere.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwap;
use proto::Visitors;

static SERVER: LazyLock<ServerLists> = LazyLock::new(ServerLists::default);

/// The lists of the server, which a reload replaces.
#[derive(Default)]
struct ServerLists(ArcSwap<Visitors>);

impl ServerLists {
    fn permit(&self, of_service: &Visitors, ip: IpAddr) -> bool {
        self.0.load().permit(ip) && of_service.permit(ip)
    }
}

/// Changes the lists of the server, for new visitors.
pub fn set_server(visitors: Visitors) {
    SERVER.0.store(Arc::new(visitors));
}

/// Whether a visitor may visit a service with these lists. A visitor without an address came over a
/// Unix socket, whose file permissions decide.
pub fn permit(of_service: &Visitors, visitor: Option<SocketAddr>) -> bool {
    visitor.is_none_or(|visitor| SERVER.permit(of_service, visitor.ip()))
}

/// Whether a service with these lists may be visited from every address.
pub fn are_open(of_service: &Visitors) -> bool {
    of_service.are_all() && SERVER.0.load().are_all()
}

#[cfg(test)]
mod tests {
    use proto::{Network, Networks};

    use super::*;

    #[test]
    fn a_visitor_is_let_in_by_the_lists_of_the_server_and_of_the_service() {
        let net = |last: u8| Networks::from([Network::new([10, 0, 0, last].into(), 32).unwrap()]);
        let deny = |last| Visitors { deny_from: net(last), ..Visitors::default() };
        let lists = ServerLists::default();
        let may = |of_service: &Visitors| {
            [1, 2, 3].map(|last| lists.permit(of_service, [10, 0, 0, last].into()))
        };
        assert_eq!(may(&deny(2)), [true, false, true]);
        lists.0.store(Arc::new(deny(1)));
        assert_eq!(may(&Visitors::default()), [false, true, true]);
        assert_eq!(may(&deny(2)), [false, false, true]);
        let allow_from = Some(net(3));
        lists.0.store(Arc::new(Visitors { allow_from, ..Visitors::default() }));
        assert_eq!(may(&Visitors::default()), [false, false, true]);
    }

    /// The search is binary, so a visitor costs little more where a list is long.
    #[test]
    #[ignore = "measures time: the long step `timed`"]
    fn a_visitor_costs_less_than_a_microsecond_beside_100_000_networks() {
        for count in [1, 256, 1_000, 100_000] {
            let network =
                |n: u32| Network::new(IpAddr::V4(n.wrapping_mul(4_096).into()), 24).unwrap();
            let deny_from: Networks = (0..count).map(network).collect();
            let (lists, open) = (ServerLists::default(), Visitors::default());
            lists.0.store(Arc::new(Visitors { deny_from, ..Visitors::default() }));
            let (begun, asked) = (std::time::Instant::now(), 1_000_000_u32);
            let ips = (0..asked).map(|n| IpAddr::V4(n.wrapping_mul(2_654_435_761).into()));
            let denied = ips.filter(|ip| !lists.permit(&open, std::hint::black_box(*ip))).count();
            let each = begun.elapsed().as_nanos() / u128::from(asked);
            println!("{count} networks: {each} ns for each visitor, {denied} denied");
            assert!(each < 1_000, "{count} networks: {each} ns");
        }
    }
}
