//! What a link takes from the system: the time and randomness.

/// The time of the runtime, which tests can hold.
pub(crate) fn now() -> std::time::Instant {
    tokio::time::Instant::now().into_std()
}

/// Fresh random bytes from the operating system.
///
/// # Panics
/// Where the system has none nothing here is safe: the task ends, and its link with it.
#[must_use]
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    #[expect(clippy::expect_used, reason = "no secret may be made from anything else")]
    getrandom::fill(&mut bytes).expect("the operating system has random bytes");
    bytes
}
