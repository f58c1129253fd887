//! Which visitor visits which service.

use proto::greeting::Name;

/// A visitor, and the service that it visits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VisitKey {
    pub visitor: Name,
    pub service: Name,
}
