//! What a visit tells the page: values, and their bytes. A message begins with its kind and the
//! number that it is about, in little endian.

use bytes::{BufMut as _, Bytes};

/// The way of the bytes between the page and the client that has the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Through the server.
    Relay,
    /// Over a data channel of the page.
    Direct,
}

/// How a visit stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The server has given this token for the code. The page keeps it and begins again with it.
    Enrolled(String),
    /// The page has logged in at the server, and visits the client with the service.
    Visiting,
    /// Requests reach the service, by this path.
    Live(Path),
    /// The other client does not answer; the visit is tried again.
    Silent,
    /// The other client is not connected to the server; the visit is tried again.
    Away,
    /// The link to the server is gone and is dialled again.
    Offline,
    /// The visit is over, for this reason: a word for the page.
    Over(&'static str),
}

/// What a visit tells the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Bytes for the carrier with this number; 0 is the data channel.
    Send(u32, Bytes),
    /// The carrier with this number is to be closed.
    Close(u32),
    /// The head of the response to this request: status and reason in the first line, then a field
    /// in each line.
    Head(u32, Bytes),
    /// The next bytes of a response; [`Visit::took`](crate::Visit::took) follows.
    Body(u32, Bytes),
    /// The end of a response.
    End(u32),
    /// There is no response, or not all of it, for this reason: a word for the page.
    Failed(u32, &'static str),
    /// The body of this request may go on.
    Room(u32),
    /// How the visit stands.
    State(State),
    /// The page is to offer a data channel, and calls [`Visit::offer`](crate::Visit::offer). The
    /// server answers STUN at these ports.
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
    /// A word, and what belongs to it behind a space.
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
