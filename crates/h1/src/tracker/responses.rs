//! The direction to the visitor.

use std::rc::Rc;

use super::{Ended, Observer, Pipeline, Progress, Rest, Switch};
use crate::answer::{self, ANSWER_HEAD, Answer};
use crate::chunked::{Chunked, Passed};
use crate::mend::mend;
use crate::requests::take;
use crate::{BodyPart, Doubt, Framing, Scan, Scanned};

/// The largest number of interim responses to one request. A long operation of WebDAV sends 102
/// every 20 s.
const INTERIMS: u16 = 256;

/// The largest number of bytes of interim responses to one request.
const INTERIM_BYTES: usize = 64 << 10;

/// The position in the bytes of the service.
#[derive(Debug, Default)]
enum Phase {
    /// At the start of a response, or in a head of which no byte was delivered.
    #[default]
    Start,
    /// This number of bytes of a body follows.
    Length(u64),
    Chunks(Chunked),
    /// All bytes until the end of the service belong to the response.
    UntilEnd,
    /// Nothing more is delivered.
    Over,
}

/// The responses as far as they were delivered.
#[derive(Debug, Default)]
pub(super) struct Responses {
    place: Phase,
    /// The received part of a head. Empty unless a head arrives in pieces.
    partial: Vec<u8>,
    scan: Scan,
    /// The number and the size of interim responses to the oldest request.
    interims: (u16, usize),
    /// The number of bytes after the head of the current response.
    sent: u64,
    observer: Option<Rc<dyn Observer>>,
}

/// The result of scanning for a head.
enum Seen {
    /// All bytes are a part of the head.
    More,
    /// Length of the head, in bytes. A mended head is written anew.
    Head(usize, Answer, Option<Vec<u8>>),
}

/// What follows a head.
enum Begun {
    /// The body, or the next response. `true`: the visitor's direction may continue.
    Response(bool),
    /// Unknown: some parsers take the response to be complete, others expect its body.
    Last,
}

impl Responses {
    pub(super) fn observe(&mut self, observer: Rc<dyn Observer>) {
        self.observer = Some(observer);
    }

    /// Whether a byte of the oldest response was delivered. Interim responses do not count: the
    /// caller may still send the final response.
    pub(super) const fn has_begun(&self) -> bool {
        !matches!(self.place, Phase::Start)
    }

    /// See [`super::Tracker::kept`].
    pub(super) const fn kept(&self) -> usize {
        self.partial.capacity()
    }

    /// See [`super::Tracker::responses`].
    pub(super) fn pass(&mut self, bytes: &[u8], pipeline: &mut Pipeline) -> Progress {
        let (mut at, mut completed) = (0, false);
        // The bytes to deliver before the bytes from `copied` on. A mended head cannot be a slice
        // of the bytes of this call, so the bytes around it are copied.
        let (mut held, mut copied) = (Vec::new(), None);
        let rest = loop {
            if at == bytes.len() {
                break Rest::Held;
            }
            let rest = &bytes[at..];
            if pipeline.is_raw {
                if let Some(observer) = &self.observer {
                    observer.switched_response(rest);
                }
                at = bytes.len();
                break Rest::Held;
            }
            let observer = self.observer.as_deref();
            let seen = |part: BodyPart<'_>| {
                if let Some(observer) = observer {
                    observer.response_body(part);
                }
            };
            match &mut self.place {
                Phase::Over => break Rest::Excess,
                Phase::Start if pipeline.outstanding == 0 => {
                    // These bytes answer no request.
                    (self.place, pipeline.is_last_response) = (Phase::Over, true);
                    completed = true;
                    break Rest::Excess;
                }
                Phase::Start => match self.look(rest, !pipeline.is_of_caller) {
                    Ok(Seen::More) => break Rest::Held,
                    Ok(Seen::Head(length, answer, mended)) => {
                        let partial = std::mem::take(&mut self.partial);
                        let begun = match self.begin(&answer, pipeline) {
                            Ok(begun) => begun,
                            Err(doubt) => break self.refuse(doubt, pipeline),
                        };
                        match mended {
                            Some(head) => {
                                held.extend_from_slice(&bytes[copied.unwrap_or(0)..at]);
                                held.extend_from_slice(&head);
                                copied = Some(at + length);
                            }
                            // Only the first head of a call may include bytes of earlier calls.
                            None if held.is_empty() => held = partial,
                            None => {}
                        }
                        at += length;
                        match begun {
                            Begun::Response(may_go_on) => completed |= may_go_on,
                            Begun::Last => {
                                completed = true;
                                break Rest::Excess;
                            }
                        }
                    }
                    Err(doubt) => break self.refuse(doubt, pipeline),
                },
                Phase::Length(left) => match take(left, rest) {
                    None => {
                        seen(BodyPart::Data(rest));
                        self.sent += rest.len() as u64;
                        at = bytes.len();
                    }
                    Some(length) => {
                        seen(BodyPart::Data(&rest[..length]));
                        self.sent += length as u64;
                        at += length;
                        self.complete(pipeline);
                        completed = true;
                    }
                },
                Phase::Chunks(chunks) => match chunks.pass(rest, seen) {
                    Passed::More => {
                        self.sent += rest.len() as u64;
                        at = bytes.len();
                    }
                    Passed::End(length) => {
                        self.sent += length as u64;
                        at += length;
                        self.complete(pipeline);
                        completed = true;
                    }
                    Passed::Bad(length, fault) => {
                        at += length;
                        (self.place, pipeline.is_doubtful) = (Phase::Over, true);
                        break Rest::Cut(fault.into());
                    }
                },
                Phase::UntilEnd => {
                    seen(BodyPart::Data(rest));
                    self.sent += rest.len() as u64;
                    at = bytes.len();
                }
            }
        };
        let deliver = match copied {
            Some(copied) => {
                held.extend_from_slice(&bytes[copied..at]);
                0
            }
            None => at,
        };
        Progress { held, deliver, completed, rest }
    }

    /// See [`super::Tracker::service_ended`].
    pub(super) fn end(&mut self, pipeline: &mut Pipeline) -> Ended {
        let ended = match self.place {
            _ if pipeline.is_raw => Ended::Clean,
            Phase::Start if pipeline.outstanding == 0 => Ended::Clean,
            Phase::Start => Ended::Unanswered,
            Phase::UntilEnd | Phase::Over => Ended::Clean,
            Phase::Length(_) | Phase::Chunks(_) => Ended::Cut,
        };
        self.partial = Vec::new();
        pipeline.is_last_response = true;
        if matches!(ended, Ended::Cut)
            && let Some(observer) = self.observer.take()
        {
            observer.ended(self.sent, false);
        }
        if !matches!(self.place, Phase::Over) {
            self.complete(pipeline);
        }
        ended
    }

    /// Scans for a head, and keeps a partial head. `closes`: no response follows a mended response.
    fn look(&mut self, rest: &[u8], closes: bool) -> Result<Seen, Doubt> {
        if self.partial.is_empty()
            && let Some(Ok(answer)) = answer::parse(rest)
        {
            self.tell_head(&rest[..answer.length]);
            return Ok(Seen::Head(answer.length, answer, None));
        }
        let known = self.partial.len();
        self.partial.extend_from_slice(&rest[..rest.len().min(ANSWER_HEAD - known)]);
        // A service that does not speak HTTP is recognised by its first bytes.
        let start = &b"HTTP/1."[..self.partial.len().min(7)];
        let end = match self.scan.look(&self.partial, ANSWER_HEAD) {
            _ if !self.partial.starts_with(start) => return Err(Doubt::NotHttp),
            Scanned::More => return Ok(Seen::More),
            Scanned::BareLf => return Err(Doubt::BareLf),
            Scanned::Size => return Err(Doubt::HeadSize),
            Scanned::End(end) => end,
        };
        self.scan = Scan::default();
        let head = &self.partial[..end];
        let (answer, mended) = read(head, closes)?;
        self.tell_head(head);
        self.partial.truncate(known);
        Ok(Seen::Head(end - known, answer, mended))
    }

    /// Reports the head of a response as the service wrote it.
    fn tell_head(&self, head: &[u8]) {
        if let Some(observer) = &self.observer {
            observer.response_head(head);
        }
    }

    /// Begins a response.
    fn begin(&mut self, answer: &Answer, pipeline: &mut Pipeline) -> Result<Begun, Doubt> {
        let Answer { length, status, version10, body, close } = *answer;
        if let Some(observer) = &self.observer {
            observer.responded(status);
        }
        // The request that may switch the protocol is the youngest request.
        let switch = if pipeline.outstanding == 1 { pipeline.switch } else { None };
        let is_head = pipeline.heads & 1 == 1;
        match (status, switch) {
            (101, Some(Switch::Upgrade)) => return Ok(self.switch(pipeline)),
            (200..=299, Some(Switch::Connect)) => {
                // The fields of such a response have no meaning, but not every parser ignores them.
                if body != Framing::Absent || matches!(status, 204 | 205) {
                    return Err(Doubt::Connect);
                }
                return Ok(self.switch(pipeline));
            }
            (101, _) => return Err(Doubt::Switch),
            (100..=199, _) => {
                let is_odd = body != Framing::Absent || version10 || is_head;
                if is_odd && !pipeline.is_of_caller {
                    return Err(Doubt::Interim);
                }
                let (count, bytes) = self.interims;
                self.interims = (count + 1, bytes + length);
                if count >= INTERIMS || bytes + length > INTERIM_BYTES {
                    return Err(Doubt::Interims);
                }
                return Ok(Begun::Response(false));
            }
            _ => {}
        }
        if switch.is_some() {
            pipeline.switch = None;
        }
        pipeline.is_last_response |= close;
        match (status, body) {
            // Parsers disagree on whether these bodies exist.
            (204, Framing::Length(1..) | Framing::Chunked) | (304, Framing::Chunked)
                if !is_head =>
            {
                pipeline.is_last_response = true;
                self.complete(pipeline);
                self.place = Phase::Over;
                return Ok(Begun::Last);
            }
            (204 | 304, _) => self.complete(pipeline),
            _ if is_head => self.complete(pipeline),
            (_, Framing::Length(0)) => self.complete(pipeline),
            (_, Framing::Length(length)) => self.place = Phase::Length(length),
            (_, Framing::Chunked) => self.place = Phase::Chunks(Chunked::of_response()),
            (_, Framing::Absent) => {
                self.place = Phase::UntilEnd;
                pipeline.is_last_response = true;
            }
        }
        Ok(Begun::Response(switch.is_some() || !self.has_begun()))
    }

    fn switch(&mut self, pipeline: &mut Pipeline) -> Begun {
        pipeline.is_raw = true;
        self.complete(pipeline);
        Begun::Response(true)
    }

    /// Refuses a response of which no byte was delivered.
    fn refuse(&mut self, doubt: Doubt, pipeline: &mut Pipeline) -> Rest {
        self.partial = Vec::new();
        (self.place, pipeline.is_doubtful) = (Phase::Over, true);
        Rest::Refused(doubt)
    }

    fn complete(&mut self, pipeline: &mut Pipeline) {
        (self.place, self.interims) = (Phase::Start, (0, 0));
        let sent = std::mem::take(&mut self.sent);
        if let Some(observer) = &self.observer {
            observer.ended(sent, true);
        }
        pipeline.pop();
    }
}

/// Reads a complete head, which is mended if it is in doubt.
fn read(head: &[u8], closes: bool) -> Result<(Answer, Option<Vec<u8>>), Doubt> {
    let doubt = match answer::parse(head) {
        Some(Ok(answer)) => return Ok((answer, None)),
        Some(Err(doubt)) => doubt,
        None => answer::diagnose(head),
    };
    let mended = mend(head, closes).ok_or(doubt)?;
    // The rewritten head must be certain as well.
    let answer = answer::parse(&mended).and_then(Result::ok).ok_or(doubt)?;
    Ok((answer, Some(mended)))
}
