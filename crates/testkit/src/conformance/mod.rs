//! The suite every transport passes unchanged.
