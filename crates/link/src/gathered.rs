//! Gathers successive payloads of one stream, so that a reader delivers them together.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::Bytes;
use net::gather;
use proto::StreamKey;

use crate::inner::Inner;

/// Successive payloads of one stream, written by one gathered write.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    of: Option<StreamKey>,
    pieces: VecDeque<Bytes>,
}

impl Gathered {
    pub(crate) fn push(&mut self, link: &Inner, now: Instant, key: StreamKey, bytes: Bytes) {
        if self.of != Some(key) || self.pieces.len() >= gather::MOST {
            self.end(link, now);
            self.of = Some(key);
        }
        self.pieces.push_back(bytes);
    }

    pub(crate) fn end(&mut self, link: &Inner, now: Instant) {
        if let Some(key) = self.of.take()
            && link.ended.get().is_none()
        {
            link.deliver(now, key, &mut self.pieces);
        }
        self.pieces.clear();
    }
}
