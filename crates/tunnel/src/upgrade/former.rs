//! The next process's side: the inherited state, and the former process as long as it lives.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{env, process, slice};

use anyhow::Context;
use net::guarded::{self, Guard};
use net::{handover, inherited};
use ops::status::FormerProcess;
use ops::{Life, Phase, Serving};
use rustix::io::Errno;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::{
    Conversation, HEIRLOOM_MAX, Inheritance, LINE_MAX, Left, PATIENCE, TALK, VARIABLE, Word, line,
};
use crate::supervise::descriptor;

/// Longest wait for the message to serve. The former process sends it at once, or ends this
/// process.
const DECISION: Duration = Duration::from_secs(60);

/// Longest wait for the sockets that a former process sends again.
const SOCKETS: Duration = Duration::from_secs(3);

/// The number of queued messages for the former process.
const ORDERS: usize = 32;

/// This process has replaced the former process.
static SERVES: AtomicBool = AtomicBool::new(false);

/// The state that a former process has left.
#[derive(Debug)]
pub(crate) struct Inherited {
    stream: UnixStream,
    pid: u32,
    version: String,
    talk: u32,
    /// The slot of the former process among those that share ports of UDP.
    slot: Option<u8>,
    /// What the former process has left.
    pub(crate) left: Left,
}

/// Receives the sockets of the former process, if there is one. Every bind of the daemon searches
/// them, and no listener accepts until the former process permits it.
pub(crate) fn inherit() -> anyhow::Result<Option<Inherited>> {
    let Some(stream) = stream()? else { return Ok(None) };
    let receive = || {
        stream.set_read_timeout(Some(PATIENCE))?;
        let (sockets, mut text) = inherited::Inherited::receive_before_text(&stream)?;
        if !text.ends_with(b"\n") {
            BufReader::new(&stream).take(LINE_MAX).read_until(b'\n', &mut text)?;
        }
        stream.set_read_timeout(None)?;
        let inheritance: Inheritance = serde_json::from_slice(&text)?;
        io::Result::Ok((sockets, inheritance))
    };
    let (mut sockets, Inheritance { pid, version, left, own, held, carriers, talk }) =
        receive().context("the sockets of the former process")?;
    sockets.hold(&held);
    let slot = carriers.0.last().copied();
    net::udp::inherit(carriers);
    handover::wait();
    sockets.offer();
    // The targets of the former process must not reach the control socket of this process either.
    for id in own.into_iter().chain([pid]).filter(|id| !guarded::is_own_process(*id)) {
        Guard::process(id).keep();
    }
    Ok(Some(Inherited { stream, pid, version, talk, slot, left }))
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

/// Reports to the former process, if there is one, why this process ends. Without effect after this
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
    process: Listed,
    /// Its own former processes, the newest first.
    older: Vec<Listed>,
    talk: u32,
}

/// A former process, as reported between processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listed {
    #[serde(flatten)]
    pub(crate) process: FormerProcess,
    /// Its slot among the processes that share ports of UDP.
    pub(crate) slot: Option<u8>,
}

impl Inherited {
    /// Reports that this process could serve, and waits until it should serve. The role gets what
    /// the former process leaves last.
    ///
    /// # Errors
    /// The former process has decided otherwise.
    pub(crate) async fn serve(self, role: &dyn Serving) -> anyhow::Result<Former> {
        let Self { stream, pid, version, talk, slot, left } = self;
        let mut conversation = Conversation::new(stream)?;
        let own = env!("CARGO_PKG_VERSION").to_owned();
        conversation.say(&Word::Ready { pid: process::id(), version: own, talk: TALK }).await?;
        let mut heirloom = String::new();
        let word = loop {
            let word = timeout(DECISION, conversation.hear()).await;
            match word.context("the former process does not hand over")?? {
                Some(Word::Heirloom(piece)) if heirloom.len() < HEIRLOOM_MAX => {
                    heirloom.push_str(&piece);
                }
                word => break word,
            }
        };
        match word {
            Some(Word::Serve) if talk > 0 => {
                // The sockets that were bound in the meantime were sent before the message.
                let _ = timeout(SOCKETS, inherited::more_came(1)).await;
            }
            Some(Word::Serve) => {}
            // It had not decided otherwise, and one process must serve.
            None => tracing::warn!("the former process has ended before it handed over"),
            Some(other) => anyhow::bail!("the former process does not hand over: {other:?}"),
        }
        SERVES.store(true, Ordering::Relaxed);
        role.inherit((!heirloom.is_empty()).then_some(heirloom)).await;
        handover::serve();
        tracing::info!(
            "this process takes the place of process {pid} (version {version}), which ends after its \
             last stream"
        );
        let waits_for = "its streams".to_owned();
        let process = FormerProcess { pid, version, waits_for, ..FormerProcess::default() };
        let process = Listed { process, slot };
        Ok(Former { conversation, process, older: left.formers, talk })
    }
}

/// The former processes of this process, newest first, as the newest one reports them.
#[derive(Debug)]
pub(crate) struct Formers {
    all: Mutex<(Instant, Vec<Listed>)>,
    /// Notified when a process has ended, or is ending.
    changed: watch::Sender<()>,
    ended: watch::Sender<bool>,
    orders: mpsc::Sender<Word>,
    /// The version of the messages that the newest process understands.
    talk: u32,
}

impl Formers {
    /// Accompanies the former process, if there is one: tells it when `takes_over` is ready, and
    /// when this process stops.
    pub(crate) fn accompany(
        former: Option<Former>,
        takes_over: impl Future<Output = ()> + Send + 'static,
        life: Life,
    ) -> Arc<Self> {
        let inherited = guarded::own_processes().into_iter();
        inherited.filter(|id| *id != process::id()).for_each(guard_until_end);
        let (orders, inbox) = mpsc::channel(ORDERS);
        let of = |former: &Former| [slice::from_ref(&former.process), &former.older].concat();
        let all = Arc::new(Self {
            all: Mutex::new((Instant::now(), former.as_ref().map(of).unwrap_or_default())),
            changed: watch::Sender::new(()),
            ended: watch::Sender::new(former.is_none()),
            orders,
            talk: former.as_ref().map_or(0, |former| former.talk),
        });
        if let Some(former) = former {
            let formers = Arc::clone(&all);
            tokio::spawn(async move {
                former.accompany(takes_over, life, (&formers, inbox)).await;
                formers.note(Vec::new());
                formers.ended.send_replace(true);
            });
        }
        all
    }

    fn all(&self) -> MutexGuard<'_, (Instant, Vec<Listed>)> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note(&self, list: Vec<Listed>) {
        for id in list.iter().map(|one| one.process.pid) {
            if !guarded::is_own_process(id) {
                Guard::process(id).keep();
                guard_until_end(id);
            }
        }
        let states = |list: &[Listed]| -> Vec<_> {
            list.iter().map(|one| (one.process.pid, one.process.ending)).collect()
        };
        let mut all = self.all();
        let has_changed = states(&all.1) != states(&list);
        *all = (Instant::now(), list);
        drop(all);
        if has_changed {
            self.changed.send_replace(());
        }
    }

    /// Changes when a process has ended, or is ending.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The former processes at this moment.
    pub(crate) fn listed(&self) -> Vec<Listed> {
        let all = self.all();
        let mut list = all.1.clone();
        for one in &mut list {
            one.process.seconds += all.0.elapsed().as_secs();
        }
        list
    }

    /// The former processes at this moment, for a status.
    pub(crate) fn list(&self) -> Vec<FormerProcess> {
        self.listed().into_iter().map(|one| one.process).collect()
    }

    /// Sends a message to the newest former process, if it understands the message.
    pub(crate) async fn order(&self, word: Word) {
        if self.talk > 0 && !*self.ended.borrow() {
            // Its end is reported elsewhere.
            let _ = self.orders.send(word).await;
        }
    }

    /// Asks the process `pid` to end within its `drain_timeout`, or at once with `now`.
    pub(crate) async fn end(&self, pid: u32, now: bool) {
        self.order(Word::Leave { pid, now }).await;
    }

    /// The next process serves, and from now on the end of this process is intended.
    pub(crate) async fn gone_on(&self) {
        self.order(Word::GoneOn).await;
    }

    /// Takes the sockets that former processes have, including those of a process that has died.
    pub(crate) async fn gather(&self) {
        if self.talk == 0 || *self.ended.borrow() {
            return;
        }
        let nth = inherited::rounds().saturating_add(1);
        self.order(Word::Give).await;
        let _ = timeout(SOCKETS, inherited::more_came(nth)).await;
    }

    /// Completes when no former process is left.
    pub(crate) fn ended(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut ended = self.ended.subscribe();
        async move {
            // A panic of the task was logged.
            let _ = ended.wait_for(|ended| *ended).await;
        }
    }

    /// Completes when no former process is left, or `other` completes.
    pub(crate) async fn ended_or(&self, other: impl Future<Output = ()>) {
        tokio::select! {
            () = self.ended() => {}
            () = other => {}
        }
    }
}

impl Former {
    /// Completes when the former process has ended.
    async fn accompany(
        mut self,
        takes_over: impl Future<Output = ()>,
        life: Life,
        (formers, mut inbox): (&Formers, mpsc::Receiver<Word>),
    ) {
        let mut takes_over = std::pin::pin!(takes_over);
        let (mut has_taken_over, mut phase) = (false, Phase::Running);
        loop {
            let next = if phase == Phase::Running { Phase::Draining } else { Phase::Ending };
            // A message that cannot be delivered has no reader any more: the loop ends at the next
            // turn.
            tokio::select! {
                () = &mut takes_over, if !has_taken_over => {
                    has_taken_over = true;
                    let _ = self.conversation.say(&Word::TakesOver).await;
                }
                () = life.reached(next), if phase < Phase::Ending => {
                    phase = next;
                    let word = if next == Phase::Draining { Word::Stop } else { Word::End };
                    let _ = self.conversation.say(&word).await;
                }
                Some(word) = inbox.recv() => {
                    let _ = self.conversation.say(&word).await;
                }
                word = self.conversation.hear() => match word {
                    Ok(Some(Word::Report(list))) => {
                        let slots: Option<Vec<u8>> = list.iter().map(|one| one.slot).collect();
                        if let Some(slots) = slots {
                            net::udp::former_live(&slots);
                        }
                        formers.note(list);
                    }
                    Ok(Some(_)) => {}
                    Err(_) if self.talk > 0 => {}
                    Ok(None) | Err(_) => break,
                },
            }
        }
        net::udp::former_ended();
        tracing::info!("the former process {} has ended", self.process.process.pid);
    }
}

/// Removes a guarded process of the daemon at its end. A process between it and this process may
/// end earlier, and then its end is not reported any more.
fn guard_until_end(id: u32) {
    tokio::spawn(async move {
        let pid = i32::try_from(id).ok().and_then(Pid::from_raw);
        match pid.map(descriptor) {
            Some(Ok(descriptor)) => drop(descriptor.readable().await),
            Some(Err(error)) if Errno::from_io_error(&error) != Some(Errno::SRCH) => {
                tracing::debug!(pid = id, %error, "the end of the former process is not seen");
                return;
            }
            Some(Err(_)) | None => {}
        }
        guarded::process_ended(id);
    });
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[tokio::test]
    async fn each_process_of_the_chain_is_own_until_it_ends_also_when_nobody_tells_of_it() {
        let formers = Formers::accompany(None, async {}, Life::new());
        let mut command = Command::new("sleep");
        command.arg("600").stdin(Stdio::null());
        let mut children = [(); 2].map(|()| command.spawn().unwrap());
        let ids = children.each_ref().map(|child| child.id());
        let listed =
            |pid| Listed { process: FormerProcess { pid, ..FormerProcess::default() }, slot: None };
        // The newest former process tells of the one before it, and has died.
        formers.note(ids.map(listed).into());
        formers.note(vec![listed(ids[0])]);
        formers.note(Vec::new());
        tokio::task::yield_now().await;
        assert!(ids.iter().all(|id| guarded::is_own_process(*id)));
        for (child, id) in children.iter_mut().zip(ids) {
            child.kill().unwrap();
            child.wait().unwrap();
            while guarded::is_own_process(id) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        // A late word about a process that has ended.
        formers.note(vec![listed(ids[0])]);
        while guarded::is_own_process(ids[0]) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
