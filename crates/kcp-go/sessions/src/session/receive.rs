//! Processes received datagrams.

use std::time::Instant;

use bytes::Bytes;

use super::Session;
use crate::envelope::LONGEST_DATAGRAM;
use crate::fec::{Decoder, Shard};
use crate::wire::{Content, HEAD};

impl Session {
    /// Takes a received datagram, and opens it in place. A wrong datagram is counted and dropped.
    pub fn handle_datagram(&mut self, now: Instant, datagram: &mut [u8]) {
        self.counters.datagrams_in += 1;
        self.counters.bytes_in += datagram.len() as u64;
        let Ok(plaintext) = self.seal.open(datagram) else {
            self.counters.envelope.refused += 1;
            return;
        };
        // Both layouts begin with the nonce. The nonce of a refused datagram must not push other
        // nonces out.
        let nonce = datagram.get(..self.seal.nonce()).unwrap_or_default();
        if !self.nonces.insert(nonce) {
            self.counters.replayed += 1;
            return;
        }
        if let Some(plaintext) = datagram.get(plaintext) {
            self.handle_plaintext(now, plaintext);
        }
    }

    /// Takes a datagram that the caller has opened in order to find its session. The caller also
    /// has to drop copies ([`Nonces`](super::Nonces)).
    pub fn handle_opened(&mut self, now: Instant, plaintext: &[u8]) {
        self.counters.datagrams_in += 1;
        self.counters.bytes_in += plaintext.len() as u64;
        self.handle_plaintext(now, plaintext);
    }

    /// Each datagram states its kind: with or without FEC, segments or not.
    fn handle_plaintext(&mut self, now: Instant, plaintext: &[u8]) {
        let Some(content) = Content::of(plaintext) else {
            self.counters.envelope.malformed += 1;
            return;
        };
        self.counters.envelope.opened += 1;
        self.touch(now);
        match content {
            Content::Segments(segments) => self.handle_segments(now, segments),
            Content::Data { segments, .. } => {
                // This precedes the decoder, which may rebuild later segments.
                if segments.len() >= HEAD {
                    self.handle_segments(now, segments);
                }
                self.decode(now, &content);
            }
            Content::Parity { .. } => self.decode(now, &content),
            Content::OutOfBand { conversation, payload } => {
                if conversation == self.conversation() {
                    self.counters.oob_in += 1;
                    let is_dropped = self.oob_in.push(Bytes::copy_from_slice(payload));
                    self.counters.oob_dropped += u64::from(is_dropped);
                } else {
                    self.counters.oob_dropped += 1;
                }
            }
        }
        if let Some(protection) = self.protection.as_mut().filter(|it| it.is_adaptive()) {
            protection.report(self.engine.take_report());
        }
    }

    fn handle_segments(&mut self, now: Instant, segments: &[u8]) {
        // The engine counts malformed segments.
        let _ = self.engine.handle_datagram(now, segments, false);
    }

    /// Rebuilds the data that the shard completes.
    fn decode(&mut self, now: Instant, content: &Content<'_>) {
        let Some(shard) = Shard::of(content) else { return };
        let decoder = self.decoder.get_or_insert_with(|| {
            Box::new(Decoder::cautious(self.config.decode, LONGEST_DATAGRAM))
        });
        let rebuilt = decoder.handle_shard(shard).segments();
        // A shorter shard is a filler.
        for segments in rebuilt.filter(|segments| segments.len() >= HEAD) {
            let _ = self.engine.handle_datagram(now, segments, true);
        }
    }
}
