//! Limits of streams, as a configuration states them and a gate keeps them.

use std::num::{NonZeroU32, NonZeroU64};

/// What a number of streams may use together. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The most streams at one time.
    pub streams: Option<NonZeroU32>,
    /// The most new streams per second.
    pub new_per_second: Option<NonZeroU32>,
    /// The most bytes per second from visitors to targets.
    pub up: Option<NonZeroU64>,
    /// The most bytes per second from targets to visitors.
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
    /// Of all streams of the group together.
    pub all: Bounds,
    /// Of the streams of each source: an address of IPv4, 64 bits of an address of IPv6.
    pub source: Bounds,
    /// Of each stream: only the rates of bytes have a meaning.
    pub stream: Bounds,
}
