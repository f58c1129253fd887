//! Each cipher in both roles, with each kind of FEC and each loss: a set of cases in which every
//! pair of two values occurs. All combinations would be 456 cases, and the set has 76.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use kcp_go::session::Config;

use crate::session::{
    CIPHERS, CONVERSATION, SHARDS, SessionEnd, Shards, config, dial, seal, serve,
};

/// Bytes in each direction, of which some datagrams are lost at 5 %.
const LENGTH: usize = 60_000;

/// Bytes in each direction of a session that changes its FEC, and bytes of its datagrams. Behind a
/// change 400 shards have no parity, because the peer would take it for the former parity. Short
/// datagrams reach the parity with few bytes.
const LENGTH_CHANGED: usize = 200_000;
const SHORT: usize = 300;

/// Cases that run at once: a case mostly waits for its path.
const AT_ONCE: usize = 8;

/// What the session does with its FEC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fec {
    /// It stays as it is.
    Fixed(Shards),
    /// The session begins with 10/3, turns FEC off, and goes on with 3/2.
    Changed,
}

const FECS: [Fec; 4] =
    [Fec::Fixed(SHARDS[0]), Fec::Fixed(SHARDS[1]), Fec::Fixed(SHARDS[2]), Fec::Changed];

/// Percentages.
const LOSSES: [u32; 3] = [0, 5, 20];

#[derive(Clone, Copy, Debug)]
struct Case {
    cipher: &'static str,
    fec: Fec,
    dials: bool,
    loss: u32,
}

/// All ciphers with all kinds of FEC. Roles and losses go round, and their lengths, two and three,
/// have no common factor: all pairs occur.
fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (n, cipher) in CIPHERS.into_iter().enumerate() {
        for (m, fec) in FECS.into_iter().enumerate() {
            let (dials, loss) = ((n + m) % 2 == 0, LOSSES[(n + m) % LOSSES.len()]);
            cases.push(Case { cipher, fec, dials, loss });
        }
    }
    cases
}

impl Case {
    fn run(self) {
        let Self { cipher, fec, dials, loss } = self;
        let loss = f64::from(loss) / 100.0;
        let (shards, changes, length) = match fec {
            Fec::Fixed(shards) => (shards, Vec::new(), LENGTH),
            Fec::Changed => (SHARDS[1], vec![(15_000, None), (20_000, SHARDS[2])], LENGTH_CHANGED),
        };
        let mut config = config(CONVERSATION, shards);
        if fec == Fec::Changed {
            config = Config { datagram: SHORT, adaptive: false, ..config };
        }
        let end = if dials {
            let mut end = SessionEnd::new(config, seal(cipher));
            end.changes = changes;
            dial(&mut end, (cipher, shards), loss, length);
            end
        } else {
            serve((cipher, shards), (config, changes), loss, length)
        };
        assert!(end.changes.is_empty(), "{self:?}");
        let counters = end.session.counters();
        assert_eq!(
            counters.parity_out > end.parity_before,
            shards.is_some(),
            "{self:?}: {counters:?}"
        );
    }
}

#[test]
fn the_cases_contain_each_pair_of_values() {
    let cases = cases();
    let count =
        |pair: &dyn Fn(&Case) -> String| cases.iter().map(pair).collect::<BTreeSet<_>>().len();
    let (ciphers, fecs, losses) = (CIPHERS.len(), FECS.len(), LOSSES.len());
    assert_eq!(count(&|case| format!("{} {:?}", case.cipher, case.fec)), ciphers * fecs);
    assert_eq!(count(&|case| format!("{} {}", case.cipher, case.dials)), ciphers * 2);
    assert_eq!(count(&|case| format!("{} {}", case.cipher, case.loss)), ciphers * losses);
    assert_eq!(count(&|case| format!("{:?} {}", case.fec, case.dials)), fecs * 2);
    assert_eq!(count(&|case| format!("{:?} {}", case.fec, case.loss)), fecs * losses);
    assert_eq!(count(&|case| format!("{} {}", case.dials, case.loss)), 2 * losses);
}

#[test]
fn each_cipher_works_in_both_roles_with_each_fec_and_at_each_loss() {
    let (cases, next) = (cases(), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    case.run();
                }
            });
        }
    });
}
