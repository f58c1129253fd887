//! The user and the password of a program (RFC 1929).

use crate::proxy::{Decoded, Fault, Given};

/// The version of this subnegotiation.
const VERSION: u8 = 1;

/// Decodes a user and a password. An empty user or password is decoded, too; the comparison decides
/// whether it is correct.
pub(crate) fn password(bytes: &[u8]) -> Decoded<Given> {
    let user = match bytes {
        [] | [VERSION] => return Decoded::More,
        [VERSION, length, rest @ ..] => rest.get(..usize::from(*length)),
        _ => return Decoded::Bad(Fault::Password),
    };
    let Some(user) = user else { return Decoded::More };
    let rest = &bytes[2 + user.len()..];
    let Some((&length, rest)) = rest.split_first() else { return Decoded::More };
    match rest.get(..usize::from(length)) {
        Some(password) => {
            Decoded::Done(Given::new(user, password), 3 + user.len() + password.len())
        }
        None => Decoded::More,
    }
}

/// The answer with the result of the authentication. After a refusal this end closes the connection
/// (section 2).
pub(crate) const fn status(is_admitted: bool) -> [u8; 2] {
    [VERSION, if is_admitted { 0 } else { 1 }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_texts_are_known_once_all_bytes_have_arrived() {
        let bytes = b"\x01\x04anna\x03one!";
        for length in 0..10 {
            assert_eq!(password(&bytes[..length]), Decoded::More, "{length}");
        }
        assert_eq!(password(bytes), Decoded::Done(Given::new(b"anna", b"one"), 10));
        assert_eq!(password(&[1, 0, 0]), Decoded::Done(Given::new(b"", b""), 3));
        assert_eq!(password(&[5, 0]), Decoded::Bad(Fault::Password));
    }
}
