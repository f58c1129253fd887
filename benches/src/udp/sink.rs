//! `load origin udp`: counts the datagrams of each run, and answers questions about them.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use super::counter::Counter;
use super::packet::{Head, Kind};
use super::socket::{Buffer, Socket};

/// The last runs that are remembered.
const RUNS: usize = 16;

/// A sink looks up this often whether it is to end. Nothing is missed meanwhile.
const LOOK: Duration = Duration::from_secs(1);

/// Serves until `goes_on` returns false.
///
/// # Errors
/// The socket fails.
pub fn serve(socket: &Socket, goes_on: impl Fn() -> bool) -> io::Result<()> {
    let mut buffer = Buffer::default();
    let mut runs = VecDeque::new();
    let mut answers = Vec::new();
    while goes_on() {
        let mut now = None;
        let outcome = socket.receive(&mut buffer, Instant::now() + LOOK, |peer, datagram| {
            let Some(head) = Head::read(datagram) else { return };
            let counter = counter(&mut runs, head.run);
            match head.kind {
                Kind::Data => {
                    let now = *now.get_or_insert_with(Instant::now);
                    counter.count(now, &head, datagram.len());
                }
                Kind::Question => answers.push((peer, head.answer(counter.counts()))),
                Kind::Answer => {}
            }
        });
        // A visitor that has gone is no failure of the origin.
        if let Err(error) = outcome
            && error.kind() != io::ErrorKind::ConnectionRefused
        {
            return Err(error);
        }
        for (peer, answer) in answers.drain(..) {
            let _ = socket.send(peer, &answer, answer.len());
        }
    }
    Ok(())
}

fn counter(runs: &mut VecDeque<(u64, Counter)>, run: u64) -> &mut Counter {
    match runs.iter().rposition(|(of, _)| *of == run) {
        Some(index) => &mut runs[index].1,
        None => {
            if runs.len() >= RUNS {
                runs.pop_front();
            }
            runs.push_back((run, Counter::default()));
            let last = runs.len() - 1;
            &mut runs[last].1
        }
    }
}
