//! Histories of a run of several nodes, and what they have to satisfy. The judges are pure: a test
//! records what was called, when, and what was answered, and asks them after the run.
//!
//! | module | what |
//! |---|---|
//! | `linear` | whether a history is linearizable, by the search of Wing and Gong |
//! | `register` | a register with compare-and-set |
//! | `names` | who has a name: claims, releases and readings of one key |
//! | `visits` | which process has answered the visitors of a name |
//!
//! Times are those of one clock that never goes back, from any begin that all of them share.

mod linear;
mod names;
mod register;
mod visits;

pub use linear::{Call, Model, NotLinear, linearize};
pub use names::{Answer, NameOp, Names, Owner};
pub use register::{CasRegister, RegisterOp};
pub use visits::{Served, Visit, Visits, judge_visits};
