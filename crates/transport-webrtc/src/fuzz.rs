//! The function that the fuzz target runs.

use crate::candidate::Admission;
use crate::sdp::Description;

/// Parses a session description. A parsed description must survive being written and parsed again,
/// and no text yields more candidates than the limit.
///
/// # Panics
///
/// Panics when one of these checks fails.
pub fn description(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(description) = Description::read(text) else { return };
    let again = Description::read(&description.write());
    assert_eq!(again.ok().as_ref(), Some(&description));
    let everywhere = Admission { loopback: true, private: true };
    let admitted = everywhere.admitted(&description.candidates, &[]);
    assert!(admitted.len() <= crate::MAX_CANDIDATES);
}
