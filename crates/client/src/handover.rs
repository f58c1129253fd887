//! The state that a client hands over to the next generation of its daemon. The server treats the
//! links of both processes as links of one process: visitors use the new links immediately, and
//! streams on the former links continue.

use std::fmt;
use std::str::FromStr;

use anyhow::Context;
use proto::InstanceId;

/// The generation of the first set of services of a process.
pub(super) const FIRST: u64 = 1;

/// The gap between the generations of the registrations of two processes. The former process may
/// register again until it hands over, but not a million times in that period.
pub(super) const ROOM: u64 = 1 << 20;

/// The gap for a process that replaces a next process that has terminated, possibly after upgrades
/// of its own: more than a million of them.
pub(super) const REST: u64 = 1 << 40;

/// The state with which the next process of a client continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandoverState {
    /// The id of the process as the server knows it.
    pub(super) instance: InstanceId,
    /// The generation of the first registration of the next process.
    pub(super) generation: u64,
    /// The name of the server that has the services, of several servers.
    pub(super) in_charge: Option<String>,
}

/// The text is not a handover state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the former process of the client left something that this version does not understand")]
pub struct UnknownHandover;

impl HandoverState {
    /// The id and the generation of a process that replaces no other.
    ///
    /// # Errors
    /// The system provides no random bytes.
    pub(super) fn first() -> anyhow::Result<Self> {
        let mut instance = [0; 16];
        getrandom::fill(&mut instance).context("random bytes")?;
        Ok(Self { instance: InstanceId(instance), generation: FIRST, in_charge: None })
    }
}

impl fmt::Display for HandoverState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x} {}", u128::from_be_bytes(self.instance.0), self.generation)?;
        self.in_charge.iter().try_for_each(|name| write!(f, " {name}"))
    }
}

impl FromStr for HandoverState {
    type Err = UnknownHandover;

    fn from_str(text: &str) -> Result<Self, UnknownHandover> {
        let (instance, generation) = text.split_once(' ').ok_or(UnknownHandover)?;
        let instance = u128::from_str_radix(instance, 16).map_err(|_| UnknownHandover)?;
        let (generation, in_charge) = match generation.split_once(' ') {
            Some((generation, name)) => (generation, Some(name.to_owned())),
            None => (generation, None),
        };
        let generation = generation.parse().map_err(|_| UnknownHandover)?;
        Ok(Self { instance: InstanceId(instance.to_be_bytes()), generation, in_charge })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_handover_state_is_read_again() {
        for in_charge in [None, Some("fra".to_owned())] {
            let (instance, generation) = (InstanceId([0x0a; 16]), ROOM + 1);
            let state = HandoverState { instance, generation, in_charge };
            assert_eq!(state.to_string().parse(), Ok(state));
        }
        for wrong in ["", "0a", "x 1", "0a x", "0a -1"] {
            assert_eq!(wrong.parse::<HandoverState>(), Err(UnknownHandover), "{wrong}");
        }
    }
}
