//! A greeting that one server begins, because a client reached it, and another server continues,
//! because it has the link.

use super::attach::{attaching, knowing, secret};
use super::*;

/// The greeting of a client at a server that does not have the link, and the bytes of the client.
struct BegunGreeting {
    client: ClientGreeting,
    heard: Bytes,
}

fn begin(setup: ClientSetup, binding: Binding) -> BegunGreeting {
    let mut client = ClientGreeting::new(setup).unwrap();
    let mut server = ServerGreeting::new(server_setup(binding));
    let (mut to_client, mut to_server) = (BytesMut::new(), BytesMut::new());
    let credentials = [token(TOKEN).stored()];
    loop {
        to_server.extend(client.poll_output().into_iter().flatten());
        assert_eq!(server.heard(), None, "the client is not authenticated");
        server.handle_input(&mut to_server);
        to_client.extend(server.poll_output().into_iter().flatten());
        client.handle_input(&mut to_client);
        match server.poll_event() {
            None => {}
            Some(ServerEvent::Credentials { .. }) => server.credentials(&credentials),
            Some(event) => panic!("{event:?}"),
        }
        if let Some(ServerEvent::LinkSecret { .. }) = server.poll_event() {
            return BegunGreeting { client, heard: server.heard().unwrap() };
        }
    }
}

impl BegunGreeting {
    /// Continues the greeting at a server with this knowledge.
    fn end(mut self, setup: ServerSetup, knowledge: &Knowledge) -> (ServerEnd, ClientEnd) {
        let mut server = ServerGreeting::continued(setup);
        assert_eq!(server.poll_output(), None, "the nonce was sent already");
        let mut input = BytesMut::from(&self.heard[..]);
        input.extend_from_slice(b"frames");
        server.handle_input(&mut input);
        let end = knowledge.drive(&mut server).unwrap();
        if end.outcome.is_ok() {
            assert_eq!(input, b"frames"[..], "what follows the greeting stays");
        }
        let mut output = BytesMut::from(&server.poll_output().unwrap()[..]);
        self.client.handle_input(&mut output);
        (end, self.client.poll_outcome().unwrap())
    }
}

#[test]
fn the_server_that_has_the_link_continues_a_greeting() {
    for binding in BOTH {
        let begun = begin(attaching(binding, secret(1)), binding);
        let (server, client) = begun.end(server_setup(binding), &knowing());
        let (server, client) = (server.outcome.unwrap(), client.unwrap());
        assert_eq!((server.link, server.carrier), (client.link, client.carrier));
        assert_eq!(server.link, attach::LINK);
    }
}

#[test]
fn a_continued_greeting_checks_what_the_first_server_has_not_checked() {
    for binding in BOTH {
        let begun = begin(attaching(binding, secret(2)), binding);
        let (server, client) = begun.end(server_setup(binding), &knowing());
        let unknown = GreetingError::Refused(Refusal::UnknownLink);
        assert_eq!((server.outcome.unwrap_err(), client.unwrap_err()), (unknown, unknown));
        let nobody = Knowledge { credentials: vec![], ..knowing() };
        let begun = begin(attaching(binding, secret(1)), binding);
        let (server, _) = begun.end(server_setup(binding), &nobody);
        assert_eq!(server.outcome.unwrap_err().refusal(), Some(Refusal::BadCredential));
    }
}

#[test]
fn a_continued_greeting_needs_the_nonce_and_the_binding_of_the_first_server() {
    let begun = begin(attaching(Binding::None, secret(1)), Binding::None);
    let other = ServerSetup { nonce: [0x56; 32], ..server_setup(Binding::None) };
    let (server, _) = begun.end(other, &knowing());
    assert_eq!(server.outcome.unwrap_err().refusal(), Some(Refusal::BadCredential));
    let begun = begin(attaching(BOUND, secret(1)), BOUND);
    let (server, _) = begun.end(server_setup(Binding::Exporter([0xef; 32])), &knowing());
    assert_eq!(server.outcome.unwrap_err().refusal(), Some(Refusal::BadCredential));
    let begun = begin(attaching(BOUND, secret(1)), BOUND);
    let (server, _) = begun.end(server_setup(Binding::None), &knowing());
    assert_eq!(server.outcome.unwrap_err().refusal(), Some(Refusal::Binding));
    // Of a bound carrier the nonce is in the proof of the server alone.
    let begun = begin(attaching(BOUND, secret(1)), BOUND);
    let other = ServerSetup { nonce: [0x56; 32], ..server_setup(BOUND) };
    let (server, client) = begun.end(other, &knowing());
    assert!(server.outcome.is_ok() && client.is_err());
}
