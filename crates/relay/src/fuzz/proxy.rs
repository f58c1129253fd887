//! Harnesses for the messages of a proxy's visitors.

use std::fmt::Debug;

use h1::fuzz::{ends, pieces};
use h1::{HeadSniffer, Looked};

use crate::TargetAddr;
use crate::proxy::connect::{Decoder, Wish};
use crate::proxy::{Decoded, Endpoint, Fault, absolute, socks5 as messages};

/// A SOCKS5 message must be parsed alike however it is split, and the result must match its bytes.
/// The two low bits of the first byte of `data` select the message, the others the size of the
/// pieces.
pub fn socks5(data: &[u8]) {
    let Some((&first, bytes)) = data.split_first() else { return };
    let size = usize::from(first >> 2) + 1;
    match first & 3 {
        0 => drop(same(bytes, size, 257, messages::greeting)),
        1 => drop(same(bytes, size, 513, messages::password)),
        2 => {
            // A request whose address has an unknown length is complete with the bytes that have
            // arrived.
            let Some(request) = same(bytes, size, 262, |bytes| match messages::request(bytes) {
                Decoded::Done(messages::Request { address: Err(Fault::AddressType), .. }, _) => {
                    Decoded::Bad(Fault::AddressType)
                }
                decoded @ (Decoded::More | Decoded::Done(..) | Decoded::Bad(_)) => decoded,
            }) else {
                return;
            };
            request.address.into_iter().for_each(check);
        }
        _ => {
            let Some(datagram) = messages::datagram(bytes) else { return };
            let mut again = Vec::new();
            messages::put_header(&mut again, datagram.address);
            again.extend_from_slice(datagram.payload);
            assert_eq!((&again[3..], bytes[2]), (&bytes[3..], 0));
            datagram.asked().into_iter().for_each(check);
        }
    }
}

/// A request to an HTTP proxy must be parsed alike however it is split, and the header sent to a
/// target must be one complete request, the last of its connection, for the dialled host. The first
/// byte of `data` selects the size of the pieces.
pub fn connect(data: &[u8]) {
    let Some((_, size, bytes)) = pieces(data) else { return };
    let whole = Decoder::default().look(bytes);
    let mut decoder = Decoder::default();
    let mut looks = ends(bytes, size).map(|end| decoder.look(&bytes[..end]));
    let outcome = looks.find(|outcome| *outcome != Decoded::More).unwrap_or(Decoded::More);
    assert_eq!(outcome, whole);
    if let Decoded::Done(request, length) = whole {
        assert!(bytes[..length].ends_with(b"\r\n\r\n"));
        let target = match request.wish {
            Ok(Wish::Connect(target)) => target,
            Ok(Wish::Request(absolute::Request { target, head })) => {
                let Looked::Head(seen) = HeadSniffer::default().look(&head) else {
                    panic!("{head:?}")
                };
                assert!(seen.length == head.len() && seen.close && !seen.upgrade);
                let host = seen.host.unwrap_or_default();
                assert_eq!(Endpoint::new(host.as_bytes(), target.port).as_ref(), Some(&target));
                target
            }
            Err(_) => return,
        };
        assert_ne!(target.port, 0);
        check(target);
    }
}

/// Decodes `bytes` as a whole and in pieces. Returns the message, if there is one.
fn same<T: Debug + PartialEq>(
    bytes: &[u8],
    size: usize,
    limit: usize,
    decode: impl Fn(&[u8]) -> Decoded<T>,
) -> Option<T> {
    let whole = decode(bytes);
    let mut looks = ends(bytes, size).map(|end| decode(&bytes[..end]));
    let outcome = looks.find(|outcome| *outcome != Decoded::More).unwrap_or(Decoded::More);
    assert_eq!(outcome, whole);
    match whole {
        Decoded::Done(value, length) => {
            assert!(length <= bytes.len().min(limit));
            Some(value)
        }
        Decoded::More => {
            assert!(bytes.len() < limit, "no more bytes can be missing");
            None
        }
        Decoded::Bad(_) => None,
    }
}

/// Checks that the requested endpoint can be dialled.
fn check(endpoint: Endpoint) {
    if endpoint.port != 0 {
        let text = format!("tcp://{endpoint}");
        assert_eq!(text.parse::<TargetAddr>(), Ok(endpoint.target()));
    }
}
