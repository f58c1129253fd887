//! The address of the client behind a reverse proxy, from `X-Forwarded-For`, `Forwarded` (RFC 7239)
//! and `X-Real-IP`.
//!
//! A field that the proxy does not set reaches us as the client sent it. So an address is believed
//! only when all present fields name the same address. A client that adds another field thereby
//! only causes the proxy's own address to be shown. A proxy that sets none of these fields must not
//! be trusted, because then the fields hold nothing but the client's own claims.

use std::net::{IpAddr, SocketAddr};

/// What the fields of a request tell of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardedClient {
    /// No field names an address that is no proxy of ours.
    Nobody,
    /// All fields name this address. The port is 0 when the proxy does not tell it.
    Client(SocketAddr),
    /// The fields contradict each other: the client has added one of them.
    Disputed,
}

/// The client as the proxy tells it. `values` gives the values of all fields of a name, which is in
/// lower case; `is_ours` knows the proxies whose word counts.
pub fn client<'f, V: Iterator<Item = &'f [u8]>>(
    values: impl Fn(&'static str) -> V,
    is_ours: impl Fn(IpAddr) -> bool,
) -> ForwardedClient {
    let listed = |name| last_stranger(&list(values(name)), &is_ours);
    let told = [
        listed("x-forwarded-for"),
        last_stranger(&elements(values("forwarded")), &is_ours),
        // `X-Real-IP` may name a proxy of ours that came before the last proxy, which tells
        // nothing.
        listed("x-real-ip"),
    ];
    let mut told = told.into_iter().flatten();
    let Some(first) = told.next() else { return ForwardedClient::Nobody };
    let ip = |one: Result<SocketAddr, Unknown>| one.map(|address| address.ip());
    if !told.all(|other| ip(other) == ip(first)) {
        return ForwardedClient::Disputed;
    }
    first.map_or(ForwardedClient::Nobody, ForwardedClient::Client)
}

/// A word in place of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unknown;

/// The client's address. Each proxy appends the address that it got the request from, so the client
/// is the last address that is no proxy of ours. `None` when all addresses are proxies of ours.
fn last_stranger(
    addresses: &[Result<SocketAddr, Unknown>],
    is_ours: impl Fn(IpAddr) -> bool,
) -> Option<Result<SocketAddr, Unknown>> {
    addresses.iter().rev().copied().find(|address| match address {
        Ok(address) => !is_ours(address.ip()),
        Err(Unknown) => true,
    })
}

fn list<'f>(values: impl Iterator<Item = &'f [u8]>) -> Vec<Result<SocketAddr, Unknown>> {
    values.flat_map(|value| value.split(|&byte| byte == b',')).map(address).collect()
}

/// The `for` value of each element. An element without `for` gives [`Unknown`].
fn elements<'f>(values: impl Iterator<Item = &'f [u8]>) -> Vec<Result<SocketAddr, Unknown>> {
    let elements = values.flat_map(|value| value.split(|&b| b == b','));
    let of = |element: &[u8]| {
        let pairs = element.split(|&byte| byte == b';');
        let mut values = pairs.filter_map(|pair| {
            let (name, value) = pair.trim_ascii().split_at_checked(4)?;
            name.eq_ignore_ascii_case(b"for=").then_some(value)
        });
        values.next().map_or(Err(Unknown), address)
    };
    elements.map(of).collect()
}

/// Parses the forms `192.0.2.1`, `192.0.2.1:443`, `2001:db8::1` and `"[2001:db8::1]:443"`.
fn address(text: &[u8]) -> Result<SocketAddr, Unknown> {
    let text = str::from_utf8(text.trim_ascii()).map_err(|_| Unknown)?;
    let text = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(SocketAddr::new(address.ip().to_canonical(), address.port()));
    }
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let ip: IpAddr = bare.parse().map_err(|_| Unknown)?;
    Ok(SocketAddr::new(ip.to_canonical(), 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `client` finds when our proxies are 10.0.0.0/8 and ::1.
    fn all_told(fields: &[(&str, &str)]) -> ForwardedClient {
        let values = |name| {
            let of_name = fields.iter().filter(move |(of, _)| of.eq_ignore_ascii_case(name));
            of_name.map(|(_, value)| value.as_bytes())
        };
        client(values, |ip| match ip {
            IpAddr::V4(ip) => ip.octets()[0] == 10,
            IpAddr::V6(ip) => ip.is_loopback(),
        })
    }

    fn told(fields: &[(&str, &str)]) -> Option<String> {
        match all_told(fields) {
            ForwardedClient::Client(address) => Some(address.to_string()),
            ForwardedClient::Nobody | ForwardedClient::Disputed => None,
        }
    }

    #[test]
    fn the_last_address_that_is_no_proxy_counts() {
        let cases = [
            ("192.0.2.1", Some("192.0.2.1:0")),
            ("192.0.2.66, 192.0.2.1, 10.1.1.1", Some("192.0.2.1:0")),
            ("192.0.2.1:5555", Some("192.0.2.1:5555")),
            ("2001:db8::1", Some("[2001:db8::1]:0")),
            ("[2001:db8::1]:443,::1", Some("[2001:db8::1]:443")),
            ("::ffff:192.0.2.1", Some("192.0.2.1:0")),
            ("10.0.0.1", None),
            ("192.0.2.1, unknown", None),
            ("", None),
        ];
        for (value, wanted) in cases {
            assert_eq!(told(&[("X-Forwarded-For", value)]).as_deref(), wanted, "{value}");
        }
        let twice = [("X-Forwarded-For", "192.0.2.9"), ("x-forwarded-for", "192.0.2.1")];
        assert_eq!(told(&twice).as_deref(), Some("192.0.2.1:0"));
    }

    #[test]
    fn the_field_of_rfc_7239_is_read_as_well() {
        let cases = [
            ("for=192.0.2.60;proto=http;by=203.0.113.43", Some("192.0.2.60:0")),
            ("For=\"[2001:db8:cafe::17]:4711\"", Some("[2001:db8:cafe::17]:4711")),
            ("for=192.0.2.43, for=10.2.3.4", Some("192.0.2.43:0")),
            ("by=203.0.113.43", None),
            ("for=_hidden", None),
        ];
        for (value, wanted) in cases {
            assert_eq!(told(&[("Forwarded", value)]).as_deref(), wanted, "{value}");
        }
    }

    #[test]
    fn fields_that_disagree_are_not_believed() {
        let real = ("X-Real-IP", "192.0.2.1");
        assert_eq!(told(&[real]).as_deref(), Some("192.0.2.1:0"));
        let same = told(&[real, ("X-Forwarded-For", "198.51.100.7, 192.0.2.1:99")]);
        assert_eq!(same.as_deref(), Some("192.0.2.1:99"));
        for (name, value) in [
            ("X-Forwarded-For", "198.51.100.7"),
            ("Forwarded", "for=198.51.100.7"),
            ("Forwarded", "for=unknown"),
        ] {
            assert_eq!(all_told(&[real, (name, value)]), ForwardedClient::Disputed);
        }
        assert_eq!(all_told(&[("Forwarded", "for=unknown")]), ForwardedClient::Nobody);
        let second = told(&[("X-Real-IP", "10.0.0.9"), ("X-Forwarded-For", "192.0.2.1")]);
        assert_eq!(second.as_deref(), Some("192.0.2.1:0"));
    }
}
