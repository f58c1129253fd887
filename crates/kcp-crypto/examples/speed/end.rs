//! One end of a conversation: a session, and random bytes for its nonces.

use std::sync::Arc;
use std::time::Instant;

use aws_lc_rs::rand;
use bytes::Bytes;
use kcp::engine::{self, Control};
use kcp::envelope::Seal;
use kcp::fec::Ratio;
use kcp::session::{Config, Session};
use kcp::wire::Conversation;
use kcp_crypto::{Crypt, derive};

use crate::Failure;

/// The longest datagram without the heads of UDP and IP: what kcp-go calls MTU.
pub(crate) const MTU: usize = 1350;

/// What a run measures.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// Segments of either window.
    pub(crate) window: u16,
    /// FEC of 10 data and 3 parity shards.
    pub(crate) has_fec: bool,
    pub(crate) control: Control,
}

#[derive(Debug)]
pub(crate) struct End {
    session: Session,
}

/// The envelope of all ends.
pub(crate) fn seal() -> Result<Arc<dyn Seal>, Failure> {
    let crypt: Crypt = "aes-128-gcm".parse()?;
    Ok(crypt.envelope(&derive("a passphrase")).into())
}

impl End {
    pub(crate) fn new(case: Case, seal: Arc<dyn Seal>, now: Instant) -> Result<Self, Failure> {
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
        Ok(Self { session: Session::new(config, seal, now) })
    }

    pub(crate) fn write(&mut self, now: Instant, bytes: &mut Bytes) {
        self.session.write(now, bytes);
    }

    /// Writes until the window takes no more, or the window would never be used.
    pub(crate) fn fill(&mut self, now: Instant, source: &Bytes) {
        while self.session.room() > 0 {
            self.session.write(now, &mut source.clone());
        }
    }

    pub(crate) fn read(&mut self) -> usize {
        let mut length = 0;
        while let Some(bytes) = self.session.read(usize::MAX) {
            length += bytes.len();
        }
        length
    }

    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.session.timeout()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.session.handle_timeout(now);
    }

    pub(crate) const fn in_flight(&self) -> u64 {
        self.session.in_flight()
    }

    pub(crate) fn counters(&self) -> engine::Counters {
        self.session.counters().engine
    }

    pub(crate) fn handle_datagram(&mut self, now: Instant, datagram: &mut [u8]) {
        self.session.handle_datagram(now, datagram);
    }

    /// Appends the next sealed datagram and returns its length.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Instant,
        random: &mut Random,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        self.session.poll_transmit(now, &mut |nonce| random.fill(nonce), out)
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
