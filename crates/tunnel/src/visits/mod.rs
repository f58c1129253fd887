//! `tunnel visit`: a code connects a visitor to a private service, so no token must be copied.
//!
//! ```text
//!   publisher                    server                    the visitor's machine
//!   tunnel visit --new ssh
//!      |  --- invitation ------>  a one-time code for a
//!      |  <-- its secret -------  new client (10 minutes)
//!   keeps what verifies a token
//!   in its state directory
//!   prints the code: secret and token
//!                                      |                   tunnel visit CODE
//!                                      | <-- enrolment ---     writes client.yaml with a
//!                                 the new client has           forward and the token,
//!                                 the one right                and starts
//! ```
//!
//! `kept` stores the visitors of the publisher, `invite` is its side of the commands, and `visit`
//! is the visitor's side. The code itself is in `ops::visit`, and the request to the server in
//! `client`.

mod invite;
mod kept;
mod visit;

pub(crate) use invite::command;
pub(crate) use kept::{KeptVisitor, KeptVisitors};
pub(crate) use visit::visit;
