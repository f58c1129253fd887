//! The next process's side: what it inherits, and the former process as long as it lives.

use std::env;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use net::handover;
use ops::{Life, Phase};

use super::{Conversation, Inheritance, LINE_MAX, PATIENCE, VARIABLE, Word, line};

/// Longest wait for the word to serve. The former process sends it at once, or ends this process.
const DECISION: Duration = Duration::from_secs(60);

/// This process has taken the place of the former process.
static SERVES: AtomicBool = AtomicBool::new(false);

/// What a former process has left.
#[derive(Debug)]
pub(crate) struct Inherited {
    stream: UnixStream,
    pid: u32,
    version: String,
    /// What a client leaves to the next process.
    pub(crate) heirloom: Option<String>,
}

/// Receives the sockets of the former process, if there is one. Every bind of the daemon looks among
/// them, and nothing accepts until the former process says so.
pub(crate) fn inherit() -> anyhow::Result<Option<Inherited>> {
    let Some(stream) = stream()? else { return Ok(None) };
    let receive = || {
        stream.set_read_timeout(Some(PATIENCE))?;
        let (sockets, mut text) = net::inherited::Inherited::receive_before_text(&stream)?;
        if !text.ends_with(b"\n") {
            BufReader::new(&stream).take(LINE_MAX).read_until(b'\n', &mut text)?;
        }
        stream.set_read_timeout(None)?;
        let inheritance: Inheritance = serde_json::from_slice(&text)?;
        io::Result::Ok((sockets, inheritance))
    };
    let (mut sockets, Inheritance { pid, version, heirloom, held, carriers }) =
        receive().context("the sockets of the former process")?;
    sockets.hold(&held);
    net::udp::inherit(carriers);
    handover::wait();
    sockets.offer();
    // Its targets must not reach the control socket of this process either.
    net::guarded::Guard::process(pid).keep();
    Ok(Some(Inherited { stream, pid, version, heirloom }))
}

/// Standard input, if it is a former process.
fn stream() -> anyhow::Result<Option<UnixStream>> {
    if env::var_os(VARIABLE).is_none_or(|text| text.is_empty()) {
        return Ok(None);
    }
    let stream = io::stdin().as_fd().try_clone_to_owned();
    let stream = UnixStream::from(stream.context("standard input")?);
    stream.local_addr().with_context(|| {
        format!("{VARIABLE} is set, and standard input is no socket of a former process")
    })?;
    Ok(Some(stream))
}

/// Tells the former process, if there is one, why this process ends. Without effect after this
/// process has begun to serve.
pub(crate) fn tell_failure(why: &str) {
    if SERVES.load(Ordering::Relaxed) {
        return;
    }
    let Ok(Some(mut stream)) = stream() else { return };
    if let Ok(line) = line(&Word::Failed(why.to_owned())) {
        // The former process sees the end of this process as well.
        let _ = stream.set_write_timeout(Some(PATIENCE)).and_then(|()| stream.write_all(&line));
    }
}

/// The former process, which drains.
#[derive(Debug)]
pub(crate) struct Former {
    conversation: Conversation,
    pid: u32,
}

impl Inherited {
    /// Says that this process could serve, and waits until it is to serve.
    ///
    /// # Errors
    /// The former process has decided otherwise.
    pub(crate) async fn serve(self) -> anyhow::Result<Former> {
        let Self { stream, pid, version, .. } = self;
        let mut conversation = Conversation::new(stream)?;
        let own = env!("CARGO_PKG_VERSION").to_owned();
        conversation.say(&Word::Ready { pid: process::id(), version: own }).await?;
        let word = tokio::time::timeout(DECISION, conversation.hear()).await;
        match word.context("the former process does not hand over")?? {
            Some(Word::Serve) => {}
            // It had not decided otherwise, and somebody has to serve.
            None => tracing::warn!("the former process has ended before it handed over"),
            Some(other) => anyhow::bail!("the former process does not hand over: {other:?}"),
        }
        SERVES.store(true, Ordering::Relaxed);
        handover::serve();
        tracing::info!(
            "this process takes the place of process {pid} (version {version}), which ends after its \
             last stream"
        );
        Ok(Former { conversation, pid })
    }
}

impl Former {
    /// Tells the former process when `takes_over` is ready, and that this process stops, when it
    /// does. Ready when the former process has ended.
    pub(crate) async fn accompany(mut self, takes_over: impl Future<Output = ()>, life: Life) {
        let mut takes_over = std::pin::pin!(takes_over);
        let (mut has_taken_over, mut told) = (false, Phase::Running);
        loop {
            let next = if told == Phase::Running { Phase::Draining } else { Phase::Ending };
            // A word that does not arrive has no reader any more: the loop ends at the next turn.
            tokio::select! {
                () = &mut takes_over, if !has_taken_over => {
                    has_taken_over = true;
                    let _ = self.conversation.say(&Word::TakesOver).await;
                }
                () = life.reached(next), if told < Phase::Ending => {
                    told = next;
                    let word = if next == Phase::Draining { Word::Stop } else { Word::End };
                    let _ = self.conversation.say(&word).await;
                }
                word = self.conversation.hear() => if !matches!(word, Ok(Some(_))) {
                    break;
                },
            }
        }
        net::udp::former_ended();
        net::guarded::process_ended(self.pid);
        tracing::info!("the former process {} has ended", self.pid);
    }
}
