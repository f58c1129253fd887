//! A checker of linearizability (Wing and Gong, "Testing and Verifying Concurrent Objects", 1993):
//! it looks for an order of the calls that a single object without concurrency could have carried
//! out, in which no call comes before a call that had returned before it began.
//!
//! The search tries the calls that could be next one after the other, those that are known to have
//! taken effect first. It is short because of two prunings:
//!
//! * calls that have ended must be placed before any call that began after them;
//! * what led to a state before is not tried again (Lowe, "Testing for linearizability", 2017), nor
//!   with fewer calls left of which nobody knows whether they took effect.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

/// An object without concurrency.
pub trait Model {
    /// All that the object remembers.
    type State: Clone + Debug + Eq + Hash;
    /// An operation together with its answer.
    type Op: Debug;

    /// The state after the operation. `None`: the object would not have answered so.
    fn step(&self, state: &Self::State, op: &Self::Op) -> Option<Self::State>;
}

/// One operation of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call<Op> {
    /// What was asked for and answered.
    pub op: Op,
    /// When the operation began.
    pub begun: Duration,
    /// When it had ended. `None`: it may take effect at any later time.
    pub ended: Option<Duration>,
    /// Whether it is known that the operation took effect. An operation without an answer may have
    /// been carried out, or not.
    pub is_sure: bool,
}

impl<Op> Call<Op> {
    /// An operation whose answer is known.
    pub const fn answered(op: Op, begun: Duration, ended: Duration) -> Self {
        Self { op, begun, ended: Some(ended), is_sure: true }
    }

    /// An operation that may take effect between two times, the second one included, or not.
    pub const fn perhaps(op: Op, begun: Duration, ended: Option<Duration>) -> Self {
        Self { op, begun, ended, is_sure: false }
    }
}

/// Why a history is not linearizable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotLinear {
    /// The most calls that could be brought into an order.
    pub placed: usize,
    /// The call that could not follow, and the states that were possible before it.
    pub stuck: String,
}

/// One end of a call in the order of time.
#[derive(Clone, Copy, Debug)]
struct Event {
    call: usize,
    is_begin: bool,
}

/// The events that are not placed yet, as a list through which the search goes back and forth.
struct Rest {
    events: Vec<Event>,
    /// The next and the previous event of each event; the last index stands for both ends.
    next: Vec<usize>,
    previous: Vec<usize>,
    /// Begin and end of each call.
    of_call: Vec<[usize; 2]>,
}

impl Rest {
    fn new<Op>(calls: &[Call<Op>]) -> Self {
        let mut order: Vec<(Duration, bool, usize)> = Vec::with_capacity(calls.len() * 2);
        for (call, it) in calls.iter().enumerate() {
            // Of two events at the same time the begin counts as the earlier one, so that the calls
            // overlap.
            order.push((it.begun, false, call));
            order.push((it.ended.unwrap_or(Duration::MAX), true, call));
        }
        order.sort();
        let events: Vec<Event> =
            order.iter().map(|&(_, is_end, call)| Event { call, is_begin: !is_end }).collect();
        let count = events.len();
        let mut of_call = vec![[0; 2]; calls.len()];
        for (at, event) in events.iter().enumerate() {
            of_call[event.call][usize::from(!event.is_begin)] = at;
        }
        let next = (1..=count).chain([0]).collect();
        let previous = std::iter::once(count).chain(0..count).collect();
        Self { events, next, previous, of_call }
    }

    const fn end(&self) -> usize {
        self.events.len()
    }

    fn first(&self) -> usize {
        self.next[self.end()]
    }

    /// Takes both events of a call out.
    fn take(&mut self, call: usize) {
        for at in self.of_call[call] {
            let (next, previous) = (self.next[at], self.previous[at]);
            self.next[previous] = next;
            self.previous[next] = previous;
        }
    }

    /// Puts the call that was taken last back.
    fn put_back(&mut self, call: usize) {
        for at in self.of_call[call].into_iter().rev() {
            let (next, previous) = (self.next[at], self.previous[at]);
            self.next[previous] = at;
            self.previous[next] = at;
        }
    }
}

/// A set of calls, a bit for each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Calls(Vec<u64>);

impl Calls {
    fn none(count: usize) -> Self {
        Self(vec![0; count.div_ceil(64)])
    }

    fn flip(&mut self, call: usize) {
        self.0[call / 64] ^= 1 << (call % 64);
    }

    fn is_within(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(own, other)| own & !other == 0)
    }
}

/// A place of the search.
struct Place<State> {
    state: State,
    /// The calls that may be next, the first one last.
    next: Vec<usize>,
    /// The call that led here, and the calls that did not take effect because it did.
    taken: Vec<usize>,
}

/// The most places of a search. A history that needs more is refused.
const PLACES: usize = 3_000_000;

/// Looks for an order of the calls, beginning with any of these states. Returns a state in which
/// the object may be after the last call that is known to have taken effect.
///
/// # Errors
/// There is no such order, or the search takes too long.
pub fn linearize<M: Model>(
    model: &M,
    calls: &[Call<M::Op>],
    first: &[M::State],
) -> Result<M::State, NotLinear> {
    let mut worst = NotLinear { placed: 0, stuck: "no state to begin with".to_owned() };
    for state in first {
        match Search::new(model, calls).run(state.clone()) {
            Ok(state) => return Ok(state),
            Err(why) if why.placed >= worst.placed => worst = why,
            Err(_) => {}
        }
    }
    Err(worst)
}

/// A search with its memory.
struct Search<'a, M: Model> {
    model: &'a M,
    calls: &'a [Call<M::Op>],
    rest: Rest,
    /// The sure calls that are placed, and the other calls that are placed or did not take effect.
    placed: [Calls; 2],
    /// For the sure calls that were placed and the state after them, which other calls were gone.
    tried: HashMap<(Calls, M::State), Vec<Calls>>,
    left: usize,
    worst: NotLinear,
}

impl<'a, M: Model> Search<'a, M> {
    fn new(model: &'a M, calls: &'a [Call<M::Op>]) -> Self {
        let none = Calls::none(calls.len());
        Self {
            model,
            calls,
            rest: Rest::new(calls),
            placed: [none.clone(), none],
            tried: HashMap::new(),
            left: calls.iter().filter(|call| call.is_sure).count(),
            worst: NotLinear { placed: 0, stuck: String::new() },
        }
    }

    fn run(mut self, first: M::State) -> Result<M::State, NotLinear> {
        let mut path = vec![self.at(first, Vec::new())];
        let mut places = 0;
        while places < PLACES {
            let Some(place) = path.last_mut() else { return Err(self.worst) };
            if self.left == 0 {
                return Ok(place.state.clone());
            }
            let Some(call) = place.next.pop() else {
                let gone = path.pop().map(|place| place.taken).unwrap_or_default();
                gone.iter().rev().for_each(|call| self.put_back(*call));
                continue;
            };
            let Some(after) = self.model.step(&place.state, &self.calls[call].op) else { continue };
            // A call that cannot follow costs little, and of a long history there are thousands.
            places += 1;
            let taken = self.take(call);
            if self.is_new(&after) {
                path.push(self.at(after, taken));
            } else {
                taken.iter().rev().for_each(|call| self.put_back(*call));
            }
        }
        self.worst.stuck = format!("more than {PLACES} places; {}", self.worst.stuck);
        Err(self.worst)
    }

    /// The place after these calls: what may be next.
    fn at(&mut self, state: M::State, taken: Vec<usize>) -> Place<M::State> {
        let (mut sure, mut others) = (Vec::new(), Vec::new());
        let mut at = self.rest.first();
        while at != self.rest.end() {
            let Event { call, is_begin } = self.rest.events[at];
            let is_sure = self.calls[call].is_sure;
            if is_begin {
                if is_sure { &mut sure } else { &mut others }.push(call);
            } else if is_sure {
                self.note(&state, call);
                break;
            }
            at = self.rest.next[at];
        }
        others.reverse();
        others.extend(sure.into_iter().rev());
        Place { state, next: others, taken }
    }

    /// Remembers the call by whose end something has to be placed, where the search is furthest.
    fn note(&mut self, state: &M::State, call: usize) {
        let all = self.calls.iter().filter(|call| call.is_sure).count();
        if all - self.left >= self.worst.placed {
            let stuck = format!("{:?} after the state {state:?}", self.calls[call]);
            self.worst = NotLinear { placed: all - self.left, stuck };
        }
    }

    /// Whether nothing was tried with this state that left as much.
    fn is_new(&mut self, state: &M::State) -> bool {
        let [sure, gone] = &self.placed;
        let tried = self.tried.entry((sure.clone(), state.clone())).or_default();
        if tried.iter().any(|it| it.is_within(gone)) {
            return false;
        }
        tried.retain(|it| !gone.is_within(it));
        tried.push(gone.clone());
        true
    }

    /// Places a call. Returns it together with the calls that had ended before it began: they did
    /// not take effect.
    fn take(&mut self, call: usize) -> Vec<usize> {
        let (mut taken, mut at) = (Vec::new(), self.rest.first());
        while at != self.rest.of_call[call][0] {
            let Event { call: other, is_begin } = self.rest.events[at];
            if !is_begin {
                taken.push(other);
            }
            at = self.rest.next[at];
        }
        taken.push(call);
        for call in &taken {
            self.rest.take(*call);
            self.flip(*call, true);
        }
        taken
    }

    fn put_back(&mut self, call: usize) {
        self.rest.put_back(call);
        self.flip(call, false);
    }

    fn flip(&mut self, call: usize, is_taken: bool) {
        let is_sure = self.calls[call].is_sure;
        self.placed[usize::from(!is_sure)].flip(call);
        if is_sure {
            self.left = if is_taken { self.left - 1 } else { self.left + 1 };
        }
    }
}
