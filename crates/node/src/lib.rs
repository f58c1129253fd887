//! The data path of a daemon: workers, sessions, entrances, and the roles server, client and proxy.
//!
//! `relay` and `link` meet here. This crate reads no command line and no configuration file: the
//! daemon passes a closure that reads the configuration again ([`server::ConfigSource`],
//! [`client::ConfigSource`]), and stores the clients that were enrolled by a code behind a trait
//! ([`server::Enrolled`]).
//!
//! | module | content |
//! |---|---|
//! | `workers` | threads with a runtime each |
//! | `session` | all links between one client process and one server, and the state of a worker |
//! | `entrance`, `listeners` | listening addresses whose visitors become streams |
//! | `names` | hosts that lead visitors of HTTP and TLS to entrances |
//! | `backends`, `aim` | what serves the visitors of an entrance: session, target, terms, admission |
//! | `health` | whether a target serves, from what its streams tell |
//! | `targets` | the targets that this process dials: choice, state, checks |
//! | `transports` | from a URL to a listener or a dialer |
//! | `server`, `client`, `proxy` | the roles |
//! | `peer` | links between two clients, for private services |
//! | `strangers`, `undecided` | connections before their log-in, or before their first bytes |
//! | `passwords`, `guesses` | the checks of passwords of visitors, and the brake on guesses |
//! | `adopted` | visitors that a former process accepted |
//! | `probes` | the measurements of `tunnel ping` and `tunnel speedtest` |
//! | `capture` | the log of requests, and the requests that a client keeps |
//! | `browser` | the page by which browsers visit private services |
//! | `survey`, `tcp_info` | the figures of workers and kernel for the status |
//! | `limits`, `descriptors` | limits of the process: streams and their rates, descriptors |
//! | `memory`, `parts` | the memory of the process, and how much each source and client holds |
//! | `identity` | the certificate of the process |

mod adopted;
mod aim;
mod backends;
mod browser;
mod capture;
pub mod client;
pub mod descriptors;
mod entrance;
mod guesses;
mod health;
pub mod identity;
mod limits;
mod listeners;
mod memory;
mod names;
mod parts;
mod passwords;
mod peer;
mod probes;
pub mod proxy;
pub mod server;
mod session;
mod strangers;
mod survey;
mod targets;
mod tcp_info;
pub mod transports;
mod undecided;
mod workers;
