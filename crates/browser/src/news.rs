//! The events that a visit reports to the page: values, and their encoding. A message begins with
//! its kind and the number of its object, in little endian.

use bytes::{BufMut as _, Bytes};

/// The path of the bytes between the page and the client that provides the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Through the server.
    Relay,
    /// Over a data channel of the page.
    Direct,
}

/// The state of a visit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The server has issued this token for the code. The page stores it and starts again with it.
    Enrolled(String),
    /// The page has logged in at the server, and connects to the client with the service.
    Visiting,
    /// Requests reach the service, over this path.
    Live(Path),
    /// The other client does not respond; the visit is retried.
    Silent,
    /// The other client is not connected to the server; the visit is retried.
    Away,
    /// The link to the server was lost and is dialled again.
    Offline,
    /// The visit has ended for this reason: a word for the page.
    Over(&'static str),
}

/// The events that a visit reports to the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Bytes for the carrier with this number; 0 is the data channel.
    Send(u32, Bytes),
    /// The carrier with this number must be closed.
    Close(u32),
    /// The header of the response to this request: status and reason in the first line, then one
    /// field per line.
    Head(u32, Bytes),
    /// The next bytes of a response; [`Visit::took`](crate::Visit::took) follows.
    Body(u32, Bytes),
    /// The end of a response.
    End(u32),
    /// There is no complete response, for this reason: a word for the page.
    Failed(u32, &'static str),
    /// The body of this request may continue.
    Room(u32),
    /// The new state of the visit.
    State(State),
    /// The page should offer a data channel, and then calls [`Visit::offer`](crate::Visit::offer).
    /// The server answers STUN at these ports.
    Seek(Vec<u16>),
    /// The answer to the offer: a session description.
    Answer(String),
}

impl News {
    /// Writes the message for the page.
    pub fn write(&self, out: &mut Vec<u8>) {
        let (kind, number, bytes): (u8, u32, &[u8]) = match self {
            Self::Send(slot, bytes) => (1, *slot, bytes),
            Self::Close(slot) => (2, *slot, &[]),
            Self::Head(request, head) => (3, *request, head),
            Self::Body(request, bytes) => (4, *request, bytes),
            Self::End(request) => (5, *request, &[]),
            Self::Failed(request, why) => (6, *request, why.as_bytes()),
            Self::Room(request) => (7, *request, &[]),
            Self::Seek(ports) => {
                out.put_u8(9);
                out.put_u32_le(0);
                let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
                return out.extend_from_slice(ports.join(" ").as_bytes());
            }
            Self::Answer(text) => (10, 0, text.as_bytes()),
            Self::State(state) => {
                out.put_u8(8);
                out.put_u32_le(0);
                return state.write(out);
            }
        };
        out.put_u8(kind);
        out.put_u32_le(number);
        out.extend_from_slice(bytes);
    }
}

impl State {
    /// A word, followed by a space and its parameter.
    fn write(&self, out: &mut Vec<u8>) {
        let (word, rest) = match self {
            Self::Enrolled(token) => ("enrolled ", token.as_str()),
            Self::Visiting => ("visiting", ""),
            Self::Live(Path::Relay) => ("live ", "relayed"),
            Self::Live(Path::Direct) => ("live ", "direct"),
            Self::Silent => ("silent", ""),
            Self::Away => ("away", ""),
            Self::Offline => ("offline", ""),
            Self::Over(why) => ("over ", *why),
        };
        out.extend_from_slice(word.as_bytes());
        out.extend_from_slice(rest.as_bytes());
    }
}
