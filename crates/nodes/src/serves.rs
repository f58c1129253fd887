//! What the server around the links serves to other nodes.

use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;

use cluster::names::NodeId;
use node::session::Worker;
use proto::{Hop, NodeQuestion, Priority, ResetCode, VisitorFields};
use transport::{FlowInlet, FlowOutlet, Inlet, Outlet};

/// The visitor of a hop, as the node that the visitor reached describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HopStream {
    /// The address of the visitor.
    pub visitor: Option<SocketAddr>,
    /// The priority of the stream.
    pub priority: Priority,
    /// What a load balancer says of the visitor.
    pub fields: Option<VisitorFields>,
}

/// A question of another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAsks {
    /// The other node.
    pub from: NodeId,
    /// The question.
    pub question: NodeQuestion,
    /// Of a [`NodeQuestion::Carrier`]: the address of the client.
    pub client: Option<SocketAddr>,
}

/// Serves the streams and flows of other nodes to clients of this node. Called on the worker of the
/// link; must not wait.
pub trait ServesHops: fmt::Debug + Send + Sync {
    /// Accepts a stream.
    fn stream(
        &self,
        worker: &Rc<Worker>,
        from: &NodeId,
        hop: Hop,
        stream: HopStream,
        inlet: Box<dyn Inlet>,
    ) -> Rc<dyn Outlet>;

    /// Answers a question. By default a node has no answers and refuses.
    fn answer(
        &self,
        _worker: &Rc<Worker>,
        _asks: NodeAsks,
        inlet: Box<dyn Inlet>,
    ) -> Rc<dyn Outlet> {
        relay::refuse_stream(&*inlet, None, ResetCode::Unknown)
    }

    /// Accepts a flow. `None`: the inlet was closed with the reason.
    fn flow(
        &self,
        worker: &Rc<Worker>,
        from: &NodeId,
        hop: Hop,
        flow: HopStream,
        inlet: Box<dyn FlowInlet>,
    ) -> Option<Rc<dyn FlowOutlet>>;
}
