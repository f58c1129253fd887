//! The direction to the visitor.

use super::answer::{self, Answer, Framing, HEAD};
use super::chunked::{Chunked, Passed};
use super::{Ended, Pipeline, Progress, Switch};
use crate::sniff::http::{Scan, Scanned};

/// The place in the bytes of the service.
#[derive(Debug, Default)]
enum Place {
    /// At the start of a response.
    #[default]
    Start,
    /// In a head, a part of which was delivered.
    Head,
    /// So many bytes of a body follow.
    Length(u64),
    Chunks(Chunked),
    /// All bytes until the end of the service belong to the response.
    UntilEnd,
}

/// The responses as far as they were delivered.
#[derive(Debug, Default)]
pub(super) struct Responses {
    place: Place,
    /// The part of a head that was delivered. Empty unless a head comes in pieces.
    partial: Vec<u8>,
    scan: Scan,
}

/// The outcome of a look for a head.
enum Seen {
    /// All bytes are a part of the head.
    More,
    /// The head ends after so many bytes.
    Head(usize, Answer),
    Malformed,
}

impl Responses {
    /// Whether a byte of the oldest response was delivered. Interim responses do not count: the
    /// final response may still be that of the caller.
    pub(super) const fn has_begun(&self) -> bool {
        !matches!(self.place, Place::Start)
    }

    /// See [`super::Tracker::responses`].
    pub(super) fn pass(&mut self, bytes: &[u8], pipeline: &mut Pipeline) -> Progress {
        let (mut at, mut completed) = (0, false);
        while at < bytes.len() && !pipeline.is_raw {
            let rest = &bytes[at..];
            match &mut self.place {
                Place::Start | Place::Head => {
                    if pipeline.outstanding == 0 {
                        // Nobody asked for these bytes.
                        return Progress { deliver: at, completed };
                    }
                    match self.look(rest) {
                        Seen::More => at = bytes.len(),
                        Seen::Head(length, answer) => {
                            at += length;
                            completed |= self.begin(answer, pipeline);
                        }
                        Seen::Malformed => self.doubt(pipeline),
                    }
                }
                Place::Length(left) => {
                    let length = u64::try_from(rest.len()).unwrap_or(u64::MAX);
                    if *left > length {
                        *left -= length;
                        at = bytes.len();
                    } else {
                        at += usize::try_from(*left).unwrap_or(rest.len());
                        self.complete(pipeline);
                        completed = true;
                    }
                }
                Place::Chunks(chunks) => match chunks.pass(rest) {
                    Passed::More => at = bytes.len(),
                    Passed::End(length) => {
                        at += length;
                        self.complete(pipeline);
                        completed = true;
                    }
                    Passed::Bad(..) => self.doubt(pipeline),
                },
                Place::UntilEnd => at = bytes.len(),
            }
        }
        Progress { deliver: bytes.len(), completed }
    }

    /// See [`super::Tracker::service_ended`].
    pub(super) fn end(&mut self, pipeline: &mut Pipeline) -> Ended {
        let ended = match self.place {
            _ if pipeline.is_raw => Ended::Clean,
            Place::Start if pipeline.outstanding == 0 => Ended::Clean,
            Place::Start => Ended::Unanswered,
            Place::UntilEnd => Ended::Clean,
            Place::Head | Place::Length(_) | Place::Chunks(_) => Ended::Cut,
        };
        pipeline.is_last_response = true;
        self.complete(pipeline);
        ended
    }

    /// Looks for a head, and keeps a part of a head.
    fn look(&mut self, rest: &[u8]) -> Seen {
        if self.partial.is_empty()
            && let Some(answer) = answer::parse(rest)
        {
            return Seen::Head(answer.length, answer);
        }
        // A service that does not speak HTTP is known by its first bytes.
        let known = self.partial.len();
        self.partial.extend_from_slice(&rest[..rest.len().min(HEAD - known)]);
        let start = &b"HTTP/1."[..self.partial.len().min(7)];
        let seen = match self.scan.look(&self.partial, HEAD) {
            _ if !self.partial.starts_with(start) => Seen::Malformed,
            Scanned::More => {
                self.place = Place::Head;
                return Seen::More;
            }
            Scanned::BareLf | Scanned::Size => Seen::Malformed,
            Scanned::End(end) => match answer::parse(&self.partial[..end]) {
                Some(answer) => Seen::Head(end - known, answer),
                None => Seen::Malformed,
            },
        };
        (self.partial, self.scan) = (Vec::new(), Scan::default());
        seen
    }

    /// Begins a response. Returns whether the visitor's side may go on.
    fn begin(&mut self, answer: Answer, pipeline: &mut Pipeline) -> bool {
        let Answer { status, body, close, .. } = answer;
        // The request that may change the protocol is the youngest request.
        let switch = if pipeline.outstanding == 1 { pipeline.switch } else { None };
        let is_raw = match (status, switch) {
            (101, Some(Switch::Upgrade)) | (200..=299, Some(Switch::Connect)) => true,
            (101, _) => {
                self.doubt(pipeline);
                return false;
            }
            (100..=199, _) => {
                self.place = Place::Start;
                return false;
            }
            _ => false,
        };
        if is_raw {
            pipeline.is_raw = true;
            self.complete(pipeline);
            return true;
        }
        if switch.is_some() {
            pipeline.switch = None;
        }
        pipeline.is_last_response |= close || body == Framing::Doubtful;
        let is_head = pipeline.heads & 1 == 1;
        match body {
            _ if is_head || matches!(status, 204 | 304) => self.complete(pipeline),
            Framing::Length(0) => self.complete(pipeline),
            Framing::Length(length) => self.place = Place::Length(length),
            Framing::Chunked => self.place = Place::Chunks(Chunked::new()),
            Framing::UntilEnd | Framing::Doubtful => self.doubt(pipeline),
        }
        switch.is_some() || !self.has_begun()
    }

    /// The end of the service is the only boundary that is left.
    fn doubt(&mut self, pipeline: &mut Pipeline) {
        self.place = Place::UntilEnd;
        pipeline.is_last_response = true;
    }

    fn complete(&mut self, pipeline: &mut Pipeline) {
        self.place = Place::Start;
        pipeline.pop();
    }
}
