//! The definition of flat. A daemon has warmed up in the first quarter of a run. Its median in the
//! last quarter may not exceed its median in the second quarter. After all visitors have left, none
//! of their resources may remain.

use super::sample::{Both, Sample};

/// The growth that counts as noise: this share of the second quarter …
const SHARE: f64 = 0.05;

/// … or this number of bytes, whichever is more: a few buffers of the pool.
const RESIDENT: f64 = 2.0 * 1024.0 * 1024.0;

/// Noise in descriptors and tasks: visitors that are present in one median and not in the other.
const THINGS: f64 = 16.0;

/// Descriptors and tasks that a daemon at rest may have in addition to the base: a request that is
/// being answered, a name that is being resolved.
const REST: u64 = 4;

type Part = (&'static str, fn(&Both) -> &Sample);
type Quantity = (&'static str, f64, fn(&Sample) -> u64);

const PARTS: [Part; 2] = [("server", |both| &both.server), ("client", |both| &both.client)];
const QUANTITIES: [Quantity; 3] = [
    ("bytes of memory", RESIDENT, |sample| sample.resident),
    ("descriptors", THINGS, |sample| sample.descriptors),
    ("tasks", THINGS, |sample| sample.tasks),
];

/// Returns a line for each resource that is not flat. `churned` begins with the sample before the
/// churn; `after` was taken after all visitors had left.
pub(super) fn judge(churned: &[Both], after: &Both) -> Vec<String> {
    let mut complaints = Vec::new();
    for (name, part) in PARTS {
        for (what, noise, of) in QUANTITIES {
            let quarter = |index: usize| {
                let size = churned.len() / 4;
                let values = churned[index * size..(index + 1) * size].iter();
                median(values.map(|both| of(part(both))).collect())
            };
            let (second, last) = (quarter(1), quarter(3));
            println!("{name}, {what}: {second} in the second quarter, {last} in the last");
            if last as f64 > second as f64 + noise.max(second as f64 * SHARE) {
                complaints.push(format!("the {name} grew from {second} to {last} {what}"));
            }
        }
    }
    let Some(base) = churned.first() else { return complaints };
    for (name, part) in PARTS {
        println!("{name}: {:?} before, {:?} after", part(base), part(after));
    }
    if !is_back(base, after) {
        complaints.push("not all descriptors, tasks and streams of visitors are gone".to_owned());
    }
    complaints
}

/// Whether no resource of visitors remains. Memory may be kept for later visitors.
pub(super) fn is_back(base: &Both, now: &Both) -> bool {
    PARTS.iter().all(|(_, part)| {
        let (base, now) = (part(base), part(now));
        now.streams == 0
            && now.descriptors <= base.descriptors + REST
            && now.tasks <= base.tasks + REST
    })
}

fn median(mut values: Vec<u64>) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(resident: impl Fn(u64) -> u64, descriptors: impl Fn(u64) -> u64) -> Vec<Both> {
        let sample = |n| Sample {
            resident: resident(n),
            descriptors: descriptors(n),
            tasks: 20,
            streams: 0,
        };
        (0..100).map(|n| Both { server: sample(n), client: sample(0), ..Both::default() }).collect()
    }

    #[test]
    fn a_leak_is_found_and_noise_and_warming_up_are_not_one() {
        let warm = run(|n| (n.min(20) << 20) + (n % 3), |n| 20 + n % 16);
        assert!(judge(&warm, &warm[0]).is_empty());
        let leaks = run(|n| (100 << 20) + (n << 18), |_| 20);
        let complaints = judge(&leaks, &leaks[0]);
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        assert!(complaints[0].starts_with("the server grew"), "{complaints:?}");
    }

    #[test]
    fn what_stays_after_the_last_visitor_is_found() {
        let flat = run(|_| 1 << 20, |_| 20);
        let mut after = flat[0];
        after.client.tasks += REST;
        assert!(judge(&flat, &after).is_empty());
        after.client.tasks += 1;
        assert_eq!(judge(&flat, &after).len(), 1);
    }
}
