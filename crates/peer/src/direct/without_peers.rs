//! What connections over data channels share, in a build without WebRTC: nothing.

/// No peer.
#[derive(Debug, Default)]
pub(super) struct Peers(());
