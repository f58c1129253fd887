//! One end of a connection: the bootstrap session, the session of the carrier, the address of the
//! peer, and the waiting tasks. It does no I/O: the driver brings datagrams and takes packets, and
//! time is an argument.

use std::task::Waker;
use std::time::{Duration, Instant};

use kcp::own::wire::{ConnectionId, PacketKind};
use kcp::own::{Config, Keys, PathUse, Session};
use transport::Side;

use crate::driver::Outbox;
use crate::error::{ABANDONED, End};
use crate::moving::Moving;
use crate::settings::LEAST;
use crate::socket::{Arrival, Origin};
use crate::wire::PROOF;

/// The largest number of sealed packets that may arrive before the keys are available: a client
/// sends as soon as its handshake is done, and the last part of the handshake may arrive later.
/// Such packets have at most [`LEAST`] bytes: a client uses longer ones only after it has heard
/// that a probe has arrived.
const EARLY: usize = 16;

/// How long a closed connection still responds and retransmits.
const LINGER: Duration = Duration::from_secs(1);

/// Unsent bytes that a lane may hold, until its user sets a limit.
const SEND_LIMIT: usize = 256 << 10;

/// The byte stream that a reader or a writer uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pipe {
    /// The bytes of the TLS handshake.
    Bootstrap,
    /// The bytes of the lane.
    Lane,
}

/// The wakers of the tasks that wait for a connection.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    pub(crate) reader: Option<Waker>,
    pub(crate) writer: Option<Waker>,
    pub(crate) datagram_reader: Option<Waker>,
    pub(crate) datagram_writer: Option<Waker>,
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) side: Side,
    /// The number of the connection at its driver.
    pub(crate) slot: Option<usize>,
    pub(crate) is_touched: bool,
    /// The ids in received packets, and in sent packets.
    ids: (ConnectionId, ConnectionId),
    bootstrap: Option<Box<Session>>,
    /// The prefix of each bootstrap packet of a client that has not received a packet of the server
    /// yet.
    opening: Vec<u8>,
    session: Option<Box<Session>>,
    /// The limits of an authenticated peer: unread segments, and bytes held for packet recovery.
    limits: (u16, usize),
    is_authenticated: bool,
    early: Vec<Box<[u8]>>,
    /// The current address of the peer.
    remote: Origin,
    moving: Option<Moving>,
    /// The proof by which the server may end the connection without state.
    pub(crate) reset: Option<[u8; PROOF]>,
    pub(crate) waiting: Wakers,
    pub(crate) send_limit: usize,
    end: Option<End>,
    /// When the driver removes the connection.
    forget: Option<Instant>,
}

impl State {
    /// A connection that starts its handshake. `opening`: the prefix of a client's first packets.
    pub(crate) fn new(
        side: Side,
        bootstrap: Session,
        ids: (ConnectionId, ConnectionId),
        remote: Origin,
        opening: Vec<u8>,
    ) -> Self {
        Self {
            side,
            slot: None,
            is_touched: false,
            ids,
            bootstrap: Some(Box::new(bootstrap)),
            opening,
            session: None,
            limits: (0, 0),
            is_authenticated: false,
            early: Vec::new(),
            remote,
            moving: None,
            reset: None,
            waiting: Wakers::default(),
            send_limit: SEND_LIMIT,
            end: None,
            forget: None,
        }
    }

    /// The ids in received packets, and in sent packets.
    pub(crate) const fn ids(&self) -> (ConnectionId, ConnectionId) {
        self.ids
    }

    pub(crate) const fn remote(&self) -> Origin {
        self.remote
    }

    pub(crate) const fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// The session of the carrier, once the handshake is done.
    pub(crate) fn session(&mut self) -> Option<&mut Session> {
        self.session.as_deref_mut()
    }

    /// The session of these bytes.
    pub(crate) fn pipe(&mut self, pipe: Pipe) -> Option<&mut Session> {
        match pipe {
            Pipe::Bootstrap => self.bootstrap.as_deref_mut(),
            Pipe::Lane => self.session.as_deref_mut(),
        }
    }

    /// The handshake is done at this end: packets are sealed from now on. A server no longer needs
    /// its bootstrap session, because it has received everything and its first sealed packet tells
    /// the client so. A client keeps it until then, to retransmit its last message. `limits`: the
    /// limits of an authenticated peer.
    pub(crate) fn open(
        &mut self,
        now: Instant,
        (config, limits): (Config, (u16, usize)),
        keys: Box<dyn Keys>,
    ) {
        self.limits = limits;
        let mut session = Box::new(Session::new(config, keys, now));
        for mut packet in self.early.drain(..) {
            session.handle_datagram(now, &mut packet, false);
        }
        self.early = Vec::new();
        self.session = Some(session);
        if self.side == Side::Server {
            self.bootstrap = None;
        }
    }

    /// The peer is authenticated.
    pub(crate) fn authenticated(&mut self) {
        self.is_authenticated = true;
        let (window, memory) = self.limits;
        if let Some(session) = &mut self.session {
            session.raise_limits(window, memory);
        }
    }

    /// Handles a datagram of this connection, and decrypts it in place.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        (kind, datagram): (PacketKind, &mut [u8]),
        arrival: &Arrival,
        token: impl FnOnce() -> Option<[u8; 8]>,
    ) {
        let origin = arrival.origin;
        match kind {
            PacketKind::Bootstrap => {
                let Some(bootstrap) = &mut self.bootstrap else { return };
                let heard = bootstrap.handle_datagram(now, datagram, arrival.is_congested);
                if heard.is_some() {
                    self.opening = Vec::new();
                    if let Some(closed) = bootstrap.closed().filter(|closed| closed.by_peer) {
                        let code = closed.code;
                        self.finish(now, End::Peer { code });
                    }
                }
            }
            PacketKind::Sealed => {
                let Some(session) = &mut self.session else {
                    let is_short = datagram.len() <= usize::from(LEAST);
                    if is_short && self.early.len() < EARLY && self.bootstrap.is_some() {
                        self.early.push(Box::from(&*datagram));
                    }
                    return;
                };
                let heard = session.handle_datagram(now, datagram, arrival.is_congested);
                let Some(heard) = heard else { return };
                // The server has the whole handshake.
                self.bootstrap = None;
                if let Some(closed) = session.closed().filter(|closed| closed.by_peer) {
                    let code = closed.code;
                    self.finish(now, End::Peer { code });
                    return;
                }
                if origin.peer == self.remote.peer {
                    self.remote.local = origin.local.filter(|_| self.side == Side::Server);
                } else if self.side == Side::Server {
                    self.heard_elsewhere(now, origin, (heard.is_newest, heard.answered), token);
                }
            }
        }
    }

    /// A genuine packet of a client came from another address.
    fn heard_elsewhere(
        &mut self,
        now: Instant,
        origin: Origin,
        (is_newest, answered): (bool, Option<[u8; 8]>),
        token: impl FnOnce() -> Option<[u8; 8]>,
    ) {
        let Some(session) = &mut self.session else { return };
        if let (Some(moving), Some(answer)) = (&self.moving, answered)
            && moving.is_answered(origin.peer, answer)
        {
            tracing::debug!("a client has another address");
            self.remote = origin;
            self.moving = None;
            session.path_changed(now);
            return;
        }
        // A packet with a lower number from the old address is late.
        if !is_newest {
            return;
        }
        let round_trip = session.round_trip();
        match &mut self.moving {
            Some(moving) if moving.to.peer == origin.peer => {
                if moving.is_due(now, round_trip) {
                    session.challenge(moving.token());
                }
            }
            _ => {
                // Without an unpredictable token, the address is not accepted.
                let Some(token) = token() else { return };
                let moving = Moving::new(origin, token, now);
                session.challenge(moving.token());
                self.moving = Some(moving);
            }
        }
    }

    /// A Reset has arrived; returns whether it is genuine.
    pub(crate) fn reset_by(&mut self, now: Instant, token: [u8; PROOF]) -> bool {
        let is_genuine = self.reset.is_some_and(|reset| {
            aws_lc_rs::constant_time::verify_slices_are_equal(&reset, &token).is_ok()
        });
        if is_genuine {
            self.finish(now, End::Reset);
        }
        is_genuine
    }

    /// A timer has expired.
    pub(crate) fn timeout(&mut self, now: Instant) {
        let mut is_dead = false;
        for session in [&mut self.bootstrap, &mut self.session].into_iter().flatten() {
            if session.timeout().is_some_and(|at| at <= now) {
                session.handle_timeout(now);
                is_dead |= session.is_dead(now);
            }
        }
        if is_dead {
            self.finish(now, End::Silent);
        }
    }

    /// When [`timeout`](Self::timeout) must be called.
    pub(crate) fn due(&self) -> Option<Instant> {
        let sessions = [&self.bootstrap, &self.session];
        let due = sessions.into_iter().flatten().filter_map(|session| session.timeout());
        due.chain(self.forget).min()
    }

    /// Adds packets to `outbox` until it is full; returns whether there may be more.
    pub(crate) fn transmit(&mut self, now: Instant, outbox: &mut Outbox) -> bool {
        let Self { bootstrap, session, opening, remote, moving, .. } = self;
        for (session, opening) in [(bootstrap, &opening[..]), (session, &[][..])].into_iter() {
            let Some(session) = session else { continue };
            loop {
                let longest = usize::from(session.datagram()) + opening.len();
                if outbox.is_full(longest) {
                    return true;
                }
                let buffer = outbox.buffer();
                let start = buffer.len();
                buffer.extend_from_slice(opening);
                let Some(transmit) = session.poll_transmit(now, buffer) else {
                    buffer.truncate(start);
                    break;
                };
                let to = match (transmit.path, &moving) {
                    (PathUse::Other, Some(moving)) => moving.to,
                    _ => *remote,
                };
                outbox.push(to, opening.len() + transmit.length, transmit.is_ect);
            }
        }
        false
    }

    /// Takes the wakers of the tasks that can continue.
    pub(crate) fn notify(&mut self, woken: &mut Vec<Waker>) {
        let is_over = self.end.is_some();
        let (reads, writes, reads_datagrams, writes_datagrams) = match self.session.as_deref() {
            Some(session) => (
                session.is_readable(),
                session.unsent() < self.send_limit && session.room() > 0,
                session.has_datagram(),
                session.datagram_room() > 0,
            ),
            None => match self.bootstrap.as_deref() {
                Some(session) => (session.is_readable(), session.room() > 0, false, false),
                None => (false, false, false, false),
            },
        };
        // The end of a direction is known from its acknowledgement.
        let is_flushed = self.session.as_deref().is_some_and(Session::is_flushed);
        let waiting = &mut self.waiting;
        for (is_due, waker) in [
            (reads, &mut waiting.reader),
            (writes || is_flushed, &mut waiting.writer),
            (reads_datagrams, &mut waiting.datagram_reader),
            (writes_datagrams, &mut waiting.datagram_writer),
        ] {
            if is_due || is_over {
                woken.extend(waker.take());
            }
        }
    }

    /// The connection has ended, and the driver removes it soon.
    pub(crate) fn finish(&mut self, now: Instant, end: End) {
        let lingers = end == End::Local;
        self.end.get_or_insert(end);
        self.forget.get_or_insert(if lingers { now + LINGER } else { now });
    }

    /// This end abandons the connection. The remaining messages of the handshake are delivered, so
    /// that the peer learns the problem.
    pub(crate) fn close(&mut self, now: Instant, code: u16) {
        if self.end.is_some() {
            return;
        }
        match (&mut self.session, &mut self.bootstrap) {
            (Some(session), _) => session.close(now, code, b""),
            (None, Some(bootstrap)) if bootstrap.is_flushed() => {
                bootstrap.close(now, ABANDONED, b"");
            }
            (None, Some(bootstrap)) => bootstrap.finish(now),
            (None, None) => {}
        }
        self.early = Vec::new();
        self.finish(now, End::Local);
    }

    /// Whether this end has abandoned an unauthenticated peer but still retransmits its last
    /// messages.
    pub(crate) fn is_refused_stranger(&self) -> bool {
        self.side == Side::Server && !self.is_authenticated && self.end == Some(End::Local)
    }

    /// Bytes of buffers.
    #[cfg(test)]
    fn held(&self) -> usize {
        let sessions = [&self.bootstrap, &self.session];
        let sessions = sessions.into_iter().flatten().map(|session| session.held());
        sessions.sum::<usize>() + self.early.iter().map(|packet| packet.len()).sum::<usize>()
    }

    /// Whether the driver may remove the connection.
    pub(crate) fn is_forgotten(&self, now: Instant) -> bool {
        self.forget.is_some_and(|at| at <= now)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use bytes::Bytes;

    use super::*;
    use crate::secrets;
    use crate::settings::KcpSettings;

    /// The bytes of buffers that a stranger may make a server hold. The accept loop charges twice
    /// as many.
    const MOST: usize = 64 << 10;

    const SERVER: ConnectionId = ConnectionId([1; 8]);
    const CLIENT: ConnectionId = ConnectionId([2; 8]);

    fn arrival() -> Arrival {
        let peer = SocketAddr::from(([192, 0, 2, 1], 5));
        let origin = Origin { peer, local: None };
        Arrival { origin, length: 0, segment: 0, is_congested: false }
    }

    fn bootstrap(side: Side, ids: (ConnectionId, ConnectionId), now: Instant) -> Session {
        let keys = secrets::bootstrap(side, SERVER, CLIENT).unwrap();
        Session::new(KcpSettings::bootstrap(ids), keys, now)
    }

    fn server(now: Instant) -> State {
        let ids = (SERVER, CLIENT);
        State::new(Side::Server, bootstrap(Side::Server, ids, now), ids, arrival().origin, vec![])
    }

    #[test]
    fn early_packets_are_no_longer_than_packets_of_a_client_are_then() {
        let now = Instant::now();
        let mut state = server(now);
        for length in [60_000, 16_336, 1_201, 1_200, 1_200].repeat(20) {
            let mut packet = vec![7; length];
            let kind = PacketKind::Sealed;
            state.receive(now, (kind, &mut packet), &arrival(), || Some([0; 8]));
        }
        assert_eq!(state.early.len(), EARLY, "the packets of a client are kept");
        assert!(state.held() <= MOST, "{} bytes", state.held());
    }

    #[test]
    fn a_stranger_that_floods_its_handshake_fills_little() {
        let mut now = Instant::now();
        let mut state = server(now);
        let mut client = bootstrap(Side::Client, (CLIENT, SERVER), now);
        let mut left = Bytes::from(vec![7; 1 << 20]);
        for _ in 0..2_000 {
            now += Duration::from_millis(5);
            client.write(now, &mut left);
            client.handle_timeout(now);
            loop {
                let mut packet = Vec::new();
                if client.poll_transmit(now, &mut packet).is_none() {
                    break;
                }
                let kind = PacketKind::Bootstrap;
                state.receive(now, (kind, &mut packet), &arrival(), || Some([0; 8]));
            }
            state.timeout(now);
            loop {
                let mut answer = Vec::new();
                let session = state.pipe(Pipe::Bootstrap).unwrap();
                if session.poll_transmit(now, &mut answer).is_none() {
                    break;
                }
                client.handle_datagram(now, &mut answer, false);
            }
            assert!(state.held() <= MOST, "{} bytes", state.held());
        }
        let session = state.pipe(Pipe::Bootstrap).unwrap();
        assert!(session.counters().bytes_in > 10_000, "the client did send");
    }
}
