//! Who has a name: a register with compare-and-set whose value is the process of a client.

use super::linear::Model;

/// A process of a client.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The client.
    pub client: String,
    /// The process, a number that no other process has.
    pub process: u64,
}

/// What the processes of a client were told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The process has the name.
    Held,
    /// Another client has the name.
    Taken,
}

/// An operation on a name with its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameOp {
    /// A process asks for the name: it gets the name that is free, or that its client has. So it is
    /// a compare-and-set.
    Claim(Owner, Answer),
    /// The process gives the name up, or loses it with its node.
    Free(Owner),
    /// The owner that the store has, if the owner's node is alive.
    Read(Option<Owner>),
}

/// The rules of one name.
#[derive(Clone, Copy, Debug, Default)]
pub struct Names;

impl Model for Names {
    type State = Option<Owner>;
    type Op = NameOp;

    fn step(&self, state: &Self::State, op: &NameOp) -> Option<Self::State> {
        let is_of = |by: &Owner| state.as_ref().is_none_or(|owner| owner.client == by.client);
        match op {
            NameOp::Claim(by, Answer::Held) => is_of(by).then(|| Some(by.clone())),
            NameOp::Claim(by, Answer::Taken) => (!is_of(by)).then(|| state.clone()),
            // What the process does not have it cannot give up.
            NameOp::Free(by) => (state.as_ref() == Some(by)).then_some(None),
            NameOp::Read(found) => (found == state).then(|| state.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::linear::{Call, linearize};
    use super::*;

    const fn at(time: u64) -> Duration {
        Duration::from_millis(time)
    }

    fn owner(client: &str, process: u64) -> Owner {
        Owner { client: client.to_owned(), process }
    }

    fn call(op: NameOp, begun: u64, ended: u64) -> Call<NameOp> {
        Call::answered(op, at(begun), at(ended))
    }

    fn is_linear(calls: &[Call<NameOp>]) -> bool {
        linearize(&Names, calls, &[None]).is_ok()
    }

    #[test]
    fn a_name_that_was_given_up_goes_to_another_client() {
        let (ann, bob) = (owner("ann", 1), owner("bob", 2));
        let calls = |freed: Option<u64>| {
            let mut calls = vec![
                call(NameOp::Claim(ann.clone(), Answer::Held), 0, 10),
                call(NameOp::Claim(bob.clone(), Answer::Taken), 5, 20),
                call(NameOp::Claim(bob.clone(), Answer::Held), 40, 50),
                call(NameOp::Read(Some(bob.clone())), 60, 61),
            ];
            calls.extend(
                freed.map(|begun| Call::perhaps(NameOp::Free(ann.clone()), at(begun), None)),
            );
            calls
        };
        assert!(is_linear(&calls(Some(30))));
        assert!(is_linear(&calls(Some(45))), "the claim ends after the name was given up");
        assert!(!is_linear(&calls(None)), "two clients have one name");
        assert!(!is_linear(&calls(Some(55))));
    }

    #[test]
    fn a_newer_process_of_the_client_has_the_name_and_the_former_frees_nothing() {
        let (old, new) = (owner("ann", 1), owner("ann", 2));
        let calls = |found: Option<Owner>| {
            [
                call(NameOp::Claim(old.clone(), Answer::Held), 0, 10),
                call(NameOp::Claim(new.clone(), Answer::Held), 20, 30),
                Call::perhaps(NameOp::Free(old.clone()), at(25), None),
                call(NameOp::Read(found), 40, 41),
            ]
        };
        assert!(is_linear(&calls(Some(new.clone()))));
        assert!(!is_linear(&calls(Some(old.clone()))));
        assert!(!is_linear(&calls(None)), "the former process has freed a newer claim");
    }

    #[test]
    fn a_name_that_nobody_has_is_not_taken() {
        let bob = owner("bob", 2);
        assert!(!is_linear(&[call(NameOp::Claim(bob.clone(), Answer::Taken), 0, 10)]));
        let calls = [call(NameOp::Claim(bob, Answer::Held), 20, 30)];
        assert!(linearize(&Names, &calls, &[Some(owner("ann", 1)), None]).is_ok());
        assert!(linearize(&Names, &calls, &[Some(owner("ann", 1))]).is_err());
    }

    #[test]
    fn many_calls_without_an_answer_are_judged_in_time() {
        // 60 processes of 3 clients ask while nobody answers, and each may lose the name again.
        let mut calls = Vec::new();
        for process in 0..60 {
            let owner = owner(["ann", "bob", "cat"][process % 3], process as u64);
            let claim = || NameOp::Claim(owner.clone(), Answer::Held);
            for _ in 0..2 {
                calls.push(Call::perhaps(claim(), at(10), Some(at(900))));
                calls.push(Call::perhaps(NameOp::Free(owner.clone()), at(10), None));
            }
        }
        let dan = owner("dan", 99);
        for turn in 0..20 {
            let (begun, ended) = (1_000 + turn * 10, 1_005 + turn * 10);
            calls.push(call(NameOp::Claim(dan.clone(), Answer::Taken), begun, ended));
        }
        assert!(is_linear(&calls));
        // Nobody can free what nobody has asked for.
        calls.push(call(NameOp::Read(Some(owner("ann", 3))), 2_000, 2_001));
        calls.push(call(NameOp::Read(Some(owner("bob", 4))), 2_002, 2_003));
        assert!(!is_linear(&calls));
    }
}
