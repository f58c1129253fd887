//! The incoming half of a WebSocket: frames in, payload out (RFC 6455 section 5). It is a plain
//! value without I/O.
//!
//! A lane is a pipe of bytes, so payload is passed on as it arrives, regardless of the limits of
//! messages and fragments. Nothing is collected, and a claimed length allocates no memory.
//!
//! ```text
//!   Head --binary, continuation--> Payload --its last byte--> Head
//!     |---ping, pong-------------> Control --its last byte--> Head
//!     `---close------------------> Control --its last byte--> Closed
//! ```

use bytes::BytesMut;
use transport::Side;

use crate::frame::{CONTROL_MAX, Code, HEAD_MAX, Head, Malformed, Opcode, may_be_sent};
use crate::mask::Mask;

/// The longest accepted message. Our messages have 64 KiB, and 256 KiB with pages, so a message of
/// more than 16 MiB comes from a foreign peer.
pub(crate) const MESSAGE_MAX: u64 = 16 << 20;

/// A rule that the peer broke: the code for the Close to the peer, and a text for our log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) code: Code,
    pub(crate) text: &'static str,
}

const fn protocol(text: &'static str) -> Fault {
    Fault { code: Code::Protocol, text }
}

/// The payload of a control frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Control {
    bytes: [u8; CONTROL_MAX],
    length: usize,
}

impl Control {
    pub(crate) const EMPTY: Self = Self { bytes: [0; CONTROL_MAX], length: 0 };

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Appends bytes from the front of `bytes` until `wanted` bytes are there; returns the number
    /// of bytes used.
    fn fill(&mut self, bytes: &[u8], wanted: usize) -> usize {
        let size = (wanted - self.length).min(bytes.len());
        self.bytes[self.length..self.length + size].copy_from_slice(&bytes[..size]);
        self.length += size;
        size
    }
}

/// The end of the peer's direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Closed {
    /// `None` for a Close without a code (1005 in the RFC).
    pub(crate) code: Option<u16>,
    pub(crate) reason: String,
}

impl Closed {
    /// Whether the Close is a normal end and no complaint.
    pub(crate) fn is_clean(&self) -> bool {
        self.code.is_none_or(|code| matches!(code, 1000 | 1001))
    }
}

/// The control frames that arrived with the payload.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// The latest ping; only the latest must be answered (section 5.5.3).
    pub(crate) ping: Option<Control>,
    pub(crate) closed: Option<Closed>,
}

#[derive(Debug)]
enum State {
    Head,
    Payload { left: u64, mask: Option<Mask> },
    Control { opcode: Opcode, length: usize, mask: Option<Mask> },
    Closed,
}

/// What the front of the next bytes is.
enum Step<'a> {
    /// So many bytes of payload, with their mask.
    Payload(Option<&'a mut Mask>, usize),
    /// So many other bytes, which have been processed.
    Other(usize),
}

/// The incoming half of a WebSocket.
#[derive(Debug)]
pub(crate) struct Receive {
    side: Side,
    state: State,
    head: [u8; HEAD_MAX],
    /// The number of known bytes of `head`.
    known: usize,
    control: Control,
    /// The length so far of a message whose last frame has not arrived.
    message: Option<u64>,
}

impl Receive {
    pub(crate) const fn new(side: Side) -> Self {
        Self {
            side,
            state: State::Head,
            head: [0; HEAD_MAX],
            known: 0,
            control: Control::EMPTY,
            message: None,
        }
    }

    /// Processes `bytes`, the next bytes of the connection, completely. The payload in them is
    /// unmasked and moved to their front. Returns the length of the payload.
    pub(crate) fn decode(&mut self, bytes: &mut [u8], notes: &mut Notes) -> Result<usize, Fault> {
        let (mut at, mut kept) = (0, 0);
        while at < bytes.len() {
            match self.step(&bytes[at..], notes)? {
                Step::Payload(mask, size) => {
                    match mask {
                        Some(mask) => mask.take_down(bytes, at, kept, size),
                        None if at > kept => bytes.copy_within(at..at + size, kept),
                        None => {}
                    }
                    self.passed(size);
                    at += size;
                    kept += size;
                }
                Step::Other(size) => at += size,
            }
        }
        Ok(kept)
    }

    /// As [`Receive::decode`], but the payload is appended to `out`. It is unmasked during the
    /// copy.
    pub(crate) fn decode_into(
        &mut self,
        mut bytes: &[u8],
        out: &mut BytesMut,
        notes: &mut Notes,
    ) -> Result<(), Fault> {
        while !bytes.is_empty() {
            let size = match self.step(bytes, notes)? {
                Step::Payload(mask, size) => {
                    match mask {
                        Some(mask) => mask.append(&bytes[..size], out),
                        None => out.extend_from_slice(&bytes[..size]),
                    }
                    self.passed(size);
                    size
                }
                Step::Other(size) => size,
            };
            bytes = &bytes[size..];
        }
        Ok(())
    }

    /// Processes the front of `bytes`, which are not empty, up to the next payload or the next
    /// change of the state.
    fn step(&mut self, bytes: &[u8], notes: &mut Notes) -> Result<Step<'_>, Fault> {
        if let State::Payload { left, .. } = self.state {
            let size = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
            let State::Payload { mask, .. } = &mut self.state else { return Ok(Step::Other(0)) };
            return Ok(Step::Payload(mask.as_mut(), size));
        }
        Ok(Step::Other(match &mut self.state {
            State::Control { length, .. } => {
                let size = self.control.fill(bytes, *length);
                self.end_control(notes)?;
                size
            }
            // Bytes after a Close have no meaning (section 5.5.1).
            State::Closed => bytes.len(),
            State::Head | State::Payload { .. } => {
                let size = Head::size(&self.head[..self.known]);
                let part = (size - self.known).min(bytes.len());
                self.head[self.known..self.known + part].copy_from_slice(&bytes[..part]);
                self.known += part;
                if self.known == Head::size(&self.head[..self.known]) {
                    self.begin(notes)?;
                }
                part
            }
        }))
    }

    /// Bytes that have to arrive before a payload can, as far as is known.
    pub(crate) fn needed(&self) -> usize {
        match self.state {
            State::Head => Head::size(&self.head[..self.known]) - self.known,
            State::Control { length, .. } => length - self.control.length,
            State::Payload { .. } | State::Closed => 0,
        }
    }

    /// Bytes that are left of a payload without a mask.
    pub(crate) fn plain_left(&self) -> usize {
        match self.state {
            State::Payload { left, mask: None } => usize::try_from(left).unwrap_or(usize::MAX),
            State::Payload { .. } | State::Head | State::Control { .. } | State::Closed => 0,
        }
    }

    /// Notes that `size` bytes of the payload were passed on.
    pub(crate) fn passed(&mut self, size: usize) {
        if let State::Payload { left, .. } = &mut self.state {
            *left -= size as u64;
            if *left == 0 {
                self.state = State::Head;
            }
        }
    }

    /// Acts on a complete head.
    fn begin(&mut self, notes: &mut Notes) -> Result<(), Fault> {
        let head = Head::decode(&self.head[..self.known]).map_err(|malformed| match malformed {
            Malformed::Reserved => protocol("a reserved bit is set"),
            Malformed::Opcode(_) => protocol("a reserved opcode"),
            Malformed::Length => protocol("a length that is not in its shortest form"),
        })?;
        self.known = 0;
        match (self.side, head.mask) {
            (Side::Server, None) => return Err(protocol("a client's frame is not masked")),
            (Side::Client, Some(_)) => return Err(protocol("a server's frame is masked")),
            (Side::Server, Some(_)) | (Side::Client, None) => {}
        }
        let mask = head.mask.map(Mask::new);
        if head.opcode.is_control() {
            let length = usize::try_from(head.length).ok().filter(|&n| n <= CONTROL_MAX);
            let Some(length) = length.filter(|_| head.fin) else {
                return Err(protocol("a control frame is fragmented or longer than 125 bytes"));
            };
            self.control = Control::EMPTY;
            self.state = State::Control { opcode: head.opcode, length, mask };
            return self.end_control(notes);
        }
        let so_far = match (head.opcode == Opcode::Continuation, self.message) {
            (true, Some(length)) => length,
            (false, None) => 0,
            (true, None) => return Err(protocol("a continuation of no message")),
            (false, Some(_)) => return Err(protocol("a message within another")),
        };
        if head.opcode == Opcode::Text {
            return Err(Fault { code: Code::Unsupported, text: "a text message" });
        }
        let message = so_far.saturating_add(head.length);
        if message > MESSAGE_MAX {
            return Err(Fault { code: Code::TooBig, text: "a message of more than 16 MiB" });
        }
        self.message = (!head.fin).then_some(message);
        if head.length > 0 {
            self.state = State::Payload { left: head.length, mask };
        }
        Ok(())
    }

    /// Acts on a control frame if its payload is complete.
    fn end_control(&mut self, notes: &mut Notes) -> Result<(), Fault> {
        let State::Control { opcode, length, mask } = &mut self.state else { return Ok(()) };
        if self.control.length < *length {
            return Ok(());
        }
        if let Some(mask) = mask {
            mask.apply(&mut self.control.bytes[..self.control.length]);
        }
        let opcode = *opcode;
        self.state = State::Head;
        if opcode == Opcode::Ping {
            notes.ping = Some(self.control);
        } else if opcode == Opcode::Close {
            self.state = State::Closed;
            notes.closed = Some(closed(self.control.bytes())?);
        }
        Ok(())
    }
}

/// Decodes the body of a Close (section 5.5.1).
fn closed(body: &[u8]) -> Result<Closed, Fault> {
    let Some((code, reason)) = body.split_first_chunk() else {
        return if body.is_empty() {
            Ok(Closed { code: None, reason: String::new() })
        } else {
            Err(protocol("a Close with half a code"))
        };
    };
    let code = u16::from_be_bytes(*code);
    if !may_be_sent(code) {
        return Err(protocol("a Close with a code that must not be sent"));
    }
    match str::from_utf8(reason) {
        Ok(reason) => Ok(Closed { code: Some(code), reason: reason.to_owned() }),
        Err(_) => Err(Fault { code: Code::Invalid, text: "a Close whose reason is not UTF-8" }),
    }
}
