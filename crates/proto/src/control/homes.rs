//! The message by which a node of a cluster tells a client with which nodes the client can have
//! links.

use bytes::{BufMut, Bytes, BytesMut};

use super::decode::once;
use super::message::{self, homes};
use super::{ControlError, HOME_ADDRESSES_MAX, HOME_NODES_MAX, TEXT_MAX};
use crate::text::is_forbidden;
use crate::wire::{Reader, put_tlv};

/// The longest name of a node or of a zone, in bytes.
const NAME_MAX: usize = 255;

/// The nodes of a cluster with which a client can have links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Homes {
    /// The number of nodes with which the client should have links.
    pub wanted: u8,
    /// The nodes, at most [`HOME_NODES_MAX`]. The first of the first message of a link is the node
    /// that sends it. A later message leaves that node out if the client should choose another.
    pub nodes: Vec<HomeNode>,
}

/// A node of a cluster, as a client sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HomeNode {
    /// Its name.
    pub name: String,
    /// Its failure domain; empty: not known.
    pub zone: String,
    /// Its own addresses for clients, as URLs, at most [`HOME_ADDRESSES_MAX`]. Empty: a client
    /// cannot choose this node.
    pub addresses: Vec<String>,
}

impl Homes {
    /// Encodes the message. Nodes and addresses beyond the limits are left out.
    pub(super) fn encode(&self) -> Bytes {
        let fits = |text: &str, most| text.len() <= most && !text.chars().any(is_forbidden);
        let is_good = |node: &&HomeNode| {
            !node.name.is_empty() && fits(&node.name, NAME_MAX) && fits(&node.zone, NAME_MAX)
        };
        let mut out = BytesMut::new();
        put_tlv(&mut out, message::HOMES, |out| {
            put_tlv(out, homes::WANTED, |out| out.put_u8(self.wanted));
            for node in self.nodes.iter().filter(is_good).take(HOME_NODES_MAX) {
                put_tlv(out, homes::NODE, |out| {
                    put_tlv(out, homes::NAME, |out| out.put_slice(node.name.as_bytes()));
                    if !node.zone.is_empty() {
                        put_tlv(out, homes::ZONE, |out| out.put_slice(node.zone.as_bytes()));
                    }
                    let all = node.addresses.iter().filter(|url| fits(url, TEXT_MAX));
                    for url in all.take(HOME_ADDRESSES_MAX) {
                        put_tlv(out, homes::ADDRESS, |out| out.put_slice(url.as_bytes()));
                    }
                });
            }
        });
        out.freeze()
    }

    pub(super) fn decode(body: &[u8]) -> Result<Self, ControlError> {
        let mut body = Reader::new(body);
        let (mut wanted, mut nodes) = (None, Vec::new());
        while let Some((kind, mut value)) = body.tlv()? {
            match kind {
                homes::WANTED => once(&mut wanted, value.u8()?)?,
                homes::NODE if nodes.len() >= HOME_NODES_MAX => {
                    return Err(ControlError::Malformed("too many nodes"));
                }
                homes::NODE => nodes.push(HomeNode::decode(value)?),
                _ => {}
            }
        }
        let wanted = wanted.ok_or(ControlError::Malformed("no number of homes"))?;
        Ok(Self { wanted, nodes })
    }
}

impl HomeNode {
    fn decode(mut body: Reader<'_>) -> Result<Self, ControlError> {
        let (mut name, mut zone, mut addresses) = (None, None, Vec::new());
        while let Some((kind, value)) = body.tlv()? {
            match kind {
                homes::NAME => once(&mut name, value.text(NAME_MAX)?.to_owned())?,
                homes::ZONE => once(&mut zone, value.text(NAME_MAX)?.to_owned())?,
                homes::ADDRESS if addresses.len() >= HOME_ADDRESSES_MAX => {
                    return Err(ControlError::Malformed("too many addresses of a node"));
                }
                homes::ADDRESS => addresses.push(value.text(TEXT_MAX)?.to_owned()),
                _ => {}
            }
        }
        let name = name.filter(|name| !name.is_empty());
        let name = name.ok_or(ControlError::Malformed("a node without a name"))?;
        Ok(Self { name, zone: zone.unwrap_or_default(), addresses })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ControlDecoder, ControlMessage};
    use super::*;

    fn read(message: &Bytes) -> Result<Option<ControlMessage>, ControlError> {
        ControlDecoder::new().decode(&mut message.clone())
    }

    fn node(name: &str) -> HomeNode {
        let addresses = vec!["tls://a:7000".to_owned()];
        HomeNode { name: name.to_owned(), zone: String::new(), addresses }
    }

    #[test]
    fn nodes_that_a_client_would_refuse_are_left_out() {
        let long = HomeNode { zone: "z".repeat(NAME_MAX + 1), ..node("b") };
        let mut many = node("c");
        many.addresses = vec!["tls://a".to_owned(); HOME_ADDRESSES_MAX + 1];
        many.addresses.insert(0, "a".repeat(TEXT_MAX + 1));
        let nodes = vec![node(""), node("a\n"), long, many.clone()];
        let homes = Homes { wanted: 2, nodes };
        many.addresses = vec!["tls://a".to_owned(); HOME_ADDRESSES_MAX];
        let left = ControlMessage::Homes(Homes { wanted: 2, nodes: vec![many] });
        assert_eq!(read(&homes.encode()), Ok(Some(left)));
        let homes = Homes { wanted: 2, nodes: vec![node("a"); HOME_NODES_MAX + 1] };
        let Ok(Some(ControlMessage::Homes(read))) = read(&homes.encode()) else { panic!() };
        assert_eq!(read.nodes.len(), HOME_NODES_MAX);
    }

    #[test]
    fn malformed_nodes_end_the_link() {
        type Write = fn(&mut BytesMut);
        let cases: &[(&str, Write)] = &[
            ("no number", |_| {}),
            ("two numbers", |out| {
                put_tlv(out, homes::WANTED, |out| out.put_u8(1));
                put_tlv(out, homes::WANTED, |out| out.put_u8(1));
            }),
            ("no name", |out| {
                put_tlv(out, homes::WANTED, |out| out.put_u8(1));
                put_tlv(out, homes::NODE, |_| {});
            }),
            ("an empty name", |out| {
                put_tlv(out, homes::WANTED, |out| out.put_u8(1));
                put_tlv(out, homes::NODE, |out| put_tlv(out, homes::NAME, |_| {}));
            }),
            ("too many nodes", |out| {
                put_tlv(out, homes::WANTED, |out| out.put_u8(1));
                for _ in 0..=HOME_NODES_MAX {
                    put_tlv(out, homes::NODE, |out| {
                        put_tlv(out, homes::NAME, |out| out.put_u8(b'a'));
                    });
                }
            }),
            ("too many addresses", |out| {
                put_tlv(out, homes::WANTED, |out| out.put_u8(1));
                put_tlv(out, homes::NODE, |out| {
                    put_tlv(out, homes::NAME, |out| out.put_u8(b'a'));
                    for _ in 0..=HOME_ADDRESSES_MAX {
                        put_tlv(out, homes::ADDRESS, |out| out.put_u8(b'a'));
                    }
                });
            }),
        ];
        for (what, write) in cases {
            let mut message = BytesMut::new();
            put_tlv(&mut message, message::HOMES, write);
            assert!(matches!(read(&message.freeze()), Err(ControlError::Malformed(_))), "{what}");
        }
    }
}
