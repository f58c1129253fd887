//! Checks of ICE as a peer makes them (RFC 8445 section 7.2.2).

#![allow(clippy::unwrap_used, reason = "a test fails where it cannot be set up")]

/// A Binding request of a controlling peer. `name` is the username, ours first.
pub(crate) fn check(name: &str, password: &str) -> Vec<u8> {
    let mut check = vec![0, 1, 0, 0, 0x21, 0x12, 0xa4, 0x42];
    check.extend([7; 12]);
    let mut attribute = |kind: u16, value: &[u8]| {
        check.extend(kind.to_be_bytes());
        check.extend(u16::try_from(value.len()).unwrap().to_be_bytes());
        check.extend(value);
        check.resize(check.len().next_multiple_of(4), 0);
        let length = u16::try_from(check.len() - 20).unwrap();
        check[2..4].copy_from_slice(&length.to_be_bytes());
    };
    attribute(0x0006, name.as_bytes());
    attribute(0x0024, &[0; 4]);
    // ICE-CONTROLLING, with a tie-breaker.
    attribute(0x802a, &[9; 8]);
    attribute(0x0008, &[0; 20]);
    let end = check.len() - 20;
    let key = aws_lc_rs::hmac::Key::new(
        aws_lc_rs::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        password.as_bytes(),
    );
    let code = aws_lc_rs::hmac::sign(&key, &check[..end - 4]);
    check[end..].copy_from_slice(code.as_ref());
    check
}
