//! The owner of the links of a test, which records their events.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use link::{Link, Owner, State};
use proto::control::ControlMessage;
use proto::{Open, ResetCode, Target};
use transport::{FlowInlet, FlowOutlet, Inlet, Outlet};

use super::{Appetite, FlowTap, Tap};

/// What an owner does with a stream that the peer opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// Keeps it for the test.
    Keep,
    /// Refuses it.
    Refuse,
    /// Has a defect.
    Panic,
    /// Gives it an outlet with a defect.
    PanicLater,
    /// Closes the link at once.
    Close,
}

#[derive(Debug)]
pub(crate) struct Party {
    pub(crate) taps: RefCell<Vec<Rc<Tap>>>,
    pub(crate) flows: RefCell<Vec<Rc<FlowTap>>>,
    pub(crate) opens: RefCell<Vec<Open>>,
    pub(crate) messages: RefCell<Vec<ControlMessage>>,
    pub(crate) states: RefCell<Vec<State>>,
    pub(crate) behaviour: Cell<Behaviour>,
    pub(crate) appetite: Cell<Appetite>,
    /// [`Tap::paged`] of streams that the peer opens.
    pub(crate) paged: Cell<usize>,
    /// States that made it panic, on purpose.
    pub(crate) panics_at: Cell<Option<State>>,
}

impl Party {
    pub(crate) fn new() -> Rc<Self> {
        Rc::new(Self {
            taps: RefCell::default(),
            flows: RefCell::default(),
            opens: RefCell::default(),
            messages: RefCell::default(),
            states: RefCell::default(),
            behaviour: Cell::new(Behaviour::Keep),
            appetite: Cell::new(Appetite::SOME),
            paged: Cell::new(0),
            panics_at: Cell::new(None),
        })
    }

    pub(crate) fn tap(&self, index: usize) -> Option<Rc<Tap>> {
        self.taps.borrow().get(index).cloned()
    }

    /// Takes the stream to this service out of the list.
    pub(crate) fn take(&self, service: &str) -> Option<Rc<Tap>> {
        let wanted = Target::Service(service.to_owned());
        let at = self.opens.borrow().iter().position(|open| open.target == wanted)?;
        self.opens.borrow_mut().remove(at);
        Some(self.taps.borrow_mut().remove(at))
    }

    pub(crate) fn saw(&self, state: State) -> bool {
        self.states.borrow().contains(&state)
    }

    pub(crate) fn count(&self, state: State) -> usize {
        self.states.borrow().iter().filter(|seen| **seen == state).count()
    }

    /// The next stream that the peer opens from now on.
    pub(crate) fn next_tap(self: &Rc<Self>) -> impl Future<Output = Rc<Tap>> + use<> {
        let (party, index) = (Rc::clone(self), self.taps.borrow().len());
        async move {
            super::until("a stream of the peer", || party.taps.borrow().len() > index).await;
            party.tap(index).unwrap()
        }
    }
}

impl Owner for Party {
    fn accept(&self, link: &Link, open: Open, inlet: Box<dyn Inlet>) -> Rc<dyn Outlet> {
        let tap = Tap::new(self.appetite.get());
        tap.paged.set(self.paged.get());
        match self.behaviour.get() {
            Behaviour::Keep => tap.join(inlet),
            Behaviour::Refuse => {
                inlet.reset(ResetCode::Refused);
                inlet.stop(ResetCode::Refused);
            }
            Behaviour::Panic => panic!("a defect, on purpose"),
            Behaviour::PanicLater => {
                tap.panics.set(true);
                tap.join(inlet);
            }
            Behaviour::Close => {
                link.close();
                tap.join(inlet);
            }
        }
        self.opens.borrow_mut().push(open);
        self.taps.borrow_mut().push(Rc::clone(&tap));
        tap
    }

    fn accept_flow(
        &self,
        _link: &Link,
        open: Open,
        inlet: Box<dyn FlowInlet>,
    ) -> Option<Rc<dyn FlowOutlet>> {
        if self.behaviour.get() == Behaviour::Refuse {
            inlet.close(ResetCode::Refused);
            return None;
        }
        let tap = FlowTap::new(Some(open));
        *tap.inlet.borrow_mut() = Some(inlet);
        self.flows.borrow_mut().push(Rc::clone(&tap));
        Some(tap)
    }

    fn message(&self, _link: &Link, message: ControlMessage) {
        self.messages.borrow_mut().push(message);
    }

    fn changed(&self, _link: &Link, state: State) {
        self.states.borrow_mut().push(state);
        assert_ne!(self.panics_at.get(), Some(state), "a defect, on purpose");
    }
}
