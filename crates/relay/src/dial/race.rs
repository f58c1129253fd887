//! Racing the addresses of a target (RFC 8305): the next attempt starts when the former has not
//! answered in 250 ms, or at once when it failed; the first connection wins, the others are closed.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::task::Poll;
use std::time::Duration;

use rustix::io::Errno;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};
use transport::LocalFuture;

/// Connection Attempt Delay, RFC 8305 section 5.
const STAGGER: Duration = Duration::from_millis(250);

/// Alternates the families, IPv6 first, each in the resolver's order (RFC 8305 section 4), and
/// keeps the first `most`.
pub(super) fn interleave(addresses: Vec<SocketAddr>, most: usize) -> Vec<SocketAddr> {
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

/// Connects to one of `addresses`, which is not empty. Where all fail the error is that of the
/// first to fail, if it says something of the target.
pub(super) async fn connect(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    race(addresses, |address| Box::pin(TcpStream::connect(address))).await
}

async fn race<T>(
    addresses: Vec<SocketAddr>,
    connect: impl Fn(SocketAddr) -> LocalFuture<'static, io::Result<T>>,
) -> io::Result<T> {
    let mut waiting = addresses.into_iter();
    let mut running: Vec<LocalFuture<'static, io::Result<T>>> = Vec::new();
    let mut error = None;
    let mut next = Box::pin(sleep_until(Instant::now()));
    poll_fn(|cx| {
        loop {
            let mut failed = false;
            let mut i = 0;
            while i < running.len() {
                match running[i].as_mut().poll(cx) {
                    Poll::Ready(Ok(won)) => return Poll::Ready(Ok(won)),
                    Poll::Ready(Err(e)) => {
                        if error.as_ref().is_none_or(is_own) {
                            error = Some(e);
                        }
                        failed = true;
                        drop(running.swap_remove(i));
                    }
                    Poll::Pending => i += 1,
                }
            }
            let due = failed || running.is_empty() || next.as_mut().poll(cx).is_ready();
            if !due || waiting.len() == 0 {
                break;
            }
            if let Some(address) = waiting.next() {
                running.push(connect(address));
                next.as_mut().reset(Instant::now() + STAGGER);
            }
        }
        if running.is_empty() {
            let none = || io::Error::from(io::ErrorKind::NotFound);
            return Poll::Ready(Err(error.take().unwrap_or_else(none)));
        }
        Poll::Pending
    })
    .await
}

/// Whether this machine lacks the family or the route, which says nothing of the target: where
/// IPv6 is off, `localhost` is refused all the same.
fn is_own(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NETUNREACH | Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT)
    )
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn families_take_turns_and_ipv6_begins() {
        let [a, b, c, d] = ["1.1.1.1:1", "2.2.2.2:1", "[::1]:1", "3.3.3.3:1"].map(address);
        assert_eq!(interleave(vec![a, b, c, d], 8), [c, a, b, d]);
        assert_eq!(interleave(vec![a, b, c, d], 2), [c, a]);
    }

    /// Runs the race; each address' port says after how many ms it answers, the last digit 1
    /// that it refuses, 2 that this machine has no such family.
    async fn run(ports: &[u16]) -> (io::Result<u16>, Vec<(u16, u128)>) {
        let begin = Instant::now();
        let started = Rc::new(RefCell::new(Vec::new()));
        let log = Rc::clone(&started);
        let outcome = race(
            ports.iter().map(|&p| SocketAddr::from(([127, 0, 0, 1], p))).collect(),
            move |address| {
                let port = address.port();
                log.borrow_mut().push((port, begin.elapsed().as_millis()));
                Box::pin(async move {
                    tokio::time::sleep(Duration::from_millis(u64::from(port))).await;
                    if port % 10 == 2 {
                        Err(Errno::ADDRNOTAVAIL.into())
                    } else if port % 10 == 1 {
                        Err(io::ErrorKind::ConnectionRefused.into())
                    } else {
                        Ok(port)
                    }
                })
            },
        )
        .await;
        let started = started.take();
        (outcome, started)
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_address_delays_the_next_by_the_stagger_only() {
        let (won, started) = run(&[60_000, 20]).await;
        assert_eq!(won.unwrap(), 20);
        assert_eq!(started, [(60_000, 0), (20, 250)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_starts_the_next_at_once_and_an_answer_starts_none() {
        let (won, started) = run(&[11, 20, 30]).await;
        assert_eq!(won.unwrap(), 20);
        assert!(started.len() == 2 && started[1].1 < 20, "{started:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn when_all_fail_the_first_error_of_the_target_is_told() {
        let (won, started) = run(&[1001, 11]).await;
        assert_eq!(won.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(started.len(), 2);
        let (won, _) = run(&[2, 11]).await;
        assert_eq!(won.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        assert!(run(&[]).await.0.is_err());
    }
}
