//! The test's own visitors of an echo. They check every byte, and how a connection ends.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use testkit::stage::bytes::{self, Complaint};
use testkit::stage::try_connect;

use super::DEADLINE;

/// The bytes that one bulk visitor sends and gets back.
const BULK: u64 = 6_000_000;

/// The pause between two words of a long connection.
const THINKING: Duration = Duration::from_millis(40);

fn visit(port: u16) -> Result<TcpStream, Complaint> {
    let visitor = try_connect(port).map_err(|e| Complaint::Broken(format!("connecting: {e}")))?;
    let patience = Some(DEADLINE);
    let set = visitor.set_read_timeout(patience);
    set.and_then(|()| visitor.set_write_timeout(patience))
        .map_err(|e| Complaint::Broken(format!("a socket without patience: {e}")))?;
    Ok(visitor)
}

/// Sends and reads at the same time, ends its direction first, and expects a clean end.
pub(super) fn bulk(port: u16) -> Result<u64, Complaint> {
    let visitor = &visit(port)?;
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            bytes::try_send(visitor, BULK)?;
            visitor.shutdown(Shutdown::Write).map_err(|e| Complaint::Broken(e.to_string()))
        });
        let received =
            bytes::try_expect(visitor, BULK).and_then(|()| bytes::try_expect_end(visitor));
        if received.is_err() {
            // Otherwise the sender waits for a reader that has stopped.
            drop(visitor.shutdown(Shutdown::Both));
        }
        // The reader's error tells more; both see a connection that dies.
        received?;
        sender.join().unwrap_or_else(|_| Err(Complaint::Wrong("the sender panicked".into())))
    })?;
    Ok(2 * BULK)
}

/// Sends words, each after the answer to the previous word: the connection lives through many
/// faults.
pub(super) fn talk(port: u16, turn: u64) -> Result<u64, Complaint> {
    let mut visitor = visit(port)?;
    drop(visitor.set_nodelay(true));
    let words = 200 + 150 * (turn % 5);
    for n in 0..words {
        let word = n.to_be_bytes();
        bytes::whole(visitor.write_all(&word))?;
        let mut answer = [0; 8];
        bytes::whole(visitor.read_exact(&mut answer))?;
        if answer != word {
            return Err(Complaint::Wrong(format!("{answer:?} came back for {word:?}")));
        }
        std::thread::sleep(THINKING);
    }
    bytes::whole(visitor.shutdown(Shutdown::Write))?;
    bytes::try_expect_end(&visitor)?;
    Ok(16 * words)
}

/// One word and its answer, then the end.
pub(super) fn brief(port: u16) -> Result<u64, Complaint> {
    let mut visitor = visit(port)?;
    bytes::whole(visitor.write_all(b"word"))?;
    let mut answer = [0; 4];
    bytes::whole(visitor.read_exact(&mut answer))?;
    if answer == *b"word" { Ok(8) } else { Err(Complaint::Wrong(format!("{answer:?}"))) }
}
