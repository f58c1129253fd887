//! Replaces the session id that rustls generates by the sealed session.
//!
//! ```text
//!   rustls: put(id, session) -> Passing: seals it
//!   rustls: NewSessionTicket(id) -> exchange -> NewSessionTicket(sealed) -> client
//!   client: ClientHello(sealed) -> rustls: take(sealed) -> Passing: opens it -> session
//! ```
//!
//! Between TLS and QUIC's packet protection the TLS messages are plaintext, so they can be
//! rewritten. A ticket is part of no transcript (RFC 8446 section 4.4.1), so the exchange breaks no
//! signature and no MAC.

use std::sync::{Arc, Mutex, PoisonError};

use quinn_proto::transport_parameters::TransportParameters;
use rustls::server::StoresServerSessions;

use super::Tickets;
use super::limits::limits;

/// The number of tickets per connection: one for the next connection, and one for a failed attempt.
const TICKETS: usize = 2;

/// The tickets of one connection of a server. The type serves rustls as its store of sessions, and
/// replaces the ids in its messages.
#[derive(Debug)]
pub(crate) struct Passing {
    tickets: Arc<Tickets>,
    limits: Vec<u8>,
    /// The sealed sessions by the ids of rustls, until they are sent: at most [`TICKETS`].
    sealed: Mutex<Vec<(Vec<u8>, Vec<u8>)>>,
}

impl Passing {
    /// Begins the exchange for a connection whose client gets these transport parameters.
    pub(crate) fn begin(tickets: &Arc<Tickets>, parameters: &TransportParameters) -> Arc<Self> {
        let (tickets, limits) = (Arc::clone(tickets), limits(parameters));
        Arc::new(Self { tickets, limits, sealed: Mutex::default() })
    }

    /// The configuration from which rustls makes the session of this connection.
    pub(crate) fn configured(self: &Arc<Self>, tls: &rustls::ServerConfig) -> rustls::ServerConfig {
        let mut tls = tls.clone();
        tls.session_storage = Arc::clone(self) as _;
        // QUIC allows no other value (RFC 9001 section 4.6.1).
        tls.max_early_data_size = u32::MAX;
        tls.send_tls13_tickets = TICKETS;
        tls
    }

    /// Rewrites the messages that `crypto::Session::write_handshake` appended to `buf` after its
    /// first `before` bytes.
    pub(crate) fn exchange(&self, buf: &mut Vec<u8>, before: usize) {
        let mut sealed = self.sealed.lock().unwrap_or_else(PoisonError::into_inner);
        if !sealed.is_empty()
            && let Some(exchanged) = buf
                .get(before..)
                .and_then(|said| exchange(said, &mut sealed, self.tickets.lifetime()))
        {
            buf.truncate(before);
            buf.extend_from_slice(&exchanged);
        }
    }
}

impl StoresServerSessions for Passing {
    fn put(&self, id: Vec<u8>, session: Vec<u8>) -> bool {
        let Some(ticket) = self.tickets.seal(&session, &self.limits) else {
            return false;
        };
        self.sealed.lock().unwrap_or_else(PoisonError::into_inner).push((id, ticket));
        true
    }

    fn get(&self, _: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn take(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.tickets.open(ticket, &self.limits)
    }

    fn can_cache(&self) -> bool {
        true
    }
}

/// The type of the message NewSessionTicket (RFC 8446 section 4).
const NEW_SESSION_TICKET: u8 = 4;

/// Returns `messages` with their ids replaced by tickets, and removes these tickets from `sealed`.
/// `None` when the bytes are not whole messages as rustls writes them.
fn exchange(
    mut messages: &[u8],
    sealed: &mut Vec<(Vec<u8>, Vec<u8>)>,
    lifetime: u32,
) -> Option<Vec<u8>> {
    let mut exchanged = Vec::new();
    while !messages.is_empty() {
        let (head, rest) = messages.split_first_chunk::<4>()?;
        let &[kind, long @ ..] = head;
        let (body, rest) = rest.split_at_checked(length(&long))?;
        let ticket = (kind == NEW_SESSION_TICKET).then(|| Ticket::read(body)).flatten();
        let place =
            ticket.as_ref().and_then(|issued| sealed.iter().position(|one| one.0 == issued.id));
        let body = match (ticket, place) {
            (Some(issued), Some(place)) => issued.with(&sealed.swap_remove(place).1, lifetime)?,
            (None, _) | (_, None) => body.to_vec(),
        };
        let [0, long @ ..] = u32::try_from(body.len()).ok()?.to_be_bytes() else { return None };
        exchanged.push(kind);
        exchanged.extend_from_slice(&long);
        exchanged.extend_from_slice(&body);
        messages = rest;
    }
    Some(exchanged)
}

/// A message NewSessionTicket (RFC 8446 section 4.6.1) around the bytes that rustls uses as the
/// ticket.
struct Ticket<'a> {
    /// `ticket_age_add`, and `ticket_nonce` with its length.
    before: &'a [u8],
    id: &'a [u8],
    /// The extensions with their length.
    after: &'a [u8],
}

impl<'a> Ticket<'a> {
    fn read(body: &'a [u8]) -> Option<Self> {
        let (_lifetime, body) = body.split_at_checked(4)?;
        let nonce = usize::from(*body.get(4)?);
        let (before, rest) = body.split_at_checked(4 + 1 + nonce)?;
        let (long, rest) = rest.split_first_chunk::<2>()?;
        let (id, after) = rest.split_at_checked(length(long))?;
        Some(Self { before, id, after })
    }

    fn with(&self, ticket: &[u8], lifetime: u32) -> Option<Vec<u8>> {
        let long = u16::try_from(ticket.len()).ok()?.to_be_bytes();
        Some([&lifetime.to_be_bytes(), self.before, &long, ticket, self.after].concat())
    }
}

fn length(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message with lifetime 1, age 2, a nonce of one byte, a ticket of three bytes and no
    /// extensions.
    const TICKET: &[u8] = &[4, 0, 0, 15, 0, 0, 0, 1, 0, 0, 0, 2, 1, 9, 0, 3, b'o', b'l', b'd'];
    const EXTENSIONS: &[u8] = &[0, 0];

    fn message() -> Vec<u8> {
        let mut message = [TICKET, EXTENSIONS].concat();
        message[3] += 2;
        message
    }

    fn sealed() -> Vec<(Vec<u8>, Vec<u8>)> {
        vec![(b"other".to_vec(), vec![]), (b"old".to_vec(), b"a new one".to_vec())]
    }

    #[test]
    fn a_ticket_takes_the_place_of_its_id_and_nothing_else_changes() {
        let finished = [20, 0, 0, 2, 7, 7];
        let all = [&finished[..], &message(), &finished].concat();
        let mut sealed = sealed();
        let got = exchange(&all, &mut sealed, 0x0101).unwrap();
        let new = [4, 0, 0, 23, 0, 0, 1, 1, 0, 0, 0, 2, 1, 9, 0, 9];
        assert_eq!(got, [&finished[..], &new, b"a new one", EXTENSIONS, &finished].concat());
        assert_eq!(sealed, [(b"other".to_vec(), vec![])]);
        assert_eq!(exchange(&all, &mut sealed, 1).unwrap(), all, "an id that is not ours stays");
    }

    #[test]
    fn what_is_cut_off_stays_as_it_is() {
        let message = message();
        for end in 1..message.len() {
            assert_eq!(exchange(&message[..end], &mut sealed(), 1), None, "{end} bytes");
        }
        let mut short = message.clone();
        short[15] = 200; // the ticket is longer than the message
        assert_eq!(exchange(&short, &mut sealed(), 1).unwrap(), short);
        let mut large = vec![(b"old".to_vec(), vec![0; 65_536])];
        assert_eq!(exchange(&message, &mut large, 1), None);
    }
}
