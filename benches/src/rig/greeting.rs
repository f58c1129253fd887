//! A complete greeting of a new link, with both sides and no connection between them.

use std::time::Duration;

use bytes::BytesMut;
use proto::greeting::{
    Binding, ClientGreeting, ClientSetup, Features, Identity, Name, ServerEvent, ServerGreeting,
    ServerSetup, StoredCredential, Terms, Token, Versions,
};
use proto::{InstanceId, LinkId};

/// The data that both sides have before the greeting.
#[derive(Debug)]
pub struct Greeting {
    client: ClientSetup,
    server: ServerSetup,
    credential: StoredCredential,
}

impl Default for Greeting {
    /// A greeting with a token, bound to a TLS session.
    ///
    /// # Panics
    /// Never: name and token are valid.
    fn default() -> Self {
        let binding = Binding::Exporter([7; 32]);
        let token = Token::new("q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ").expect("256 bits");
        let credential = token.stored();
        let client = ClientSetup {
            binding,
            name: Name::new("home").expect("a name"),
            identity: Identity::Token(token),
            instance: InstanceId([1; 16]),
            takeover: true,
            attach: None,
            versions: Versions::OURS,
            features: Features(0),
            nonce: [2; 32],
        };
        let server = ServerSetup {
            binding,
            certificate_name: None,
            versions: Versions::OURS,
            features: Features(0),
            introductions: false,
            links_suffice: false,
            nonce: [3; 32],
        };
        Self { client, server, credential }
    }
}

impl Greeting {
    /// Runs the greeting. Returns whether both sides accepted.
    #[must_use]
    pub fn run(&self) -> bool {
        let Ok(mut client) = ClientGreeting::new(self.client.clone()) else { return false };
        let mut server = ServerGreeting::new(self.server.clone());
        let (mut to_client, mut to_server) = (BytesMut::new(), BytesMut::new());
        let mut accepted = false;
        // Hello, answer and proof: at most three messages.
        for _ in 0..3 {
            while let Some(bytes) = client.poll_output() {
                to_server.extend_from_slice(&bytes);
            }
            server.handle_input(&mut to_server);
            while let Some(event) = server.poll_event() {
                match event {
                    ServerEvent::Credentials { .. } => {
                        server.credentials(std::slice::from_ref(&self.credential));
                    }
                    ServerEvent::Decide(_) => accepted = server.accept(&terms()).is_some(),
                    ServerEvent::LinkSecret { .. }
                    | ServerEvent::Preview { .. }
                    | ServerEvent::Failed(_) => return false,
                }
            }
            while let Some(bytes) = server.poll_output() {
                to_client.extend_from_slice(&bytes);
            }
            client.handle_input(&mut to_client);
            if let Some(outcome) = client.poll_outcome() {
                return outcome.is_ok() && accepted;
            }
        }
        false
    }
}

fn terms() -> Terms {
    Terms {
        new_link: LinkId([9; 16]),
        resume_timeout: Duration::from_secs(60),
        keepalive: Duration::from_secs(15),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_accept() {
        assert!(Greeting::default().run());
    }
}
