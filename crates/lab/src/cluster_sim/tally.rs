//! What is counted: for each scenario, and for each second.

/// Values in order, for percentiles.
#[derive(Clone, Debug, Default)]
pub(super) struct Values(Vec<u32>);

impl Values {
    pub(super) fn add(&mut self, value: u32) {
        self.0.push(value);
    }

    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    /// Median, 99th percentile (nearest rank) and maximum; zeros without values.
    pub(super) fn quantiles(&self) -> [u32; 3] {
        let mut values = self.0.clone();
        values.sort_unstable();
        let last = values.len().saturating_sub(1);
        let at = |per_cent: usize| {
            let rank = (values.len() * per_cent).div_ceil(100).saturating_sub(1);
            values.get(rank.min(last)).copied().unwrap_or(0)
        };
        [at(50), at(99), at(100)]
    }
}

/// One second.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SimSecond {
    /// Writes that the engine has carried out, and transactions with writes of the nodes.
    pub(super) writes: u32,
    pub(super) batches: u32,
    /// Keys that were looked up, and transactions of look-ups.
    pub(super) look_ups: u32,
    pub(super) look_up_batches: u32,
    /// Microseconds for which cores of the engine were busy with requests that arrived in this
    /// second.
    pub(super) busy: u64,
    /// The largest sum of the writes that wait at the nodes.
    pub(super) backlog: u32,
    /// The clients that are reached at its end.
    pub(super) reached: u32,
    pub(super) visitors: u32,
    pub(super) failed: u32,
}

/// The counts of a scenario. Times are microseconds of virtual time, values are milliseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct SimTally {
    /// The moment from which the times count.
    pub(super) since: u64,
    /// When the bound was met after the last moment at which it was not; `None` while it is not.
    pub(super) well_since: Option<u64>,
    /// The time for which the bound was not met, up to `well_since`, and since when it is not met.
    pub(super) unwell: u64,
    pub(super) unwell_since: u64,
    /// The least number of reached clients.
    pub(super) least: u32,
    /// Milliseconds for which a client was not reached.
    pub(super) absences: Values,
    /// Writes of each batch, keys of each batch of look-ups.
    pub(super) batches: Values,
    pub(super) look_ups: Values,
    /// The writes of batches that were sent after an answer that took more than 100 ms.
    pub(super) slow_batches: Values,
    /// Milliseconds until an answer of the engine.
    pub(super) answers: Values,
    pub(super) given_up: u64,
    /// The largest sum of the writes that wait, and the most of one node.
    pub(super) backlog: u32,
    pub(super) node_backlog: u32,
    pub(super) visitors: u64,
    pub(super) served: u64,
    /// Visitors that were served after an answer without a living home.
    pub(super) held: u64,
    /// Milliseconds until a visitor was served.
    pub(super) waits: Values,
    pub(super) failed: u64,
    pub(super) opens: u64,
    /// OPENs that the chosen node has refused, and those with a newer record in the answer.
    pub(super) refused: u64,
    pub(super) moved: u64,
    /// Visitors that were led to a node without a link.
    pub(super) unlinked: u64,
    /// Visitors that were served by a process for which a newer process had the record, and the
    /// longest time since then in milliseconds.
    pub(super) former: u64,
    pub(super) former_age: u32,
    /// Served by a wrong owner: no such session, or superseded before the last renewal of the node
    /// or more than 13 s ago.
    pub(super) wrong: u64,
    pub(super) kicks: u64,
    /// Kicks of the newest process.
    pub(super) wrong_kicks: u64,
    pub(super) epochs_ended: u64,
    pub(super) restored: u64,
    pub(super) bad_records: u64,
    pub(super) log_ins: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_nearest_rank() {
        let mut values = Values::default();
        assert_eq!(values.quantiles(), [0, 0, 0]);
        for value in (1..=200).rev() {
            values.add(value);
        }
        assert_eq!(values.quantiles(), [100, 198, 200]);
    }
}
