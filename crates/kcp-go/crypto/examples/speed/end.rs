//! One end of a conversation: a session over stock or own packets, and random bytes for the nonces
//! of stock packets.

use std::sync::Arc;
use std::time::Instant;

use aws_lc_rs::rand;
use bytes::Bytes;
use kcp_go::engine::{self, Control};
use kcp_go::envelope::Seal;
use kcp_go::fec::Ratio;
use kcp_go::session::{Config, Session};
use kcp_go::wire::Conversation;
use kcp_go_crypto::{Crypt, derive};

use crate::{Failure, own};

/// The longest datagram without the heads of UDP and IP: what kcp-go calls MTU.
pub(crate) const MTU: usize = 1350;

/// The packets of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packets {
    /// Of kcp-go.
    Stock,
    /// Of this project.
    Own,
}

/// What a run measures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) packets: Packets,
    /// Segments of either window.
    pub(crate) window: u16,
    /// FEC of 10 data and 3 parity shards.
    pub(crate) has_fec: bool,
    pub(crate) control: Control,
}

#[derive(Debug)]
pub(crate) enum End {
    Stock(Session),
    Own(kcp::own::Session),
}

/// Calls a method that both kinds have.
macro_rules! of_both {
    ($end:expr, $session:ident => $call:expr) => {
        match $end {
            End::Stock($session) => $call,
            End::Own($session) => $call,
        }
    };
}

/// The envelope of all stock ends.
pub(crate) fn seal() -> Result<Arc<dyn Seal>, Failure> {
    let crypt: Crypt = "aes-128-gcm".parse()?;
    Ok(crypt.envelope(&derive("a passphrase")).into())
}

impl End {
    /// Two ends that understand each other.
    pub(crate) fn pair(case: Case, now: Instant) -> Result<[Self; 2], Failure> {
        match case.packets {
            Packets::Stock => {
                Ok([Self::stock(case, seal()?, now)?, Self::stock(case, seal()?, now)?])
            }
            Packets::Own => Ok(own::pair(case, now)?.map(Self::Own)),
        }
    }

    pub(crate) fn stock(case: Case, seal: Arc<dyn Seal>, now: Instant) -> Result<Self, Failure> {
        let mut config = Config::new(Conversation(1));
        config.datagram = MTU;
        config.engine.send_window = case.window;
        config.engine.receive_window = case.window;
        config.engine.control = case.control;
        if case.has_fec {
            let ratio = Ratio::new(10, 3).ok_or("no ratio")?;
            (config.encode, config.decode) = (Some(ratio), Some(ratio));
        }
        config.adaptive = false;
        Ok(Self::Stock(Session::new(config, seal, now)))
    }

    pub(crate) fn write(&mut self, now: Instant, bytes: &mut Bytes) {
        of_both!(self, session => session.write(now, bytes));
    }

    /// Writes until the window takes no more, or the window would never be used.
    pub(crate) fn fill(&mut self, now: Instant, source: &Bytes) {
        while of_both!(self, session => session.room()) > 0 {
            self.write(now, &mut source.clone());
        }
    }

    pub(crate) fn read(&mut self) -> usize {
        let mut length = 0;
        while let Some(bytes) = of_both!(self, session => session.read(usize::MAX)) {
            length += bytes.len();
        }
        length
    }

    pub(crate) fn timeout(&self) -> Option<Instant> {
        of_both!(self, session => session.timeout())
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        of_both!(self, session => session.handle_timeout(now));
    }

    pub(crate) const fn in_flight(&self) -> u64 {
        of_both!(self, session => session.in_flight())
    }

    pub(crate) fn counters(&self) -> engine::Counters {
        match self {
            Self::Stock(session) => session.counters().engine,
            Self::Own(session) => own::counters(session),
        }
    }

    pub(crate) fn handle_datagram(&mut self, now: Instant, datagram: &mut [u8]) {
        match self {
            Self::Stock(session) => session.handle_datagram(now, datagram),
            Self::Own(session) => {
                session.handle_datagram(now, datagram, false);
            }
        }
    }

    /// Appends the next sealed datagram and returns its length.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Instant,
        random: &mut Random,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        match self {
            Self::Stock(session) => {
                session.poll_transmit(now, &mut |nonce| random.fill(nonce), out)
            }
            Self::Own(session) => session.poll_transmit(now, out).map(|it| it.length),
        }
    }
}

/// Random bytes, drawn by the block: a call for each nonce takes longer than sealing does.
#[derive(Debug)]
pub(crate) struct Random {
    bytes: [u8; 1536],
    used: usize,
}

impl Default for Random {
    fn default() -> Self {
        Self { bytes: [0; 1536], used: 1536 }
    }
}

impl Random {
    fn fill(&mut self, nonce: &mut [u8]) {
        if self.used + nonce.len() > self.bytes.len() {
            // Without randomness the measurement is the same.
            let _ = rand::fill(&mut self.bytes);
            self.used = 0;
        }
        nonce.copy_from_slice(&self.bytes[self.used..self.used + nonce.len()]);
        self.used += nonce.len();
    }
}
