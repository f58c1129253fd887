//! The first message: the authentication methods that a program offers (RFC 1928 section 3).

use super::VERSION;
use crate::proxy::{Decoded, Fault};

/// The first byte of SOCKS4 and SOCKS4a.
const VERSION_4: u8 = 4;

/// An authentication method of this end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// No authentication.
    Open,
    /// User and password (RFC 1929).
    Password,
    /// No offered method is acceptable.
    Unacceptable,
}

impl Method {
    /// The message that selects this method.
    pub(crate) const fn choice(self) -> [u8; 2] {
        let method = match self {
            Self::Open => 0,
            Self::Password => 2,
            Self::Unacceptable => 0xff,
        };
        [VERSION, method]
    }
}

/// The offered methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Methods {
    pub(crate) open: bool,
    pub(crate) password: bool,
}

/// Decodes a greeting.
pub(crate) fn greeting(bytes: &[u8]) -> Decoded<Methods> {
    match bytes {
        [] | [VERSION] => Decoded::More,
        [VERSION, count, rest @ ..] => match rest.get(..usize::from(*count)) {
            Some(methods) => {
                let has = |method| methods.contains(&method);
                let methods = Methods { open: has(0), password: has(2) };
                Decoded::Done(methods, 2 + usize::from(*count))
            }
            None => Decoded::More,
        },
        [VERSION_4, ..] => Decoded::Bad(Fault::Socks4),
        // All HTTP methods in use begin with a capital letter.
        [b'A'..=b'Z', ..] => Decoded::Bad(Fault::HttpAtSocks),
        _ => Decoded::Bad(Fault::Protocol),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offered_methods_are_known_once_all_have_arrived() {
        let bytes = [5, 3, 0, 1, 2, 99];
        for length in 0..5 {
            assert_eq!(greeting(&bytes[..length]), Decoded::More, "{length}");
        }
        let both = Methods { open: true, password: true };
        assert_eq!(greeting(&bytes), Decoded::Done(both, 5));
        let none = Methods { open: false, password: false };
        assert_eq!(greeting(&[5, 0, 1]), Decoded::Done(none, 2));
        assert_eq!(greeting(&[5, 1, 1]), Decoded::Done(none, 3));
    }

    #[test]
    fn other_protocols_are_told_apart() {
        assert_eq!(greeting(&[4, 1, 0, 80]), Decoded::Bad(Fault::Socks4));
        assert_eq!(greeting(b"GET / HTTP/1.1\r\n"), Decoded::Bad(Fault::HttpAtSocks));
        assert_eq!(greeting(&[22, 3, 1]), Decoded::Bad(Fault::Protocol));
    }
}
