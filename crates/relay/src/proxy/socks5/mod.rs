//! The messages of SOCKS5 (RFC 1928) with a user and a password (RFC 1929).
//!
//! ```text
//!   program                          this end
//!   greeting: methods      ───────>
//!                          <───────  method
//!   user and password      ───────>
//!                          <───────  status
//!   request: command, host ───────>
//!                          <───────  reply
//! ```
//!
//! No message is longer than 513 bytes, and each contains its length, so a decoder needs no state:
//! it decodes the message from the beginning whenever more bytes have arrived.

mod datagram;
mod greeting;
mod password;
mod reply;
mod request;

pub(crate) use datagram::{Datagram, datagram, put_header};
pub(crate) use greeting::{Method, greeting};
pub(crate) use password::{password, status};
pub(crate) use reply::{Reply, reply};
pub(crate) use request::{ADDRESS_MAX, Command, Request, request};

const VERSION: u8 = 5;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;
