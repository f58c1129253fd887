//! Identifiers on the wire. Each identifier has its own type, so that a stream id cannot be taken
//! for a carrier number.

use std::fmt;

/// An end of a link. The client dials carriers, the server accepts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Dials carriers. Opens streams with odd ids.
    Client,
    /// Accepts carriers. Opens streams with even ids.
    Server,
}

impl Side {
    /// The other end.
    #[must_use]
    pub const fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// Id of a stream in a link. Streams of the client have odd ids, streams of the server even ids.
/// Ids only grow and are never reused. 0 is the control stream, which is always open.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StreamId(u32);

impl StreamId {
    /// The control stream.
    pub const CONTROL: Self = Self(0);
    /// A link opens no stream past this id and retires by GOAWAY.
    pub const LAST: Self = Self(1 << 30);

    /// The id with this number on the wire.
    #[must_use]
    pub const fn new(raw: u32) -> Self {
        Self(raw)
    }

    /// The first id that `side` opens.
    #[must_use]
    pub const fn first(side: Side) -> Self {
        match side {
            Side::Client => Self(1),
            Side::Server => Self(2),
        }
    }

    /// The number on the wire.
    #[must_use]
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// The side that opens streams with this id. `None` for the control stream.
    #[must_use]
    pub const fn opener(self) -> Option<Side> {
        match self.0 {
            0 => None,
            n if n & 1 == 1 => Some(Side::Client),
            _ => Some(Side::Server),
        }
    }

    /// The next id of the same opener; `None` once [`StreamId::LAST`] is passed.
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        let next = Self(self.0.saturating_add(2));
        if next.0 > Self::LAST.0 { None } else { Some(next) }
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Id of a flow in a link, in a separate id space. Flows of the client have odd ids, flows of the
/// server even ids. Ids only grow and are never reused. No flow has id 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowId(u32);

impl FlowId {
    /// A link opens no flow past this id and retires by GOAWAY.
    pub const LAST: Self = Self(1 << 30);

    /// The id with this number on the wire.
    #[must_use]
    pub const fn new(raw: u32) -> Self {
        Self(raw)
    }

    /// The first id that `side` opens.
    #[must_use]
    pub const fn first(side: Side) -> Self {
        Self(StreamId::first(side).raw())
    }

    /// The number on the wire.
    #[must_use]
    pub const fn raw(self) -> u32 {
        self.0
    }

    /// The side that opens flows with this id. `None` for 0.
    #[must_use]
    pub const fn opener(self) -> Option<Side> {
        StreamId::new(self.0).opener()
    }

    /// The next id of the same opener; `None` once [`FlowId::LAST`] is passed.
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        match StreamId::new(self.0).next() {
            Some(next) => Some(Self(next.raw())),
            None => None,
        }
    }
}

impl fmt::Debug for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for FlowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Number of a carrier within its link. The client increments it for each greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CarrierNumber(pub u32);

impl fmt::Display for CarrierNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Id of a link: 128 random bits that the server chooses. The first four bytes are the generation
/// of the server process. The id alone proves nothing. Logs show a serial number, never the id.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LinkId(pub [u8; 16]);

impl fmt::Debug for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkId(..)")
    }
}

/// Random per client process. All links with one instance id form one session.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct InstanceId(pub [u8; 16]);

impl fmt::Debug for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InstanceId(..)")
    }
}
