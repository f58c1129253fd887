//! The signals of trials, inside a peer link.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use link::Link;
use proto::control::ControlMessage;
use tokio::sync::mpsc;
use tokio::time::sleep;
use transport_quic::punched::Trial;

/// The maximum number of signals that wait while names of STUN servers are resolved. A signal
/// repeats all candidates, so the loss of a signal only delays a trial.
pub(super) const WAITING_MAX: usize = 16;

/// The poll interval for room on the control stream.
const ROOM: Duration = Duration::from_millis(100);

/// Carries the signals of a trial, until the future is dropped.
pub(super) async fn converse(
    link: &Link,
    trial: &Trial,
    inbox: &mut mpsc::Receiver<Bytes>,
) -> Infallible {
    let send = |signal: &[u8]| said(link, signal);
    let saying = say_all(|| trial.signal(), send);
    let hearing = async {
        while let Some(signal) = inbox.recv().await {
            if let Err(error) = trial.handle_signal(&signal) {
                tracing::debug!(link = link.serial(), %error, "a signal is not understood");
            }
        }
        std::future::pending().await
    };
    tokio::select! {
        never = saying => never,
        never = hearing => never,
    }
}

/// Sends each signal. A signal that does not fit is retried, because it may be the last signal of
/// its trial, unless there is a newer one, which repeats everything.
async fn say_all<F: Future<Output = Vec<u8>>>(
    mut next: impl FnMut() -> F,
    send: impl Fn(&[u8]) -> bool,
) -> Infallible {
    let mut signal = next().await;
    loop {
        let newer = next();
        tokio::pin!(newer);
        signal = tokio::select! {
            newer = &mut newer => newer,
            () = say(&signal, &send) => newer.await,
        };
    }
}

/// Sends a signal once there is room for it.
pub(super) async fn say(signal: &[u8], send: impl Fn(&[u8]) -> bool) {
    while !send(signal) {
        sleep(ROOM).await;
    }
}

/// Sends a signal. `false`: there is no room on the control stream.
pub(super) fn said(link: &Link, signal: &[u8]) -> bool {
    let is_said = link.send_message(&ControlMessage::Signal(Bytes::copy_from_slice(signal)));
    if !is_said {
        tracing::debug!(link = link.serial(), "no room for a signal");
    }
    // A link that has ended carries no signal any more.
    is_said || link.has_ended()
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use tokio::time::{Instant, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_last_signal_of_a_trial_is_sent_when_there_is_room_again() {
        let (begin, sent) = (Instant::now(), RefCell::new(Vec::new()));
        let number = Cell::new(0);
        let next = || async {
            number.set(number.get() + 1);
            match number.get() {
                1 => vec![1],
                2 => {
                    sleep(ROOM / 2).await;
                    vec![2]
                }
                _ => std::future::pending().await,
            }
        };
        let send = |signal: &[u8]| {
            let has_room = begin.elapsed() >= ROOM * 4;
            if has_room {
                sent.borrow_mut().push(signal[0]);
            }
            has_room
        };
        let never = timeout(ROOM * 20, say_all(next, send)).await;
        assert!(never.is_err());
        assert_eq!(*sent.borrow(), [2], "the newer signal has all of the older one");
    }
}
