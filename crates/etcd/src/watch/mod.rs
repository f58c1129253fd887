//! Follows the changes of a range from member to member.

mod fragments;
mod lines;

use std::mem;
use std::time::Duration;

use bytes::Bytes;
use cluster::engine::{Change, NoReply, Range, Revision};
use hyper::body::Incoming;
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::debug;

use crate::calls::{Calls, dial};
use crate::codec::{self, AnswerHead, WatchLine};
use crate::connection::{GatewayConnection, Post};
use crate::error::{Error, Reason, Unanswered};
use crate::ground::Pass;

use self::fragments::{Fragments, Whole};
use self::lines::WatchLines;

/// The pause before the next member is asked when all members have failed in a row.
const PAUSE: Duration = Duration::from_millis(500);

/// What a watch reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// A member has begun to report. All changes that it knows follow.
    Open {
        /// The index of the member.
        member: usize,
        /// The revision of its store.
        revision: Revision,
    },
    /// All changes of the range at one or several revisions, in their order.
    Changes {
        /// The changes.
        changes: Vec<Change>,
        /// The revision of the last change.
        revision: Revision,
    },
    /// All changes up to this revision were reported.
    UpTo(Revision),
    /// Changes are missing: the caller reads the range anew and calls [`Watch::begin`] with the
    /// revision after that of the reading. Until then the watch reports this event alone.
    Anew(Gap),
}

/// Why changes are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// The wanted changes were compacted up to this revision.
    Compacted(Revision),
    /// The changes of one revision have more bytes than a watch accepts.
    TooLarge,
}

/// The changes of a range. A future of [`Self::next`] may be dropped without a loss; a dropped
/// watch closes its connection.
#[derive(Debug)]
pub struct Watch {
    /// Log-ins go over connections of their own.
    calls: Calls,
    range: Range,
    /// The first revision that was not reported yet. 0: the watch has not begun and reports from
    /// its begin on.
    from: Revision,
    silence: Duration,
    state: WatchState,
    /// The members that failed in a row.
    failures: usize,
    /// The token was replaced since a member let the watch in.
    is_renewed: bool,
    /// The end of a pause.
    pause: Option<Instant>,
}

#[derive(Debug)]
enum WatchState {
    /// There is no connection.
    Closed,
    /// A member reports.
    Open(Box<Opened>),
    /// Changes are missing.
    Gone(Gap),
}

/// The answer of a member, which has no end.
#[derive(Debug)]
struct Opened {
    connection: GatewayConnection,
    body: Incoming,
    status: u16,
    lines: WatchLines,
    held: Fragments,
    /// What let the watch in.
    pass: Pass,
    /// The member has accepted the watch.
    is_created: bool,
    /// When the last line was complete.
    heard: Instant,
}

impl Watch {
    pub(crate) fn new(calls: Calls, range: Range, from: Revision, silence: Duration) -> Self {
        Self {
            calls,
            range,
            from,
            silence,
            state: WatchState::Closed,
            failures: 0,
            is_renewed: false,
            pause: None,
        }
    }

    /// The first revision whose changes were not reported yet.
    #[must_use]
    pub const fn from(&self) -> Revision {
        self.from
    }

    /// The index of the member that reports, or that is asked next.
    #[must_use]
    pub const fn member(&self) -> usize {
        self.calls.member()
    }

    /// Makes a watch that was not begun yet ask this member first. An index without a member is
    /// that of the first.
    pub fn begin_at(&mut self, member: usize) {
        self.calls.begin_at(member);
    }

    /// Begins anew at this revision.
    pub fn begin(&mut self, from: Revision) {
        self.from = from;
        self.state = WatchState::Closed;
    }

    /// Waits for the next event. Cancel-safe.
    ///
    /// # Errors
    /// The member does not report any more, or not yet. The watch is not over: the next call goes
    /// on at the next member, behind the last revision that was reported. After a round of failures
    /// it waits for 0.5 s.
    pub async fn next(&mut self) -> Result<WatchEvent, Error> {
        loop {
            let read = match &mut self.state {
                WatchState::Gone(gap) => return Ok(WatchEvent::Anew(*gap)),
                WatchState::Open(opened) => {
                    // A caller that was away for longer than the silence reads what has come
                    // meanwhile.
                    let least = Instant::now() + self.silence.min(self.calls.shared().deadline());
                    let until =
                        (opened.heard + opened.patience(self.silence, &self.calls)).max(least);
                    match timeout_at(until, opened.line()).await {
                        Ok(read) => read,
                        Err(_) => Err(Reason::Silent(self.silence)),
                    }
                }
                WatchState::Closed => {
                    if let Err(fault) = self.open().await {
                        return Err(self.fail(fault.reason));
                    }
                    continue;
                }
            };
            match read.and_then(|line| self.take(line)) {
                Ok(Some(event)) => return Ok(event),
                Ok(None) => {}
                Err(Reason::TooLarge(_)) => self.state = WatchState::Gone(Gap::TooLarge),
                Err(reason) => return Err(self.fail(reason)),
            }
        }
    }

    /// Asks the present member to report.
    async fn open(&mut self) -> Result<(), Unanswered> {
        if let Some(pause) = self.pause {
            sleep_until(pause).await;
            self.pause = None;
        }
        let member = self.calls.member();
        let pass = self.calls.pass(member).await?;
        let token = if let Pass::Token(token) = &pass { Some(token.clone()) } else { None };
        let allowed = self.calls.shared().deadline();
        let deadline = Instant::now() + allowed;
        let mut connection = dial(self.calls.shared(), member, deadline).await?;
        let host = self.calls.shared().address(member);
        let body = codec::watch(&self.range, self.from);
        let post = Post { path: "/v3/watch", host, token, needs_leader: true, body };
        let opened = timeout_at(deadline, connection.open(post)).await;
        let (status, body) = opened.unwrap_or(Err(Unanswered::sent(Reason::Late(allowed))))?;
        let most = self.calls.shared().settings.answer_bytes.saturating_mul(2);
        self.state = WatchState::Open(Box::new(Opened {
            connection,
            body,
            status,
            lines: WatchLines::new(most),
            held: Fragments::default(),
            pass,
            is_created: false,
            heard: Instant::now(),
        }));
        Ok(())
    }

    /// What a line of the member says.
    fn take(&mut self, line: Bytes) -> Result<Option<WatchEvent>, Reason> {
        let WatchState::Open(opened) = &mut self.state else { return Ok(None) };
        let most = self.calls.shared().settings.answer_bytes.saturating_mul(2);
        match codec::read_watch_line(opened.status, &line)? {
            WatchLine::Created(head) => {
                self.calls.shared().check_cluster(head.cluster)?;
                opened.is_created = true;
                self.failures = 0;
                self.is_renewed = false;
                if self.from.0 == 0 {
                    self.from = Revision(head.revision + 1);
                }
                let revision = Revision(head.revision);
                Ok(Some(WatchEvent::Open { member: self.calls.member(), revision }))
            }
            WatchLine::Compacted(at) => {
                let gap = Gap::Compacted(at);
                self.state = WatchState::Gone(gap);
                Ok(Some(WatchEvent::Anew(gap)))
            }
            WatchLine::Canceled(reason) => Err(reason),
            WatchLine::Changes { head, changes, is_fragment } => {
                self.calls.shared().check_cluster(head.cluster)?;
                if changes.is_empty() && !is_fragment {
                    return Ok(self.up_to(head));
                }
                let whole = opened.held.take(changes, self.from, is_fragment).map_err(|_| {
                    let what = "changes that go back".to_owned();
                    Reason::Nonsense { status: opened.status, what }
                })?;
                if opened.held.bytes() > most {
                    return Err(Reason::TooLarge(most));
                }
                let Some(Whole { changes, last }) = whole else { return Ok(None) };
                self.from = Revision(last.0 + 1);
                Ok(Some(WatchEvent::Changes { changes, revision: last }))
            }
        }
    }

    /// A sign of life (`progress_notify`): there is no other change up to its revision.
    fn up_to(&mut self, head: AnswerHead) -> Option<WatchEvent> {
        let revision = Revision(head.revision);
        if revision >= self.from && revision.0 > 0 {
            self.from = Revision(revision.0 + 1);
        }
        Some(WatchEvent::UpTo(revision))
    }

    /// Leaves the member. The same member is asked again when a new token may help.
    fn fail(&mut self, reason: Reason) -> Error {
        let error = self.calls.error(self.calls.member(), NoReply::Unknown, reason);
        let state = mem::replace(&mut self.state, WatchState::Closed);
        if let WatchState::Open(opened) = state
            && error.reason.wants_token()
            && !self.is_renewed
        {
            self.is_renewed = true;
            self.calls.forget(&opened.pass);
            return error;
        }
        self.failures += 1;
        self.calls.turn();
        if self.failures >= self.calls.shared().settings.members.len() {
            self.pause = Some(Instant::now() + PAUSE);
        }
        debug!(%error, from = self.from.0, "the watch goes on at the next member");
        error
    }
}

impl Opened {
    /// How long the member may be silent. It accepts a watch at once.
    fn patience(&self, silence: Duration, calls: &Calls) -> Duration {
        if self.is_created { silence } else { calls.shared().deadline() }
    }

    /// The next line. Cancel-safe.
    async fn line(&mut self) -> Result<Bytes, Reason> {
        loop {
            let line = self.lines.next();
            let line = line.map_err(|lines::TooLong| Reason::TooLarge(self.lines.most()))?;
            if let Some(line) = line {
                self.heard = Instant::now();
                return Ok(line);
            }
            match self.connection.piece(&mut self.body).await? {
                Some(piece) => self.lines.push(&piece),
                // The end of an answer that is an error.
                None => {
                    let ended = || Reason::Broken("the answer is complete".to_owned());
                    return self.lines.rest().ok_or_else(ended);
                }
            }
        }
    }
}
