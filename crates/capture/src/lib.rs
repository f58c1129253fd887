//! Logs, reports and keeps the requests of visitors.
//!
//! | file | content |
//! |---|---|
//! | `log` | the log of HTTP requests, and the counters of services |
//! | `observed` | the services whose visits are reported, and the bytes of their visitors |
//! | `requests` | the requests that a client keeps, for the console |

pub mod log;
pub mod observed;
pub mod requests;
