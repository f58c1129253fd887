//! rustls between two byte buffers: ciphertext in and plaintext out, and the reverse. The engine
//! does no I/O.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;

use bytes::{Buf, Bytes, BytesMut};
use net::pool;
use rustls::Error;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, EncryptError, WriteTraffic};
use transport::{Producer, Through, Unchanged};

use super::session::Session;

/// The plaintext of a full record (RFC 8446 section 5.1).
pub(super) const RECORD: usize = 16 << 10;

/// The size of a record on the wire: 5 bytes of head and at most 256 bytes of expansion (RFC 8446
/// section 5.2).
pub(super) const WIRE_RECORD: usize = RECORD + 5 + 256;

/// The bytes that our ciphers add to a record: head, content type, tag.
const OVERHEAD: usize = 5 + 1 + 16;

/// Room for a key update, which rustls may put in front of a record by itself.
const KEY_UPDATE: usize = 64;

thread_local! {
    /// The buffer in which small frames are gathered into one record.
    static GATHER: RefCell<BytesMut> = RefCell::new(BytesMut::with_capacity(RECORD));
}

/// The state of a session after it processed all complete input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// The handshake needs more bytes from the peer.
    Handshaking,
    /// Application data may be sent.
    Open,
}

pub(super) struct Engine<S> {
    session: S,
    /// Ciphertext that was read and not yet processed. Between calls it is at most a part of one
    /// record, or of one handshake message of at most 64 KiB.
    incoming: BytesMut,
    /// Plaintext that did not fit the reader's buffer, at most two records.
    surplus: BytesMut,
    /// Ciphertext to send.
    outgoing: BytesMut,
    peer_closed: bool,
}

impl<S: Session> Engine<S> {
    pub(super) fn new(session: S) -> Self {
        let (incoming, surplus, outgoing) = Default::default();
        Self { session, incoming, surplus, outgoing, peer_closed: false }
    }

    pub(super) const fn session(&self) -> &S {
        &self.session
    }

    /// The buffer for the next ciphertext, with room for `wanted` bytes.
    pub(super) fn incoming(&mut self, wanted: usize) -> &mut BytesMut {
        if self.incoming.is_empty() && self.incoming.capacity() < wanted {
            // The buffers of the pool are larger than a stranger may cost.
            let is_small = wanted < RECORD;
            self.incoming =
                if is_small { BytesMut::with_capacity(wanted) } else { pool::take(wanted) };
        }
        // The call moves an incomplete record to the front, or into a new buffer.
        self.incoming.reserve(wanted);
        &mut self.incoming
    }

    pub(super) const fn outgoing(&mut self) -> &mut BytesMut {
        &mut self.outgoing
    }

    /// The capacity of all buffers that the engine holds now, in bytes.
    pub(super) fn held(&self) -> usize {
        self.incoming.capacity() + self.surplus.capacity() + self.outgoing.capacity()
    }

    /// Whether the peer sent `close_notify`, after which no plaintext follows.
    pub(super) const fn peer_closed(&self) -> bool {
        self.peer_closed
    }

    /// Shrinks the buffers when no input is left for now. An empty buffer returns to the pool. A
    /// large buffer that holds an incomplete record is replaced by a buffer of the record's size.
    pub(super) fn rest(&mut self) {
        if self.incoming.is_empty() {
            pool::give(std::mem::take(&mut self.incoming));
        } else if self.incoming.capacity() > 4 * WIRE_RECORD && self.incoming.len() < WIRE_RECORD {
            let small = BytesMut::from(&self.incoming[..]);
            pool::give(std::mem::replace(&mut self.incoming, small));
        }
    }

    /// Moves plaintext that is left from the last call through `through` into `sink`; returns the
    /// number of bytes moved.
    pub(super) fn take_surplus(&mut self, sink: &mut BytesMut, through: &mut dyn Through) -> usize {
        let n = self.surplus.len().min(room(sink));
        through.append(&self.surplus[..n], sink);
        self.surplus.advance(n);
        if self.surplus.is_empty() {
            self.surplus = BytesMut::new();
        }
        n
    }

    /// Processes all complete records in `incoming`. Plaintext goes through `through` to `sink`,
    /// never beyond its capacity. After an error `outgoing` may hold the alert for the peer.
    pub(super) fn process(
        &mut self,
        sink: &mut BytesMut,
        through: &mut dyn Through,
    ) -> Result<Standing, Error> {
        let outcome = self.run(sink, through);
        if self.incoming.is_empty() {
            pool::give(std::mem::take(&mut self.incoming));
        }
        if let Err(error) = outcome {
            self.alert();
            return Err(error);
        }
        outcome
    }

    fn run(&mut self, sink: &mut BytesMut, through: &mut dyn Through) -> Result<Standing, Error> {
        loop {
            let status = self.session.process(&mut self.incoming);
            let mut discard = status.discard;
            let standing = match status.state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        discard += record.discard;
                        // What went through may have left room, but not for bytes that come behind
                        // the surplus.
                        let is_next = self.surplus.is_empty();
                        let fits = if is_next { record.payload.len().min(room(sink)) } else { 0 };
                        through.append(&record.payload[..fits], sink);
                        self.surplus.extend_from_slice(&record.payload[fits..]);
                    }
                    None
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    encode(&mut self.outgoing, &mut data)?;
                    None
                }
                // The bytes in `outgoing` leave before any record that is sealed later.
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    None
                }
                Ok(ConnectionState::PeerClosed) => {
                    self.peer_closed = true;
                    None
                }
                Ok(ConnectionState::WriteTraffic(_) | ConnectionState::Closed) => {
                    Some(Ok(Standing::Open))
                }
                Ok(ConnectionState::BlockedHandshake) => Some(Ok(Standing::Handshaking)),
                // Early data is off. The enum is non-exhaustive, so later variants end here as
                // well.
                Ok(ConnectionState::ReadEarlyData(_) | _) => {
                    Some(Err(Error::General("unexpected early data".into())))
                }
                Err(error) => Some(Err(error)),
            };
            // The bytes are discarded after an error, too. rustls relies on that, and panics when
            // it later gets a different buffer.
            self.incoming.advance(discard);
            if let Some(standing) = standing {
                return standing;
            }
        }
    }

    /// Collects the bytes that rustls has queued for a failed session: earlier messages and the
    /// alert.
    fn alert(&mut self) {
        while self.session.state().wants_write() {
            let Ok(ConnectionState::EncodeTlsData(mut data)) =
                self.session.process(&mut self.incoming).state
            else {
                return;
            };
            if encode(&mut self.outgoing, &mut data).is_err() {
                return;
            }
        }
    }

    /// Seals at most `limit` bytes from the front of `frames` into full records; returns the number
    /// of bytes.
    pub(super) fn seal(
        &mut self,
        frames: &mut VecDeque<Bytes>,
        limit: usize,
    ) -> Result<usize, Error> {
        if self.outgoing.capacity() == 0 {
            let queued: usize = frames.iter().map(Bytes::len).take(64).sum();
            let wanted = queued.min(limit);
            let records = wanted.div_ceil(RECORD);
            self.outgoing = pool::take(wanted + records * OVERHEAD + KEY_UPDATE);
        }
        let (mut traffic, outgoing) = self.traffic()?;
        let mut sealed = 0;
        while sealed < limit && !frames.is_empty() {
            sealed += seal_record(&mut traffic, frames, outgoing)?;
        }
        Ok(sealed)
    }

    /// Seals all bytes of `source` into full records. Each record is sealed as soon as its bytes
    /// were made, while they are in the core's first cache.
    pub(super) fn seal_from(&mut self, source: &mut dyn Producer) -> Result<(), Error> {
        if self.outgoing.capacity() == 0 {
            let wanted = source.size();
            let records = wanted.div_ceil(RECORD);
            self.outgoing = pool::take(wanted + records * OVERHEAD + KEY_UPDATE);
        }
        let (mut traffic, outgoing) = self.traffic()?;
        GATHER.with_borrow_mut(|record| {
            record.resize(RECORD, 0);
            loop {
                let size = source.fill(record);
                if size == 0 {
                    return Ok(());
                }
                seal(&mut traffic, &record[..size], outgoing)?;
            }
        })
    }

    /// What seals records, and the buffer for them.
    fn traffic(&mut self) -> Result<(WriteTraffic<'_, S::Data>, &mut BytesMut), Error> {
        // Answers that rustls has queued leave first. `incoming` holds no complete record, but the
        // call must pass it: rustls remembers the parts of a handshake message by their position in
        // it.
        self.run(&mut BytesMut::new(), &mut Unchanged)?;
        let ConnectionState::WriteTraffic(traffic) =
            self.session.process(&mut self.incoming).state?
        else {
            return Err(Error::General("our direction is closed".into()));
        };
        Ok((traffic, &mut self.outgoing))
    }

    /// Seals `close_notify`.
    pub(super) fn close(&mut self) -> Result<(), Error> {
        self.run(&mut BytesMut::new(), &mut Unchanged)?;
        if let ConnectionState::WriteTraffic(mut traffic) =
            self.session.process(&mut self.incoming).state?
        {
            append(&mut self.outgoing, |space| {
                traffic.queue_close_notify(space).map_err(|error| required(&error))
            })?;
        }
        Ok(())
    }
}

impl<S> fmt::Debug for Engine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("incoming", &self.incoming.len())
            .field("surplus", &self.surplus.len())
            .field("outgoing", &self.outgoing.len())
            .finish_non_exhaustive()
    }
}

/// Seals one record. A front frame that fills a record is sealed alone; otherwise the record holds
/// the frames that fit.
fn seal_record<D>(
    traffic: &mut WriteTraffic<'_, D>,
    frames: &mut VecDeque<Bytes>,
    outgoing: &mut BytesMut,
) -> Result<usize, Error> {
    let Some(front) = frames.front_mut() else { return Ok(0) };
    if front.len() >= RECORD {
        seal(traffic, &front[..RECORD], outgoing)?;
        front.advance(RECORD);
        if front.is_empty() {
            frames.pop_front();
        }
        return Ok(RECORD);
    }
    GATHER.with_borrow_mut(|record| {
        record.clear();
        while let Some(front) = frames.front_mut() {
            let n = front.len().min(RECORD - record.len());
            record.extend_from_slice(&front[..n]);
            if n < front.len() {
                front.advance(n);
                break;
            }
            frames.pop_front();
        }
        if !record.is_empty() {
            seal(traffic, record, outgoing)?;
        }
        Ok(record.len())
    })
}

/// Appends `plain` to `outgoing` as one record.
fn seal<D>(
    traffic: &mut WriteTraffic<'_, D>,
    plain: &[u8],
    outgoing: &mut BytesMut,
) -> Result<(), Error> {
    let at = outgoing.len();
    outgoing.resize(at + plain.len() + OVERHEAD + KEY_UPDATE, 0);
    let n = traffic.encrypt(plain, &mut outgoing[at..]).map_err(|error| match error {
        EncryptError::InsufficientSize(_) => Error::General("record larger than its room".into()),
        EncryptError::EncryptExhausted => Error::EncryptError,
    })?;
    outgoing.truncate(at + n);
    Ok(())
}

fn encode<D>(out: &mut BytesMut, data: &mut EncodeTlsData<'_, D>) -> Result<(), Error> {
    append(out, |space| {
        data.encode(space).map_err(|error| match error {
            EncodeError::InsufficientSize(short) => Some(short.required_size),
            EncodeError::AlreadyEncoded => None,
        })
    })
}

/// Appends the bytes that `encode` writes. The call is repeated with the room that `encode` asked
/// for.
fn append(
    out: &mut BytesMut,
    mut encode: impl FnMut(&mut [u8]) -> Result<usize, Option<usize>>,
) -> Result<(), Error> {
    let at = out.len();
    let mut room = 64;
    for _ in 0..2 {
        out.resize(at + room, 0);
        match encode(&mut out[at..]) {
            Ok(n) => {
                out.truncate(at + n);
                return Ok(());
            }
            Err(Some(required)) => room = required,
            Err(None) => break,
        }
    }
    out.truncate(at);
    Err(Error::General("a TLS message could not be encoded".into()))
}

const fn required(error: &EncryptError) -> Option<usize> {
    match error {
        EncryptError::InsufficientSize(short) => Some(short.required_size),
        EncryptError::EncryptExhausted => None,
    }
}

fn room(sink: &BytesMut) -> usize {
    sink.capacity() - sink.len()
}
