//! Races several attempts for one result. The next attempt starts when the previous attempt has
//! failed or its head start has elapsed. The first success wins; the others are dropped.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// An attempt that [`race`] drives.
pub type Attempt<T, E> = Pin<Box<dyn Future<Output = Result<T, E>>>>;

/// The head start of an address before the next (Connection Attempt Delay, RFC 8305 section 5).
pub const ADDRESS_STAGGER: Duration = Duration::from_millis(250);

/// Alternates the address families, IPv6 first, each in the order of the resolver (RFC 8305 section
/// 4), and keeps the first `most` addresses. Loopback addresses keep their order: both families of
/// `localhost` are equally close, and most programs listen on 127.0.0.1.
#[must_use]
pub fn interleave(mut addresses: Vec<SocketAddr>, most: usize) -> Vec<SocketAddr> {
    if addresses.iter().all(|address| address.ip().is_loopback()) {
        addresses.truncate(most);
        return addresses;
    }
    let (v6, v4): (Vec<_>, Vec<_>) = addresses.into_iter().partition(SocketAddr::is_ipv6);
    let mut v4 = v4.into_iter();
    let mut ordered = Vec::new();
    for address in v6 {
        ordered.push(address);
        ordered.extend(v4.next());
    }
    ordered.extend(v4);
    ordered.truncate(most);
    ordered
}

/// Starts an attempt for each of `ways`, in order, and returns the first success. If all attempts
/// fail, `choose` selects between each two errors. `None` means that `ways` is empty.
pub async fn race<W, T, E>(
    ways: Vec<W>,
    head_start: Duration,
    mut start: impl FnMut(W) -> Attempt<T, E>,
    choose: impl Fn(E, E) -> E,
) -> Option<Result<T, E>> {
    let mut waiting = ways.into_iter();
    let mut running: Vec<Attempt<T, E>> = Vec::new();
    let mut error = None;
    let mut next = Box::pin(sleep_until(Instant::now()));
    poll_fn(|cx| {
        loop {
            let mut failed = false;
            let mut i = 0;
            while i < running.len() {
                match running[i].as_mut().poll(cx) {
                    Poll::Ready(Ok(won)) => return Poll::Ready(Some(Ok(won))),
                    Poll::Ready(Err(e)) => {
                        error = Some(match error.take() {
                            Some(known) => choose(known, e),
                            None => e,
                        });
                        failed = true;
                        drop(running.swap_remove(i));
                    }
                    Poll::Pending => i += 1,
                }
            }
            if waiting.len() == 0 {
                break;
            }
            if !failed && !running.is_empty() && next.as_mut().poll(cx).is_pending() {
                break;
            }
            if let Some(way) = waiting.next() {
                running.push(start(way));
                next.as_mut().reset(Instant::now() + head_start);
            }
        }
        if running.is_empty() {
            return Poll::Ready(error.take().map(Err));
        }
        Poll::Pending
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn families_take_turns_and_ipv6_begins() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let [a, b, c, d] = ["1.1.1.1:1", "2.2.2.2:1", "[::1]:1", "3.3.3.3:1"].map(address);
        assert_eq!(interleave(vec![a, b, c, d], 8), [c, a, b, d]);
        assert_eq!(interleave(vec![a, b, c, d], 2), [c, a]);
        let [v4, v6] = ["127.0.0.1:1", "[::1]:1"].map(address);
        assert_eq!(interleave(vec![v4, v6], 8), [v4, v6], "localhost is IPv4 first");
    }

    /// Each way is its delay in ms; a last digit of 1 means failure. Returns the outcome and the
    /// start time of each attempt.
    async fn run(ways: &[u64]) -> (Option<Result<u64, u64>>, Vec<(u64, u128)>) {
        let begin = Instant::now();
        let started = RefCell::new(Vec::new());
        let start = |ms: u64| -> Attempt<u64, u64> {
            started.borrow_mut().push((ms, begin.elapsed().as_millis()));
            Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(ms)).await;
                if ms % 10 == 1 { Err(ms) } else { Ok(ms) }
            })
        };
        let outcome = race(ways.to_vec(), ADDRESS_STAGGER, start, |first, _| first).await;
        (outcome, started.take())
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_way_delays_the_next_by_the_head_start_only() {
        let (won, started) = run(&[60_000, 20]).await;
        assert_eq!((won, started), (Some(Ok(20)), vec![(60_000, 0), (20, 250)]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_starts_the_next_at_once_and_an_answer_starts_none() {
        let (won, started) = run(&[11, 20, 30]).await;
        assert_eq!(won, Some(Ok(20)));
        assert!(started.len() == 2 && started[1].1 < 20, "{started:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn when_all_fail_the_chosen_error_is_told() {
        assert_eq!(run(&[1001, 11]).await.0, Some(Err(11)), "the first to fail");
        assert_eq!(run(&[]).await.0, None);
    }
}
