//! The frames of h2 on their way to the visitor, without I/O.
//!
//! h2 has one window size for all streams, and cannot raise that of a single stream. So h2 is
//! configured with windows that never close, and [`crate::http2`] controls the windows that the
//! visitor sees: the first SETTINGS announce their initial size, the WINDOW_UPDATE frames of h2 for
//! streams are dropped, and those of the server are written between two frames.

use std::io::{self, IoSlice};

use bytes::{BufMut as _, BytesMut};

use super::frames::{ACK, HEAD, Head, SETTINGS, WINDOW_UPDATE};

/// The id of the setting for the initial window size (RFC 9113 section 6.5.2).
const INITIAL_WINDOW_SIZE: u16 = 4;
/// The length of a setting, in bytes.
const SETTING: usize = 6;

/// The filter of the bytes that h2 writes.
#[derive(Debug)]
pub(super) struct Filter {
    /// The remaining bytes of a frame.
    rest: usize,
    /// The initial window size for the first SETTINGS, until h2 has written them.
    initial: Option<u32>,
    /// Frames of the server, modified frames of h2, and short frames that are coalesced.
    pub(super) own: BytesMut,
}

/// The handling of the next bytes of h2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The number of bytes to pass to the visitor.
    Pass(usize),
    /// The number of bytes to drop.
    Skip(usize),
}

impl Filter {
    pub(super) fn new(initial: u32) -> Self {
        Self { rest: 0, initial: Some(initial), own: BytesMut::new() }
    }

    /// Whether the bytes sent to the visitor end at a frame boundary.
    pub(super) const fn is_between(&self) -> bool {
        self.rest == 0
    }

    /// Adds a WINDOW_UPDATE (RFC 9113 section 6.9).
    pub(super) fn update(&mut self, stream: u32, increment: u32) {
        self.own.put_slice(&[0, 0, 4, WINDOW_UPDATE, 0]);
        self.own.put_u32(stream);
        self.own.put_u32(increment);
    }

    /// Examines the next bytes of h2, without advancing the position unless they are skipped.
    ///
    /// # Errors
    ///
    /// A frame header is split: h2 is expected to write it in one piece.
    pub(super) fn next(&mut self, slices: &[IoSlice<'_>]) -> io::Result<Next> {
        let (mut rest, mut pass) = (self.rest, 0);
        for slice in slices {
            let mut bytes = &slice[..];
            loop {
                let part = rest.min(bytes.len());
                (rest, pass, bytes) = (rest - part, pass + part, &bytes[part..]);
                if bytes.is_empty() {
                    break;
                }
                let head = head(bytes)?;
                let length = HEAD + head.length as usize;
                if self.is_changed(head) {
                    if pass > 0 {
                        return Ok(Next::Pass(pass));
                    }
                    self.change(head, bytes.get(..length).ok_or(io::ErrorKind::InvalidData)?);
                    return Ok(Next::Skip(length));
                }
                rest = length;
            }
        }
        Ok(Next::Pass(pass))
    }

    /// Records that `count` of the bytes have been sent to the visitor.
    pub(super) fn passed(&mut self, slices: &[IoSlice<'_>], mut count: usize) -> io::Result<()> {
        for slice in slices {
            let mut bytes = &slice[..];
            while count > 0 && !bytes.is_empty() {
                if self.rest == 0 {
                    self.rest = HEAD + head(bytes)?.length as usize;
                }
                let part = self.rest.min(bytes.len()).min(count);
                self.rest -= part;
                count -= part;
                bytes = &bytes[part..];
            }
        }
        Ok(())
    }

    /// Appends `count` of the bytes to the frames of the server.
    pub(super) fn gather(&mut self, slices: &[IoSlice<'_>], count: usize) -> io::Result<()> {
        let mut rest = count;
        for slice in slices {
            let part = rest.min(slice.len());
            self.own.extend_from_slice(&slice[..part]);
            rest -= part;
        }
        self.passed(slices, count)
    }

    const fn is_changed(&self, head: Head) -> bool {
        match head.kind {
            SETTINGS => self.initial.is_some() && head.flags & ACK == 0,
            WINDOW_UPDATE => head.stream != 0,
            _ => false,
        }
    }

    fn change(&mut self, head: Head, frame: &[u8]) {
        let Some(initial) = self.initial.filter(|_| head.kind == SETTINGS) else { return };
        self.initial = None;
        self.own.extend_from_slice(&frame[..HEAD]);
        for setting in frame[HEAD..].chunks(SETTING) {
            if setting.starts_with(&INITIAL_WINDOW_SIZE.to_be_bytes()) {
                self.own.put_u16(INITIAL_WINDOW_SIZE);
                self.own.put_u32(initial);
            } else {
                self.own.extend_from_slice(setting);
            }
        }
    }
}

fn head(bytes: &[u8]) -> io::Result<Head> {
    bytes
        .first_chunk()
        .map(|head| Head::parse(*head))
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let size = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = vec![size[1], size[2], size[3], kind, flags];
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(payload);
        frame
    }

    const LARGE: [u8; 6] = [0, 4, 0x40, 0, 0, 0];
    const LIMIT: [u8; 6] = [0, 3, 0, 0, 0, 128];

    /// The bytes that the visitor gets if at most `most` bytes leave at a time, with an update of
    /// the server before each write that begins between two frames.
    fn wire(frames: &[Vec<u8>], most: usize) -> Vec<u8> {
        let mut filter = Filter::new(1000);
        let mut wire = Vec::new();
        let mut updates = 0;
        let all = frames.concat();
        let mut bytes = &all[..];
        while !bytes.is_empty() {
            if filter.is_between() {
                if updates < 2 {
                    updates += 1;
                    filter.update(9, 7);
                }
                wire.extend_from_slice(&filter.own.split());
            }
            // h2 never splits a frame header in its buffers.
            let slices = [IoSlice::new(bytes)];
            let count = match filter.next(&slices).unwrap() {
                Next::Skip(count) => count,
                Next::Pass(count) => {
                    let count = count.min(most);
                    wire.extend_from_slice(&bytes[..count]);
                    filter.passed(&slices, count).unwrap();
                    count
                }
            };
            bytes = &bytes[count..];
        }
        wire.extend_from_slice(&filter.own.split());
        wire
    }

    #[test]
    fn the_first_settings_change_and_windows_of_streams_come_from_the_server() {
        let update = frame(WINDOW_UPDATE, 0, 3, &[0, 0, 1, 0]);
        let frames = [
            frame(SETTINGS, 0, 0, &[LIMIT, LARGE].concat()),
            frame(WINDOW_UPDATE, 0, 0, &[0, 1, 0, 0]),
            frame(0, 0, 1, &[b'x'; 300]),
            update.clone(),
            frame(0, 0, 1, &[b'y'; 40]),
            frame(SETTINGS, ACK, 0, b""),
            update,
            frame(SETTINGS, 0, 0, &LARGE),
        ];
        let mut small = LARGE;
        small[2..].copy_from_slice(&1000u32.to_be_bytes());
        let own = frame(WINDOW_UPDATE, 0, 9, &[0, 0, 0, 7]);
        for most in [1, 5, 9, 100, 10_000] {
            let expected = [
                own.clone(),
                frame(SETTINGS, 0, 0, &[LIMIT, small].concat()),
                own.clone(),
                frames[1].clone(),
                frames[2].clone(),
                frames[4].clone(),
                frames[5].clone(),
                frames[7].clone(),
            ];
            assert_eq!(wire(&frames, most), expected.concat(), "{most} bytes at a time");
        }
    }

    #[test]
    fn slices_are_passed_as_one_and_a_cut_head_is_refused() {
        let data = frame(0, 0, 1, &[b'x'; 300]);
        let (head, body) = data.split_at(20);
        let mut filter = Filter::new(1);
        let slices = [IoSlice::new(head), IoSlice::new(body)];
        assert_eq!(filter.next(&slices).unwrap(), Next::Pass(309));
        filter.passed(&slices, 200).unwrap();
        assert!(!filter.is_between());
        assert_eq!(filter.next(&[IoSlice::new(&data[200..])]).unwrap(), Next::Pass(109));
        filter.passed(&[IoSlice::new(&data[200..])], 109).unwrap();
        assert!(filter.is_between());
        assert!(filter.next(&[IoSlice::new(&data[..8])]).is_err());
    }
}
