//! The errors of a dial.

use std::io;

use proto::ResetCode;
use rustix::io::Errno;

use super::TargetAddr;

/// A target could not be connected.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The name does not resolve.
    #[error("{host} does not resolve: {source}")]
    Resolve {
        /// The host name.
        host: String,
        /// The error of the resolver.
        source: io::Error,
    },
    /// None of the target's addresses is permitted.
    #[error("{0} is not an allowed target")]
    Denied(TargetAddr),
    /// The target would give control over this daemon.
    #[error(
        "{0} leads to this daemon itself, to its admin API or its control socket, which no target \
         may be"
    )]
    Guarded(TargetAddr),
    /// The target is a broadcast address, and the service does not permit broadcast.
    #[error(
        "{0} is a broadcast address, or a route of this machine prohibits it: `broadcast: true` of \
         the service sends to all machines of a network"
    )]
    Broadcast(TargetAddr),
    /// Every address failed. The error is that of the first address tried, unless that had no
    /// route.
    #[error("{target}: {source}")]
    Connect {
        /// The target.
        target: TargetAddr,
        /// The error of the system.
        source: io::Error,
    },
    /// The part of the descriptor table that targets may use is full.
    #[error("{0}: no descriptor is left for a target; raise the limit of open files (LimitNOFILE)")]
    Exhausted(TargetAddr),
    /// The service, or the client for which the target is dialled, has used up its share of the
    /// descriptors.
    #[error(
        "{0}: no descriptor is left of the share of its owner; raise the limit of open files \
         (LimitNOFILE)"
    )]
    Share(TargetAddr),
    /// No local port is free. The target is not the cause.
    #[error("this machine has no free local port to {0} (net.ipv4.ip_local_port_range)")]
    Ports(TargetAddr),
    /// The limit of flows is reached.
    #[error(
        "{0}: there are as many flows as may be; raise `limits.flows`, or the limit of open files \
         (LimitNOFILE)"
    )]
    Full(TargetAddr),
    /// Too many names wait for the resolver.
    #[error("{0}: too many names wait for the resolver already")]
    Names(TargetAddr),
    /// Too many dials of the same client or service wait or are in progress.
    #[error("{0}: too many dials are in progress already")]
    Busy(TargetAddr),
    /// The layer above the connection could not be established, for example because the certificate
    /// of the target is not trusted.
    #[error("{target} {reason}")]
    Layer {
        /// The target.
        target: TargetAddr,
        /// What the target does, as text.
        reason: String,
    },
    /// The target lacks the protocol that this visitor speaks. It may serve other visitors.
    #[error("{target} {reason}")]
    Protocol {
        /// The target.
        target: TargetAddr,
        /// What the target lacks, as text.
        reason: String,
    },
    /// The deadline passed.
    #[error("{0} did not answer in time")]
    Timeout(TargetAddr),
}

impl DialError {
    /// Whether this machine lacks a resource, so that the target is not the cause.
    #[must_use]
    pub const fn is_own(&self) -> bool {
        match self {
            Self::Exhausted(_)
            | Self::Share(_)
            | Self::Ports(_)
            | Self::Full(_)
            | Self::Names(_)
            | Self::Busy(_) => true,
            Self::Resolve { .. }
            | Self::Denied(_)
            | Self::Guarded(_)
            | Self::Broadcast(_)
            | Self::Connect { .. }
            | Self::Layer { .. }
            | Self::Protocol { .. }
            | Self::Timeout(_) => false,
        }
    }

    /// The reset code that the far side receives.
    #[must_use]
    pub fn code(&self) -> ResetCode {
        match self {
            Self::Resolve { source, .. } | Self::Connect { source, .. } => code_of(source),
            Self::Denied(_) | Self::Guarded(_) | Self::Broadcast(_) => ResetCode::Denied,
            Self::Layer { .. } | Self::Protocol { .. } => ResetCode::Unreachable,
            Self::Exhausted(_)
            | Self::Share(_)
            | Self::Ports(_)
            | Self::Full(_)
            | Self::Names(_)
            | Self::Busy(_) => ResetCode::Limit,
            Self::Timeout(_) => ResetCode::Timeout,
        }
    }
}

/// The reset code for an error of connect(2) or of the resolver.
pub(super) fn code_of(error: &io::Error) -> ResetCode {
    match Errno::from_io_error(error) {
        Some(Errno::CONNREFUSED | Errno::CONNRESET) => ResetCode::Refused,
        Some(Errno::TIMEDOUT) => ResetCode::Timeout,
        Some(Errno::ACCESS | Errno::PERM) => ResetCode::Denied,
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => ResetCode::Limit,
        Some(_) | None => ResetCode::Unreachable,
    }
}
