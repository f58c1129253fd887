//! The clients as small records.

use cluster::engine::Revision;
use cluster::names::{ClientName, Instance};

/// No node.
pub(super) const NOWHERE: u16 = u16::MAX;

/// A client. It has one process, one session at its node, and perhaps a former session that has not
/// ended yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimClient {
    /// The number of its process.
    pub(super) process: u32,
    /// The node of its session, or [`NOWHERE`].
    pub(super) home: u16,
    /// The node of the former session, or [`NOWHERE`], and its process.
    pub(super) former: u16,
    pub(super) former_process: u32,
    /// The attempts to log in that have failed since the last success.
    pub(super) tries: u8,
    /// The client moves to another node and keeps its session until then.
    pub(super) moves: bool,
    /// The record in the engine names a session of the present process, in the present epoch.
    pub(super) is_reached: bool,
    /// The millisecond since which it is not reached.
    pub(super) lost_at: u32,
    /// When the record has named the present process first, and by which change; 0 before that.
    pub(super) recorded_at: u64,
    pub(super) recorded_by: Revision,
}

impl SimClient {
    pub(super) const fn new() -> Self {
        Self {
            process: 1,
            home: NOWHERE,
            former: NOWHERE,
            former_process: 0,
            tries: 0,
            moves: false,
            is_reached: false,
            lost_at: 0,
            recorded_at: 0,
            recorded_by: Revision(0),
        }
    }

    /// Whether the node has a session of this process.
    pub(super) const fn has_session(&self, node: u16, process: u32) -> bool {
        (self.home == node && self.process == process)
            || (self.former == node && self.former_process == process)
    }
}

/// The name of a client.
pub(super) fn name(client: u32) -> ClientName {
    // Names of a letter and digits are always names.
    ClientName::new(&format!("c{client:07}")).unwrap_or_else(|_| unreachable!("a name"))
}

/// The number of a client.
pub(super) fn number(name: &ClientName) -> Option<u32> {
    name.as_str().strip_prefix('c')?.parse().ok()
}

/// The random number of a process of a client.
pub(super) const fn instance(client: u32, process: u32) -> Instance {
    Instance(((client as u64) << 32) | process as u64)
}

/// The process with this number.
pub(super) const fn process(Instance(number): Instance) -> u32 {
    (number & 0xffff_ffff) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_small_and_its_numbers_read_back() {
        assert!(size_of::<SimClient>() <= 64);
        assert_eq!(number(&name(1_234_567)), Some(1_234_567));
        assert_eq!(process(instance(1_234_567, 89)), 89);
    }
}
