//! The far end of a proxy: a service whose visitors name their targets. This side dials.

use std::fmt;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use h1::Tracker;
use proto::ResetCode;
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;
use transport::Outlet;

use super::handshake::{Agreed, Asked, Failed, HANDSHAKE, MEMORY, Speech, handshake, linger};
use super::substitute::{Shared, Substitute};
use super::{Credentials, ProxyKind};
use crate::dial::{self, Allow, DialError, TargetAddr};
use crate::passage::join_http;
use crate::pipe::{Http, Layered, Pipe, Pump, StreamInlet};
use crate::{Duplex, End, Held, Permit, Settings, Socket, Visitor};

/// The memory of a request without queued bytes: the socket of the target, two pipes and the tasks
/// of two pumps.
const REQUEST: u64 = 4 << 10;

/// A target whose visitors name their destinations.
pub struct Exit {
    kind: ProxyKind,
    credentials: Option<Credentials>,
    allow: Box<dyn Fn(&TargetAddr) -> Allow>,
}

impl Exit {
    /// Makes an exit. With credentials, visitors must authenticate. `allow` makes the rule for a
    /// target, by which the dial checks the name and each of its addresses.
    #[must_use]
    pub fn new(
        kind: ProxyKind,
        credentials: Option<Credentials>,
        allow: impl Fn(&TargetAddr) -> Allow + 'static,
    ) -> Rc<Self> {
        Rc::new(Self { kind, credentials, allow: Box::new(allow) })
    }
}

impl fmt::Debug for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exit").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// Serves a visitor of an exit in a task of this thread: the handshake over the stream within 10 s,
/// then the dial and the pump. UDP ASSOCIATE is not supported. Returns the outlet at once.
pub fn exit_stream(
    exit: &Rc<Exit>,
    visitor: Visitor,
    inlet: impl Into<StreamInlet>,
    settings: &Rc<Settings>,
    permit: Option<Permit>,
) -> Rc<dyn Outlet> {
    let pipe = Pipe::new(Rc::clone(settings), visitor.clone());
    let outlet = Rc::<Pipe>::clone(&pipe);
    let stream = Duplex::new(pipe, inlet.into().inlet, permit);
    tokio::task::spawn_local(serve(Rc::clone(exit), visitor, stream));
    outlet
}

async fn serve(exit: Rc<Exit>, visitor: Visitor, mut stream: Duplex) {
    let Some(held) = stream.pipe().settings().hold(MEMORY, visitor.address()) else {
        return stream.refuse(ResetCode::Limit);
    };
    let credentials = exit.credentials.as_ref();
    let agreed = handshake(&mut stream, exit.kind, credentials, visitor.source(), false);
    let agreed = timeout(HANDSHAKE, agreed).await;
    let Ok(agreed) = agreed else {
        return tracing::debug!("a visitor of an exit made no request in time");
    };
    let Agreed { asked, speech, mut rest } = match agreed {
        Ok(agreed) => agreed,
        Err(error) => {
            tracing::debug!(%error, "a visitor of an exit is refused");
            if let Failed::Fault(fault) = error {
                if fault.is_denial() {
                    stream.pipe().settings().stats.count_refused(ResetCode::Denied);
                    stream.pipe().note_end(End::Refused(ResetCode::Denied));
                }
                linger(&mut stream).await;
            }
            return;
        }
    };
    let (target, first) = match asked {
        Asked::Connect(target) => (target.target(), None),
        Asked::Request(target) => (target.target(), Some(rest.split())),
        // The handshake has refused this command.
        Asked::Associate(_) => return,
    };
    let allow = (exit.allow)(&target);
    let settings = Rc::clone(stream.pipe().settings());
    let dial = async {
        let Settings { timeouts, .. } = &*settings;
        let dialled = dial::dial_for(&settings, &target, Some(&allow)).await?;
        match timeout(timeouts.dial, dialled.write_all(&rest)).await {
            Ok(Ok(())) => Ok(dialled),
            Ok(Err(source)) => Err(DialError::Connect { target: target.clone(), source }),
            Err(_) => Err(DialError::Timeout(target.clone())),
        }
    };
    let outcome = tokio::select! {
        biased;
        // The visitor no longer waits. Dropping the dial closes its sockets.
        () = stream.aborted() => return,
        outcome = Box::pin(dial) => outcome,
    };
    match outcome {
        Ok(dialled) => {
            if let Some(first) = first {
                return carry_request(stream, first, speech, dialled.keep(), held).await;
            }
            if stream.write_all(&speech.success()).await.is_err() {
                return;
            }
            let Some((pipe, inlet, permit)) = stream.into_parts() else { return };
            pipe.connect(dialled.keep());
            tokio::task::spawn_local(Pump::new(pipe, inlet, permit));
        }
        Err(error) => {
            let code = error.code();
            tracing::debug!(%error, "a target of an exit cannot be reached");
            let Settings { stats, watcher, .. } = &*settings;
            stats.count_refused(code);
            // The state of one target is not the state of the service: no `Watcher::dialled`.
            if let Some(watcher) = watcher
                && stats.complaints.ready()
            {
                watcher.complain_of_dial(&error, stats.refused(code));
            }
            stream.pipe().note_end(End::Refused(code));
            if stream.write_all(&speech.refusal(code)).await.is_ok() {
                speech.farewell(&mut stream).await;
            }
        }
    }
}

/// Carries one request and its answer. The HTTP guard is at the visitor's end.
async fn carry_request(
    stream: Duplex,
    first: BytesMut,
    speech: Speech,
    target: Socket,
    held: Held,
) {
    let settings = Rc::clone(stream.pipe().settings());
    settings.stats.count_opened();
    let stream = Shared::new(stream);
    let layered = Layered::new(stream.clone(), Bytes::new());
    let onward = Rc::new(Substitute { speech, stream: Some(stream) });
    let http = Http { tracker: Some(Tracker::new(None)), first, onward };
    held.set(REQUEST);
    Box::pin(join_http((layered, http), target, &settings, held)).await;
}
