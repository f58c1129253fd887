//! One end of a conversation: engine, FEC and envelope, as a session puts them together.

use std::sync::Arc;
use std::time::Instant;

use aws_lc_rs::rand;
use bytes::Bytes;
use kcp::engine::{Config, Control, Engine, Purpose};
use kcp::envelope::Seal;
use kcp::fec::{Decoder, Encoder, Ratio, Settings, Shard};
use kcp::wire::{Content, Conversation, SHARD_HEAD};
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
    engine: Engine,
    seal: Arc<dyn Seal>,
    fec: Option<(Encoder, Decoder)>,
    parity: Vec<u8>,
}

/// The envelope of all ends.
pub(crate) fn seal() -> Result<Arc<dyn Seal>, Failure> {
    let crypt: Crypt = "aes-128-gcm".parse()?;
    Ok(crypt.envelope(&derive("a passphrase")).into())
}

impl End {
    pub(crate) fn new(case: Case, seal: Arc<dyn Seal>, now: Instant) -> Result<Self, Failure> {
        let shard = if case.has_fec { SHARD_HEAD } else { 0 };
        let longest = MTU - seal.overhead() - shard;
        let mut config = Config::new(Conversation(1), u16::try_from(longest)?);
        (config.send_window, config.receive_window) = (case.window, case.window);
        config.control = case.control;
        let fec = if case.has_fec {
            let ratio = Ratio::new(10, 3).ok_or("no ratio")?;
            let encoder = Encoder::new(Settings { ratio, longest, pause: None });
            Some((encoder, Decoder::new(ratio, longest + 2)))
        } else {
            None
        };
        Ok(Self { engine: Engine::new(config, now), seal, fec, parity: Vec::new() })
    }

    pub(crate) fn write(&mut self, now: Instant, bytes: &mut Bytes) {
        self.engine.write(now, bytes);
    }

    /// Writes until the window takes no more, or the window would never be used.
    pub(crate) fn fill(&mut self, now: Instant, source: &Bytes) {
        while self.engine.room() > 0 {
            self.engine.write(now, &mut source.clone());
        }
    }

    pub(crate) fn read(&mut self) -> usize {
        let mut length = 0;
        while let Some(bytes) = self.engine.read(usize::MAX) {
            length += bytes.len();
        }
        length
    }

    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.engine.timeout()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.engine.handle_timeout(now);
    }

    pub(crate) fn rest(&mut self) {
        self.engine.rest();
        if let Some((encoder, decoder)) = &mut self.fec {
            encoder.rest();
            decoder.rest();
        }
        self.parity = Vec::new();
    }

    pub(crate) const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Opens a datagram in place and handles it. What is not valid is ignored, as a session does.
    pub(crate) fn handle_datagram(&mut self, now: Instant, datagram: &mut [u8]) {
        let Ok(text) = self.seal.open(datagram) else { return };
        let content = datagram.get(text).and_then(Content::of);
        match (content, &mut self.fec) {
            (Some(Content::Segments(segments)), _) => {
                let _ = self.engine.handle_datagram(now, segments, false);
            }
            (Some(Content::Data { id, body, segments }), fec) => {
                let _ = self.engine.handle_datagram(now, segments, false);
                if let Some((_, decoder)) = fec {
                    let rebuilt = decoder.handle_shard(Shard { id, is_data: true, body });
                    for segments in rebuilt.segments() {
                        let _ = self.engine.handle_datagram(now, segments, true);
                    }
                }
            }
            (Some(Content::Parity { id, body }), Some((_, decoder))) => {
                let rebuilt = decoder.handle_shard(Shard { id, is_data: false, body });
                for segments in rebuilt.segments() {
                    let _ = self.engine.handle_datagram(now, segments, true);
                }
            }
            _ => {}
        }
    }

    /// Appends the next sealed datagram and returns its length.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Instant,
        random: &mut Random,
        out: &mut Vec<u8>,
    ) -> Option<usize> {
        let start = out.len();
        let head = self.seal.head();
        if self.fec.is_some() && self.parity.is_empty() {
            self.parity = vec![0; MTU];
        }
        if let Some((encoder, _)) = &mut self.fec
            && let Some(length) = encoder.poll_parity(&mut self.parity)
        {
            out.resize(start + head, 0);
            out.extend_from_slice(&self.parity[..length]);
        } else {
            let shard = if self.fec.is_some() { SHARD_HEAD } else { 0 };
            out.resize(start + head + shard, 0);
            let Some(purpose) = self.engine.poll_transmit(now, out) else {
                out.truncate(start);
                return None;
            };
            if let Some((encoder, _)) = &mut self.fec {
                let begin = start + head;
                if purpose == Purpose::Data
                    && let Ok(shard) = encoder.push(&out[begin + SHARD_HEAD..], now)
                {
                    out[begin..begin + SHARD_HEAD].copy_from_slice(&shard);
                } else {
                    out.drain(begin..begin + SHARD_HEAD);
                }
            }
        }
        out.resize(out.len() + self.seal.tail(), 0);
        let nonce = random.take(self.seal.nonce());
        if self.seal.seal(nonce, &mut out[start..]).is_err() {
            out.truncate(start);
            return None;
        }
        Some(out.len() - start)
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
    fn take(&mut self, length: usize) -> &[u8] {
        if self.used + length > self.bytes.len() {
            // Without randomness the measurement is the same.
            let _ = rand::fill(&mut self.bytes);
            self.used = 0;
        }
        self.used += length;
        &self.bytes[self.used - length..self.used]
    }
}
