//! The body of a response, compressed as it arrives.
//!
//! A poll compresses at most [`STEP`] bytes, and then yields to the other tasks of the worker. When
//! the target pauses, the encoder is flushed to the visitor, so a response that is sent in parts
//! arrives in parts. The encoder is charged to the account of the visitor for the duration of the
//! response.

use std::{
    fmt,
    io::{self, Write},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use hyper::body::{Body, Frame, Incoming, SizeHint};

use crate::{
    account::{Account, Hold},
    coding::Coding,
};

/// The maximum number of bytes that one poll compresses: 0.5 ms of gzip on a slow core.
const STEP: usize = 16 * 1024;

/// Compressed bytes are held back up to this number while the target sends, because each small
/// piece would cost a frame.
const LEAST: usize = 4 * 1024;

/// The level of gzip: level 6 takes a tenth longer for a response 0.5 % shorter.
const GZIP_LEVEL: u32 = 5;
/// The memory of a gzip encoder: 440 to 490 KB were measured.
const GZIP_COST: u64 = 512 * 1024;

/// The level of zstd, with a window and tables smaller than the defaults of the level: half of the
/// memory for a response 1 % longer. RFC 8878 recommends that decoders support windows of 8 MiB.
const ZSTD_LEVEL: i32 = 3;
const ZSTD_WINDOW: u32 = 16;
const ZSTD_TABLES: u32 = 14;
/// The memory of a zstd encoder: 600 KB, and 32 KiB in front of the body.
const ZSTD_COST: u64 = 704 * 1024;

/// The level and the window of brotli. Level 5 takes 35 MB with this window.
#[cfg(feature = "brotli")]
const BROTLI_LEVEL: i32 = 4;
#[cfg(feature = "brotli")]
const BROTLI_WINDOW: i32 = 16;
#[cfg(feature = "brotli")]
const BROTLI_BUFFER: usize = 4096;
/// The memory of a brotli encoder: 1.6 to 1.9 MB were measured.
const BROTLI_COST: u64 = 2 * 1024 * 1024;

/// An encoder, without the body that it compresses.
pub(crate) struct Encoder {
    engine: Engine,
    coding: Coding,
    _held: Hold,
}

enum Engine {
    Gzip(Box<flate2::write::GzEncoder<Vec<u8>>>),
    Zstd(Box<zstd::stream::write::Encoder<'static, Vec<u8>>>),
    #[cfg(feature = "brotli")]
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    /// The trailer has been written.
    Done(Vec<u8>),
}

impl Encoder {
    /// `None`: this build does not support the coding, or memory is short.
    pub(crate) fn new(coding: Coding, account: &Rc<Account>) -> Option<Self> {
        let cost = match coding {
            Coding::Gzip => GZIP_COST,
            Coding::Zstd => ZSTD_COST,
            Coding::Brotli => BROTLI_COST,
        };
        if !account.may_grow(cost) {
            return None;
        }
        let engine = Engine::new(coding)?;
        Some(Self { engine, coding, _held: account.hold(cost) })
    }

    pub(crate) const fn coding(&self) -> Coding {
        self.coding
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Encoder").field(&self.coding).finish()
    }
}

impl Engine {
    fn new(coding: Coding) -> Option<Self> {
        match coding {
            Coding::Gzip => {
                let level = flate2::Compression::new(GZIP_LEVEL);
                Some(Self::Gzip(Box::new(flate2::write::GzEncoder::new(Vec::new(), level))))
            }
            Coding::Zstd => {
                use zstd::zstd_safe::CParameter;
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL).ok()?;
                for parameter in [
                    CParameter::WindowLog(ZSTD_WINDOW),
                    CParameter::HashLog(ZSTD_TABLES),
                    CParameter::ChainLog(ZSTD_TABLES),
                ] {
                    encoder.set_parameter(parameter).ok()?;
                }
                Some(Self::Zstd(Box::new(encoder)))
            }
            #[cfg(feature = "brotli")]
            Coding::Brotli => {
                let parameters = brotli::enc::BrotliEncoderParams {
                    quality: BROTLI_LEVEL,
                    lgwin: BROTLI_WINDOW,
                    ..Default::default()
                };
                Some(Self::Brotli(Box::new(brotli::CompressorWriter::with_params(
                    Vec::new(),
                    BROTLI_BUFFER,
                    &parameters,
                ))))
            }
            #[cfg(not(feature = "brotli"))]
            Coding::Brotli => None,
        }
    }

    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Self::Gzip(encoder) => encoder,
            Self::Zstd(encoder) => encoder,
            #[cfg(feature = "brotli")]
            Self::Brotli(encoder) => encoder,
            Self::Done(out) => out,
        }
    }

    fn out(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Gzip(encoder) => encoder.get_mut(),
            Self::Zstd(encoder) => encoder.get_mut(),
            #[cfg(feature = "brotli")]
            Self::Brotli(encoder) => encoder.get_mut(),
            Self::Done(out) => out,
        }
    }

    /// Finishes the encoded stream.
    fn finish(&mut self) -> io::Result<()> {
        let out = match std::mem::replace(self, Self::Done(Vec::new())) {
            Self::Gzip(encoder) => encoder.finish()?,
            Self::Zstd(encoder) => encoder.finish()?,
            #[cfg(feature = "brotli")]
            Self::Brotli(encoder) => encoder.into_inner(),
            Self::Done(out) => out,
        };
        *self = Self::Done(out);
        Ok(())
    }
}

/// The reason why the body of a response broke off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnswerError {
    #[error(transparent)]
    Target(#[from] hyper::Error),
    #[error("an answer cannot be compressed: {0}")]
    Encoder(#[from] io::Error),
}

/// The body of a target's response, plain or compressed.
#[derive(Debug)]
pub(crate) enum Coded {
    Plain { incoming: Incoming, read: Read },
    Encoded(Box<Encoded<Incoming>>),
}

impl Coded {
    pub(crate) fn new(incoming: Incoming, encoder: Option<Encoder>) -> Self {
        match encoder {
            None => Self::Plain { incoming, read: Read::default() },
            Some(encoder) => Self::Encoded(Box::new(Encoded::new(incoming, encoder))),
        }
    }

    /// Returns and resets the count of data read from the target. The connection to a target over
    /// HTTP/2 accounts for it.
    pub(crate) fn take_read(&mut self) -> Read {
        std::mem::take(match self {
            Self::Plain { read, .. } => read,
            Self::Encoded(encoded) => &mut encoded.read,
        })
    }
}

impl Body for Coded {
    type Data = Bytes;
    type Error = AnswerError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnswerError>>> {
        match self.get_mut() {
            Self::Plain { incoming, read } => {
                let frame = ready!(Pin::new(incoming).poll_frame(cx));
                if let Some(Ok(frame)) = &frame
                    && let Some(bytes) = frame.data_ref()
                {
                    read.add(bytes.len());
                }
                Poll::Ready(frame.map(|frame| frame.map_err(AnswerError::Target)))
            }
            Self::Encoded(encoded) => Pin::new(&mut **encoded).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Plain { incoming, .. } => incoming.is_end_stream(),
            Self::Encoded(encoded) => encoded.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Plain { incoming, .. } => incoming.size_hint(),
            Self::Encoded(_) => SizeHint::default(),
        }
    }
}

/// A body that is compressed while it is read.
#[derive(Debug)]
pub(crate) struct Encoded<B> {
    body: B,
    encoder: Encoder,
    /// The remainder of a piece of the body.
    input: Bytes,
    /// Whether the encoder holds bytes that were not sent to the visitor.
    kept: Kept,
    trailers: Option<Frame<Bytes>>,
    read: Read,
}

/// The count of body data that was read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Read {
    pub(crate) bytes: usize,
    pub(crate) pieces: u32,
}

impl Read {
    const fn add(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.pieces += 1;
    }
}

/// Whether the encoder holds bytes of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Nothing,
    Something,
    /// The body paused, and the tasks that deliver more of it get a turn.
    Waits,
}

impl<B> Encoded<B> {
    fn new(body: B, encoder: Encoder) -> Self {
        Self {
            body,
            encoder,
            input: Bytes::new(),
            kept: Kept::Nothing,
            trailers: None,
            read: Read::default(),
        }
    }

    const fn is_done(&self) -> bool {
        matches!(self.encoder.engine, Engine::Done(_))
    }
}

impl<B> Body for Encoded<B>
where
    B: Body<Data = Bytes> + Unpin,
    AnswerError: From<B::Error>,
{
    type Data = Bytes;
    type Error = AnswerError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnswerError>>> {
        let this = self.get_mut();
        let mut has_stepped = false;
        loop {
            let may_wait = this.kept != Kept::Nothing && !this.is_done();
            let out = this.encoder.engine.out();
            if out.len() >= LEAST || (!out.is_empty() && !may_wait) {
                let out = std::mem::take(out);
                return Poll::Ready(Some(Ok(Frame::data(out.into()))));
            }
            if this.is_done() {
                return Poll::Ready(this.trailers.take().map(Ok));
            }
            if !this.input.is_empty() {
                if has_stepped {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                let step = this.input.len().min(STEP);
                this.encoder.engine.writer().write_all(&this.input[..step])?;
                this.input.advance(step);
                this.kept = Kept::Something;
                has_stepped = true;
                continue;
            }
            match Pin::new(&mut this.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(input) => {
                        this.read.add(input.len());
                        this.input = input;
                    }
                    Err(trailers) => {
                        this.trailers = Some(trailers);
                        this.encoder.engine.finish()?;
                    }
                },
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error.into()))),
                Poll::Ready(None) => this.encoder.engine.finish()?,
                Poll::Pending => match this.kept {
                    Kept::Nothing => return Poll::Pending,
                    // Pieces of a fast body pass from task to task. A flush for each piece would
                    // enlarge the response.
                    Kept::Something => {
                        this.kept = Kept::Waits;
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                    Kept::Waits => {
                        this.encoder.engine.writer().flush()?;
                        this.kept = Kept::Nothing;
                    }
                },
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(&self.encoder.engine, Engine::Done(out) if out.is_empty())
            && self.trailers.is_none()
    }
}
