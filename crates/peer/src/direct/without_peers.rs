//! The shared state of connections over data channels, in a build without WebRTC: none.

/// No peer.
#[derive(Debug, Default)]
pub(super) struct Peers(());
