//! UPnP IGD (Internet Gateway Device 1 and 2): the search for the router's description, the service
//! in it that maps ports, and its actions.
//!
//! Regardless of the router's responses, requests are sent only to the address and the port of its
//! description.

use std::net::{Ipv4Addr, SocketAddrV4};

use super::{Denied, http};

/// Maximum number of services of a router that are tried: a modem for several lines has one for
/// each.
const SERVICES: usize = 4;

/// Maximum length of the path of a URL, in bytes.
const PATH: usize = 256;

const WAN_IP_2: &str = "urn:schemas-upnp-org:service:WANIPConnection:2";
const WAN_IP_1: &str = "urn:schemas-upnp-org:service:WANIPConnection:1";
const WAN_PPP_1: &str = "urn:schemas-upnp-org:service:WANPPPConnection:1";

/// The port has another owner (`ConflictInMappingEntry`).
pub(super) const CONFLICT: u16 = 718;

/// The router supports only permanent mappings (`OnlyPermanentLeasesSupported`).
pub(super) const PERMANENT: u16 = 725;

/// A resource of the router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) host: SocketAddrV4,
    path: String,
}

/// A service that maps ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Service {
    pub(super) at: Place,
    kind: &'static str,
}

/// Encodes the unicast search to the router (UPnP Device Architecture 1.1 section 1.3.2).
pub(super) fn search(router: Ipv4Addr) -> Vec<u8> {
    format!(
        "M-SEARCH * HTTP/1.1\r\nHOST: {router}:1900\r\nMAN: \"ssdp:discover\"\r\nMX: 1\r\n\
         ST: urn:schemas-upnp-org:device:InternetGatewayDevice:1\r\n\r\n"
    )
    .into_bytes()
}

/// The location of the description, from a response to the search. `None`: it is not a response, or
/// its URL is not on the router.
pub(super) fn location(answer: &[u8], router: Ipv4Addr) -> Option<Place> {
    let answer = std::str::from_utf8(answer).ok()?;
    let is_answer = answer.starts_with("HTTP/1.") && answer.split(' ').nth(1) == Some("200");
    let url = http::field(answer, "LOCATION").filter(|_| is_answer)?;
    place(url).filter(|place| *place.host.ip() == router && place.host.port() != 0)
}

fn place(url: &str) -> Option<Place> {
    let rest = url.strip_prefix("http://")?;
    let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    let host = match authority.parse::<Ipv4Addr>() {
        Ok(ip) => SocketAddrV4::new(ip, 80),
        Err(_) => authority.parse().ok()?,
    };
    Some(Place { host, path: checked(path)? })
}

/// The path, if a request can contain it unchanged.
fn checked(path: &str) -> Option<String> {
    let is_plain = path.len() <= PATH && path.bytes().all(|byte| byte.is_ascii_graphic());
    is_plain.then(|| path.to_owned())
}

impl Place {
    pub(super) fn get(&self) -> Vec<u8> {
        http::get(self.host, &self.path)
    }

    /// Resolves a URL of the description; `None`: it has another host or port.
    fn relative(&self, url: &str) -> Option<Self> {
        if url.contains("://") {
            return place(url).filter(|place| place.host == self.host);
        }
        let path = checked(&format!("/{}", url.trim_start_matches('/')))?;
        Some(Self { host: self.host, path })
    }
}

/// The services of a description that map ports.
pub(super) fn services(description: &[u8], at: &Place) -> Vec<Service> {
    let text = String::from_utf8_lossy(description);
    let services = text.split("<service>").skip(1).filter_map(|rest| {
        let service = rest.split("</service>").next()?;
        let named = element(service, "serviceType")?;
        let kind = [WAN_IP_2, WAN_IP_1, WAN_PPP_1].into_iter().find(|kind| *kind == named)?;
        let url = element(service, "controlURL")?.replace("&amp;", "&");
        Some(Service { at: at.relative(&url)?, kind })
    });
    services.take(SERVICES).collect()
}

/// The text of the first element with this name.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let begins = text.match_indices(name).find_map(|(at, _)| {
        let rest = &text[at + name.len()..];
        let is_begin = text[..at].ends_with('<') && rest.starts_with(['>', ' ']);
        is_begin.then_some(rest)
    })?;
    let (_, content) = begins.split_once('>')?;
    content.split_once('<').map(|(text, _)| text.trim())
}

impl Service {
    /// Encodes the request for the external address.
    pub(super) fn address_request(&self) -> Vec<u8> {
        self.action("GetExternalIPAddress", "")
    }

    /// Encodes the request to map the external port `outer`.
    pub(super) fn add_request(&self, own: SocketAddrV4, outer: u16, seconds: u32) -> Vec<u8> {
        let (ip, port) = (own.ip(), own.port());
        self.action(
            "AddPortMapping",
            &format!(
                "<NewRemoteHost></NewRemoteHost><NewExternalPort>{outer}</NewExternalPort>\
                 <NewProtocol>UDP</NewProtocol><NewInternalPort>{port}</NewInternalPort>\
                 <NewInternalClient>{ip}</NewInternalClient><NewEnabled>1</NewEnabled>\
                 <NewPortMappingDescription>tunnel</NewPortMappingDescription>\
                 <NewLeaseDuration>{seconds}</NewLeaseDuration>"
            ),
        )
    }

    /// Encodes the request to delete a mapping.
    pub(super) fn delete_request(&self, outer: u16) -> Vec<u8> {
        self.action(
            "DeletePortMapping",
            &format!(
                "<NewRemoteHost></NewRemoteHost><NewExternalPort>{outer}</NewExternalPort>\
                 <NewProtocol>UDP</NewProtocol>"
            ),
        )
    }

    fn action(&self, name: &str, arguments: &str) -> Vec<u8> {
        let kind = self.kind;
        let body = format!(
            "<?xml version=\"1.0\"?>\r\n\
             <s:Envelope xmlns:s=\"http://schemas.xmlsoap.org/soap/envelope/\" \
             s:encodingStyle=\"http://schemas.xmlsoap.org/soap/encoding/\"><s:Body>\
             <u:{name} xmlns:u=\"{kind}\">{arguments}</u:{name}></s:Body></s:Envelope>\r\n"
        );
        http::post(self.at.host, &self.at.path, &format!("{kind}#{name}"), &body)
    }
}

/// Decodes the response to an action: its body, or why the action was refused.
pub(super) fn done(answer: Option<&[u8]>) -> Result<Vec<u8>, Denied> {
    let Some(answer) = answer.and_then(http::response) else { return Err(Denied::Unreadable) };
    if answer.status == 200 {
        return Ok(answer.body);
    }
    let body = String::from_utf8_lossy(&answer.body);
    let code = element(&body, "errorCode").and_then(|code| code.parse().ok());
    Err(match code {
        Some(606) => Denied::NotAuthorized,
        Some(728) => Denied::Full,
        code => Denied::Code(code.unwrap_or(answer.status)),
    })
}

/// The external address in a response.
pub(super) fn address(body: &[u8]) -> Option<Ipv4Addr> {
    element(&String::from_utf8_lossy(body), "NewExternalIPAddress")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 168, 1, 1);

    fn found(location: &str) -> Option<String> {
        let answer = format!("HTTP/1.1 200 OK\r\nST: x\r\nLocation: {location}\r\n\r\n");
        super::location(answer.as_bytes(), ROUTER).map(|at| format!("{}{}", at.host, at.path))
    }

    #[test]
    fn a_description_is_at_the_router_alone() {
        for (url, place) in [
            ("http://192.168.1.1:5000/root.xml", "192.168.1.1:5000/root.xml"),
            ("http://192.168.1.1/a?b=c", "192.168.1.1:80/a?b=c"),
            ("http://192.168.1.1:5000", "192.168.1.1:5000/"),
        ] {
            assert_eq!(found(url).as_deref(), Some(place));
        }
        for url in [
            "http://192.168.1.2:5000/root.xml",
            "http://127.0.0.1:5000/root.xml",
            "http://192.168.1.1.example.com/root.xml",
            "http://192.168.1.1:5000@10.0.0.1/root.xml",
            "http://router:5000/root.xml",
            "http://192.168.1.1:0/root.xml",
            "https://192.168.1.1/root.xml",
            "http://192.168.1.1:5000/a b",
            "http://192.168.1.1:5000/a\u{e4}",
            "file:///etc/passwd",
            &format!("http://192.168.1.1/{}", "a".repeat(PATH)),
        ] {
            assert_eq!(found(url), None, "{url}");
        }
        assert!(
            location(b"NOTIFY * HTTP/1.1\r\nLocation: http://192.168.1.1/\r\n\r\n", ROUTER)
                .is_none()
        );
        assert!(
            location(b"HTTP/1.1 404 No\r\nLocation: http://192.168.1.1/\r\n\r\n", ROUTER).is_none()
        );
    }

    #[test]
    fn services_that_map_ports_are_found_and_stay_at_the_router() {
        let at = place("http://192.168.1.1:5000/igd/root.xml").unwrap();
        let service = |kind: &str, url: &str| {
            format!(
                "<service><serviceType>{kind}</serviceType>\n<serviceId>x</serviceId>\
                 <controlURL> {url} </controlURL></service>"
            )
        };
        let text = [
            service("urn:schemas-upnp-org:service:Layer3Forwarding:1", "/l3f"),
            service(WAN_IP_1, "http://10.0.0.1:5000/other"),
            service(WAN_IP_1, "http://192.168.1.1:22/other"),
            service(WAN_IP_1, "/a b"),
            service(WAN_IP_1, "ctl?a=1&amp;b=2"),
            service(WAN_PPP_1, "http://192.168.1.1:5000/ppp"),
            service(WAN_IP_2, "/ip2"),
        ]
        .concat();
        let found = services(text.as_bytes(), &at);
        let found: Vec<_> = found.iter().map(|one| (one.kind, one.at.path.as_str())).collect();
        assert_eq!(found, [(WAN_IP_1, "/ctl?a=1&b=2"), (WAN_PPP_1, "/ppp"), (WAN_IP_2, "/ip2")]);
        let many = service(WAN_IP_1, "/x").repeat(100);
        assert_eq!(services(many.as_bytes(), &at).len(), SERVICES);
        assert!(services(b"<service><service><serviceType>", &at).is_empty());
    }

    #[test]
    fn an_action_says_its_outcome() {
        let answer = |status: u16, body: &str| {
            done(Some(format!("HTTP/1.1 {status} x\r\n\r\n{body}").as_bytes()))
        };
        let body =
            answer(200, "<u:R><NewExternalIPAddress x='1'>203.0.113.9</NewExternalIPAddress>");
        assert_eq!(address(&body.unwrap()), Some([203, 0, 113, 9].into()));
        assert_eq!(address(b"<NewExternalIPAddress></NewExternalIPAddress>"), None);
        let fault = |code| answer(500, &format!("<errorCode>{code}</errorCode>"));
        assert_eq!(fault(718), Err(Denied::Code(CONFLICT)));
        assert_eq!(fault(606), Err(Denied::NotAuthorized));
        assert_eq!(answer(404, ""), Err(Denied::Code(404)));
        assert_eq!(done(None), Err(Denied::Unreadable));
    }
}
