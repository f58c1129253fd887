//! The harness of the fuzz target.

use std::net::Ipv4Addr;

use super::pcp::Nonce;
use super::{http, is_over, nat_pmp, pcp, upnp};

/// Whatever a router responds, requests are sent only to the router, and the stored response is
/// bounded.
pub(crate) fn router(input: &[u8]) {
    let router = Ipv4Addr::new(192, 168, 1, 1);
    let _ = (pcp::answer(input, 7, &Nonce::default()), nat_pmp::address(input));
    let _ = nat_pmp::answer(input, 7, router);
    let response = http::response(input);
    assert!(response.is_none_or(|response| response.body.len() <= http::LONGEST));
    assert!(input.len() <= http::LONGEST || is_over(input));
    let Some(at) = upnp::location(input, router) else { return };
    let requests = upnp::services(input, &at).into_iter().map(|service| {
        assert_eq!(service.at.host, at.host);
        service.address_request()
    });
    assert_eq!(*at.host.ip(), router);
    for request in requests.chain([at.get()]) {
        let text = std::str::from_utf8(&request).expect("our own request");
        let (head, _) = text.split_once("\r\n\r\n").expect("our own head");
        assert_eq!(head.split("\r\n").next().map(|line| line.split(' ').count()), Some(3));
        assert!(head.split("\r\n").count() <= 6, "one request: {head}");
    }
}
