//! The parts of a reliable stream that both kinds of sessions use. The layout of packets and the
//! acknowledgements are not among them.
//!
//! | module | content |
//! |---|---|
//! | `number` | sequence numbers |
//! | `outgoing` | what was written, in segments, until it is acknowledged |
//! | `incoming` | segments in any order, read in the right order |
//! | `flight` | what is under way, what of it is lost, the round trip |
//! | `control` | how much may be under way, and how fast it leaves |
//! | `probe` | the question for a closed window |

pub(crate) mod control;
pub(crate) mod flight;
pub(crate) mod incoming;
pub(crate) mod number;
pub(crate) mod outgoing;
pub(crate) mod probe;
