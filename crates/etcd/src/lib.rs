//! A client of etcd, the engine of a cluster: requests and answers are the plain values of
//! [`cluster::engine`], and travel as JSON over HTTP/1.1 to the gateway that etcd 3.4 and later
//! have on their client port (`/v3/…`, `--enable-grpc-gateway`). The bytes flow over connections
//! that the caller opens ([`Connect`]): the crate knows no socket and no TLS.
//!
//! There is no task: a call drives its connection itself, and a dropped future closes its
//! connection. Each answer, each line of a watch and each wait is bounded.
//!
//! What etcd needs: the gateway on (`--enable-grpc-gateway`; with a file of configuration etcd 3.4
//! has it off). Where clients have to present certificates (`--client-cert-auth`), the certificate
//! of a member is valid for a server and for a client, because its gateway presents it to the
//! member itself; otherwise calls have no answer (3.4.23). The name in a client's certificate is no
//! user of etcd through the gateway; a user logs in with a password ([`LogIn`]).
//!
//! | question | module |
//! |---|---|
//! | how does a caller begin | [`Etcd`] (`members`), [`EtcdSettings`] (`settings`), [`Connect`] (`connection`) |
//! | what do all calls share | `ground` |
//! | what does a call do when a member does not answer | [`Calls`] (`calls`) |
//! | how are all keys of a large range read at one revision | [`RangePages`] (`pages`) |
//! | how are changes followed from member to member | [`Watch`] (`watch`) |
//! | why did a call fail, and may it have been carried out | [`Error`] (`error`) |
//! | how does one request travel over one connection | `connection` |
//! | which JSON is sent and accepted | `codec` |

mod answers;
mod calls;
mod codec;
mod connection;
mod error;
mod ground;
mod members;
mod pages;
mod settings;
mod watch;

pub use answers::{Freshness, Granted, Page, Status};
pub use calls::Calls;
pub use connection::{Connect, Connecting, MemberStream};
pub use error::{Code, Error, Reason};
pub use members::Etcd;
pub use pages::RangePages;
pub use settings::{EtcdSettings, LogIn, NoMember};
pub use watch::{Gap, Watch, WatchEvent};
