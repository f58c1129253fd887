//! Output that did not arrive: a full disk, or a pipe whose reader is gone.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Standard output did not take the result of a command.
#[derive(Debug, thiserror::Error)]
#[error("standard output: {0}")]
pub struct Unwritten(#[from] io::Error);

impl Unwritten {
    /// Whether the reader of the pipe is gone, as after `tunnel status | head -1`. The reader has
    /// read enough, so this is not a failure of the command.
    pub fn is_closed_pipe(&self) -> bool {
        self.0.kind() == io::ErrorKind::BrokenPipe
    }

    /// The error of a write to a pipe whose reader is gone.
    fn closed_pipe() -> Self {
        Self(io::ErrorKind::BrokenPipe.into())
    }
}

/// Waits for this time. A command that prints repeatedly waits here, because otherwise it would
/// notice a closed reader only at the next line.
///
/// # Errors
/// The reader of standard output is gone.
pub fn pause(time: Duration) -> Result<(), Unwritten> {
    pause_of(&io::stdout(), time)
}

fn pause_of(output: &impl AsFd, time: Duration) -> Result<(), Unwritten> {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        // Without requested events, poll reports only that the reader is gone.
        let mut ends = [PollFd::new(output, PollFlags::empty())];
        match poll(&mut ends, Timespec::try_from(left).ok().as_ref()) {
            Ok(0) => return Ok(()),
            Ok(_) => return Err(Unwritten::closed_pipe()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
}

/// Waits at most `limit` until `input` has bytes or has ended. Returns whether this is the case.
///
/// # Errors
/// The reader of standard output is gone.
pub fn wait_for(input: &impl AsFd, limit: Duration) -> Result<bool, Unwritten> {
    wait_beside(&io::stdout(), input, limit)
}

fn wait_beside(output: &impl AsFd, input: &impl AsFd, limit: Duration) -> Result<bool, Unwritten> {
    let end = Instant::now() + limit;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        // Without requested events, poll reports for the output only that its reader is gone.
        let mut ends = [PollFd::new(output, PollFlags::empty()), PollFd::new(input, PollFlags::IN)];
        match poll(&mut ends, Timespec::try_from(left).ok().as_ref()) {
            Ok(_) if !ends[0].revents().is_empty() => return Err(Unwritten::closed_pipe()),
            Ok(reported) => return Ok(reported > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Longer than any test waits.
    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn a_pause_ends_with_the_reader_or_with_its_time() {
        let (reader, writer) = io::pipe().unwrap();
        pause_of(&writer, Duration::from_millis(1)).unwrap();
        let gone = thread::spawn(move || drop(reader));
        assert!(pause_of(&writer, LONG).unwrap_err().is_closed_pipe());
        gone.join().unwrap();
    }

    #[test]
    fn a_wait_for_bytes_ends_with_the_bytes_or_with_the_reader() {
        let (reader, writer) = io::pipe().unwrap();
        let (input, mut source) = io::pipe().unwrap();
        io::Write::write_all(&mut source, b"x").unwrap();
        assert!(wait_beside(&writer, &input, LONG).unwrap());
        let (silent, _source) = io::pipe().unwrap();
        assert!(!wait_beside(&writer, &silent, Duration::from_millis(1)).unwrap());
        let gone = thread::spawn(move || drop(reader));
        assert!(wait_beside(&writer, &silent, LONG).unwrap_err().is_closed_pipe());
        gone.join().unwrap();
    }

    #[test]
    fn a_full_disk_is_no_closed_pipe() {
        let full = Unwritten::from(io::Error::from(io::ErrorKind::StorageFull));
        assert!(!full.is_closed_pipe());
        assert!(full.to_string().starts_with("standard output: "), "{full}");
    }
}
