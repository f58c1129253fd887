//! The highest rate that gets through.
//!
//! A sender without a pace shows a rate that gets through, but not the highest: it takes processor
//! time from the programs under test, which spend theirs on datagrams that are dropped later. So
//! higher rates than that are offered, each for a short time, as long as more arrives.
//!
//! The best of several short offers was also the luckiest one. So the search finds what to offer,
//! and the rate is that of another, longer run with the same offer.

/// Each offer is so much higher than the best rate so far.
const STEP: f64 = 1.25;

/// Offers without a better rate that end the search.
const MISSES: u32 = 2;

/// Offers at most.
const OFFERS: u32 = 8;

/// What one offer showed, in datagrams per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shown {
    pub(super) sent: f64,
    pub(super) received: f64,
}

/// Searches with `offer`, which offers a rate, or with `None` as much as the sender can send.
/// Returns the offer of which most got through.
pub(super) fn highest<E>(
    mut offer: impl FnMut(Option<f64>) -> Result<Shown, E>,
) -> Result<Option<f64>, E> {
    let first = offer(None)?;
    let (mut best, mut rate) = (first.received, None);
    let mut offered = best;
    let mut misses = 0;
    for _ in 1..OFFERS {
        offered = best.max(offered) * STEP;
        // More than the sender can send is no offer.
        if offered > first.sent || misses >= MISSES {
            break;
        }
        let shown = offer(Some(offered))?;
        misses = if shown.received > best * 1.01 { 0 } else { misses + 1 };
        if shown.received > best {
            (best, rate) = (shown.received, Some(offered));
        }
    }
    Ok(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path that passes `most`, and under more load a share of it. Returns what it passes of the
    /// offer that was found, and the number of offers.
    fn search(most: f64, collapse: f64) -> (f64, usize) {
        let mut offers = 0;
        let passed = |rate: Option<f64>| {
            let sent = rate.unwrap_or(1e6);
            let excess = (sent - most).max(0.0);
            Shown { sent, received: (sent.min(most) - excess * collapse).max(most / 4.0) }
        };
        let best = highest::<()>(|rate| {
            offers += 1;
            Ok(passed(rate))
        });
        (passed(best.unwrap()).received, offers)
    }

    #[test]
    fn a_path_that_drops_only_the_excess_is_found_at_once() {
        assert_eq!(search(300_000.0, 0.0), (300_000.0, 3));
    }

    #[test]
    fn a_path_that_suffers_from_overload_is_found_within_a_step() {
        let (best, offers) = search(300_000.0, 2.0);
        assert!((300_000.0 / STEP..=300_000.0).contains(&best) && offers <= 8, "{best} {offers}");
    }

    #[test]
    fn a_path_as_fast_as_the_sender_needs_one_offer() {
        assert_eq!(search(1e6, 0.0), (1e6, 1));
    }
}
