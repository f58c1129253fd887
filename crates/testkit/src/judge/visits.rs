//! Which process has answered the visitors of a name.

use std::collections::BTreeMap;
use std::time::Duration;

/// A visitor, who has sent a number that no other visitor has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visit {
    /// The name or the port.
    pub key: String,
    /// Where the visitor has entered.
    pub entrance: String,
    /// When it began.
    pub begun: Duration,
    /// When it had ended.
    pub ended: Duration,
    /// Who has answered, or why nobody has.
    pub served: Result<Served, String>,
}

/// An answer of an origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The client of the process that has answered.
    pub client: String,
    /// The number of the process: each process of a client has a larger one than those before it.
    pub generation: u64,
    /// Whether the answer is that to the number of the visitor.
    pub is_to_this: bool,
}

/// What the judge has seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Visits {
    /// The visitors that were answered.
    pub served: usize,
    /// The others.
    pub failed: usize,
    /// The longest time of a visitor who was answered.
    pub longest: Duration,
    /// The longest time for which a former process answered after a newer one.
    pub late: Duration,
}

/// Judges the visitors of all names: each answer is that to its visitor, and comes from a client
/// that `may_answer` for the key, and a process does not answer later than `bound` after a newer
/// process of the name has answered.
///
/// # Errors
/// What does not hold.
pub fn judge_visits(
    visits: &[Visit],
    may_answer: impl Fn(&str, &str) -> bool,
    bound: Duration,
) -> Result<Visits, Vec<String>> {
    let (mut sum, mut complaints) = (Visits::default(), Vec::new());
    let mut by_key: BTreeMap<&str, Vec<(&Visit, &Served)>> = BTreeMap::new();
    for visit in visits {
        let Ok(served) = &visit.served else {
            sum.failed += 1;
            continue;
        };
        sum.served += 1;
        sum.longest = sum.longest.max(visit.ended.saturating_sub(visit.begun));
        if !served.is_to_this {
            complaints.push(format!("the answer to another visitor: {visit:?}"));
        }
        if !may_answer(&visit.key, &served.client) {
            complaints.push(format!("a wrong owner: {visit:?}"));
        }
        by_key.entry(&visit.key).or_default().push((visit, served));
    }
    for visits in by_key.values_mut() {
        falls(visits, bound, &mut sum, &mut complaints);
    }
    if complaints.is_empty() { Ok(sum) } else { Err(complaints) }
}

/// The visitors of one name whose process is older than one that had answered long before.
fn falls(
    visits: &mut [(&Visit, &Served)],
    bound: Duration,
    sum: &mut Visits,
    complaints: &mut Vec<String>,
) {
    let mut ended: Vec<_> = visits.to_vec();
    ended.sort_by_key(|(visit, _)| visit.ended);
    visits.sort_by_key(|(visit, _)| visit.begun);
    // The first answer of each process that was newer than all before it.
    let mut newest: Vec<(Duration, u64)> = Vec::new();
    let mut ended = ended.into_iter().peekable();
    for (visit, served) in visits {
        while let Some((before, it)) = ended.next_if(|(before, _)| before.ended < visit.begun) {
            if newest.last().is_none_or(|(_, generation)| *generation < it.generation) {
                newest.push((before.ended, it.generation));
            }
        }
        // The earliest answer of a process that is newer than this one.
        let newer = newest.partition_point(|(_, generation)| *generation <= served.generation);
        let Some((since, generation)) = newest.get(newer) else { continue };
        let late = visit.begun.saturating_sub(*since);
        sum.late = sum.late.max(late);
        if late > bound {
            complaints.push(format!(
                "{late:?} after process {generation} a former process answers: {visit:?}"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUND: Duration = Duration::from_secs(13);

    fn visit(client: &str, generation: u64, begun: u64, ended: u64) -> Visit {
        Visit {
            key: "app".into(),
            entrance: "a".into(),
            begun: Duration::from_secs(begun),
            ended: Duration::from_secs(ended),
            served: Ok(Served { client: client.into(), generation, is_to_this: true }),
        }
    }

    fn judge(visits: &[Visit]) -> Result<Visits, Vec<String>> {
        judge_visits(visits, |_, client| client == "home", BOUND)
    }

    #[test]
    fn a_former_process_answers_for_a_while_and_not_longer() {
        let visits = [visit("home", 1, 0, 1), visit("home", 2, 2, 3), visit("home", 1, 15, 16)];
        let sum = judge(&visits).unwrap();
        assert_eq!((sum.served, sum.late), (3, Duration::from_secs(12)));
        let late = [visits[0].clone(), visits[1].clone(), visit("home", 1, 17, 18)];
        assert_eq!(judge(&late).unwrap_err().len(), 1);
    }

    #[test]
    fn what_overlaps_has_no_order() {
        let visits = [visit("home", 2, 0, 30), visit("home", 1, 20, 40)];
        assert_eq!(judge(&visits).unwrap().late, Duration::ZERO);
    }

    #[test]
    fn the_first_answer_of_a_newer_process_counts() {
        let visits = [
            visit("home", 2, 0, 1),
            visit("home", 3, 12, 13),
            visit("home", 2, 20, 21),
            visit("home", 1, 21, 22),
        ];
        let complaints = judge(&visits).unwrap_err();
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        assert!(complaints[0].starts_with("20s after process 2"), "{complaints:?}");
    }

    #[test]
    fn a_wrong_owner_and_the_answer_to_another_visitor_are_refused() {
        assert!(judge(&[visit("laptop", 1, 0, 1)]).is_err());
        let mut other = visit("home", 1, 0, 1);
        other.served = Ok(Served { client: "home".into(), generation: 1, is_to_this: false });
        assert!(judge(&[other.clone()]).is_err());
        other.served = Err("refused".into());
        let sum = judge(&[other]).unwrap();
        assert_eq!((sum.served, sum.failed), (0, 1));
    }
}
