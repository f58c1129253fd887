//! The parts of a reliable stream that both kinds of sessions share, without packet layout and
//! acknowledgements.
//!
//! | module | content |
//! |---|---|
//! | `number` | sequence numbers |
//! | `outgoing` | written bytes, in segments, until they are acknowledged |
//! | `incoming` | reassembly: segments in any order, read in order |
//! | `flight` | transmissions in flight, loss detection, the round trip |
//! | `control` | congestion control and pacing |
//! | `probe` | the probe of a closed window |

pub(crate) mod control;
pub(crate) mod flight;
pub(crate) mod incoming;
pub(crate) mod number;
pub(crate) mod outgoing;
pub(crate) mod probe;
