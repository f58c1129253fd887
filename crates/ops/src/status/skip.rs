//! The values that the JSON of a status leaves out.

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
pub(super) const fn is_zero(n: &u64) -> bool {
    *n == 0
}
