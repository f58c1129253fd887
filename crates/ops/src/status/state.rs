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

/// The state of a daemon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DaemonState {
    #[default]
    Running,
    /// The daemon stops when its last stream has ended, and refuses new visitors.
    Draining,
    /// A word from a newer daemon.
    #[serde(other)]
    Unknown,
}

impl State for DaemonState {
    const ALL: &'static [Self] = &[Self::Running, Self::Draining];

    fn text(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Draining => "draining",
            Self::Unknown => UNKNOWN,
        }
    }

    fn tone(self) -> Tone {
        match self {
            Self::Running => Tone::Good,
            Self::Draining | Self::Unknown => Tone::Waits,
        }
    }
}

/// The state of a daemon that `tunnel run` supervises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SupervisedState {
    /// The process runs, but has not reported that it is ready.
    #[default]
    Starting,
    Running,
    /// The process lets its streams finish, and ends.
    Draining,
    /// The process ended by an error, and starts again after a pause.
    Failed,
    /// The file is invalid. The daemon starts when a reload finds the file corrected, or by `tunnel
    /// restart`.
    Wrong,
    /// The process ended without an error, for example by `tunnel stop`.
    Ended,
    /// A word from a newer version.
    #[serde(other)]
    Unknown,
}

impl State for SupervisedState {
    const ALL: &'static [Self] =
        &[Self::Starting, Self::Running, Self::Draining, Self::Failed, Self::Wrong, Self::Ended];

    fn text(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Draining => "draining",
            Self::Failed => "failed",
            Self::Wrong => "wrong file",
            Self::Ended => "ended",
            Self::Unknown => UNKNOWN,
        }
    }

    fn tone(self) -> Tone {
        match self {
            Self::Running => Tone::Good,
            Self::Starting | Self::Draining | Self::Ended | Self::Unknown => Tone::Waits,
            Self::Failed | Self::Wrong => Tone::Bad,
        }
    }
}

/// The state of one of several targets of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TargetState {
    /// The target gets its share of the visitors.
    #[default]
    Up,
    /// The target was down, and its share grows gradually.
    Returning,
    /// The target is unhealthy, and visitors get other targets.
    Down,
    /// A command drains the target: it gets no new visitors, and its visitors may finish.
    Draining,
    /// The configuration no longer contains the target. Its visitors may finish.
    Removed,
    /// A word from a newer daemon.
    #[serde(other)]
    Unknown,
}

impl State for TargetState {
    const ALL: &'static [Self] =
        &[Self::Up, Self::Returning, Self::Down, Self::Draining, Self::Removed];

    fn text(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Returning => "returning",
            Self::Down => "down",
            Self::Draining => "draining",
            Self::Removed => "removed",
            Self::Unknown => UNKNOWN,
        }
    }

    fn tone(self) -> Tone {
        match self {
            Self::Up => Tone::Good,
            Self::Down => Tone::Bad,
            Self::Returning | Self::Draining | Self::Removed | Self::Unknown => Tone::Waits,
        }
    }
}

/// The state of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionState {
    /// At least one link accepts streams.
    Up,
    /// No link accepts streams, and no attempt has failed.
    #[default]
    Connecting,
    /// No link is needed at present: the next visitor causes a dial.
    Idle,
    /// The last attempt of a client failed because of the network. The text is the error.
    Unreachable,
    /// The server refused the last attempt of a client, or its certificate was rejected: the user
    /// must act. The text is the reason.
    Refused,
    /// A newer process with the client's name has replaced this process.
    Superseded,
    /// A word from a newer daemon.
    #[serde(other)]
    Unknown,
}

impl State for SessionState {
    const ALL: &'static [Self] = &[
        Self::Up,
        Self::Connecting,
        Self::Idle,
        Self::Unreachable,
        Self::Refused,
        Self::Superseded,
    ];

    fn text(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Connecting => "connecting",
            Self::Idle => "idle",
            Self::Unreachable => "unreachable",
            Self::Refused => "refused",
            Self::Superseded => "superseded",
            Self::Unknown => UNKNOWN,
        }
    }

    fn tone(self) -> Tone {
        match self {
            Self::Up => Tone::Good,
            Self::Connecting | Self::Idle | Self::Unknown => Tone::Waits,
            Self::Unreachable | Self::Refused | Self::Superseded => Tone::Bad,
        }
    }
}

/// The state of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkState {
    /// The link has a carrier.
    Up,
    /// The link waits for its next carrier.
    #[default]
    Stalled,
    /// The link accepts no more streams, but another link does.
    GoingAway,
    /// The link has ended: an event reports it, and no status lists the link.
    Ended,
    /// A word from a newer daemon.
    #[serde(other)]
    Unknown,
}

impl State for LinkState {
    const ALL: &'static [Self] = &[Self::Up, Self::Stalled, Self::GoingAway, Self::Ended];

    fn text(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Stalled => "stalled",
            Self::GoingAway => "going away",
            Self::Ended => "ended",
            Self::Unknown => UNKNOWN,
        }
    }

    fn tone(self) -> Tone {
        match self {
            Self::Up => Tone::Good,
            Self::Stalled | Self::GoingAway | Self::Ended | Self::Unknown => Tone::Waits,
        }
    }
}

/// The kind of path of a link with another client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathState {
    /// Through the server. The text is the reason why there is no direct path, if it is known.
    #[default]
    Relayed,
    /// From client to client.
    Direct,
    /// A word from a newer daemon.
    #[serde(other)]
    Unknown,
}

impl State for PathState {
    const ALL: &'static [Self] = &[Self::Relayed, Self::Direct];

    fn text(self) -> &'static str {
        match self {
            Self::Relayed => "relayed",
            Self::Direct => "direct",
            Self::Unknown => UNKNOWN,
        }
    }

    fn tone(self) -> Tone {
        match self {
            Self::Direct => Tone::Good,
            Self::Relayed | Self::Unknown => Tone::Waits,
        }
    }
}

/// The state of a service or forward.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServiceState {
    /// Visitors can reach the service or forward.
    Up,
    /// The target refuses connections, or does not respond.
    TargetDown,
    /// Commands drain all targets: new visitors are refused, and open streams go on.
    Draining,
    /// The server does not allow the target of a forward.
    Denied,
    /// No live link can carry the service, or its registration is unanswered.
    #[default]
    Waiting,
    /// The client is superseded: a newer process of the same name serves.
    Superseded,
    /// The service, or one of its addresses, is not published. The text is the reason.
    Refused,
    /// A word from a newer daemon.
    #[serde(other)]
    Unknown,
}

impl State for ServiceState {
    const ALL: &'static [Self] = &[
        Self::Up,
        Self::TargetDown,
        Self::Draining,
        Self::Denied,
        Self::Waiting,
        Self::Superseded,
        Self::Refused,
    ];

    fn text(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::TargetDown => "target down",
            Self::Draining => "draining",
            Self::Denied => "denied",
            Self::Waiting => "waiting for the server",
            Self::Superseded => "superseded",
            Self::Refused => "refused",
            Self::Unknown => UNKNOWN,
        }
    }

    fn tone(self) -> Tone {
        match self {
            Self::Up => Tone::Good,
            Self::Draining | Self::Waiting | Self::Superseded | Self::Unknown => Tone::Waits,
            Self::TargetDown | Self::Denied | Self::Refused => Tone::Bad,
        }
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

/// Whether a client of a server is connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientState {
    Connected,
    /// The client has links, but none of them has a connection.
    Stalled,
    /// The client has disconnected since the server's start.
    Away,
    /// The client has not logged in since the server's start.
    #[default]
    NeverSeen,
    /// A word from a newer daemon.
    #[serde(other)]
    Unknown,
}

impl State for ClientState {
    const ALL: &'static [Self] = &[Self::Connected, Self::Stalled, Self::Away, Self::NeverSeen];

    fn text(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Stalled => "without a connection",
            Self::Away => "away",
            Self::NeverSeen => "away since the server's start",
            Self::Unknown => UNKNOWN,
        }
    }

    fn tone(self) -> Tone {
        match self {
            Self::Connected => Tone::Good,
            Self::Stalled | Self::Away | Self::NeverSeen | Self::Unknown => Tone::Waits,
        }
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
