//! The harnesses of the fuzz targets, also used to replay their corpora.

mod proxy;

use h1::fuzz::{ends, pieces};
use h1::{HeadSniffer, Looked};

use crate::sniff::{First, FirstSniffer, HelloSniffer, Sniff};

pub use proxy::{connect, socks5};

/// A ClientHello must be parsed alike however it is split. The first byte of `data` selects the
/// size of the pieces.
pub fn hello(data: &[u8]) {
    let Some((_, size, bytes)) = pieces(data) else { return };
    let whole = HelloSniffer::default().look(bytes);
    let mut sniffer = HelloSniffer::default();
    let mut looks = ends(bytes, size).map(|end| sniffer.look(&bytes[..end]));
    let outcome = looks.find(|outcome| *outcome != Sniff::More).unwrap_or(Sniff::More);
    assert_eq!(outcome, whole);
    if let Sniff::Found(hello) = whole {
        assert_eq!(FirstSniffer::default().look(bytes), Some(First::Tls));
        assert!(hello.server_name.is_none_or(|name| !name.is_empty() && name.is_ascii()));
    }
}

/// A port for several protocols must recognize as HTTP whatever a port for HTTP alone recognizes.
pub fn first(bytes: &[u8]) {
    let first = FirstSniffer::default().look(bytes);
    let looked = HeadSniffer::default().look(bytes);
    // A method that begins like a greeting is recognized as the greeting.
    if first == Some(First::TunnelGreeting) {
        return assert_ne!(looked, Looked::Http2);
    }
    match looked {
        Looked::More => {}
        Looked::Http2 => assert_eq!(first, Some(First::Http2)),
        Looked::Not => assert_ne!(first, Some(First::Http2)),
        Looked::Bad(_) | Looked::Head(_) => assert_eq!(first, Some(First::Http)),
    }
}
