//! A register with compare-and-set: the object by which stores of configuration are judged.

use super::linear::Model;

/// A register whose value is a number.
#[derive(Clone, Copy, Debug, Default)]
pub struct CasRegister;

/// An operation of a register with its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterOp {
    /// The value that was read.
    Read(u64),
    /// The value that was written.
    Write(u64),
    /// The value was replaced, if it was the expected value.
    CompareAndSet {
        /// The expected value.
        expected: u64,
        /// The new value.
        new: u64,
        /// Whether it was replaced.
        is_set: bool,
    },
}

impl Model for CasRegister {
    type State = u64;
    type Op = RegisterOp;

    fn step(&self, state: &u64, op: &RegisterOp) -> Option<u64> {
        match *op {
            RegisterOp::Read(value) => (value == *state).then_some(value),
            RegisterOp::Write(value) => Some(value),
            RegisterOp::CompareAndSet { expected, new, is_set } => {
                let is_right = (expected == *state) == is_set;
                is_right.then_some(if is_set { new } else { *state })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::linear::{Call, linearize};
    use super::*;
    use crate::netem::Rng;

    const fn at(time: u64) -> Duration {
        Duration::from_millis(time)
    }

    fn call(op: RegisterOp, begun: u64, ended: u64) -> Call<RegisterOp> {
        Call::answered(op, at(begun), at(ended))
    }

    const fn cas(expected: u64, new: u64, is_set: bool) -> RegisterOp {
        RegisterOp::CompareAndSet { expected, new, is_set }
    }

    fn is_linear(calls: &[Call<RegisterOp>]) -> bool {
        linearize(&CasRegister, calls, &[0]).is_ok()
    }

    #[test]
    fn calls_that_overlap_have_the_order_that_the_answers_need() {
        let calls = [
            call(RegisterOp::Write(1), 0, 100),
            call(RegisterOp::Read(1), 10, 20),
            call(cas(1, 2, true), 30, 40),
            call(RegisterOp::Read(2), 50, 60),
        ];
        assert!(is_linear(&calls));
        assert_eq!(linearize(&CasRegister, &calls, &[0]), Ok(2));
    }

    #[test]
    fn known_bad_histories_are_refused() {
        let stale = [call(RegisterOp::Write(1), 0, 10), call(RegisterOp::Read(0), 20, 30)];
        let two_winners = [call(cas(0, 1, true), 0, 50), call(cas(0, 2, true), 10, 60)];
        let no_winner = [call(cas(0, 1, false), 0, 10), call(RegisterOp::Read(0), 20, 30)];
        let back_and_forth = [
            call(RegisterOp::Write(1), 0, 100),
            call(RegisterOp::Read(1), 10, 20),
            call(RegisterOp::Read(0), 30, 40),
        ];
        let from_nowhere = [call(RegisterOp::Read(7), 0, 10)];
        let before_it_began =
            [call(RegisterOp::Read(1), 0, 10), call(RegisterOp::Write(1), 20, 30)];
        for bad in
            [&stale[..], &two_winners, &no_winner, &back_and_forth, &from_nowhere, &before_it_began]
        {
            assert!(!is_linear(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_call_without_an_answer_may_take_effect_late_or_never() {
        let lost = Call::perhaps(RegisterOp::Write(1), at(0), None);
        let reads = |first, second| {
            [
                lost.clone(),
                call(RegisterOp::Read(first), 10, 20),
                call(RegisterOp::Read(second), 30, 40),
            ]
        };
        assert!(is_linear(&reads(0, 0)));
        assert!(is_linear(&reads(0, 1)));
        assert!(is_linear(&reads(1, 1)));
        assert!(!is_linear(&reads(1, 0)));
        let until = Call::perhaps(RegisterOp::Write(1), at(0), Some(at(15)));
        let late = [until, call(RegisterOp::Read(0), 20, 30), call(RegisterOp::Read(1), 40, 50)];
        assert!(!is_linear(&late), "what may take effect until 15 does not do so after 20");
    }

    /// Tries every order, and every choice of calls that took effect.
    fn oracle(calls: &[Call<RegisterOp>], left: &mut Vec<usize>, state: u64) -> bool {
        if left.iter().all(|call| !calls[*call].is_sure) {
            return true;
        }
        for position in 0..left.len() {
            let call = left.remove(position);
            let ended = |it: &usize| calls[*it].ended.unwrap_or(Duration::MAX);
            let is_first = |it: &usize| ended(it) >= calls[call].begun;
            let sure_first = left.iter().filter(|it| calls[**it].is_sure).all(is_first);
            if sure_first && let Some(next) = CasRegister.step(&state, &calls[call].op) {
                // Calls that had ended before this one began did not take effect.
                let mut rest: Vec<_> = left.iter().copied().filter(|it| is_first(it)).collect();
                if oracle(calls, &mut rest, next) {
                    left.insert(position, call);
                    return true;
                }
            }
            left.insert(position, call);
        }
        false
    }

    #[test]
    fn the_search_agrees_with_all_orders() {
        let mut rng = Rng::new(58);
        let (mut good, mut bad) = (0, 0);
        for _ in 0..20_000 {
            let count = 2 + rng.below(4);
            let calls: Vec<_> = (0..count)
                .map(|_| {
                    let (value, other) = (rng.below(3), rng.below(3));
                    let op = match rng.below(3) {
                        0 => RegisterOp::Read(value),
                        1 => RegisterOp::Write(value),
                        _ => cas(value, other, rng.chance(600)),
                    };
                    let begun = rng.below(12);
                    let ended = begun + rng.below(8);
                    if rng.chance(200) {
                        let ended = rng.chance(500).then(|| at(ended));
                        return Call::perhaps(op, at(begun), ended);
                    }
                    call(op, begun, ended)
                })
                .collect();
            let all = oracle(&calls, &mut (0..calls.len()).collect(), 0);
            assert_eq!(is_linear(&calls), all, "{calls:?}");
            if all { good += 1 } else { bad += 1 }
        }
        assert!(good > 2_000 && bad > 2_000, "{good} {bad}");
    }

    #[test]
    fn a_long_history_with_open_calls_is_judged_in_time() {
        // 3,000 calls in turn, each beside 100 calls that never end.
        let mut calls: Vec<_> =
            (0..100).map(|_| Call::perhaps(cas(999, 1, true), at(0), None)).collect();
        for turn in 0..3_000 {
            calls.push(call(cas(turn % 5, (turn + 1) % 5, true), turn * 10, turn * 10 + 15));
        }
        assert!(is_linear(&calls));
        calls.push(call(RegisterOp::Read(77), 40_000, 40_001));
        assert!(!is_linear(&calls));
    }
}
