//! This end of a link, as its client: carriers are greeted one after the other, and the link moves
//! from carrier to carrier. A slot identifies a carrier outside this value: a connection of the
//! page, or a stream of another link.

use std::collections::VecDeque;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use proto::greeting::{
    Attach as Claim, AttachMode, Binding, ClientAccepted, ClientGreeting, ClientSetup, Features,
    GreetingError, Identity, LinkSecret, Name, Refusal, Versions,
};
use proto::{
    Attach, Budget, CarrierNumber, Event, GoAwayReason, InstanceId, Instant, Link, LinkConfig,
    LinkId, Side,
};

/// The largest number of bytes of a stream that wait for the page. A browser buffers data that a
/// tab has not read.
const WINDOW_MAX: u64 = 4 << 20;

/// The largest number of streams of the other end, which opens none.
const STREAMS_MAX: usize = 16;

/// The identity of the log-in.
#[derive(Clone, Debug)]
pub(crate) struct Who {
    pub(crate) name: Name,
    pub(crate) identity: Identity,
    pub(crate) instance: InstanceId,
}

/// The events that an end reports to its owner.
#[derive(Debug)]
pub(crate) enum Told<S> {
    /// A code was exchanged for this token. The carrier is no longer needed.
    Enrolled(String),
    /// The link is live, over the carrier with this slot.
    Live(S),
    /// The carrier with this slot must be closed: it is lost, replaced or refused.
    Lost(S),
    /// The greeting of the carrier with this slot failed.
    Failed(S, GreetingError),
    /// Bytes of the control stream.
    Control(Bytes),
    /// The live carrier may be dead: it has been silent for too long.
    Suspect,
    /// The other end no longer knows the link: the next carrier starts a new link. The streams of
    /// the link are lost.
    Forgotten,
    /// The link has ended. The next carrier starts a new link.
    Ended,
    /// An event of a stream.
    Stream(Event),
}

#[derive(Debug)]
struct Known {
    link: Link,
    id: LinkId,
    secret: LinkSecret,
    /// The highest carrier number that was claimed.
    claimed: u32,
    /// The newest carrier that was attached.
    newest: CarrierNumber,
}

struct Carrier<S> {
    slot: S,
    input: BytesMut,
    stage: Stage,
}

enum Stage {
    /// The deadline of the greeting: the far end may be silent.
    Greeting {
        greeting: Box<ClientGreeting>,
        adds: bool,
        until: Instant,
    },
    Attached(CarrierNumber),
}

impl<S> Carrier<S> {
    const fn greets_until(&self) -> Option<Instant> {
        match self.stage {
            Stage::Greeting { until, .. } => Some(until),
            Stage::Attached(_) => None,
        }
    }
}

/// This end of a link. `S` names the slots of its carriers.
pub(crate) struct End<S> {
    who: Who,
    features: Features,
    memory: Rc<dyn Budget>,
    known: Option<Known>,
    /// A server process logs in as new once, and then takes over from an older process.
    has_logged_in: bool,
    carriers: Vec<Carrier<S>>,
    greetings: VecDeque<(S, Bytes)>,
    events: VecDeque<Told<S>>,
}

impl<S> std::fmt::Debug for End<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("End").field("who", &self.who.name).finish_non_exhaustive()
    }
}

impl<S: Copy + PartialEq> End<S> {
    pub(crate) fn new(who: Who, features: Features, memory: Rc<dyn Budget>) -> Self {
        let (carriers, greetings, events) = (Vec::new(), VecDeque::new(), VecDeque::new());
        let (known, has_logged_in) = (None, false);
        Self { who, features, memory, known, has_logged_in, carriers, greetings, events }
    }

    /// The link, after it is established.
    pub(crate) fn link(&mut self) -> Option<&mut Link> {
        self.known.as_mut().map(|known| &mut known.link)
    }

    /// Whether frames can flow.
    pub(crate) fn is_live(&self) -> bool {
        self.known.as_ref().is_some_and(|known| known.link.is_live())
    }

    /// Whether a carrier has this slot.
    pub(crate) fn has(&self, slot: S) -> bool {
        self.carriers.iter().any(|carrier| carrier.slot == slot)
    }

    /// Whether the carrier with this slot belongs to the link.
    pub(crate) fn is_attached(&self, slot: S) -> bool {
        let is = |stage: &Stage| matches!(stage, Stage::Attached(_));
        self.carriers.iter().any(|carrier| carrier.slot == slot && is(&carrier.stage))
    }

    /// The slot of the carrier that carries frames.
    pub(crate) fn active(&self) -> Option<S> {
        let number = self.known.as_ref()?.link.active_carrier()?;
        self.slot_of(number)
    }

    fn slot_of(&self, number: CarrierNumber) -> Option<S> {
        let is = |carrier: &&Carrier<S>| matches!(carrier.stage, Stage::Attached(attached) if attached == number);
        self.carriers.iter().find(is).map(|carrier| carrier.slot)
    }

    /// Starts a greeting over a new carrier, which is lost if the greeting is not complete at
    /// `until`. `adds`: it becomes a standby beside the live carrier.
    pub(crate) fn dial(
        &mut self,
        until: Instant,
        slot: S,
        nonce: [u8; 32],
        binding: Binding,
        adds: bool,
    ) {
        self.carriers.retain(|carrier| carrier.slot != slot);
        let attach = self.known.as_mut().map(|known| {
            known.claimed += 1;
            let mode = if adds { AttachMode::Adds } else { AttachMode::Replaces(known.newest) };
            let carrier = CarrierNumber(known.claimed);
            (Claim { link: known.id, carrier, mode }, known.secret.clone())
        });
        let setup = ClientSetup {
            binding,
            name: self.who.name.clone(),
            identity: self.who.identity.clone(),
            instance: self.who.instance,
            takeover: !self.has_logged_in,
            attach,
            versions: Versions::OURS,
            features: self.features,
            nonce,
        };
        match ClientGreeting::new(setup) {
            Ok(greeting) => {
                let stage = Stage::Greeting { greeting: Box::new(greeting), adds, until };
                self.carriers.push(Carrier { slot, input: BytesMut::new(), stage });
                self.greet(slot);
            }
            Err(error) => self.events.push_back(Told::Failed(slot, error)),
        }
    }

    /// Handles received bytes of a carrier.
    pub(crate) fn handle(&mut self, now: Instant, slot: S, bytes: &[u8]) {
        let Some(carrier) = self.carriers.iter_mut().find(|carrier| carrier.slot == slot) else {
            return;
        };
        carrier.input.extend_from_slice(bytes);
        let mut outcome = None;
        if let Stage::Greeting { greeting, adds, .. } = &mut carrier.stage {
            greeting.handle_input(&mut carrier.input);
            outcome = greeting.poll_outcome().map(|outcome| (outcome, *adds));
        }
        self.greet(slot);
        match outcome {
            Some((Ok(accepted), adds)) => self.greeted(now, slot, accepted, adds),
            Some((Err(error), _)) => self.refused(slot, error),
            None => {}
        }
        self.read(now, slot);
    }

    fn greet(&mut self, slot: S) {
        for carrier in &mut self.carriers {
            if let Stage::Greeting { greeting, .. } = &mut carrier.stage
                && carrier.slot == slot
            {
                while let Some(bytes) = greeting.poll_output() {
                    self.greetings.push_back((slot, bytes));
                }
            }
        }
    }

    fn greeted(&mut self, now: Instant, slot: S, accepted: ClientAccepted, adds: bool) {
        if let Some(token) = accepted.token {
            self.events.push_back(Told::Enrolled(token.reveal().to_owned()));
            return self.drop_carrier(slot);
        }
        self.has_logged_in = true;
        let number = accepted.carrier;
        let how = match (&mut self.known, accepted.secret) {
            (Some(known), None) if adds => {
                known.newest = known.newest.max(number);
                Attach::Adds
            }
            (Some(known), None) => Attach::Replaces(std::mem::replace(&mut known.newest, number)),
            (_, Some(secret)) => {
                let config = LinkConfig {
                    window_max: WINDOW_MAX,
                    replay_per_stream: WINDOW_MAX,
                    streams_max: STREAMS_MAX,
                    flows_max: 0,
                    keepalive: accepted.keepalive,
                    resume_timeout: accepted.resume_timeout,
                    ..LinkConfig::default()
                };
                let link = Link::new(Side::Client, config, Rc::clone(&self.memory), now);
                let (id, claimed) = (accepted.link, number.0);
                self.known = Some(Known { link, id, secret, claimed, newest: number });
                Attach::New
            }
            (None, None) => return self.drop_carrier(slot),
        };
        for carrier in &mut self.carriers {
            if carrier.slot == slot {
                carrier.stage = Stage::Attached(number);
            }
        }
        let Some(known) = &mut self.known else { return };
        known.link.attach(now, number, how);
        self.hear(now);
        if how == Attach::New {
            self.events.push_back(Told::Live(slot));
        }
    }

    fn refused(&mut self, slot: S, error: GreetingError) {
        self.drop_carrier(slot);
        if matches!(error, GreetingError::Refused(Refusal::UnknownLink)) && self.known.is_some() {
            return self.forget(Told::Forgotten);
        }
        self.events.push_back(Told::Failed(slot, error));
    }

    /// Decodes the received bytes of a carrier, frame by frame.
    fn read(&mut self, now: Instant, slot: S) {
        loop {
            let carrier = self.carriers.iter_mut().find(|carrier| carrier.slot == slot);
            let (Some(carrier), Some(known)) = (carrier, &mut self.known) else { return };
            let Stage::Attached(number) = carrier.stage else { return };
            match known.link.handle_input(now, number, &mut carrier.input) {
                Ok(Some(event)) => self.take(now, event),
                Ok(None) => return,
                Err(violation) => {
                    known.link.abort(violation);
                    return self.forget(Told::Ended);
                }
            }
        }
    }

    /// Handles the events that commands and timers have caused.
    pub(crate) fn hear(&mut self, now: Instant) {
        while let Some(event) = self.known.as_mut().and_then(|known| {
            while known.link.poll_spent().is_some() {}
            known.link.poll_event()
        }) {
            self.take(now, event);
        }
    }

    fn take(&mut self, now: Instant, event: Event) {
        match event {
            Event::Resumed => {
                if let Some(slot) = self.active() {
                    self.events.push_back(Told::Live(slot));
                }
            }
            Event::CarrierDead(number) => {
                if let Some(slot) = self.slot_of(number) {
                    self.drop_carrier(slot);
                }
                if let Some(known) = &mut self.known {
                    known.link.detach(now, number);
                }
            }
            Event::Control(bytes) => self.events.push_back(Told::Control(bytes)),
            Event::ProbeNextPath => self.events.push_back(Told::Suspect),
            Event::GoingAway(GoAwayReason::Retire)
            | Event::Silent
            | Event::Heard
            | Event::Doubted(_)
            | Event::Unanswered(_)
            | Event::TookOver(_)
            | Event::FlowOpened { .. }
            | Event::Datagram { .. }
            | Event::FlowClosed { .. } => {}
            Event::GoingAway(_) | Event::Expired => self.forget(Told::Ended),
            Event::Opened { .. }
            | Event::Data { .. }
            | Event::Finished { .. }
            | Event::Reset { .. }
            | Event::Stopped { .. }
            | Event::Closed { .. } => self.events.push_back(Told::Stream(event)),
        }
    }

    fn forget(&mut self, event: Told<S>) {
        self.known = None;
        self.has_logged_in = false;
        let slots: Vec<_> = self.carriers.drain(..).map(|carrier| carrier.slot).collect();
        self.events.extend(slots.into_iter().map(Told::Lost));
        self.events.push_back(event);
    }

    fn drop_carrier(&mut self, slot: S) {
        let before = self.carriers.len();
        self.carriers.retain(|carrier| carrier.slot != slot);
        if self.carriers.len() < before {
            self.events.push_back(Told::Lost(slot));
        }
    }

    /// The carrier with this slot was lost.
    pub(crate) fn lost(&mut self, now: Instant, slot: S) {
        let Some(at) = self.carriers.iter().position(|carrier| carrier.slot == slot) else {
            return;
        };
        let carrier = self.carriers.remove(at);
        if let (Stage::Attached(number), Some(known)) = (carrier.stage, &mut self.known) {
            known.link.detach(now, number);
            self.hear(now);
        }
    }

    /// The time that [`End::poll_timeout`] returned has come.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if let Some(known) = &mut self.known {
            known.link.handle_timeout(now);
            self.hear(now);
        }
        let is_late = |carrier: &&Carrier<S>| carrier.greets_until().is_some_and(|at| at <= now);
        let late: Vec<_> = self.carriers.iter().filter(is_late).map(|late| late.slot).collect();
        late.into_iter().for_each(|slot| self.drop_carrier(slot));
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let link = self.known.as_ref().and_then(|known| known.link.poll_timeout());
        let greetings = self.carriers.iter().filter_map(Carrier::greets_until);
        greetings.chain(link).min()
    }

    /// Bytes for a carrier whose slot `takes` accepts.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Instant,
        takes: impl Fn(S) -> bool,
        out: &mut VecDeque<Bytes>,
    ) -> Option<S> {
        if let Some((slot, bytes)) = self.greetings.pop_front() {
            out.push_back(bytes);
            return Some(slot);
        }
        let known = self.known.as_mut()?;
        for carrier in &self.carriers {
            let Stage::Attached(number) = carrier.stage else { continue };
            if takes(carrier.slot) && known.link.has_output(number) {
                known.link.poll_transmit(now, number, out);
                if !out.is_empty() {
                    return Some(carrier.slot);
                }
            }
        }
        None
    }

    pub(crate) fn poll_told(&mut self) -> Option<Told<S>> {
        self.events.pop_front()
    }
}
