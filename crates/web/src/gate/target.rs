//! The request target in the characters of a URI. Browsers and programs send `<`, `>`, a backtick
//! and others unescaped, and a target receives them unescaped if the bytes of a connection pass
//! unchanged, as behind nginx. hyper's URI type rejects them.

use std::fmt::Write as _;

/// The characters that a URI must escape (RFC 3986 section 2), and that hyper refuses in a path or
/// a query.
const fn needs_escape(byte: u8) -> bool {
    matches!(byte, b'<' | b'>' | b'`' | b'"')
}

/// The header of a request with these characters of its target escaped. `None`: it has none.
pub(super) fn escaped(head: &[u8]) -> Option<Vec<u8>> {
    // An empty line may precede it.
    let start = if head.starts_with(b"\r\n") { 2 } else { 0 };
    let line = head.get(start..)?.split(|byte| *byte == b'\r').next()?;
    if !line.iter().copied().any(needs_escape) {
        return None;
    }
    let method = line.iter().position(|byte| *byte == b' ')?;
    let end = line.iter().rposition(|byte| *byte == b' ')?;
    let mut target = Vec::with_capacity(line.len());
    for &byte in line.get(method..end)? {
        if needs_escape(byte) {
            let mut escape = String::new();
            let _ = write!(escape, "%{byte:02X}");
            target.extend_from_slice(escape.as_bytes());
        } else {
            target.push(byte);
        }
    }
    Some([&head[..start + method], &target, &head[start + end..]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_no_uri_has_are_escaped() {
        let field = "Host: a\r\nX: <`\">\r\n\r\n";
        for (target, wanted) in
            [("/a<b>c`d\"e?x=<y>", "/a%3Cb%3Ec%60d%22e?x=%3Cy%3E"), ("http://a/<", "http://a/%3C")]
        {
            for before in ["", "\r\n"] {
                let head = format!("{before}GET {target} HTTP/1.1\r\n{field}");
                let written = escaped(head.as_bytes()).unwrap();
                let wanted = format!("{before}GET {wanted} HTTP/1.1\r\n{field}");
                assert_eq!(String::from_utf8(written).unwrap(), wanted);
            }
        }
        let plain = "GET /%3C{}|\\^[]\u{e4}?'{}|\\^`[] HTTP/1.1\r\n";
        assert_eq!(escaped(format!("{}{field}", plain.replace('`', "")).as_bytes()), None);
    }

    /// hyper accepts all others that `h1` accepts.
    #[test]
    fn every_other_character_of_a_target_is_one_of_a_uri() {
        for byte in (b'!'..=b'~').filter(|byte| !needs_escape(*byte) && *byte != b'#') {
            for target in [format!("/a{}b", char::from(byte)), format!("/?{}b", char::from(byte))] {
                assert!(target.parse::<hyper::Uri>().is_ok(), "{target}");
            }
        }
        assert!("/\u{e4}?\u{e4}".parse::<hyper::Uri>().is_ok());
    }
}
