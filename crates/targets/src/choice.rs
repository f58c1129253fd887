//! The target of one visitor of a service with several targets. It belongs to the stream or flow
//! until its end, as the settings' watcher and as the list of targets to dial.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use config::{Over, Service};
use h1::Doubt;
use net::source::Source;
use proto::ResetCode;
use relay::{DialError, Layer, TargetAddr, Targets, Visit, Visitor, Watcher};

use super::pool::{Member, Pool};
use super::site::Site;

/// Several targets of a service, on one worker.
#[derive(Debug)]
pub(super) struct Several {
    pool: Arc<Pool>,
    /// The layer above the connections to each target.
    layers: Vec<Option<Rc<dyn Layer>>>,
}

impl Several {
    /// `None`: the service has one target.
    pub(super) fn of(service: &Service, pool: &Arc<Pool>) -> Option<Rc<Self>> {
        if service.spread.others.is_empty() {
            return None;
        }
        let layers = service.targets().map(|(target, _)| Site::of(service, target)).collect();
        Some(Rc::new(Self { pool: Arc::clone(pool), layers }))
    }

    /// Chooses the target of a visitor. `mark`: the mark of the visitor's previous target.
    pub(super) fn choose(
        self: &Rc<Self>,
        visitor: &Visitor,
        mark: Option<u64>,
        over: Over,
    ) -> Rc<Choice> {
        let visitor = visitor.source();
        let kept = mark.and_then(|mark| self.pool.serving(mark));
        // At least one weight is above 0.
        let first = kept.or_else(|| self.pool.pick(visitor.as_ref(), &[])).unwrap_or(0);
        self.pool.member(first).enter();
        let tried = RefCell::new(vec![first]);
        Rc::new(Choice { of: Rc::clone(self), visitor, over, tried })
    }
}

/// The target of one visitor.
pub(super) struct Choice {
    of: Rc<Several>,
    visitor: Option<Source>,
    over: Over,
    /// The indexes of the chosen targets; the last one is current.
    tried: RefCell<Vec<usize>>,
}

impl Choice {
    fn place(&self) -> usize {
        self.tried.borrow().last().copied().unwrap_or(0)
    }

    fn member(&self) -> &Member {
        self.of.pool.member(self.place())
    }

    fn address(&self) -> Option<TargetAddr> {
        self.member().address(self.over)
    }
}

impl Targets for Choice {
    fn first(&self) -> TargetAddr {
        // The configuration has checked that each target accepts these visitors.
        self.address().unwrap_or_else(|| TargetAddr::Tcp { host: String::new(), port: 0 })
    }

    fn next(&self, failed: &[DialError]) -> Option<TargetAddr> {
        let error = failed.last()?;
        self.member().note(Err(error));
        if error.is_own() {
            // Another target would need the same resource of this machine.
            return None;
        }
        let next = self.of.pool.pick(self.visitor.as_ref(), &self.tried.borrow())?;
        tracing::debug!(
            service = self.member().watch.service,
            "a visitor gets the next target: {error}"
        );
        self.member().leave();
        self.tried.borrow_mut().push(next);
        self.member().enter();
        self.address()
    }

    fn note_answers(&self, answers: bool) -> bool {
        self.of.pool.note_answers(self.place(), answers)
    }

    fn mark(&self) -> u64 {
        self.member().mark()
    }

    fn connected(&self, took: Duration) {
        self.of.pool.took(self.place(), took);
    }

    fn layer(&self, _target: &TargetAddr) -> Option<Rc<dyn Layer>> {
        self.of.layers.get(self.place())?.clone()
    }
}

impl Watcher for Choice {
    fn dialled(&self, outcome: Result<(), &DialError>) {
        // A failure was recorded when the next target was requested, or it is the failure of a
        // flow.
        self.of.pool.dialled(self.place(), outcome);
    }

    fn complain_of_dial(&self, error: &DialError, failures: u64) {
        self.member().watch.complain_of_dial(error, failures);
    }

    fn refused(&self, code: ResetCode) {
        self.member().watch.refused(code);
    }

    fn served(&self) {
        self.member().watch.served();
    }

    fn complain_of_refusal(&self, code: ResetCode, refused: u64) {
        self.member().watch.complain_of_refusal(code, refused);
    }

    fn complain_of_response(&self, doubt: Doubt) {
        self.member().watch.complain_of_response(doubt);
    }

    fn wants_visits(&self) -> bool {
        self.member().watch.wants_visits()
    }

    fn ended(&self, visit: &Visit) {
        self.member().watch.ended(visit);
    }
}

impl Drop for Choice {
    fn drop(&mut self) {
        self.member().leave();
    }
}

impl fmt::Debug for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Choice({:?})", self.member().watch)
    }
}
