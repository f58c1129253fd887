//! Answers of the gateway, read into plain values. Each answer of etcd has a header, and each error
//! a number; whatever has neither is no answer of etcd. What an error says of an unreadable answer
//! has nothing of its content, which may be a secret.

use cluster::engine::{
    Change, Done, KeyValue, Lease, Operation, Performed, Range, Revision, Transaction,
};
use hyper::header::HeaderValue;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::values::{Base64, Number};
use crate::answers::{Granted, Page, Status};
use crate::error::{Code, Reason, shown};

/// The header of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AnswerHead {
    /// The id of the cluster, or 0.
    pub(crate) cluster: u64,
    /// The revision of the store, or 0.
    pub(crate) revision: u64,
}

/// A line of a watch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WatchLine {
    /// The watch has begun.
    Created(AnswerHead),
    /// The changes from the wanted revision on are compacted up to this revision.
    Compacted(Revision),
    /// The watch has ended, or did not begin.
    Canceled(Reason),
    /// Changes, in the order of their revisions. None: no change of the range up to the revision
    /// of the header was missed.
    Changes {
        /// The header.
        head: AnswerHead,
        /// The changes.
        changes: Vec<Change>,
        /// The next line continues this one.
        is_fragment: bool,
    },
}

/// Reads the answer of `/v3/kv/txn` to this transaction.
pub(crate) fn transacted(
    status: u16,
    body: &[u8],
    transaction: &Transaction,
) -> Result<(AnswerHead, Done), Reason> {
    let answer: TxnAnswer = read(status, body)?;
    let head = headed(status, body, answer.header)?;
    if head.revision == 0 {
        return Err(odd(status, "no revision"));
    }
    let answers = answers(status, answer.responses, transaction, answer.succeeded)?;
    Ok((head, Done { revision: Revision(head.revision), held: answer.succeeded, answers }))
}

/// Reads the answer of `/v3/kv/range`.
pub(crate) fn page(status: u16, body: &[u8], range: &Range) -> Result<(AnswerHead, Page), Reason> {
    let answer: RangeAnswer = read(status, body)?;
    let head = headed(status, body, answer.header)?;
    if head.revision == 0 {
        return Err(odd(status, "no revision"));
    }
    let (keys, more) = keys(status, answer.kvs, answer.more, range)?;
    Ok((head, Page { revision: Revision(head.revision), keys, more }))
}

/// Reads the answer of `/v3/lease/grant`.
pub(crate) fn granted(status: u16, body: &[u8]) -> Result<(AnswerHead, Granted), Reason> {
    let (head, lease) = read_lease(status, body, read(status, body)?)?;
    let seconds = lease.ttl.ok_or_else(|| odd(status, "a lease without a time"))?.0;
    if lease.id.0 == 0 || seconds == 0 {
        return Err(odd(status, "no lease"));
    }
    Ok((head, Granted { lease: Lease(lease.id.0), ttl: std::time::Duration::from_secs(seconds) }))
}

/// Reads the answer of `/v3/lease/keepalive`: the seconds that the lease has now. `None`: there is
/// no such lease.
pub(crate) fn renewed(
    status: u16,
    body: &[u8],
    lease: Lease,
) -> Result<(AnswerHead, Option<u64>), Reason> {
    #[derive(Deserialize)]
    struct Streamed {
        result: LeaseAnswer,
    }
    // The answer is a stream of one line.
    let line = body.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let (head, answer) = read_lease(status, body, read::<Streamed>(status, line)?.result)?;
    if answer.id.0 != lease.0 {
        return Err(odd(status, "another lease"));
    }
    Ok((head, answer.ttl.map(|seconds| seconds.0).filter(|seconds| *seconds > 0)))
}

/// Reads an answer of which only the header counts.
pub(crate) fn unit(status: u16, body: &[u8]) -> Result<(AnswerHead, ()), Reason> {
    #[derive(Deserialize)]
    struct Bare {
        header: HeadBody,
    }
    Ok((read::<Bare>(status, body)?.header.into(), ()))
}

/// Reads the answer of `/v3/auth/authenticate`.
pub(crate) fn token(status: u16, body: &[u8]) -> Result<HeaderValue, Reason> {
    #[derive(Deserialize)]
    struct Token {
        token: String,
    }
    let answer: Token = read(status, body)?;
    if answer.token.is_empty() {
        return Err(odd(status, "no token"));
    }
    let mut token = HeaderValue::from_str(&answer.token)
        .map_err(|_| odd(status, "a token that fits no field of a header"))?;
    token.set_sensitive(true);
    Ok(token)
}

/// Reads the answer of `/v3/maintenance/status`.
pub(crate) fn status(status: u16, body: &[u8]) -> Result<(AnswerHead, Status), Reason> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct StatusBody {
        header: HeadBody,
        #[serde(default)]
        version: String,
        #[serde(default)]
        db_size: Number,
        #[serde(default)]
        leader: Number,
        #[serde(default)]
        errors: Vec<String>,
    }
    /// Alarms of three kinds of a few members.
    const ALARMS: usize = 16;
    let answer: StatusBody = read(status, body)?;
    let member = answer.header.member_id.0;
    let head = AnswerHead::from(answer.header);
    let read = Status {
        version: shown(&answer.version),
        member,
        leader: Some(answer.leader.0).filter(|id| *id != 0),
        revision: Revision(head.revision),
        bytes: answer.db_size.0,
        alarms: answer.errors.iter().take(ALARMS).map(|text| shown(text)).collect(),
    };
    Ok((head, read))
}

/// Reads a line of a watch. `http` is the HTTP status of the whole answer.
pub(crate) fn read_watch_line(http: u16, line: &[u8]) -> Result<WatchLine, Reason> {
    #[derive(Deserialize)]
    struct Streamed {
        result: WatchAnswer,
    }
    let answer = read::<Streamed>(http, line)?.result;
    let head = AnswerHead::from(answer.header);
    if answer.canceled {
        if answer.compact_revision.0 > 0 {
            return Ok(WatchLine::Compacted(Revision(answer.compact_revision.0)));
        }
        return Ok(WatchLine::Canceled(canceled(&answer.cancel_reason)));
    }
    if answer.created {
        return Ok(WatchLine::Created(head));
    }
    let changes = answer.events.into_iter().map(|event| event.change(http));
    let changes = changes.collect::<Result<Vec<_>, _>>()?;
    Ok(WatchLine::Changes { head, changes, is_fragment: answer.fragment })
}

/// The reason of a canceled watch is a text alone: `rpc error: code = NAME desc = TEXT`, or words
/// of the store.
fn canceled(text: &str) -> Reason {
    let error =
        text.strip_prefix("rpc error: code = ").and_then(|rest| rest.split_once(" desc = "));
    match error {
        Some((name, words)) => Reason::says(Code::of_name(name), words),
        None => Reason::says(Code::UNKNOWN, text),
    }
}

/// Reads an answer, or else the error that the body is.
fn read<T: DeserializeOwned>(status: u16, body: &[u8]) -> Result<T, Reason> {
    match serde_json::from_slice(body) {
        Ok(answer) => Ok(answer),
        Err(error) => Err(refusal(body).unwrap_or_else(|| unread(status, body, &error))),
    }
}

/// The header of an answer. An error has none.
fn headed(status: u16, body: &[u8], header: Option<HeadBody>) -> Result<AnswerHead, Reason> {
    let none = || refusal(body).unwrap_or_else(|| odd(status, "no header"));
    header.map(AnswerHead::from).ok_or_else(none)
}

/// The error of etcd that a body is. Its shapes: 3.4 has `error`, `message` and `code`, later
/// versions `code` and `message`; the streamed answers of both have an object under `error`, in
/// which 3.4 calls the number `grpc_code`.
fn refusal(body: &[u8]) -> Option<Reason> {
    #[derive(Deserialize)]
    struct ErrorBody {
        #[serde(alias = "grpc_code")]
        code: Number,
        #[serde(default)]
        message: String,
    }
    #[derive(Deserialize)]
    struct Streamed {
        error: ErrorBody,
    }
    let line = body.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let ErrorBody { code, message } = serde_json::from_slice::<ErrorBody>(line)
        .or_else(|_| serde_json::from_slice::<Streamed>(line).map(|outer| outer.error))
        .ok()?;
    // 0 is no error.
    let code = u32::try_from(code.0).ok().filter(|code| *code != 0)?;
    Some(Reason::says(Code(code), &message))
}

/// What is wrong with an answer that cannot be read.
fn unread(status: u16, body: &[u8], error: &serde_json::Error) -> Reason {
    use serde_json::error::Category;
    // A page of a proxy, or of a server that is no etcd, is worth to be shown.
    let is_json = body.trim_ascii_start().first().is_none_or(|first| b"{[\"".contains(first));
    let what = match error.classify() {
        _ if !is_json => {
            const BEGIN: usize = 60;
            let begin = body.get(..BEGIN).unwrap_or(body);
            format!("it begins with {:?}", shown(&String::from_utf8_lossy(begin)))
        }
        Category::Eof | Category::Io => "it ends early".to_owned(),
        Category::Syntax => format!("no JSON at column {}", error.column()),
        Category::Data => format!("other fields or values, at column {}", error.column()),
    };
    Reason::Nonsense { status, what }
}

fn odd(status: u16, what: &str) -> Reason {
    Reason::Nonsense { status, what: what.to_owned() }
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct HeadBody {
    cluster_id: Number,
    member_id: Number,
    revision: Number,
}

impl From<HeadBody> for AnswerHead {
    fn from(body: HeadBody) -> Self {
        Self { cluster: body.cluster_id.0, revision: body.revision.0 }
    }
}

/// The answer to a transaction, or to a transaction inside it, whose header is empty.
#[derive(Deserialize)]
struct TxnAnswer {
    header: Option<HeadBody>,
    #[serde(default)]
    succeeded: bool,
    #[serde(default)]
    responses: Vec<ResponseBody>,
}

#[derive(Deserialize)]
enum ResponseBody {
    #[serde(rename = "response_range")]
    Range(RangeAnswer),
    #[serde(rename = "response_put")]
    Put(PutAnswer),
    #[serde(rename = "response_delete_range")]
    Delete(DeleteAnswer),
    #[serde(rename = "response_txn")]
    Inner(TxnAnswer),
}

#[derive(Deserialize)]
struct RangeAnswer {
    header: Option<HeadBody>,
    #[serde(default)]
    kvs: Vec<KeyValueBody>,
    #[serde(default)]
    more: bool,
}

#[derive(Deserialize)]
struct PutAnswer {}

#[derive(Deserialize)]
struct DeleteAnswer {
    #[serde(default)]
    deleted: Number,
}

#[derive(Deserialize)]
struct LeaseAnswer {
    header: Option<HeadBody>,
    #[serde(rename = "ID", default)]
    id: Number,
    #[serde(rename = "TTL", default)]
    ttl: Option<Number>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct KeyValueBody {
    key: Base64,
    value: Base64,
    create_revision: Number,
    mod_revision: Number,
    lease: Number,
}

impl From<KeyValueBody> for KeyValue {
    fn from(body: KeyValueBody) -> Self {
        Self {
            key: body.key.0,
            value: body.value.0,
            created: Revision(body.create_revision.0),
            modified: Revision(body.mod_revision.0),
            lease: Some(Lease(body.lease.0)).filter(|lease| lease.0 != 0),
        }
    }
}

#[derive(Deserialize)]
struct WatchAnswer {
    header: HeadBody,
    #[serde(default)]
    created: bool,
    #[serde(default)]
    canceled: bool,
    #[serde(default)]
    compact_revision: Number,
    #[serde(default)]
    cancel_reason: String,
    #[serde(default)]
    fragment: bool,
    #[serde(default)]
    events: Vec<EventBody>,
}

#[derive(Deserialize)]
struct EventBody {
    #[serde(rename = "type", default)]
    kind: EventKind,
    kv: KeyValueBody,
}

#[derive(Default, Deserialize)]
enum EventKind {
    #[default]
    #[serde(rename = "PUT")]
    Put,
    #[serde(rename = "DELETE")]
    Delete,
}

impl EventBody {
    fn change(self, status: u16) -> Result<Change, Reason> {
        let kv = KeyValue::from(self.kv);
        if kv.modified.0 == 0 {
            return Err(odd(status, "a change without a revision"));
        }
        Ok(match self.kind {
            EventKind::Put => Change::Put(kv),
            EventKind::Delete => Change::Delete { key: kv.key, at: kv.modified },
        })
    }
}

/// The header and the lease of an answer.
fn read_lease(
    status: u16,
    body: &[u8],
    answer: LeaseAnswer,
) -> Result<(AnswerHead, LeaseAnswer), Reason> {
    let head = headed(status, body, answer.header)?;
    Ok((head, answer))
}

/// The keys of a range, if they can be the answer to it.
fn keys(
    status: u16,
    keys: Vec<KeyValueBody>,
    more: bool,
    range: &Range,
) -> Result<(Vec<KeyValue>, bool), Reason> {
    let most = usize::try_from(range.limit).unwrap_or(usize::MAX);
    if most != 0 && keys.len() > most {
        return Err(odd(status, "more keys than the limit"));
    }
    if more && (keys.is_empty() || most == 0) {
        return Err(odd(status, "more keys without a limit"));
    }
    Ok((keys.into_iter().map(KeyValue::from).collect(), more))
}

/// The answers to the operations that were done: as many and of the same kinds.
fn answers(
    status: u16,
    responses: Vec<ResponseBody>,
    transaction: &Transaction,
    held: bool,
) -> Result<Vec<Performed>, Reason> {
    let done = if held { &transaction.then } else { &transaction.otherwise };
    if responses.len() != done.len() {
        return Err(odd(status, "another number of responses than operations"));
    }
    let pairs = responses.into_iter().zip(done);
    pairs.map(|(response, operation)| answer(status, response, operation)).collect()
}

fn answer(status: u16, response: ResponseBody, operation: &Operation) -> Result<Performed, Reason> {
    match (response, operation) {
        (ResponseBody::Range(answer), Operation::Range(range)) => {
            let (keys, more) = keys(status, answer.kvs, answer.more, range)?;
            Ok(Performed::Range { keys, more })
        }
        (ResponseBody::Put(_), Operation::Put { .. }) => Ok(Performed::Put),
        (ResponseBody::Delete(answer), Operation::Delete { .. }) => {
            Ok(Performed::Delete(answer.deleted.0))
        }
        (ResponseBody::Inner(answer), Operation::Inner(inner)) => {
            let held = answer.succeeded;
            let answers = answers(status, answer.responses, inner, held)?;
            Ok(Performed::Inner { held, answers })
        }
        (
            ResponseBody::Range(_)
            | ResponseBody::Put(_)
            | ResponseBody::Delete(_)
            | ResponseBody::Inner(_),
            Operation::Range(_)
            | Operation::Put { .. }
            | Operation::Delete { .. }
            | Operation::Inner(_),
        ) => Err(odd(status, "a response to another operation")),
    }
}
