//! A piece of a response in the form that h2 sends.

use bytes::Buf;

use crate::account::Piece;

/// The payload of a frame of a response.
#[derive(Debug)]
pub(super) enum Chunk {
    Piece(Piece),
    /// No payload: the end of a body.
    Empty,
}

impl Buf for Chunk {
    fn remaining(&self) -> usize {
        match self {
            Self::Piece(piece) => piece.remaining(),
            Self::Empty => 0,
        }
    }

    fn chunk(&self) -> &[u8] {
        match self {
            Self::Piece(piece) => piece.chunk(),
            Self::Empty => &[],
        }
    }

    fn advance(&mut self, count: usize) {
        if let Self::Piece(piece) = self {
            piece.advance(count);
        }
    }
}
