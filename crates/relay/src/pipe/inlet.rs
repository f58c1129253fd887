//! The link side of a stream, as passed to the end that makes the pump.

use std::fmt;
use std::ops::Deref;

use transport::Inlet;

use super::Slot;

/// The link side of a stream: that of a link, or that of a visitor whom this process joins with its
/// target without a link.
pub struct StreamInlet {
    pub(crate) inlet: Box<dyn Inlet>,
    /// The slot in which a connection without a link finds the pump of the stream.
    pub(crate) slot: Option<Slot>,
}

impl From<Box<dyn Inlet>> for StreamInlet {
    fn from(inlet: Box<dyn Inlet>) -> Self {
        Self { inlet, slot: None }
    }
}

impl<T: Inlet + 'static> From<Box<T>> for StreamInlet {
    fn from(inlet: Box<T>) -> Self {
        Self { inlet, slot: None }
    }
}

impl Deref for StreamInlet {
    type Target = dyn Inlet;

    fn deref(&self) -> &Self::Target {
        &*self.inlet
    }
}

impl fmt::Debug for StreamInlet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inlet.fmt(f)
    }
}
