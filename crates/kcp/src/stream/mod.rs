//! The parts of a reliable stream: what is the same whatever the packets look like. The layout of
//! packets and the acknowledgements are not among them.
//!
//! Sessions of this crate and sessions that kcp-go understands (the crate `kcp-go`, in a workspace
//! of its own) are made of these parts.
//!
//! | module | content |
//! |---|---|
//! | `number` | sequence numbers |
//! | `outgoing` | written bytes, in segments, until they are acknowledged |
//! | `incoming` | reassembly: segments in any order, read in order |
//! | `flight` | transmissions in flight, loss detection, the round trip |
//! | `control` | congestion control and pacing |
//! | `probe` | the probe of a closed window |

pub mod control;
pub mod flight;
pub mod incoming;
pub mod number;
pub mod outgoing;
pub mod probe;
