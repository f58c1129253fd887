//! A flow inside this process. It joins the flow of a visitor with the flow of a target without a
//! link: datagrams that one end receives are delivered to the other end.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use bytes::Bytes;
use proto::ResetCode;
use transport::{FlowInlet, FlowOutlet};

use crate::connection_table::{ConnectionEntry, ConnectionTable, Place, Tracked};

/// Joins the flow of a visitor, whose outlet is `visitor`, with the flow of a target. `target`
/// takes the inlet of the target's flow and returns the outlet of the target; `None`: it has closed
/// the inlet. Returns the inlet of the visitor's flow. A target that cannot be reached closes the
/// visitor's flow, possibly before this function returns.
pub fn join_flow(
    visitor: Rc<dyn FlowOutlet>,
    table: &Rc<ConnectionTable>,
    target: impl FnOnce(Box<dyn FlowInlet>) -> Option<Rc<dyn FlowOutlet>>,
) -> Box<dyn FlowInlet> {
    let passage = Rc::new(Passage {
        ends: [RefCell::new(None), RefCell::new(Some(visitor))],
        bytes: Default::default(),
        place: RefCell::new(None),
    });
    let side = |to| Box::new(Side { passage: Rc::clone(&passage), to });
    let outlet = target(side(TO_VISITOR));
    // A target that has closed the flow already has taken the visitor's end.
    if passage.ends[TO_VISITOR].borrow().is_some() {
        *passage.ends[TO_TARGET].borrow_mut() = outlet;
        let tracked: Rc<dyn Tracked> = Rc::<Passage>::clone(&passage);
        *passage.place.borrow_mut() = Some(table.enter(Rc::downgrade(&tracked)));
    }
    side(TO_TARGET)
}

/// The indices of the ends in a passage.
const TO_TARGET: usize = 0;
const TO_VISITOR: usize = 1;

/// Two joined flows.
struct Passage {
    /// The outlet of each end; `None` after the end of the flow.
    ends: [RefCell<Option<Rc<dyn FlowOutlet>>>; 2],
    /// Bytes that were delivered to each end.
    bytes: [Cell<u64>; 2],
    place: RefCell<Option<Place>>,
}

impl Passage {
    /// Ends the flow. `from`: the end that has closed it, which is not notified.
    fn end(&self, from: Option<usize>, code: ResetCode) {
        self.place.take();
        // Both are taken before either is closed: closing the first may end the other.
        let ends = self.ends.each_ref().map(RefCell::take);
        for (to, end) in ends.into_iter().enumerate() {
            if let Some(end) = end.filter(|_| from != Some(to)) {
                end.close(code);
            }
        }
    }
}

impl Tracked for Passage {
    fn entry(&self) -> Option<ConnectionEntry> {
        let visitor = self.ends[TO_VISITOR].borrow().clone()?;
        Some(ConnectionEntry {
            visitor: visitor.peer(),
            bytes_in: self.bytes[TO_TARGET].get(),
            bytes_out: self.bytes[TO_VISITOR].get(),
            counted: visitor.counted_in(),
        })
    }

    fn abort(&self) {
        self.end(None, ResetCode::Aborted);
    }
}

/// The inlet of one of the two flows. Its datagrams go to the other flow.
struct Side {
    passage: Rc<Passage>,
    to: usize,
}

impl FlowInlet for Side {
    fn send(&self, datagrams: &mut dyn Iterator<Item = &[u8]>) -> usize {
        let end = self.passage.ends[self.to].borrow().clone();
        let Some(end) = end else { return datagrams.count() };
        let bytes = &self.passage.bytes[self.to];
        for datagram in datagrams {
            bytes.set(bytes.get() + datagram.len() as u64);
            end.deliver(Bytes::copy_from_slice(datagram));
        }
        0
    }

    fn close(&self, code: ResetCode) {
        self.passage.end(Some(1 - self.to), code);
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.close(ResetCode::Aborted);
    }
}

impl fmt::Debug for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.to == TO_TARGET { "Side(visitor)" } else { "Side(target)" })
    }
}
