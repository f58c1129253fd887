//! The time of the runtime and random bytes of the operating system.

/// The time of the runtime. Tests can pause it.
pub(crate) fn now() -> std::time::Instant {
    tokio::time::Instant::now().into_std()
}

/// Fresh random bytes from the operating system.
///
/// # Panics
/// Panics if the operating system provides no random bytes. No secret would be safe then; the task
/// and its link end.
#[must_use]
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    #[expect(clippy::expect_used, reason = "no secret may be made from anything else")]
    getrandom::fill(&mut bytes).expect("the operating system has random bytes");
    bytes
}
