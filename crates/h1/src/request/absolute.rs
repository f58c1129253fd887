//! A target that names its scheme and its host (absolute-form, RFC 9112 section 3.2.2).

/// A target in absolute-form, as slices of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absolute<'a> {
    /// Whether the scheme is `https`; otherwise it is `http`.
    pub is_https: bool,
    /// The host and the port. Their validity is not checked.
    pub authority: &'a [u8],
    /// The path and the query. The path may be missing.
    pub rest: &'a [u8],
}

impl<'a> Absolute<'a> {
    /// Splits a target. `None`: the scheme is neither `http` nor `https`, or is absent.
    #[must_use]
    pub fn parse(target: &'a [u8]) -> Option<Self> {
        let after = |scheme: &[u8]| {
            let (start, rest) = target.split_at_checked(scheme.len())?;
            start.eq_ignore_ascii_case(scheme).then_some(rest)
        };
        let (is_https, rest) = match after(b"http://") {
            Some(rest) => (false, rest),
            None => (true, after(b"https://")?),
        };
        let is_end = |byte: &u8| matches!(byte, b'/' | b'?' | b'#');
        let end = rest.iter().position(is_end).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        Some(Self { is_https, authority, rest })
    }

    /// The port that the scheme implies.
    #[must_use]
    pub const fn port(&self) -> u16 {
        if self.is_https { 443 } else { 80 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_split_at_the_end_of_its_authority() {
        for (target, expected) in [
            ("http://a.example/b?c", Some((false, "a.example", "/b?c"))),
            ("HTTP://A.example:81", Some((false, "A.example:81", ""))),
            ("https://a?b/c", Some((true, "a", "?b/c"))),
            ("http://[::1]:80#f", Some((false, "[::1]:80", "#f"))),
            ("http://", Some((false, "", ""))),
            ("http:/a/", None),
            ("ftp://a/", None),
            ("/http://a/", None),
            ("a:80", None),
            ("*", None),
        ] {
            let expected = expected.map(|(is_https, authority, rest)| Absolute {
                is_https,
                authority: authority.as_bytes(),
                rest: rest.as_bytes(),
            });
            assert_eq!(Absolute::parse(target.as_bytes()), expected, "{target}");
        }
    }
}
