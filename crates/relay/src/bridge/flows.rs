//! Joins two flows: each datagram of one flow becomes a datagram of the other flow. Nothing waits
//! between the flows of one worker. Between two workers at most [`UNDER_WAY`] datagrams of a
//! direction wait, and further datagrams are dropped, as everywhere on the way of a datagram.

use std::cell::RefCell;
use std::fmt;
use std::iter::once;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use proto::{Open, ResetCode};
use tokio::sync::mpsc;
use tokio::task::spawn_local;
use transport::{FlowConnector, FlowInlet, FlowOutlet, OpenError};

use crate::Permit;

/// The datagrams of one direction that wait between two workers.
const UNDER_WAY: usize = 64;

/// Two joined flows. The outlets of both flows keep the joint alive.
struct FlowJoint {
    /// `None` while the flow is being opened, and after its end.
    inlets: [RefCell<Option<Box<dyn FlowInlet>>>; 2],
    visitor: Option<SocketAddr>,
    _permits: Vec<Permit>,
}

/// The outlet of one of the two flows.
struct FlowEnd {
    joint: Rc<FlowJoint>,
    /// The index of the inlet of the flow.
    side: usize,
}

/// Opens a flow at `connector` and joins it with the accepted flow of a visitor with this address.
/// Returns the outlet of the accepted flow. The permits are kept until both flows have ended.
///
/// # Errors
/// The connector takes no more flows. The accepted flow is returned, and the caller must close it.
pub fn bridge_flow(
    accepted: Box<dyn FlowInlet>,
    connector: &dyn FlowConnector,
    open: Open,
    permits: Vec<Permit>,
) -> Result<Rc<dyn FlowOutlet>, (Box<dyn FlowInlet>, OpenError)> {
    let visitor = open.visitor;
    let joint = Rc::new(FlowJoint { inlets: Default::default(), visitor, _permits: permits });
    match connector.open_flow(open, Rc::new(FlowEnd { joint: Rc::clone(&joint), side: 1 })) {
        Ok(inlet) => {
            *joint.inlets[0].borrow_mut() = Some(accepted);
            *joint.inlets[1].borrow_mut() = Some(inlet);
            Ok(Rc::new(FlowEnd { joint, side: 0 }))
        }
        Err(error) => Err((accepted, error)),
    }
}

impl FlowOutlet for FlowEnd {
    fn deliver(&self, datagram: Bytes) {
        if let Some(other) = &*self.joint.inlets[1 - self.side].borrow() {
            // The link of the other flow counts what it drops.
            let _ = other.send(&mut once(&datagram[..]));
        }
    }

    fn close(&self, code: ResetCode) {
        let other = self.joint.inlets[1 - self.side].take();
        drop(self.joint.inlets[self.side].take());
        if let Some(other) = other {
            other.close(code);
        }
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.joint.visitor
    }
}

impl fmt::Debug for FlowEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlowEnd").field("side", &self.side).finish_non_exhaustive()
    }
}

/// From one worker to the other.
#[derive(Debug)]
enum FlowMessage {
    Datagram(Bytes),
    Close(ResetCode),
}

/// One end of a connection between two workers. It may move to another thread.
#[derive(Debug)]
pub struct FlowSpan {
    there: mpsc::Sender<FlowMessage>,
    here: mpsc::Receiver<FlowMessage>,
}

/// The outlet of a flow that continues on another worker.
#[derive(Debug)]
struct Passed {
    there: mpsc::Sender<FlowMessage>,
    visitor: Option<SocketAddr>,
}

/// Makes a connection. Each end is for one flow.
#[must_use]
pub fn flow_span() -> (FlowSpan, FlowSpan) {
    let (first, second) = (mpsc::channel(UNDER_WAY), mpsc::channel(UNDER_WAY));
    (FlowSpan { there: first.0, here: second.1 }, FlowSpan { there: second.0, here: first.1 })
}

impl FlowSpan {
    /// The outlet of the flow of this worker, whose visitor has this address.
    #[must_use]
    pub fn outlet(&self, visitor: Option<SocketAddr>) -> Rc<dyn FlowOutlet> {
        Rc::new(Passed { there: self.there.clone(), visitor })
    }

    /// Starts the task that carries the datagrams of the other worker to this flow. The permits are
    /// kept until the flow of the other worker has ended.
    pub fn join(self, inlet: Box<dyn FlowInlet>, permits: Vec<Permit>) {
        let Self { there, mut here } = self;
        // The outlet has the sender from now on, so the other worker learns of its end.
        drop(there);
        spawn_local(async move {
            let code = loop {
                match here.recv().await {
                    Some(FlowMessage::Datagram(datagram)) => {
                        let _ = inlet.send(&mut once(&datagram[..]));
                    }
                    Some(FlowMessage::Close(code)) => break code,
                    None => break ResetCode::Aborted,
                }
            };
            inlet.close(code);
            drop(permits);
        });
    }
}

impl FlowOutlet for Passed {
    fn deliver(&self, datagram: Bytes) {
        let _ = self.there.try_send(FlowMessage::Datagram(datagram));
    }

    fn close(&self, code: ResetCode) {
        // Without room, the drop of this outlet ends the other flow.
        let _ = self.there.try_send(FlowMessage::Close(code));
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.visitor
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proto::{Priority, Target};
    use tokio::task::{LocalSet, yield_now};

    use super::*;

    /// The link side of a flow, with everything that it was given.
    #[derive(Clone, Debug, Default)]
    struct Sent {
        datagrams: Rc<RefCell<Vec<Vec<u8>>>>,
        closed: Rc<Cell<Option<ResetCode>>>,
    }

    impl FlowInlet for Sent {
        fn send(&self, datagrams: &mut dyn Iterator<Item = &[u8]>) -> usize {
            self.datagrams.borrow_mut().extend(datagrams.map(<[u8]>::to_vec));
            0
        }

        fn close(&self, code: ResetCode) {
            self.closed.set(Some(code));
        }
    }

    /// A link that opens one flow.
    #[derive(Debug, Default)]
    struct OneFlow {
        inlet: Sent,
        outlet: RefCell<Option<Rc<dyn FlowOutlet>>>,
        is_full: bool,
    }

    impl FlowConnector for OneFlow {
        fn open_flow(
            &self,
            _open: Open,
            outlet: Rc<dyn FlowOutlet>,
        ) -> Result<Box<dyn FlowInlet>, OpenError> {
            if self.is_full {
                return Err(OpenError::Limit);
            }
            *self.outlet.borrow_mut() = Some(outlet);
            Ok(Box::new(self.inlet.clone()))
        }
    }

    fn open() -> Open {
        Open {
            target: Target::Service("dns".to_owned()),
            visitor: Some("192.0.2.7:5353".parse().unwrap()),
            priority: Priority::Normal,
            fields: None,
        }
    }

    #[test]
    fn datagrams_cross_both_ways_and_the_end_of_one_flow_ends_the_other() {
        let (accepted, link) = (Sent::default(), OneFlow::default());
        let outlet = bridge_flow(Box::new(accepted.clone()), &link, open(), Vec::new()).unwrap();
        let opened = link.outlet.borrow().clone().unwrap();
        outlet.deliver(Bytes::from_static(b"question"));
        opened.deliver(Bytes::from_static(b"answer"));
        opened.deliver(Bytes::new());
        assert_eq!(*link.inlet.datagrams.borrow(), [b"question".to_vec()]);
        assert_eq!(*accepted.datagrams.borrow(), [b"answer".to_vec(), Vec::new()]);
        assert_eq!(outlet.peer(), open().visitor);
        opened.close(ResetCode::Refused);
        assert_eq!(accepted.closed.get(), Some(ResetCode::Refused));
        // Nothing reaches a flow that has ended.
        outlet.deliver(Bytes::from_static(b"late"));
        assert_eq!(link.inlet.datagrams.borrow().len(), 1);
    }

    #[test]
    fn a_flow_that_cannot_be_opened_is_returned() {
        let (accepted, link) = (Sent::default(), OneFlow { is_full: true, ..OneFlow::default() });
        let (inlet, error) =
            bridge_flow(Box::new(accepted.clone()), &link, open(), Vec::new()).unwrap_err();
        assert!(matches!(error, OpenError::Limit));
        inlet.close(ResetCode::Limit);
        assert_eq!(accepted.closed.get(), Some(ResetCode::Limit));
    }

    #[tokio::test]
    async fn a_slow_worker_loses_datagrams_and_hears_of_the_end() {
        let (near, far) = flow_span();
        let (here, there) = (Sent::default(), Sent::default());
        let (to_far, to_near) = (near.outlet(None), far.outlet(None));
        for n in 0..2 * UNDER_WAY {
            to_far.deliver(Bytes::from(vec![u8::try_from(n).unwrap()]));
        }
        LocalSet::new()
            .run_until(async {
                near.join(Box::new(here.clone()), Vec::new());
                far.join(Box::new(there.clone()), Vec::new());
                yield_now().await;
                assert_eq!(there.datagrams.borrow().len(), UNDER_WAY);
                to_near.deliver(Bytes::from_static(b"answer"));
                to_near.close(ResetCode::Timeout);
                yield_now().await;
                assert_eq!(*here.datagrams.borrow(), [b"answer".to_vec()]);
                assert_eq!(here.closed.get(), Some(ResetCode::Timeout));
                // Without a word of its end, the drop of the outlet ends the flow.
                drop(to_far);
                yield_now().await;
                assert_eq!(there.closed.get(), Some(ResetCode::Aborted));
            })
            .await;
    }
}
