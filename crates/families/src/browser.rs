//! The page by which browsers visit private services, at its own names below `http.domain`. The
//! page is at one name and each service at another, so that the pages of a service have their own
//! origin and never access the data of the page.
//!
//! ```text
//!   visit.example.com          the page; its WebSocket is a carrier of a client
//!   visit-HASH.example.com     a service: only the files that start the service worker
//! ```

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::{BufMut as _, BytesMut};
use config::ServerConfig;
use page::Asset;
use transport_ws::{Offer, Pages, Wish};

/// The label of the page below the domain.
const PAGE: &str = "visit";

/// The prefix of the label of a service.
const SERVICE: &str = "visit-";

/// The length of the rest of the label: the characters that the page derives from a hash.
const HASH: usize = 20;

/// The path of the page's WebSocket, and the folder of the files that start the service worker.
const LINK: &str = "/.tunnel/link";
const FOLDER: &str = "/.tunnel/";

/// Files of the page.
const FILES: [&str; 5] = ["app.js", "link.wasm", "sentences.js", "style.css", "visit.js"];

/// The fields of each answer: browsers sniff no other type, send no referrer and revalidate each
/// time, because a newer server has another page. Pages of other names neither load a file nor
/// share a process (`Origin-Agent-Cluster`), although all names of one domain are one site for a
/// browser.
const FIELDS: &str = "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
                      Cross-Origin-Resource-Policy: same-origin\r\nOrigin-Agent-Cluster: ?1\r\n\
                      Cache-Control: no-cache\r\nConnection: close\r\n";

/// Whether this build has the page, without which a server with `http.browser: true` does not
/// start.
#[must_use]
pub const fn has_page() -> bool {
    page::is_there()
}

/// The pages of a server, if it offers them.
///
/// # Errors
/// The build has no page.
pub fn pages(config: &ServerConfig) -> anyhow::Result<Option<Arc<dyn Pages>>> {
    let Some(domain) = config.http.domain.clone().filter(|_| config.http.browser) else {
        return Ok(None);
    };
    anyhow::ensure!(
        has_page(),
        "http.browser: this build of the program has no page for browsers (hint: it was built \
         without the target wasm32-unknown-unknown of Rust)"
    );
    Ok(Some(Arc::new(BrowserPages { domain })))
}

/// Whether a host belongs to the page, so that no client may publish it.
pub fn is_reserved(host: &str, domain: &str) -> bool {
    label(host, domain).is_some_and(|label| label == PAGE || label.starts_with(SERVICE))
}

/// The label of a host below the domain.
fn label<'a>(host: &'a str, domain: &str) -> Option<&'a str> {
    host.strip_suffix(domain)?.strip_suffix('.').filter(|label| !label.contains('.'))
}

#[derive(Debug)]
struct BrowserPages {
    domain: String,
}

impl Pages for BrowserPages {
    fn offer(&self, wish: Wish<'_>) -> Option<Offer> {
        let (host, port) = match wish.host.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (wish.host, None),
        };
        let is_port = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
        let host = host.to_ascii_lowercase();
        let label = label(&host, &self.domain).filter(|_| port.is_none_or(is_port))?;
        let site = Site { domain: &self.domain, port };
        if label == PAGE {
            if wish.path == LINK {
                let own = wish.origin.and_then(|origin| origin.split_once("://"));
                let is_own = own.is_some_and(|(_, of)| of.eq_ignore_ascii_case(wish.host));
                return Some(if is_own { Offer::Link } else { Offer::Foreign });
            }
            return Some(site.page(wish.path));
        }
        let hash = label.strip_prefix(SERVICE)?;
        let is_hash = |b: u8| b.is_ascii_lowercase() || (b'2'..=b'7').contains(&b);
        (hash.len() == HASH && hash.bytes().all(is_hash)).then(|| site.service(wish.path))
    }
}

/// The names of the pages as a browser requests them.
struct Site<'a> {
    domain: &'a str,
    port: Option<&'a str>,
}

impl Site<'_> {
    /// The policy sources for a host: over TLS, and without TLS only on this machine.
    fn sources(&self, label: &str) -> String {
        let port = self.port.map(|port| format!(":{port}")).unwrap_or_default();
        let host = format!("{label}.{}{port}", self.domain);
        let is_here = self.domain == "localhost" || self.domain.ends_with(".localhost");
        if is_here { format!("https://{host} http://{host}") } else { format!("https://{host}") }
    }

    /// A file of the page itself.
    fn page(&self, path: &str) -> Offer {
        let file = path.strip_prefix('/').unwrap_or_default();
        let policy = format!(
            "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; \
             img-src data:; connect-src 'self' {sockets}; frame-src {frames}; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
             trusted-types 'none'",
            // Older browsers do not count a WebSocket of the same origin as 'self'.
            sockets = self.sources(PAGE).replace("http", "ws"),
            frames = self.sources("*"),
        );
        let more = "Cross-Origin-Opener-Policy: same-origin\r\nX-Frame-Options: DENY\r\n";
        match file {
            "" => answer("200 OK", "index.html", &policy, more),
            file if FILES.contains(&file) => answer("200 OK", file, &policy, more),
            _ => answer("404 Not Found", "", &policy, more),
        }
    }

    /// A file of a service.
    fn service(&self, path: &str) -> Offer {
        let page = self.sources(PAGE);
        let policy = format!(
            "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'unsafe-inline'; \
             connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors {page}"
        );
        let scope = "Service-Worker-Allowed: /\r\n";
        match path.strip_prefix(FOLDER) {
            Some("frame") => answer("200 OK", "frame.html", &policy, ""),
            Some("frame.js") => answer("200 OK", "frame.js", &policy, ""),
            Some("stub.js") => answer("200 OK", "stub.js", &policy, ""),
            Some("worker.js") => answer("200 OK", "worker.js", &policy, scope),
            Some(_) => answer("404 Not Found", "", &policy, ""),
            // The service worker is not active.
            None => answer("404 Not Found", "stub.html", &policy, ""),
        }
    }
}

/// A complete response.
fn answer(status: &str, file: &str, policy: &str, more: &str) -> Offer {
    let asset = Asset::find(file);
    let body = asset.map(|asset| asset.gzip).unwrap_or_default();
    let mut head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n", body.len());
    if let Some(asset) = asset {
        // Writing to a `String` does not fail.
        let kind = asset.kind();
        let _ = write!(head, "Content-Type: {kind}\r\nContent-Encoding: gzip\r\n");
    }
    let _ = write!(head, "Content-Security-Policy: {policy}\r\n{FIELDS}{more}\r\n");
    let mut whole = BytesMut::with_capacity(head.len() + body.len());
    whole.put_slice(head.as_bytes());
    whole.put_slice(body);
    Offer::Page(whole.freeze(), head.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(host: &str, path: &str, origin: Option<&str>) -> Option<Offer> {
        BrowserPages { domain: "example.com".into() }.offer(Wish { host, path, origin })
    }

    /// The head of a page.
    fn head(host: &str, path: &str) -> Option<String> {
        match ask(host, path, None)? {
            Offer::Page(bytes, head) => Some(String::from_utf8_lossy(&bytes[..head]).into_owned()),
            Offer::Link | Offer::Foreign => None,
        }
    }

    const SITE: &str = "visit-abcdefghij234567abcd.example.com";

    #[test]
    fn the_page_and_the_services_have_names_of_their_own_and_nobody_else_has() {
        for host in ["visit.example.com", "Visit.Example.com:8443"] {
            assert!(head(host, "/").unwrap().starts_with("HTTP/1.1 200"), "{host}");
            assert!(head(host, "/worker.js").unwrap().starts_with("HTTP/1.1 404"), "{host}");
        }
        assert!(head(SITE, "/.tunnel/worker.js").unwrap().contains("Service-Worker-Allowed: /"));
        assert!(head(SITE, "/app.js").unwrap().starts_with("HTTP/1.1 404"));
        for other in [
            "example.com",
            "app.example.com",
            "visit.other.com",
            "visit.example.com.other.com",
            "a.visit.example.com",
            "visit-abc.example.com",
            "visit-ABCDEFGHIJ1234567abc.example.com",
            "visit.example.com:8x",
            "xvisit.example.com",
        ] {
            assert_eq!(ask(other, "/", None), None, "{other}");
        }
    }

    #[test]
    fn a_page_loads_nothing_from_elsewhere_and_nobody_frames_it() {
        let page = head("visit.example.com:8443", "/").unwrap();
        for rule in [
            "default-src 'none'",
            "connect-src 'self' wss://visit.example.com:8443;",
            "frame-src https://*.example.com:8443;",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'; trusted-types 'none'\r\n",
            "\r\nCross-Origin-Opener-Policy: same-origin\r\n",
        ] {
            assert!(page.contains(rule), "{rule} in {page}");
        }
        for (host, path) in [(SITE, "/.tunnel/frame"), (SITE, "/"), ("visit.example.com", "/no")] {
            let head = head(host, path).unwrap();
            assert!(head.contains("\r\nCross-Origin-Resource-Policy: same-origin\r\n"), "{head}");
            assert!(head.contains("\r\nOrigin-Agent-Cluster: ?1\r\n"), "{head}");
        }
        let frame = head(SITE, "/.tunnel/frame").unwrap();
        assert!(frame.contains("frame-ancestors https://visit.example.com\r\n"), "{frame}");
    }

    #[test]
    fn the_websocket_is_for_the_page_alone() {
        let ask = |host, origin| ask(host, LINK, origin);
        let own = Some("https://visit.example.com");
        assert_eq!(ask("visit.example.com", own), Some(Offer::Link));
        for foreign in [None, Some("https://evil.example"), Some("https://visit.example.com:1")] {
            assert_eq!(ask("visit.example.com", foreign), Some(Offer::Foreign), "{foreign:?}");
        }
        assert!(matches!(ask(SITE, own), Some(Offer::Page(..))), "a service has no WebSocket");
    }

    #[test]
    fn no_client_publishes_a_name_of_the_page() {
        assert!(is_reserved("visit.example.com", "example.com"));
        assert!(is_reserved(SITE, "example.com"));
        for free in ["visitors.example.com", "a.visit.example.com", "visit.other.com"] {
            assert!(!is_reserved(free, "example.com"), "{free}");
        }
    }
}
