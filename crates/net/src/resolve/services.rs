//! The servers of a service: SRV records (RFC 2782), and the order in which a client uses them.

use std::time::Duration;

/// A place at which a service is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRecord {
    /// Records with a lower number are used first.
    pub priority: u16,
    /// The share of the clients among the records of the same priority.
    pub weight: u16,
    /// The port of the service.
    pub port: u16,
    /// The host, in lower case and without a trailing dot; empty: there is no such service.
    pub target: String,
}

/// The answer to a question about a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRecords {
    /// The records as the name server lists them, each once. There is at least one, and each has a
    /// target.
    pub records: Vec<ServiceRecord>,
    /// The time for which the name server lets others keep the answer.
    pub ttl: Duration,
}

/// Puts records into the order in which a client uses them: by priority, and within a priority by
/// a random choice in proportion to the weights ("Usage rules" of RFC 2782). `draw` returns a
/// random number from 0 to its argument, both inclusive.
#[must_use]
pub fn in_order(
    mut records: Vec<ServiceRecord>,
    mut draw: impl FnMut(u32) -> u32,
) -> Vec<ServiceRecord> {
    // The sort is stable. Records of weight 0 stand first, so that they are chosen only by the
    // number 0 while another record is left.
    records.sort_by_key(|record| (record.priority, record.weight > 0));
    let mut ordered = Vec::with_capacity(records.len());
    while let Some(priority) = records.first().map(|record| record.priority) {
        let equals = records.iter().take_while(|record| record.priority == priority);
        let sum = equals.map(|record| u32::from(record.weight)).sum();
        let drawn = draw(sum);
        let mut running = 0;
        let chosen = records.iter().position(|record| {
            running += u32::from(record.weight);
            running >= drawn || record.priority != priority
        });
        // A number beyond the sum chooses the first record.
        let chosen = chosen.filter(|at| records[*at].priority == priority).unwrap_or(0);
        ordered.push(records.remove(chosen));
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(priority: u16, weight: u16, target: &str) -> ServiceRecord {
        ServiceRecord { priority, weight, port: 7000, target: target.to_owned() }
    }

    fn targets(records: &[ServiceRecord], draw: impl FnMut(u32) -> u32) -> String {
        let ordered = in_order(records.to_vec(), draw);
        ordered.iter().map(|record| record.target.as_str()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_lower_priority_comes_first_whatever_its_weight() {
        let records = [record(20, 900, "c"), record(10, 1, "a"), record(15, 0, "b")];
        for fixed in [0, 1, u32::MAX] {
            assert_eq!(targets(&records, |most| fixed.min(most)), "a b c");
        }
    }

    #[test]
    fn the_numbers_choose_by_running_sums_and_the_chosen_record_leaves() {
        let records =
            [record(1, 60, "a"), record(1, 20, "b"), record(1, 0, "z"), record(1, 20, "c")];
        let with = |numbers: &[u32]| {
            let (mut numbers, mut asked) = (numbers.iter().copied(), Vec::new());
            let order = targets(&records, |most| {
                asked.push(most);
                numbers.next().unwrap()
            });
            (order, asked)
        };
        // The running sums are z 0, a 60, b 80, c 100.
        assert_eq!(with(&[0, 0, 0, 0]), ("z a b c".to_owned(), vec![100, 100, 40, 20]));
        assert_eq!(with(&[60, 21, 1, 0]), ("a c b z".to_owned(), vec![100, 40, 20, 0]));
        assert_eq!(with(&[100, 80, 60, 0]), ("c b a z".to_owned(), vec![100, 80, 60, 0]));
    }

    #[test]
    fn every_record_stays_even_if_a_number_is_beyond_the_sum() {
        let records = [record(1, 1, "a"), record(1, 2, "b"), record(2, 0, "c")];
        let mut order: Vec<_> = in_order(records.to_vec(), |_| u32::MAX);
        order.sort_by(|one, other| one.target.cmp(&other.target));
        assert_eq!(order, records);
        assert_eq!(in_order(Vec::new(), |_| 0), []);
    }

    #[test]
    fn the_first_place_is_shared_by_weight() {
        let records = [record(1, 3, "a"), record(1, 1, "b")];
        let firsts = (0..=4).map(|number| targets(&records, |most| number.min(most)));
        let of_a = firsts.filter(|order| order.starts_with('a')).count();
        // RFC 2782 draws from 0 to 4, of which 0 belongs to the first record.
        assert_eq!(of_a, 4);
    }
}
