//! Searches for the end of a head, and examines each byte once.

/// How far the lines of a head were scanned.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scan {
    /// The number of scanned bytes.
    at: usize,
    /// Where the current line begins.
    line: usize,
}

/// The outcome of [`Scan::look`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scanned {
    /// More bytes are needed.
    More,
    /// The length of the head, with the empty line.
    End(usize),
    /// A line ends in LF without CR.
    BareLf,
    /// The head does not end within the limit.
    Size,
}

impl Scan {
    /// A scan from `at`, where a line begins.
    #[must_use]
    pub const fn after(at: usize) -> Self {
        Self { at, line: at }
    }

    /// Scans `bytes`, which are the whole part of the head that has arrived.
    pub fn look(&mut self, bytes: &[u8], limit: usize) -> Scanned {
        let known = &bytes[..bytes.len().min(limit)];
        while let Some(rest) = known.get(self.at..) {
            let Some(length) = rest.iter().position(|byte| *byte == b'\n') else { break };
            let lf = self.at + length;
            if lf == self.line || bytes[lf - 1] != b'\r' {
                return Scanned::BareLf;
            }
            if lf == self.line + 1 {
                return Scanned::End(lf + 1);
            }
            self.at = lf + 1;
            self.line = lf + 1;
        }
        self.at = self.at.max(known.len());
        if known.len() == limit { Scanned::Size } else { Scanned::More }
    }
}
