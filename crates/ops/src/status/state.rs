//! The states of a daemon and of its parts. Each state is a word for programs (`state`), with a
//! readable text (`state_text`). The words are an interface: words are added, and none is removed.
//! The text may change at any time, so programs may show it but not compare it:
//!
//! ```compile_fail
//! use ops::status::{ServiceState, Told};
//! let state: Told<ServiceState> = ServiceState::Up.into();
//! assert!(state == "up");
//! ```
//!
//! ```
//! use ops::status::{ServiceState, Told};
//! let state: Told<ServiceState> = ServiceState::Up.into();
//! assert!(state == ServiceState::Up);
//! ```

use std::borrow::Cow;
use std::fmt::{self, Display};

use serde::{Deserialize, Serialize};

use crate::term::Tone;

/// A kind of states.
pub trait State: Copy + 'static {
    /// The states that a daemon of this version reports.
    const ALL: &'static [Self];

    /// The readable text of the state, without a reason.
    fn text(self) -> &'static str;

    /// The severity of the state.
    fn tone(self) -> Tone;
}

/// A state with its text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Told<S: Default> {
    state: S,
    /// Borrowed without a reason, so that the fingerprint of a state costs no memory.
    state_text: Cow<'static, str>,
}

impl<S: State + Default> Told<S> {
    /// A state with its reason as the text.
    pub fn because(state: S, why: impl Display) -> Self {
        Self { state, state_text: why.to_string().into() }
    }

    /// The state.
    pub const fn state(&self) -> S {
        self.state
    }

    /// The severity of the state.
    pub fn tone(&self) -> Tone {
        self.state.tone()
    }

    /// Whether the text is a reason, and not the word for the state.
    pub fn has_reason(&self) -> bool {
        self.state_text != self.state.text()
    }
}

impl<S: State + Default> From<S> for Told<S> {
    fn from(state: S) -> Self {
        Self { state, state_text: state.text().into() }
    }
}

impl<S: Default + PartialEq> PartialEq<S> for Told<S> {
    fn eq(&self, other: &S) -> bool {
        self.state == *other
    }
}

/// The readable text.
impl<S: State + Default> Display for Told<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.state_text.is_empty() { self.state.text() } else { &self.state_text })
    }
}

/// The text of a word that this version does not know.
const UNKNOWN: &str = "unknown";

/// Declares a kind of states. After each state follow its severity and its text. The word of a
/// state is its name. Each kind also has the state `Unknown`: a word from a newer version.
///
/// ```text
/// states! {
///     /// The state of a door.
///     pub enum DoorState {
///         /// Nobody can enter.
///         #[default]
///         Closed = Waits "closed",
///     }
/// }
/// ```
macro_rules! states {
    ($(#[$meta:meta])* pub enum $name:ident {
        $($(#[$of_state:meta])* $state:ident = $tone:ident $text:literal,)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name {
            $($(#[$of_state])* $state,)+
            /// A word from a newer version.
            #[serde(other)]
            Unknown,
        }

        impl State for $name {
            const ALL: &'static [Self] = &[$(Self::$state),+];

            fn text(self) -> &'static str {
                match self {
                    $(Self::$state => $text,)+
                    Self::Unknown => UNKNOWN,
                }
            }

            fn tone(self) -> Tone {
                match self {
                    $(Self::$state => Tone::$tone,)+
                    Self::Unknown => Tone::Waits,
                }
            }
        }
    };
}

states! {
    /// The state of a daemon.
    pub enum DaemonState {
        #[default]
        Running = Good "running",
        /// The daemon stops when its last stream has ended, and refuses new visitors.
        Draining = Waits "draining",
    }
}

states! {
    /// The state of a daemon that `tunnel run` supervises.
    pub enum SupervisedState {
        /// The process runs, but has not reported that it is ready.
        #[default]
        Starting = Waits "starting",
        Running = Good "running",
        /// The process lets its streams finish, and ends.
        Draining = Waits "draining",
        /// The process ended by an error, and starts again after a pause.
        Failed = Bad "failed",
        /// The file is invalid. The daemon starts when a reload finds the file corrected, or by
        /// `tunnel restart`.
        Wrong = Bad "wrong file",
        /// The process ended without an error, for example by `tunnel stop`.
        Ended = Waits "ended",
    }
}

states! {
    /// The state of one of several targets of a service.
    pub enum TargetState {
        /// The target gets its share of the visitors.
        #[default]
        Up = Good "up",
        /// The target was down, and its share grows gradually.
        Returning = Waits "returning",
        /// The target is unhealthy, and visitors get other targets.
        Down = Bad "down",
        /// A command drains the target: it gets no new visitors, and its visitors may finish.
        Draining = Waits "draining",
        /// The configuration no longer contains the target. Its visitors may finish.
        Removed = Waits "removed",
    }
}

states! {
    /// The state of a session.
    pub enum SessionState {
        /// At least one link accepts streams.
        Up = Good "up",
        /// No link accepts streams, and no attempt has failed.
        #[default]
        Connecting = Waits "connecting",
        /// No link is needed at present: the next visitor causes a dial.
        Idle = Waits "idle",
        /// The last attempt of a client failed because of the network. The text is the error.
        Unreachable = Bad "unreachable",
        /// The server refused the last attempt of a client, or its certificate was rejected: the
        /// user must act. The text is the reason.
        Refused = Bad "refused",
        /// A newer process with the client's name has replaced this process.
        Superseded = Bad "superseded",
    }
}

states! {
    /// The state of a link.
    pub enum LinkState {
        /// The link has a carrier.
        Up = Good "up",
        /// The link waits for its next carrier.
        #[default]
        Stalled = Waits "stalled",
        /// The link accepts no more streams, but another link does.
        GoingAway = Waits "going away",
        /// The link has ended: an event reports it, and no status lists the link.
        Ended = Waits "ended",
    }
}

states! {
    /// The kind of path of a link with another client.
    pub enum PathState {
        /// Through the server. The text is the reason why there is no direct path, if it is known.
        #[default]
        Relayed = Waits "relayed",
        /// From client to client.
        Direct = Good "direct",
    }
}

states! {
    /// The state of a service or forward.
    pub enum ServiceState {
        /// Visitors can reach the service or forward.
        Up = Good "up",
        /// The target refuses connections, or does not respond.
        TargetDown = Bad "target down",
        /// Commands drain all targets: new visitors are refused, and open streams go on.
        Draining = Waits "draining",
        /// The server does not allow the target of a forward.
        Denied = Bad "denied",
        /// No live link can carry the service, or its registration is unanswered. With a reason,
        /// the server cannot publish the service yet.
        #[default]
        Waiting = Waits "waiting for the server",
        /// The client is superseded: a newer process of the same name serves.
        Superseded = Waits "superseded",
        /// The service, or one of its addresses, is not published. The text is the reason.
        Refused = Bad "refused",
    }
}

impl ServiceState {
    /// Whether the service is published, with or without a target that serves.
    pub const fn is_published(self) -> bool {
        match self {
            Self::Up | Self::TargetDown | Self::Draining => true,
            Self::Denied | Self::Waiting | Self::Superseded | Self::Refused | Self::Unknown => {
                false
            }
        }
    }
}

states! {
    /// Whether a client of a server is connected.
    pub enum ClientState {
        Connected = Good "connected",
        /// The client has links, but none of them has a connection.
        Stalled = Waits "without a connection",
        /// The client has disconnected since the server's start.
        Away = Waits "away",
        /// The client has not logged in since the server's start.
        #[default]
        NeverSeen = Waits "away since the server's start",
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use serde_json::{Value, json};

    use super::*;

    /// The words and texts of all states of a kind.
    fn words<S>() -> Vec<(Value, String)>
    where
        S: State + Default + Debug + PartialEq + Serialize + for<'a> Deserialize<'a>,
    {
        let each = S::ALL.iter().map(|&state| {
            let json = serde_json::to_value(Told::from(state)).unwrap();
            assert_eq!(serde_json::from_value::<Told<S>>(json.clone()).unwrap(), state);
            (json["state"].clone(), json["state_text"].as_str().unwrap().to_owned())
        });
        each.collect()
    }

    fn expected(all: &[(&str, &str)]) -> Vec<(Value, String)> {
        all.iter().map(|(word, text)| (json!(word), (*text).to_owned())).collect()
    }

    #[test]
    fn each_state_has_its_word_and_its_text() {
        let daemon = [("running", "running"), ("draining", "draining")];
        assert_eq!(words::<DaemonState>(), expected(&daemon));
        let supervised = ["starting", "running", "draining", "failed", "wrong", "ended"];
        let texts =
            supervised.map(|word| (word, if word == "wrong" { "wrong file" } else { word }));
        assert_eq!(words::<SupervisedState>(), expected(&texts));
        let session = ["up", "connecting", "idle", "unreachable", "refused", "superseded"];
        assert_eq!(words::<SessionState>(), expected(&session.map(|word| (word, word))));
        let path = ["relayed", "direct"];
        assert_eq!(words::<PathState>(), expected(&path.map(|word| (word, word))));
        let link = [
            ("up", "up"),
            ("stalled", "stalled"),
            ("going_away", "going away"),
            ("ended", "ended"),
        ];
        assert_eq!(words::<LinkState>(), expected(&link));
        let service = [
            ("up", "up"),
            ("target_down", "target down"),
            ("draining", "draining"),
            ("denied", "denied"),
            ("waiting", "waiting for the server"),
            ("superseded", "superseded"),
            ("refused", "refused"),
        ];
        assert_eq!(words::<ServiceState>(), expected(&service));
        let target = ["up", "returning", "down", "draining", "removed"];
        assert_eq!(words::<TargetState>(), expected(&target.map(|word| (word, word))));
        let client = [
            ("connected", "connected"),
            ("stalled", "without a connection"),
            ("away", "away"),
            ("never_seen", "away since the server's start"),
        ];
        assert_eq!(words::<ClientState>(), expected(&client));
    }

    #[test]
    fn a_word_of_a_newer_daemon_keeps_its_text() {
        let newer = json!({ "state": "paused", "state_text": "paused by a person" });
        let state: Told<ServiceState> = serde_json::from_value(newer).unwrap();
        assert_eq!(state, ServiceState::Unknown);
        assert_eq!((state.to_string().as_str(), state.tone()), ("paused by a person", Tone::Waits));
        // Without a text the state still has one.
        let bare: Told<ServiceState> = serde_json::from_value(json!({ "state": "up" })).unwrap();
        assert_eq!(bare.to_string(), "up");
    }
}
