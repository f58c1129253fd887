//! Why there is no direct path, for a person.

use std::fmt;

use crate::nat::{Filtering, Mapping, Nat, Udp};
use crate::signal::Decline;

/// Why there is no direct path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// No signal of the peer arrived.
    Silent,
    /// The peer makes no attempt.
    Declined(Decline),
    /// The configuration of this end permits only relayed paths.
    Relay,
    /// One end has only IPv4 addresses, and the other end only IPv6 addresses.
    Families,
    /// UDP does not pass at this end.
    Blocked,
    /// UDP does not pass at the other end.
    BlockedThere,
    /// Both NATs choose another port per destination.
    BothMove,
    /// Our NAT chooses another port per destination, and the other end admits only ports to which
    /// it has sent.
    Moves,
    /// As [`Why::Moves`], with the ends exchanged.
    MovesThere,
    /// Checks of the peer arrived, and none of ours was answered.
    OneWay,
    /// No check arrived.
    Nothing,
}

impl Why {
    /// Determines why an attempt failed; `heard`: whether a check of the peer arrived.
    pub(super) const fn of(ours: Nat, theirs: Nat, heard: bool) -> Self {
        match (ours, theirs) {
            (Nat { udp: Udp::Blocked, .. }, _) => Self::Blocked,
            (_, Nat { udp: Udp::Blocked, .. }) => Self::BlockedThere,
            (
                Nat { mapping: Mapping::PerDestination, .. },
                Nat { mapping: Mapping::PerDestination, .. },
            ) => Self::BothMove,
            // If the other end does not filter, a changing port is not the reason.
            (Nat { mapping: Mapping::PerDestination, .. }, Nat { filtering, .. })
                if !matches!(filtering, Filtering::Open) =>
            {
                Self::Moves
            }
            (Nat { filtering, .. }, Nat { mapping: Mapping::PerDestination, .. })
                if !matches!(filtering, Filtering::Open) =>
            {
                Self::MovesThere
            }
            _ if heard => Self::OneWay,
            _ => Self::Nothing,
        }
    }
}

impl Why {
    /// The label in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::Declined(_) => "declined",
            Self::Relay => "relay",
            Self::Families => "families",
            Self::Blocked => "blocked",
            Self::BlockedThere => "blocked_there",
            Self::BothMove => "both_symmetric",
            Self::Moves => "symmetric",
            Self::MovesThere => "symmetric_there",
            Self::OneWay => "one_way",
            Self::Nothing => "nothing_arrived",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Silent => "the other side did not answer in time",
            Self::Declined(Decline::Relay) => {
                "the configuration of the other side permits relayed paths only"
            }
            Self::Declined(Decline::Unable) => "the other side has no address to try",
            Self::Declined(Decline::Without) => "the other side was built without WebRTC",
            Self::Declined(Decline::Often) => {
                "the other side was asked too often, or answers too many"
            }
            Self::Relay => "the configuration of this side permits relayed paths only",
            Self::Declined(Decline::Other(_)) => {
                "the other side does not try, for a reason that only a newer version knows"
            }
            Self::Families => "one side has addresses of IPv4 only and the other side of IPv6 only",
            Self::Blocked => "UDP does not pass on this side",
            Self::BlockedThere => "UDP does not pass on the other side",
            Self::BothMove => "the NATs of both sides choose another port per destination",
            Self::Moves => {
                "the NAT of this side chooses another port per destination, and the other side \
                 admits only ports that it knows"
            }
            Self::MovesThere => {
                "the NAT of the other side chooses another port per destination, and this side \
                 admits only ports that it knows"
            }
            Self::OneWay => {
                "checks of the other side arrive, but no answer to the checks of this side"
            }
            Self::Nothing => "no check of the other side arrived",
        })
    }
}
