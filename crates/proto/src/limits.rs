//! Limits of streams, as a configuration states them and a gate enforces them.

use std::num::{NonZeroU32, NonZeroU64};

/// The limits that a group of streams shares. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum number of concurrent streams.
    pub streams: Option<NonZeroU32>,
    /// Maximum number of new streams per second.
    pub new_per_second: Option<NonZeroU32>,
    /// Maximum rate from visitors to targets, in bytes per second.
    pub up: Option<NonZeroU64>,
    /// Maximum rate from targets to visitors, in bytes per second.
    pub down: Option<NonZeroU64>,
}

impl Bounds {
    /// No bound.
    pub const NONE: Self = Self { streams: None, new_per_second: None, up: None, down: None };
}

impl Limits {
    /// No limit.
    pub const NONE: Self = Self { all: Bounds::NONE, source: Bounds::NONE, stream: Bounds::NONE };
}

/// The limits of a client, of a service or of another group of streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Limits of all streams of the group together.
    pub all: Bounds,
    /// Limits of the streams of each source: an IPv4 address or an IPv6 /64.
    pub source: Bounds,
    /// Limits of each stream: only `up` and `down` have a meaning.
    pub stream: Bounds,
}
