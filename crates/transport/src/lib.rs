//! The interfaces of transports: carriers, lanes, dialers and listeners, and the interface between
//! streams and sockets.
//!
//! A transport crate implements [`Listener`], [`Incoming`], [`Dialer`] and [`Lane`]; `link` drives
//! them without knowledge of any transport. `relay` implements [`Outlet`] and uses [`Inlet`];
//! `link` does the opposite. `testkit` contains the conformance suite that every transport passes.

mod carrier;
mod early;
mod error;
mod flow;
mod lane;
mod lanes;
pub mod memory;
mod offer;
mod stream;

/// The ends of a carrier: the client dials, the server accepts.
pub use proto::Side;

pub use carrier::{
    ALPN, Carrier, Cipher, Connection, ConnectionStats, Dialer, EXPORTER_LABEL, Incoming, Listener,
    LocalFuture, PathDialer, Patience, Peer, Repair, Transport, Watch,
};
pub use early::{AcceptResult, Dialled, Early, EarlyDataFn};
pub use error::CarrierError;
pub use flow::{DATAGRAM_MAX, FlowConnector, FlowInlet, FlowOutlet};
pub use lane::{Death, Lane, PageSink, PageSource, Producer, Through, Unchanged};
pub use lanes::{Carried, Datagrams, Lanes, RecvLane, SendLane};
pub use offer::{Ask, OfferRequest};
pub use stream::{Connector, Inlet, OpenError, Outlet, PageInlet, deliver_copy};
