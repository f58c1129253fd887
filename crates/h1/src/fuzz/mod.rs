//! The harnesses of the fuzz targets, which the replay of their corpora uses as well.

mod conversation;

use crate::{HeadSniffer, Looked, Rest, Then, Tracker};

pub use conversation::conversation;

/// Splits off the first byte, which chooses the size of pieces.
#[must_use]
pub fn pieces(data: &[u8]) -> Option<(u8, usize, &[u8])> {
    let (&first, bytes) = data.split_first()?;
    Some((first, usize::from(first >> 1) + 1, bytes))
}

/// The lengths of `bytes` at which a caller that reads pieces of `size` calls the parser.
pub fn ends(bytes: &[u8], size: usize) -> impl Iterator<Item = usize> {
    (1..=bytes.len().div_ceil(size)).map(move |piece| bytes.len().min(piece * size))
}

/// The head of a request must have the same meaning however it is split, and its meaning must match
/// its bytes. The first byte of `data` chooses the size of the pieces, and whether a field names
/// the host.
pub fn head(data: &[u8]) {
    let Some((first, size, bytes)) = pieces(data) else { return };
    let new = || HeadSniffer::new((first & 1 == 1).then(|| "x-route".into()));
    let whole = new().look(bytes);
    let mut sniffer = new();
    let mut looks = ends(bytes, size).map(|end| sniffer.look(&bytes[..end]));
    let outcome = looks.find(|outcome| *outcome != Looked::More).unwrap_or(Looked::More);
    assert_eq!(outcome, whole);

    match whole {
        Looked::More | Looked::Http2 | Looked::Bad(_) | Looked::Not => {}
        Looked::Head(head) => {
            let text = &bytes[..head.length];
            assert!(text.ends_with(b"\r\n\r\n"));
            assert!(!text[..text.len() - 2].windows(4).any(|window| window == b"\r\n\r\n"));
            assert!(text.iter().all(|byte| *byte >= b' ' || b"\r\n\t".contains(byte)));
            assert!(head.path.end <= head.length);
            assert!(head.host.is_none_or(|host| {
                !host.is_empty() && host.bytes().all(|byte| !byte.is_ascii_uppercase())
            }));
        }
    }
}

/// Bytes of a visitor and of a service must have the same boundaries however they are split, and a
/// conversation must follow its rules. The first byte of `data` selects one of the harnesses.
pub fn tracker(data: &[u8]) {
    let Some((first, size, bytes)) = pieces(data) else { return };
    if first & 1 == 1 {
        conversation(bytes);
    } else {
        boundaries(bytes, size);
    }
}

/// `bytes` contains the bytes of the visitor, then a line `--`, then the bytes of the service.
fn boundaries(bytes: &[u8], size: usize) {
    const LINE: &[u8] = b"\n--\n";
    let at = bytes.windows(LINE.len()).position(|window| window == LINE);
    let (requests, responses) = match at {
        Some(at) => (&bytes[..at], &bytes[at + LINE.len()..]),
        None => (bytes, &[][..]),
    };
    let whole = follow(requests, responses, requests.len().max(1), responses.len().max(1));
    assert_eq!(follow(requests, responses, size, size), whole);
    // Delivered bytes are no longer in doubt.
    let (_, _, delivered, _) = whole;
    assert_eq!(follow(requests, &delivered, size, size).2, delivered);
}

/// Passes all bytes of the visitor, then all bytes of the service. Returns the number of bytes that
/// were passed on before and after the responses, the delivered bytes, and the next action.
fn follow(
    requests: &[u8],
    responses: &[u8],
    up: usize,
    down: usize,
) -> (usize, usize, Vec<u8>, Then) {
    let mut tracker = Tracker::new(None);
    let (passed, _) = give(&mut tracker, requests, 0, up);
    let mut delivered = Vec::new();
    for piece in responses.chunks(down) {
        let progress = tracker.responses(piece);
        delivered.extend_from_slice(&progress.held);
        delivered.extend_from_slice(&piece[..progress.deliver]);
        if progress.rest != Rest::Held {
            break;
        }
    }
    let (later, then) = give(&mut tracker, requests, passed, up);
    (passed, later, delivered, then)
}

/// Passes the bytes of the visitor after the first `passed` bytes, in pieces.
fn give(tracker: &mut Tracker, requests: &[u8], mut passed: usize, size: usize) -> (usize, Then) {
    let mut then = Then::Read;
    for end in ends(&requests[passed..], size).map(|end| passed + end).collect::<Vec<_>>() {
        let length;
        (length, then) = tracker.requests(&requests[passed..end]);
        assert!(length <= end - passed);
        assert_eq!(then == Then::Read, passed + length == end && then == Then::Read);
        passed += length;
    }
    (passed, then)
}
