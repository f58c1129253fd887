//! `tunnel connect`: standard input and output become a connection to a target on the server's
//! side, as ssh's `ProxyCommand` requires.
//!
//! A thread copies standard input to the target, and this thread copies the target's bytes to
//! standard output. The end of one direction leaves the other open, as with TCP. The command ends
//! when both have ended, or when the connection is gone.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;

use anyhow::Context;
use control::Connected;
use ops::Role;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::stdio::{dup2_stdout, stdin, stdout};

use crate::cli::ConnectArgs;
use crate::instances::find_role;

/// The largest number of bytes that move in one turn.
const BUFFER: usize = 64 << 10;

/// Connects the target, and copies bytes until both directions have ended.
pub(crate) fn connect(args: &ConnectArgs) -> anyhow::Result<()> {
    let instance = find_role(&args.which, Role::Client)?;
    let connected = control::connect(instance, args.target.clone())?;
    let input = File::from(stdin().try_clone_to_owned().context("standard input")?);
    let output = File::from(stdout().try_clone_to_owned().context("standard output")?);
    // `output` is the only descriptor of standard output from here on: closing it is the end of
    // this direction for the reader.
    dup2_stdout(OpenOptions::new().write(true).open("/dev/null")?)?;
    carry(connected, input, output)
}

/// Copies `input` to the socket and the bytes of the socket to `output`. Returns when both have
/// ended, or when the other end of the socket is gone.
fn carry(
    connected: Connected,
    input: impl Read + Send + 'static,
    output: impl Write,
) -> anyhow::Result<()> {
    let Connected { socket, early } = connected;
    let sending = socket.try_clone()?;
    let (sender, outcome) = mpsc::channel();
    // Not joined: a silent terminal or pipe that stays open would block it forever.
    thread::spawn(move || {
        let sent = send(input, &sending);
        // The end of the input, or its receiver has closed.
        drop(sending.shutdown(Shutdown::Write));
        drop(sender.send(sent));
    });
    receive(&socket, &early, output)?;
    wait_for_end(&socket)?;
    // A thread that still reads has no receiver.
    outcome.try_recv().unwrap_or(Ok(()))
}

fn send(mut input: impl Read, mut socket: &UnixStream) -> anyhow::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let length = match input.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => length,
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => return Err(e).context("standard input"),
        };
        let Some(bytes) = buffer.get(..length) else { return Ok(()) };
        match socket.write_all(bytes) {
            Ok(()) => {}
            // The target has ended, which is not an error of this command.
            Err(e) if e.kind() == ErrorKind::BrokenPipe => return Ok(()),
            Err(e) => return Err(e).context("the connection to the daemon"),
        }
    }
}

/// Copies the bytes of the socket until their end, and closes `output`.
fn receive(mut socket: &UnixStream, early: &[u8], mut output: impl Write) -> anyhow::Result<()> {
    let mut write = |bytes: &[u8]| {
        output.write_all(bytes).and_then(|()| output.flush()).context("standard output")
    };
    write(early)?;
    let mut buffer = vec![0; BUFFER];
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => write(buffer.get(..length).unwrap_or_default())?,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            // The daemon closed a socket with unread bytes.
            Err(e) if e.kind() == ErrorKind::ConnectionReset => return Ok(()),
            Err(e) => return Err(e).context("the connection to the daemon"),
        }
    }
}

/// Waits until no byte can pass in either direction.
fn wait_for_end(socket: &UnixStream) -> io::Result<()> {
    let fd = socket.as_fd();
    // Without requested events, poll reports only the hang-up.
    let mut ends = [PollFd::new(&fd, PollFlags::empty())];
    loop {
        match poll(&mut ends, None) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;
    use std::time::Duration;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A command whose standard input and output are sockets: the other ends of input, output and
    /// of the connection, and the outcome.
    fn command(early: &[u8]) -> ([UnixStream; 3], Receiver<anyhow::Result<()>>) {
        let pair = || UnixStream::pair().unwrap();
        let ((input, of_input), (output, of_output), (socket, daemon)) = (pair(), pair(), pair());
        for socket in [&of_input, &of_output, &daemon] {
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        let connected = Connected { socket, early: early.to_vec() };
        let (sender, outcome) = mpsc::channel();
        thread::spawn(move || sender.send(carry(connected, input, output)));
        ([of_input, of_output, daemon], outcome)
    }

    fn rest(mut socket: &UnixStream) -> Vec<u8> {
        let mut bytes = Vec::new();
        socket.read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn bytes_go_both_ways_and_an_end_ends_its_direction_only() {
        let ([mut input, output, mut daemon], outcome) = command(b"220 hello\r\n");
        let long: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[1]).collect();
        let sent = long.clone();
        let sender = thread::spawn(move || {
            input.write_all(&sent).unwrap();
            input
        });
        let mut taken = vec![0; long.len()];
        daemon.read_exact(&mut taken).unwrap();
        assert!(taken == long, "in this order");
        // The end of the input.
        drop(sender.join().unwrap());
        assert_eq!(rest(&daemon), b"");
        daemon.write_all(b"answer").unwrap();
        daemon.shutdown(Shutdown::Write).unwrap();
        assert_eq!(rest(&output), b"220 hello\r\nanswer");
        outcome.recv_timeout(PATIENCE).unwrap().unwrap();
    }

    #[test]
    fn the_input_goes_on_after_the_end_of_the_answers() {
        let ([mut input, output, mut daemon], outcome) = command(b"");
        daemon.write_all(b"first").unwrap();
        daemon.shutdown(Shutdown::Write).unwrap();
        assert_eq!(rest(&output), b"first", "the reader sees the end");
        input.write_all(b"second").unwrap();
        drop(input);
        assert_eq!(rest(&daemon), b"second");
        outcome.recv_timeout(PATIENCE).unwrap().unwrap();
    }

    #[test]
    fn the_command_ends_with_the_connection_even_if_its_input_stays_open() {
        let ([_input, output, daemon], outcome) = command(b"");
        drop(daemon);
        assert_eq!(rest(&output), b"");
        outcome.recv_timeout(PATIENCE).unwrap().unwrap();
    }

    #[test]
    fn a_reader_that_is_gone_is_an_error() {
        let ([_input, output, mut daemon], outcome) = command(b"");
        drop(output);
        daemon.write_all(b"lost").unwrap();
        let why = outcome.recv_timeout(PATIENCE).unwrap().unwrap_err();
        assert!(format!("{why:#}").starts_with("standard output"), "{why:#}");
    }
}
