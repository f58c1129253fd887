//! Messages between two nodes, as bytes: compact JSON with a version, as the records have it. A
//! message that this version does not know is refused. The sender takes it for a message that got
//! lost, so nodes of two versions need no handshake about messages.
//!
//! | `say` | fields | message |
//! |---|---|---|
//! | `status` | `hears_engine` | [`PeerMessage::Status`] |
//! | `ask` | `id`, `of`, `ask_engine` | [`PeerMessage::Ask`] |
//! | `answer` | `id`, `incarnation`, `known` | [`PeerMessage::Answer`] |
//! | `superseded` | `client`, `incarnation`, `generation`, `record` | [`PeerMessage::Superseded`] |
//!
//! `of` is `{"client": NAME}` or `{"resource": KEY}`, with the key of the engine below its prefix
//! (`port/tcp/public/80`). `known` is `"unknown"`, `"absent"`, `{"at": [NUMBER, RECORD]}` or
//! `{"holding": [NUMBER, RECORD]}`.

use serde::{Deserialize, Serialize};

use crate::keys::{RecordPlace, parsed, suffix};
use crate::names::{ClientName, Generation, Key};
use crate::node::{PeerKnowledge, PeerMessage, Subject};
use crate::record::{At, BadRecord, Holding, Record as _};

/// The version of messages that this program writes and reads.
const VERSION: u32 = 1;

/// The most bytes of a message: a record, with the words around it.
pub const MESSAGE_BYTES: usize = 32 * 1024;

/// Why bytes are no message.
#[derive(Debug, thiserror::Error)]
pub enum BadMessage {
    /// The bytes are more than any message has.
    #[error("a message has at most {MESSAGE_BYTES} bytes, this one has {0}")]
    Long(usize),
    /// The bytes are no JSON, or a field is missing or unknown.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// The message has a version that this program does not read.
    #[error("version {0} of a message between nodes, this program reads {VERSION}")]
    Version(u32),
    /// The record in the message is none.
    #[error("{0}")]
    Record(#[from] BadRecord),
}

/// The version alone, which is read first.
#[derive(Deserialize)]
struct VersionOnly {
    v: u32,
}

/// A message with its version.
#[derive(Serialize)]
struct Versioned<'a> {
    v: u32,
    #[serde(flatten)]
    said: &'a WireMessage,
}

/// A message.
#[derive(Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case", deny_unknown_fields)]
enum WireMessage {
    Status { hears_engine: bool },
    Ask { id: u64, of: WireSubject, ask_engine: bool },
    Answer { id: u64, incarnation: u64, known: WireKnowledge },
    Superseded { client: ClientName, incarnation: u64, generation: Generation, record: At },
}

/// A subject.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireSubject {
    Client(ClientName),
    Resource(KeyText),
}

/// A resource as the text of its key.
#[derive(Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
struct KeyText(Key);

impl Clone for KeyText {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl From<KeyText> for String {
    fn from(KeyText(key): KeyText) -> Self {
        suffix(&RecordPlace::Resource(key))
    }
}

impl TryFrom<String> for KeyText {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match parsed(&text) {
            Some(place @ RecordPlace::Resource(_)) if suffix(&place) != text => {}
            Some(RecordPlace::Resource(key)) => return Ok(Self(key)),
            Some(_) | None => {}
        }
        Err("this is the key of no port and of no host".to_owned())
    }
}

/// What is known of a subject.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WireKnowledge {
    Unknown,
    Absent,
    At(Generation, At),
    Holding(Generation, Holding),
}

/// The bytes of a message.
///
/// # Errors
/// The message has more bytes than another node reads. Records of the engine are shorter.
pub fn encode(message: PeerMessage) -> Result<Vec<u8>, BadMessage> {
    let said = WireMessage::from(message);
    let bytes = serde_json::to_vec(&Versioned { v: VERSION, said: &said })?;
    if bytes.len() > MESSAGE_BYTES { Err(BadMessage::Long(bytes.len())) } else { Ok(bytes) }
}

/// Reads a message.
///
/// # Errors
/// The bytes are no message, or a message of another version.
pub fn decode(bytes: &[u8]) -> Result<PeerMessage, BadMessage> {
    if bytes.len() > MESSAGE_BYTES {
        return Err(BadMessage::Long(bytes.len()));
    }
    let VersionOnly { v } = serde_json::from_slice(bytes)?;
    if v != VERSION {
        return Err(BadMessage::Version(v));
    }
    let mut fields: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(bytes)?;
    fields.remove("v");
    let said = WireMessage::deserialize(serde_json::Value::Object(fields))?;
    match &said {
        WireMessage::Superseded { record, .. }
        | WireMessage::Answer { known: WireKnowledge::At(_, record), .. } => {
            record.check()?;
        }
        WireMessage::Answer { known: WireKnowledge::Holding(_, record), .. } => record.check()?,
        WireMessage::Status { .. } | WireMessage::Ask { .. } | WireMessage::Answer { .. } => {}
    }
    Ok(said.into())
}

impl From<PeerMessage> for WireMessage {
    fn from(message: PeerMessage) -> Self {
        match message {
            PeerMessage::Status { hears_engine } => Self::Status { hears_engine },
            PeerMessage::Ask { id, subject, ask_engine } => {
                let of = match subject {
                    Subject::Client(client) => WireSubject::Client(client),
                    Subject::Resource(key) => WireSubject::Resource(KeyText(key)),
                };
                Self::Ask { id, of, ask_engine }
            }
            PeerMessage::Answer { id, incarnation, known } => {
                let known = match known {
                    PeerKnowledge::Unknown => WireKnowledge::Unknown,
                    PeerKnowledge::Absent => WireKnowledge::Absent,
                    PeerKnowledge::At(generation, at) => WireKnowledge::At(generation, at),
                    PeerKnowledge::Holding(generation, of) => {
                        WireKnowledge::Holding(generation, of)
                    }
                };
                Self::Answer { id, incarnation, known }
            }
            PeerMessage::Superseded { client, incarnation, generation, record } => {
                Self::Superseded { client, incarnation, generation, record }
            }
        }
    }
}

impl From<WireMessage> for PeerMessage {
    fn from(said: WireMessage) -> Self {
        match said {
            WireMessage::Status { hears_engine } => Self::Status { hears_engine },
            WireMessage::Ask { id, of, ask_engine } => {
                let subject = match of {
                    WireSubject::Client(client) => Subject::Client(client),
                    WireSubject::Resource(KeyText(key)) => Subject::Resource(key),
                };
                Self::Ask { id, subject, ask_engine }
            }
            WireMessage::Answer { id, incarnation, known } => {
                let known = match known {
                    WireKnowledge::Unknown => PeerKnowledge::Unknown,
                    WireKnowledge::Absent => PeerKnowledge::Absent,
                    WireKnowledge::At(generation, at) => PeerKnowledge::At(generation, at),
                    WireKnowledge::Holding(generation, of) => {
                        PeerKnowledge::Holding(generation, of)
                    }
                };
                Self::Answer { id, incarnation, known }
            }
            WireMessage::Superseded { client, incarnation, generation, record } => {
                Self::Superseded { client, incarnation, generation, record }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::names::{Class, Instance, NodeEpoch, NodeId, PortProtocol, Space};
    use crate::record::Home;

    fn name() -> impl Strategy<Value = String> {
        "[a-zA-Z0-9 /%._\"\\\\\u{fc}-]{1,40}"
    }

    fn client() -> impl Strategy<Value = ClientName> {
        name().prop_map(|name| ClientName::new(&name).unwrap())
    }

    fn node() -> impl Strategy<Value = NodeId> {
        name().prop_map(|name| NodeId::new(&name).unwrap())
    }

    fn key() -> impl Strategy<Value = Key> {
        let over = prop_oneof![Just(PortProtocol::Tcp), Just(PortProtocol::Udp)];
        let class =
            prop_oneof![Just(Class::Public), any::<std::net::IpAddr>().prop_map(Class::Named),];
        let space = prop_oneof![Just(Space::Http), Just(Space::Tls)];
        prop_oneof![
            (over, class, any::<u16>())
                .prop_map(|(over, class, port)| Key::Port(over, class, port)),
            (space, "[a-z*%/.-]{1,40}").prop_map(|(space, host)| Key::Host(space, host.into())),
        ]
    }

    fn at() -> impl Strategy<Value = At> {
        let home = (node(), any::<u64>(), any::<u32>()).prop_map(|(node, epoch, links)| Home {
            node,
            epoch: NodeEpoch(epoch),
            links,
        });
        let former = any::<u64>().prop_map(Instance);
        let (homes, formers) =
            (prop::collection::vec(home, 0..=4), prop::collection::vec(former, 0..=8));
        (any::<u64>(), homes, any::<u64>(), formers).prop_map(|(instance, homes, since, former)| {
            At { instance: Instance(instance), homes, since: Generation(since), former }
        })
    }

    fn holding() -> impl Strategy<Value = Holding> {
        (client(), any::<u64>(), node(), any::<u64>(), ".{0,60}").prop_map(
            |(client, instance, node, epoch, about)| Holding {
                client,
                instance: Instance(instance),
                node,
                epoch: NodeEpoch(epoch),
                about,
                also: Vec::new(),
            },
        )
    }

    fn message() -> impl Strategy<Value = PeerMessage> {
        let subject =
            prop_oneof![client().prop_map(Subject::Client), key().prop_map(Subject::Resource)];
        let known = prop_oneof![
            Just(PeerKnowledge::Unknown),
            Just(PeerKnowledge::Absent),
            (any::<u64>(), at()).prop_map(|(n, at)| PeerKnowledge::At(Generation(n), at)),
            (any::<u64>(), holding()).prop_map(|(n, of)| PeerKnowledge::Holding(Generation(n), of)),
        ];
        prop_oneof![
            any::<bool>().prop_map(|hears_engine| PeerMessage::Status { hears_engine }),
            (any::<u64>(), subject, any::<bool>())
                .prop_map(|(id, subject, ask_engine)| PeerMessage::Ask { id, subject, ask_engine }),
            (any::<u64>(), any::<u64>(), known).prop_map(|(id, incarnation, known)| {
                PeerMessage::Answer { id, incarnation, known }
            }),
            (client(), any::<u64>(), any::<u64>(), at()).prop_map(
                |(client, incarnation, generation, record)| PeerMessage::Superseded {
                    client,
                    incarnation,
                    generation: Generation(generation),
                    record,
                }
            ),
        ]
    }

    proptest! {
        #[test]
        fn a_message_reads_back(message in message()) {
            let bytes = encode(message.clone()).unwrap();
            prop_assert_eq!(decode(&bytes).unwrap(), message);
        }

        /// A message in which bytes were changed is another message or is refused; what is read is
        /// written in the same way again.
        #[test]
        fn changed_bytes_are_refused_or_mean_something(
            message in message(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            end in any::<prop::sample::Index>(),
        ) {
            let mut bytes = encode(message).unwrap();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            for bytes in [&bytes[..], &bytes[..end.index(bytes.len())]] {
                if let Ok(read) = decode(bytes) {
                    prop_assert_eq!(decode(&encode(read.clone()).unwrap()).unwrap(), read);
                }
            }
        }

        #[test]
        fn noise_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(decode(&bytes).is_err());
        }
    }

    #[test]
    fn a_message_is_compact_json_with_a_version() {
        let text = |message| String::from_utf8(encode(message).unwrap()).unwrap();
        let status = text(PeerMessage::Status { hears_engine: true });
        assert_eq!(status, r#"{"v":1,"say":"status","hears_engine":true}"#);
        let subject = Subject::Resource(Key::Port(PortProtocol::Tcp, Class::Public, 80));
        let ask = text(PeerMessage::Ask { id: u64::MAX, subject, ask_engine: false });
        let resource = r#"{"resource":"port/tcp/public/80"}"#;
        let expected = format!(
            r#"{{"v":1,"say":"ask","id":18446744073709551615,"of":{resource},"ask_engine":false}}"#
        );
        assert_eq!(ask, expected);
    }

    #[test]
    fn nonsense_is_refused_with_its_reason() {
        let refused = |text: &str| decode(text.as_bytes()).unwrap_err().to_string();
        let good = r#"{"v":1,"say":"status","hears_engine":true}"#;
        assert!(decode(good.as_bytes()).is_ok());
        let former = |count: usize| {
            let former = vec!["1"; count].join(",");
            format!(
                r#"{{"v":1,"say":"superseded","client":"c","incarnation":1,"generation":1,
                "record":{{"instance":1,"homes":[],"since":1,"former":[{former}]}}}}"#
            )
        };
        assert!(decode(former(8).as_bytes()).is_ok());
        let ask = |of: &str| format!(r#"{{"v":1,"say":"ask","id":1,"of":{of},"ask_engine":true}}"#);
        for (text, reason) in [
            (String::new(), "EOF while parsing"),
            ("[]".into(), "invalid"),
            ("{}".into(), "missing field `v`"),
            (good.replace("\"v\":1", "\"v\":2"), "version 2 of a message"),
            (good.replace("status", "sing"), "unknown variant `sing`"),
            (good.replace("true", "1"), "invalid type"),
            (good.replace("true", "true,\"x\":1"), "unknown field `x`"),
            (former(9), "`former` has 9 entries"),
            (ask(r#"{"client":""}"#), "a name has 1 to 255 bytes"),
            (ask(r#"{"resource":"at/c"}"#), "no port and of no host"),
            (ask(r#"{"resource":"port/tcp/public/080"}"#), "no port and of no host"),
            ("[".repeat(10_000), "invalid"),
            (" ".repeat(MESSAGE_BYTES + 1), "a message has at most"),
        ] {
            let said = refused(&text);
            assert!(said.contains(reason), "{text:.80}: {said}");
        }
    }

    #[test]
    fn the_longest_record_of_the_engine_fits() {
        let record = Holding {
            client: ClientName::new("c").unwrap(),
            instance: Instance(u64::MAX),
            node: NodeId::new("n").unwrap(),
            epoch: NodeEpoch(u64::MAX),
            about: "\u{1}".repeat(crate::record::RECORD_BYTES / 6 - 30),
            also: Vec::new(),
        };
        let written = record.encode().len();
        assert!(
            (crate::record::RECORD_BYTES - 200..=crate::record::RECORD_BYTES).contains(&written)
        );
        let known = PeerKnowledge::Holding(Generation(u64::MAX), record);
        let message = PeerMessage::Answer { id: u64::MAX, incarnation: u64::MAX, known };
        assert!(encode(message).unwrap().len() <= MESSAGE_BYTES);
    }
}
