//! A point in time. It is the type of the standard library, except on a platform without a clock,
//! where the standard library cannot create one: there the browser page supplies the time.

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
pub use std::time::Instant;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
pub use of_driver::Instant;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
mod of_driver {
    use std::ops::{Add, AddAssign, Sub};
    use std::time::Duration;

    /// A point in time, as the time since an epoch that the driver chooses.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct Instant(Duration);

    impl Instant {
        /// The point in time `since` after the epoch.
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

        /// The point in time `time` later.
        #[must_use]
        pub fn checked_add(&self, time: Duration) -> Option<Self> {
            self.0.checked_add(time).map(Self)
        }

        /// The point in time `time` earlier; `None` if that is before the epoch.
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
