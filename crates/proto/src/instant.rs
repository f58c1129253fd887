//! A point in time. It is that of the standard library, but on a machine without a clock, where the
//! standard library has no way to make one: there the page of a browser says what time it is.

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
pub use std::time::Instant;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
pub use of_driver::Instant;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
mod of_driver {
    use std::ops::{Add, AddAssign, Sub};
    use std::time::Duration;

    /// A point in time, as the time since a beginning that the driver has chosen.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct Instant(Duration);

    impl Instant {
        /// The point that is so long after the beginning.
        #[must_use]
        pub const fn after(since: Duration) -> Self {
            Self(since)
        }

        /// The time from `earlier` to this point; none if `earlier` is later.
        #[must_use]
        pub const fn duration_since(&self, earlier: Self) -> Duration {
            self.0.saturating_sub(earlier.0)
        }

        /// The time from `earlier` to this point; none if `earlier` is later.
        #[must_use]
        pub const fn saturating_duration_since(&self, earlier: Self) -> Duration {
            self.0.saturating_sub(earlier.0)
        }

        /// The point that is so much later.
        #[must_use]
        pub fn checked_add(&self, time: Duration) -> Option<Self> {
            self.0.checked_add(time).map(Self)
        }

        /// The point that is so much earlier.
        #[must_use]
        pub fn checked_sub(&self, time: Duration) -> Option<Self> {
            self.0.checked_sub(time).map(Self)
        }
    }

    impl Add<Duration> for Instant {
        type Output = Self;

        fn add(self, time: Duration) -> Self {
            Self(self.0.saturating_add(time))
        }
    }

    impl AddAssign<Duration> for Instant {
        fn add_assign(&mut self, time: Duration) {
            *self = *self + time;
        }
    }

    impl Sub<Duration> for Instant {
        type Output = Self;

        fn sub(self, time: Duration) -> Self {
            Self(self.0.saturating_sub(time))
        }
    }

    impl Sub for Instant {
        type Output = Duration;

        fn sub(self, earlier: Self) -> Duration {
            self.duration_since(earlier)
        }
    }
}
