//! The counters of one service on one worker. Only the worker's own thread writes and reads them; a
//! metrics scrape queries each worker and adds the values.

use std::cell::Cell;
use std::time::Duration;

use proto::ResetCode;
use transport::OpenError;

use crate::throttle::Throttle;

/// The number of reset codes with a separate counter. The counter of code 0 counts the codes of
/// newer peers.
const REASONS: usize = 10;

/// The counters since the service began, and the gauge [`Stats::live`].
#[derive(Debug, Default)]
pub struct Stats {
    opened: Cell<u64>,
    live: Cell<u64>,
    bytes_in: Cell<u64>,
    bytes_out: Cell<u64>,
    refused: [Cell<u64>; REASONS],
    /// The number of visitors whose address is not permitted.
    barred: Cell<u64>,
    /// The number of wrong passwords that visitors gave.
    wrong_passwords: Cell<u64>,
    /// The number of visitors that went on at another peer.
    failovers: Cell<u64>,
    requests: Requests,
    /// Limits the log lines about refusals; each line contains the counter.
    pub(crate) complaints: Throttle,
}

impl Stats {
    /// The number of streams that got a socket.
    #[must_use]
    pub fn opened(&self) -> u64 {
        self.opened.get()
    }

    /// The number of streams that hold a socket or dial a target.
    #[must_use]
    pub fn live(&self) -> u64 {
        self.live.get()
    }

    /// The number of bytes read from sockets.
    #[must_use]
    pub fn bytes_in(&self) -> u64 {
        self.bytes_in.get()
    }

    /// The number of bytes written to sockets.
    #[must_use]
    pub fn bytes_out(&self) -> u64 {
        self.bytes_out.get()
    }

    /// The number of streams and visitors that this end refused with `code`, including failed
    /// dials.
    #[must_use]
    pub fn refused(&self, code: ResetCode) -> u64 {
        self.refused[slot(code)].get()
    }

    /// Counts a refusal by the caller (no right, no such service).
    pub fn count_refused(&self, code: ResetCode) {
        add(&self.refused[slot(code)], 1);
    }

    /// Counts a visitor whose address is not permitted.
    pub fn count_barred(&self) {
        add(&self.barred, 1);
    }

    /// The number of visitors whose address is not permitted. The reset codes do not include them.
    #[must_use]
    pub fn barred(&self) -> u64 {
        self.barred.get()
    }

    /// Counts a wrong user or password of a visitor.
    pub fn count_wrong_password(&self) {
        add(&self.wrong_passwords, 1);
    }

    /// The number of wrong users and passwords that visitors gave.
    #[must_use]
    pub fn wrong_passwords(&self) -> u64 {
        self.wrong_passwords.get()
    }

    /// Counts a visitor that goes on at another peer, because its first peer has not served it.
    pub fn count_failover(&self) {
        add(&self.failovers, 1);
    }

    /// The number of visitors that went on at another peer.
    #[must_use]
    pub fn failovers(&self) -> u64 {
        self.failovers.get()
    }

    /// The counters of HTTP requests.
    #[must_use]
    pub const fn requests(&self) -> &Requests {
        &self.requests
    }

    /// An identity of these counters, which differs from that of all other counters.
    #[must_use]
    pub const fn identity(&self) -> *const () {
        std::ptr::from_ref(self).cast()
    }

    /// The reset codes with their numbers of refusals, without codes that did not occur.
    pub fn refusals(&self) -> impl Iterator<Item = (ResetCode, u64)> {
        let counts = self.refused.iter().map(Cell::get);
        let codes = (0_u16..).map(ResetCode::from_raw);
        codes.zip(counts).filter(|(_, count)| *count > 0)
    }

    pub(crate) fn count_opened(&self) {
        add(&self.opened, 1);
    }

    pub(crate) fn count_in(&self, bytes: usize) {
        add(&self.bytes_in, bytes as u64);
    }

    pub(crate) fn count_out(&self, bytes: usize) {
        add(&self.bytes_out, bytes as u64);
    }

    pub(crate) fn enter(&self) {
        add(&self.live, 1);
    }

    pub(crate) fn leave(&self) {
        self.live.set(self.live.get().saturating_sub(1));
    }
}

/// The upper bounds of the histogram of requests, in microseconds. They are the defaults of the
/// Prometheus client libraries: from an answer out of memory to an answer after the visitor gave
/// up.
pub const REQUEST_BOUNDS: [u64; 11] = [
    5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
    10_000_000,
];

/// The counters of a service's completed HTTP requests.
#[derive(Debug, Default)]
pub struct Requests {
    /// The counts by the first digit of the status.
    classes: [Cell<u64>; 5],
    /// The counts by the time to the response header; the last entry counts times above all bounds.
    times: [Cell<u64>; REQUEST_BOUNDS.len() + 1],
    /// The sum of these times in microseconds.
    micros: Cell<u64>,
}

impl Requests {
    /// Counts a request with the status of its response and the time to the response header;
    /// `None`: there was no response and thus no time.
    pub fn count(&self, status: u16, first_byte: Option<Duration>) {
        let class = usize::from(status / 100).clamp(1, self.classes.len()) - 1;
        add(&self.classes[class], 1);
        let Some(time) = first_byte else { return };
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let place = REQUEST_BOUNDS.iter().position(|bound| micros <= *bound);
        add(&self.times[place.unwrap_or(REQUEST_BOUNDS.len())], 1);
        add(&self.micros, micros);
    }

    /// The number of requests by the class of the status, from 1xx to 5xx.
    #[must_use]
    pub fn classes(&self) -> [u64; 5] {
        std::array::from_fn(|class| self.classes[class].get())
    }

    /// The number of requests by the time to the response header: one number for each of
    /// [`REQUEST_BOUNDS`], for times up to this bound and above the previous bound, and one for
    /// longer times.
    #[must_use]
    pub fn times(&self) -> [u64; REQUEST_BOUNDS.len() + 1] {
        std::array::from_fn(|place| self.times[place].get())
    }

    /// The sum of these times in microseconds.
    #[must_use]
    pub fn micros(&self) -> u64 {
        self.micros.get()
    }
}

/// The reset code under which a failed open is counted.
#[must_use]
pub const fn open_error_code(error: OpenError) -> ResetCode {
    match error {
        OpenError::Closed => ResetCode::Shutdown,
        OpenError::TooOld => ResetCode::Unknown,
        OpenError::Limit => ResetCode::Limit,
    }
}

fn slot(code: ResetCode) -> usize {
    let raw = usize::from(code.raw());
    if raw < REASONS { raw } else { 0 }
}

fn add(counter: &Cell<u64>, n: u64) {
    counter.set(counter.get().wrapping_add(n));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_own_counter_and_unknown_ones_share() {
        let stats = Stats::default();
        stats.count_refused(ResetCode::Refused);
        stats.count_refused(ResetCode::Other(700));
        stats.count_refused(ResetCode::Other(u16::MAX));
        assert_eq!(stats.refused(ResetCode::Refused), 1);
        assert_eq!(stats.refused(ResetCode::Limit), 0);
        assert_eq!(stats.refused(ResetCode::Other(10)), 2);
    }

    #[test]
    fn requests_are_counted_by_class_and_by_time() {
        let requests = Requests::default();
        for (status, millis) in [(200, 5), (204, 6), (101, 0), (404, 10_000), (502, 10_001)] {
            requests.count(status, Some(Duration::from_millis(millis)));
        }
        requests.count(499, None);
        requests.count(u16::MAX, Some(Duration::MAX));
        requests.count(0, None);
        assert_eq!(requests.classes(), [2, 2, 0, 2, 2]);
        assert_eq!(requests.times(), [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2]);
    }
}
