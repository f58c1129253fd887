//! The shared state of connections over data channels.

use std::sync::OnceLock;

use transport_webrtc::WebrtcSettings;

/// The peers of this client over data channels.
#[derive(Debug, Default)]
pub(super) struct Peers(OnceLock<transport_webrtc::Peers>);

impl Peers {
    /// The peers with these settings.
    pub(super) fn under(&self, settings: WebrtcSettings) -> transport_webrtc::Peers {
        if let Some(known) = self.0.get() {
            return known.with(settings);
        }
        self.0.get_or_init(|| transport_webrtc::Peers::new(settings.clone())).with(settings)
    }
}
