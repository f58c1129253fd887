//! Calls of one kind: which member is asked, over which connection, and what follows when it does
//! not answer.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster::engine::{Done, Lease, NoReply, Range, Transaction};
use hyper::header::HeaderValue;
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use crate::answers::{Freshness, Granted, Page, Status};
use crate::codec::{self, AnswerHead};
use crate::connection::{GatewayConnection, Post};
use crate::error::{Code, Error, Reason, Unanswered};
use crate::ground::{Ground, Pass};

/// Calls of one kind, over one kept connection to each member. One call at a time: `&mut self`.
///
/// A call asks one member. When the member has not answered within
/// [`EtcdSettings::deadline`](crate::EtcdSettings::deadline), or answers that it cannot, the call
/// asks the next member if the request has certainly not left or may be repeated without harm. The
/// next call begins at the member that answered. Each method is cancel-safe: a dropped call closes
/// its connection; its request may have been carried out.
#[derive(Debug)]
pub struct Calls {
    shared: Arc<Ground>,
    /// For each member.
    kept: Vec<Option<GatewayConnection>>,
    /// The member that the next call asks first.
    member: usize,
}

/// Whether a request may be sent again after it may have been carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeats {
    No,
    Yes,
}

impl Calls {
    pub(crate) fn new(shared: Arc<Ground>) -> Self {
        let kept = shared.settings.members.iter().map(|_| None).collect();
        Self { shared, kept, member: 0 }
    }

    /// The index of the member that the next call asks first.
    #[must_use]
    pub const fn member(&self) -> usize {
        self.member
    }

    /// Makes the next call begin at the next member: renewals of a lease go to the members in turn.
    pub fn turn(&mut self) {
        self.member = (self.member + 1) % self.kept.len().max(1);
    }

    /// Makes the next call begin at this member. An index without a member is that of the first.
    pub fn begin_at(&mut self, member: usize) {
        self.member = if member < self.kept.len() { member } else { 0 };
    }

    /// Carries out a transaction.
    ///
    /// A transaction inside it is judged alone, but all conditions are judged by the state before
    /// the whole transaction, and its ranges see what operations before them wrote (etcd 3.4.23
    /// and 3.7.3).
    ///
    /// # Errors
    /// [`NoReply::Unknown`]: the transaction may have been carried out, once, or will be. It is not
    /// repeated. [`NoReply::Refused`]: it was not and will not be carried out.
    pub async fn transact(&mut self, transaction: &Transaction) -> Result<Done, Error> {
        if !codec::fits(transaction) {
            let reason = Reason::TooManyOperations(cluster::engine::OPERATIONS);
            return Err(self.error(self.member, NoReply::Refused, reason));
        }
        let body = codec::transaction(transaction);
        let read = |status, body: &[u8]| codec::transacted(status, body, transaction);
        self.call("/v3/kv/txn", &body, Repeats::No, read).await
    }

    /// Reads the keys of a range, at most as many as its limit. An answer that is larger than
    /// [`EtcdSettings::answer_bytes`](crate::EtcdSettings::answer_bytes) is the error
    /// [`Reason::TooLarge`]; [`RangePages`](crate::RangePages) asks for less then.
    ///
    /// # Errors
    /// No member answers, or the engine refuses.
    pub async fn range(&mut self, range: &Range, reading: Freshness) -> Result<Page, Error> {
        let at = if let Freshness::At(at) = reading { Some(at) } else { None };
        let body = codec::range(range, reading == Freshness::Local, at);
        let read = |status, body: &[u8]| codec::page(status, body, range);
        self.call("/v3/kv/range", &body, Repeats::Yes, read).await
    }

    /// Makes a lease that lives for `ttl`, rounded up to whole seconds. When the answer is lost,
    /// the call asks the next member, and a lease that nobody renews ends by itself.
    ///
    /// # Errors
    /// No member answers, or the engine refuses.
    pub async fn grant(&mut self, ttl: Duration) -> Result<Granted, Error> {
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        self.call("/v3/lease/grant", &codec::grant(seconds), Repeats::Yes, codec::granted).await
    }

    /// Gives a lease its full time again. `None`: there is no such lease any more. The time is to
    /// be counted from before this call.
    ///
    /// # Errors
    /// No member answers, or the engine refuses. The lease may have been renewed.
    pub async fn renew(&mut self, lease: Lease) -> Result<Option<Duration>, Error> {
        let read = |status, body: &[u8]| codec::renewed(status, body, lease);
        let body = codec::lease(lease);
        let seconds = self.call("/v3/lease/keepalive", &body, Repeats::Yes, read).await?;
        Ok(seconds.map(Duration::from_secs))
    }

    /// Ends a lease and deletes its keys. A lease that does not exist is no error.
    ///
    /// # Errors
    /// No member answers, or the engine refuses. The lease may have ended.
    pub async fn revoke(&mut self, lease: Lease) -> Result<(), Error> {
        let body = codec::lease(lease);
        match self.call("/v3/lease/revoke", &body, Repeats::Yes, codec::unit).await {
            Err(Error { reason: Reason::Says { code: Code::MISSING, .. }, .. }) => Ok(()),
            ended => ended,
        }
    }

    /// Asks one member how it is. It answers without a quorum.
    ///
    /// # Errors
    /// This member does not answer.
    pub async fn status(&mut self, member: usize) -> Result<Status, Error> {
        let body = Bytes::from_static(b"{}");
        let asked = self.at(member, "/v3/maintenance/status", &body, codec::status).await;
        asked.map_err(|fault| self.error(member, NoReply::Refused, fault.reason))
    }

    /// Asks member by member, beginning at the one that answered last.
    async fn call<T>(
        &mut self,
        path: &'static str,
        body: &Bytes,
        repeats: Repeats,
        read: impl Fn(u16, &[u8]) -> Result<(AnswerHead, T), Reason>,
    ) -> Result<T, Error> {
        let mut failure = NoReply::Refused;
        let mut tries = self.kept.len();
        loop {
            let member = self.member;
            let fault = match self.at(member, path, body, &read).await {
                Ok(answer) => return Ok(answer),
                Err(fault) => fault,
            };
            if fault.reason.refuses() {
                return Err(self.error(member, failure, fault.reason));
            }
            self.turn();
            tries = tries.saturating_sub(1);
            if fault.is_sent {
                failure = NoReply::Unknown;
            }
            // The answer of another member would be as large.
            let is_large = matches!(fault.reason, Reason::TooLarge(_));
            let is_last = tries == 0 || is_large || (fault.is_sent && repeats == Repeats::No);
            let error = self.error(member, failure, fault.reason);
            if is_last {
                return Err(error);
            }
            debug!(%error, path, "the next member is asked");
        }
    }

    /// Asks one member, with a token if there is a user. A token that is refused is replaced once.
    async fn at<T>(
        &mut self,
        member: usize,
        path: &'static str,
        body: &Bytes,
        read: impl Fn(u16, &[u8]) -> Result<(AnswerHead, T), Reason>,
    ) -> Result<T, Unanswered> {
        let mut is_new = false;
        loop {
            let pass = self.pass(member).await?;
            let token = if let Pass::Token(token) = &pass { Some(token.clone()) } else { None };
            let (status, answer) = self.ask(member, path, token, body).await?;
            match read(status, &answer) {
                Ok((head, answer)) => {
                    self.shared.check_cluster(head.cluster).map_err(Unanswered::sent)?;
                    return Ok(answer);
                }
                Err(reason) if !is_new && self.replaces(&pass, &reason) => is_new = true,
                Err(reason) => return Err(Unanswered::sent(reason)),
            }
        }
    }

    /// Whether the request is to be repeated with a new pass, because it was refused for the want
    /// of one.
    fn replaces(&self, used: &Pass, reason: &Reason) -> bool {
        let wanted = self.shared.settings.log_in.is_some() && reason.wants_token();
        if wanted {
            self.shared.forget(used);
        }
        wanted
    }

    /// What lets a request in at this member: the shared token, or a new one.
    pub(crate) async fn pass(&mut self, member: usize) -> Result<Pass, Unanswered> {
        let Some(log_in) = &self.shared.settings.log_in else { return Ok(Pass::Off) };
        match self.shared.pass() {
            Pass::Unknown => {}
            pass @ (Pass::Off | Pass::Token(_)) => return Ok(pass),
        }
        let body = codec::log_in(log_in);
        let asked = self.ask(member, "/v3/auth/authenticate", None, &body).await;
        // It is the log-in that may have arrived; the request itself did not leave.
        let (status, answer) = asked.map_err(|fault| Unanswered::unsent(fault.reason))?;
        let pass = match codec::token(status, &answer) {
            Ok(token) => Pass::Token(token),
            // Users may be made known to all nodes before they count.
            Err(Reason::Says { code: Code::UNMET, .. }) => Pass::Off,
            Err(Reason::Says { code, text }) => {
                return Err(Unanswered::unsent(Reason::LogIn { code, text }));
            }
            Err(reason) => return Err(Unanswered::unsent(reason)),
        };
        self.shared.set_pass(pass.clone());
        Ok(pass)
    }

    /// The shared pass did not let a request in.
    pub(crate) fn forget(&self, used: &Pass) {
        self.shared.forget(used);
    }

    /// Sends one request to a member, over the kept connection or a new one, and returns the HTTP
    /// status and the body of the answer.
    async fn ask(
        &mut self,
        member: usize,
        path: &'static str,
        token: Option<HeaderValue>,
        body: &Bytes,
    ) -> Result<(u16, Bytes), Unanswered> {
        let allowed = self.shared.settings.deadline;
        let deadline = Instant::now() + allowed;
        let most = self.shared.settings.answer_bytes;
        let mut kept = self.kept.get_mut(member).and_then(Option::take);
        loop {
            let is_kept = kept.is_some();
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => dial(&self.shared, member, deadline).await?,
            };
            let host = self.shared.address(member);
            let token = token.clone();
            let post = Post { path, host, token, needs_leader: false, body: body.clone() };
            match timeout_at(deadline, connection.exchange(post, most)).await {
                Ok(Ok(answer)) => {
                    if let Some(place) = self.kept.get_mut(member) {
                        *place = Some(connection);
                    }
                    return Ok(answer);
                }
                // The member has closed the connection meanwhile.
                Ok(Err(fault)) if is_kept && !fault.is_sent => {}
                Ok(Err(fault)) => return Err(fault),
                Err(_) => {
                    let is_sent = connection.is_sent();
                    return Err(Unanswered { is_sent, reason: Reason::Late(allowed) });
                }
            }
        }
    }

    /// What all calls share.
    pub(crate) fn shared(&self) -> &Ground {
        &self.shared
    }

    /// The error of a call that ends at this member.
    pub(crate) fn error(&self, member: usize, failure: NoReply, reason: Reason) -> Error {
        Error { failure, member: self.shared.address(member).to_owned(), reason }
    }
}

/// Opens a connection to a member.
pub(crate) async fn dial(
    ground: &Ground,
    member: usize,
    deadline: Instant,
) -> Result<GatewayConnection, Unanswered> {
    let dialled = timeout_at(deadline, async {
        let opened = ground.connect.connect(member, ground.address(member)).await;
        let unreachable = |error: io::Error| Reason::Unreachable(error.to_string());
        let stream = opened.map_err(|error| Unanswered::unsent(unreachable(error)))?;
        GatewayConnection::over(stream).await
    });
    let late = Unanswered::unsent(Reason::Late(ground.deadline()));
    dialled.await.unwrap_or(Err(late))
}
