//! The address of the client behind a reverse proxy, from `X-Forwarded-For`, `Forwarded` (RFC 7239)
//! and `X-Real-IP`.
//!
//! A field that the proxy does not set arrives as the client sent it. So an address is trusted only
//! if all present fields name the same address. A proxy that sets none of these fields must not be
//! trusted, because then the fields contain only the client's own claims.

use std::net::{IpAddr, SocketAddr};

/// The client according to the fields of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardedClient {
    /// All fields name this address. The port is 0 if the proxy does not report it.
    Client(SocketAddr),
    /// The fields name only our proxies: this is the farthest. `None`: there is no field.
    Ours(Option<SocketAddr>),
    /// The client is an identifier (RFC 7239 section 6), or not an address at all.
    Hidden,
    /// The fields contradict each other: the client has added a field.
    Disputed,
}

/// The client as reported by the proxy. `values` returns the values of all fields with a name in
/// lower case; `is_ours` identifies trusted proxies.
pub fn client<'f, V: Iterator<Item = &'f [u8]>>(
    values: impl Fn(&'static str) -> V,
    is_ours: impl Fn(IpAddr) -> bool,
) -> ForwardedClient {
    let fields = [
        listed(values("x-forwarded-for"), list),
        listed(values("forwarded"), elements),
        // `X-Real-IP` may name one of our proxies in front of the last proxy, which carries no
        // information.
        listed(values("x-real-ip"), list),
    ];
    let mut named = fields.iter().filter_map(|field| last_stranger(field, &is_ours));
    let Some(first) = named.next() else {
        let farthest = fields.iter().find_map(|field| field.first().copied()?.ok());
        return ForwardedClient::Ours(farthest);
    };
    let ip = |one: Named| one.map(|address| address.ip());
    if !named.all(|other| ip(other) == ip(first)) {
        return ForwardedClient::Disputed;
    }
    first.map_or(ForwardedClient::Hidden, ForwardedClient::Client)
}

/// An identifier instead of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unknown;

/// A member of a field.
type Named = Result<SocketAddr, Unknown>;

/// The client's address. Each proxy appends the address from which it got the request, so the
/// client is the last address that is not one of our proxies. `None` if all addresses are our
/// proxies.
fn last_stranger(addresses: &[Named], is_ours: impl Fn(IpAddr) -> bool) -> Option<Named> {
    addresses.iter().rev().copied().find(|address| match address {
        Ok(address) => !is_ours(address.ip()),
        Err(Unknown) => true,
    })
}

/// The members of all fields of a name. A present field without members counts as unknown.
fn listed<'f>(
    values: impl Iterator<Item = &'f [u8]>,
    members: impl Fn(&'f [u8], &mut Vec<Named>),
) -> Vec<Named> {
    let mut all = Vec::new();
    for value in values {
        let before = all.len();
        members(value, &mut all);
        if all.len() == before {
            all.push(Err(Unknown));
        }
    }
    all
}

/// The addresses of a list. Empty members are ignored (RFC 9110 section 5.6.1.2).
fn list(value: &[u8], all: &mut Vec<Named>) {
    let members = value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    all.extend(members.filter(|member| !member.is_empty()).map(address));
}

/// The `for` value of each element of `Forwarded`. An element without exactly one such value yields
/// [`Unknown`].
///
/// A quoted string may contain commas and semicolons (RFC 7239 section 4), and a proxy may write
/// the client's `Host` into one. A value with unbalanced quotes is ignored, because a client may
/// have opened a string that the proxy's own quotes close.
fn elements(value: &[u8], all: &mut Vec<Named>) {
    let before = all.len();
    let (mut is_quoted, mut is_escaped) = (false, false);
    let (mut start, mut pairs) = (0, Pairs::default());
    for (at, &byte) in value.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b';' | b',' if !is_quoted => {
                pairs.read(&value[start..at]);
                start = at + 1;
                if byte == b',' {
                    all.extend(std::mem::take(&mut pairs).end());
                }
            }
            _ => {}
        }
    }
    if is_quoted {
        all.truncate(before);
        return all.push(Err(Unknown));
    }
    pairs.read(&value[start..]);
    all.extend(pairs.end());
}

/// The parsed pairs of an element of `Forwarded`.
#[derive(Default)]
struct Pairs {
    is_present: bool,
    client: Option<Named>,
}

impl Pairs {
    fn read(&mut self, pair: &[u8]) {
        let pair = pair.trim_ascii();
        self.is_present |= !pair.is_empty();
        let named = pair.split_at_checked(4).filter(|(name, _)| name.eq_ignore_ascii_case(b"for="));
        if let Some((_, value)) = named {
            let is_first = self.client.is_none();
            self.client = Some(if is_first { address(value) } else { Err(Unknown) });
        }
    }

    /// The client of the element; `None`: the element is empty.
    fn end(self) -> Option<Named> {
        self.is_present.then(|| self.client.unwrap_or(Err(Unknown)))
    }
}

/// Parses the forms `192.0.2.1`, `192.0.2.1:443`, `2001:db8::1` and `"[2001:db8::1]:443"`.
fn address(text: &[u8]) -> Named {
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

    /// The result of `client` if our proxies are 10.0.0.0/8 and ::1.
    fn all_named(fields: &[(&str, &str)]) -> ForwardedClient {
        let values = |name| {
            let of_name = fields.iter().filter(move |(of, _)| of.eq_ignore_ascii_case(name));
            of_name.map(|(_, value)| value.as_bytes())
        };
        client(values, |ip| match ip {
            IpAddr::V4(ip) => ip.octets()[0] == 10,
            IpAddr::V6(ip) => ip.is_loopback(),
        })
    }

    fn named(fields: &[(&str, &str)]) -> Option<String> {
        match all_named(fields) {
            ForwardedClient::Client(address) => Some(address.to_string()),
            ForwardedClient::Ours(_) | ForwardedClient::Hidden | ForwardedClient::Disputed => None,
        }
    }

    fn ours(address: &str) -> ForwardedClient {
        ForwardedClient::Ours(Some(address.parse().unwrap()))
    }

    #[test]
    fn the_last_address_that_is_no_proxy_counts() {
        let cases = [
            ("192.0.2.1", "192.0.2.1:0"),
            ("192.0.2.66, 192.0.2.1, 10.1.1.1", "192.0.2.1:0"),
            ("192.0.2.1:5555", "192.0.2.1:5555"),
            ("2001:db8::1", "[2001:db8::1]:0"),
            ("[2001:db8::1]:443,::1", "[2001:db8::1]:443"),
            ("::ffff:192.0.2.1", "192.0.2.1:0"),
            (", 192.0.2.1,", "192.0.2.1:0"),
            ("nobody, 192.0.2.1", "192.0.2.1:0"),
        ];
        for (value, wanted) in cases {
            assert_eq!(named(&[("X-Forwarded-For", value)]).as_deref(), Some(wanted), "{value}");
        }
        let twice = [("X-Forwarded-For", "192.0.2.9"), ("x-forwarded-for", "192.0.2.1")];
        assert_eq!(named(&twice).as_deref(), Some("192.0.2.1:0"));
    }

    #[test]
    fn a_word_in_the_place_of_the_client_is_no_proxy_of_ours() {
        for value in
            ["192.0.2.1, unknown", "", " , ", "192.0.2.1, 10.0.0.256", "192.0.2.1 10.0.0.1"]
        {
            let named = all_named(&[("X-Forwarded-For", value)]);
            assert_eq!(named, ForwardedClient::Hidden, "{value}");
        }
        let second = [("X-Forwarded-For", "192.0.2.1"), ("X-Forwarded-For", "")];
        assert_eq!(all_named(&second), ForwardedClient::Hidden);
    }

    #[test]
    fn the_farthest_of_our_proxies_is_the_client_where_nobody_else_is_named() {
        assert_eq!(all_named(&[]), ForwardedClient::Ours(None));
        let value = "10.0.0.1, 10.0.0.2, ::1";
        assert_eq!(all_named(&[("X-Forwarded-For", value)]), ours("10.0.0.1:0"));
        assert_eq!(all_named(&[("Forwarded", "for=10.0.0.3")]), ours("10.0.0.3:0"));
    }

    #[test]
    fn the_field_of_rfc_7239_is_read_as_well() {
        let cases = [
            ("for=192.0.2.60;proto=http;by=203.0.113.43", Some("192.0.2.60:0")),
            ("For=\"[2001:db8:cafe::17]:4711\"", Some("[2001:db8:cafe::17]:4711")),
            ("for=192.0.2.43, for=10.2.3.4", Some("192.0.2.43:0")),
            ("proto=http; for=192.0.2.43 ,", Some("192.0.2.43:0")),
            ("by=203.0.113.43", None),
            ("for=_hidden", None),
            ("for=192.0.2.43;for=192.0.2.44", None),
            ("for=192.0.2.43, proto=http", None),
        ];
        for (value, wanted) in cases {
            assert_eq!(named(&[("Forwarded", value)]).as_deref(), wanted, "{value}");
        }
    }

    #[test]
    fn a_string_in_quotes_names_nobody() {
        let host = "for=192.0.2.1;host=\"a,for=198.51.100.7;x=\"";
        assert_eq!(named(&[("Forwarded", host)]).as_deref(), Some("192.0.2.1:0"));
        let escaped = "for=192.0.2.1;host=\"a\\\",for=198.51.100.7;x=\"";
        assert_eq!(named(&[("Forwarded", escaped)]).as_deref(), Some("192.0.2.1:0"));
        // The client has opened a string, which the proxy's element does not close, or closes with
        // the quote that opens its own string.
        for value in
            ["for=\"198.51.100.7, for=192.0.2.1", "for=\"x, for=\"[2001:db8::1]\"", "for=\"a\\\""]
        {
            assert_eq!(all_named(&[("Forwarded", value)]), ForwardedClient::Hidden, "{value}");
        }
        // A separate field is not affected by the client's field.
        let lines = [("Forwarded", "for=\"x"), ("Forwarded", "for=192.0.2.1")];
        assert_eq!(named(&lines).as_deref(), Some("192.0.2.1:0"));
    }

    #[test]
    fn fields_that_disagree_are_not_believed() {
        let real = ("X-Real-IP", "192.0.2.1");
        assert_eq!(named(&[real]).as_deref(), Some("192.0.2.1:0"));
        let same = named(&[real, ("X-Forwarded-For", "198.51.100.7, 192.0.2.1:99")]);
        assert_eq!(same.as_deref(), Some("192.0.2.1:99"));
        for (name, value) in [
            ("X-Forwarded-For", "198.51.100.7"),
            ("X-Forwarded-For", ""),
            ("Forwarded", "for=198.51.100.7"),
            ("Forwarded", "for=unknown"),
        ] {
            assert_eq!(all_named(&[real, (name, value)]), ForwardedClient::Disputed);
        }
        assert_eq!(all_named(&[("Forwarded", "for=unknown")]), ForwardedClient::Hidden);
        let second = named(&[("X-Real-IP", "10.0.0.9"), ("X-Forwarded-For", "192.0.2.1")]);
        assert_eq!(second.as_deref(), Some("192.0.2.1:0"));
    }
}
