//! What is kept and written of visitors' requests.
//!
//! | file | content |
//! |---|---|
//! | `log` | the log of requests of HTTP, and the figures of services |
//! | `observed` | the services whose visits are told, and what passes for them |
//! | `requests` | the requests that a client keeps, for the console |

pub mod log;
pub mod observed;
pub mod requests;
