//! Early data: a read-only preview of the link, for a client that holds its secret at the other end
//! of the same connection.

use super::attach::{LINK, attach, attaching, knowing, secret};
use super::message::{ACCEPT, EARLY, EARLY_SIGNATURE, HELLO, PROOF, SIGNATURE};
use super::*;

const EARLY_BOUND: EarlyBinding = EarlyBinding { client: [0xe1; 32], server: [0xe2; 32] };

fn client() -> ClientSetup {
    attaching(BOUND, secret(1))
}

fn flight(setup: &ClientSetup, client: [u8; 32]) -> Bytes {
    // The binding of the connection at that time.
    let setup = ClientSetup { binding: Binding::None, ..setup.clone() };
    setup.early_flight(&client).unwrap()
}

/// A server that has received `said` as early data, and its reply.
fn heard(said: &[u8], binding: EarlyBinding, knowledge: &Knowledge) -> (ServerGreeting, Bytes) {
    let mut server = ServerGreeting::early(server_setup(BOUND), binding);
    server.handle_input(&mut BytesMut::from(said));
    assert!(knowledge.drive(&mut server).is_none(), "nothing is decided early");
    let said = server.poll_output().unwrap();
    (server, said)
}

/// The rest of the greeting after the handshake, at the client and at the server.
fn finish(
    setup: ClientSetup,
    mut server: ServerGreeting,
    early: &[u8],
    knowledge: &Knowledge,
) -> (ClientEnd, ServerEnd, Bytes) {
    let mut client = ClientGreeting::after_early(setup, &EARLY_BOUND).unwrap();
    let mut input = BytesMut::from(early);
    client.handle_input(&mut input);
    server.handshake_done(BOUND, None);
    server.handle_input(&mut BytesMut::from(&client.poll_output().unwrap()[..]));
    let end = knowledge.drive(&mut server).unwrap();
    let late = server.poll_output().unwrap_or_default();
    client.handle_input(&mut BytesMut::from(&late[..]));
    (client.poll_outcome().unwrap(), end, late)
}

/// The kinds of the messages after the magic.
fn kinds(mut said: &[u8]) -> Vec<u8> {
    said = said.strip_prefix(&MAGIC).unwrap_or(said);
    let mut kinds = Vec::new();
    while let [kind, a, b, c, ..] = *said {
        kinds.push(kind);
        said = &said[4 + u32::from_be_bytes([0, a, b, c]) as usize..];
    }
    kinds
}

#[test]
fn a_client_that_comes_back_is_answered_before_its_proof() {
    let said = flight(&client(), EARLY_BOUND.client);
    assert_eq!(kinds(&said), [HELLO, EARLY], "and nothing else");
    let (server, early) = heard(&said, EARLY_BOUND, &knowing());
    assert_eq!(kinds(&early), [message::NONCE, ACCEPT, EARLY_SIGNATURE]);
    let mut greeting = ClientGreeting::after_early(client(), &EARLY_BOUND).unwrap();
    assert_eq!(kinds(&greeting.poll_output().unwrap()), [PROOF], "at once");
    let mut input = BytesMut::from(&[&early[..], b"frames"].concat()[..]);
    greeting.handle_input(&mut input);
    assert!(greeting.poll_outcome().unwrap().unwrap().early);
    assert_eq!(input, &b"frames"[..]);
    let (outcome, end, late) = finish(client(), server, &early, &knowing());
    let (here, there) = (outcome.unwrap(), end.outcome.unwrap());
    assert!(here.early && there.early && late.is_empty(), "frames follow the early answer");
    assert_eq!((here.link, here.carrier), (LINK, attach().carrier));
    assert_eq!((there.link, there.carrier), (LINK, attach().carrier));
    assert_eq!(end.grant.unwrap().attach, Some(attach()));
}

#[test]
fn nothing_is_proved_before_the_handshake_is_done() {
    let mut said = flight(&client(), EARLY_BOUND.client).to_vec();
    let mut greeting = ClientGreeting::after_early(client(), &EARLY_BOUND).unwrap();
    said.extend_from_slice(&greeting.poll_output().unwrap());
    let mut server = ServerGreeting::early(server_setup(BOUND), EARLY_BOUND);
    let mut input = BytesMut::from(&said[..]);
    server.handle_input(&mut input);
    assert!(knowing().drive(&mut server).is_none());
    server.handle_input(&mut input);
    assert!(server.poll_event().is_none() && kinds(&input) == [PROOF], "it waits where it is");
    server.handshake_done(BOUND, None);
    server.handle_input(&mut input);
    assert!(knowing().drive(&mut server).unwrap().outcome.is_ok());
}

#[test]
fn the_first_flight_on_another_connection_gets_no_look_at_the_link() {
    let said = flight(&client(), EARLY_BOUND.client);
    let other = EarlyBinding { client: [0xe9; 32], ..EARLY_BOUND };
    let (_, early) = heard(&said, other, &knowing());
    assert_eq!(kinds(&early), [message::NONCE]);
}

#[test]
fn the_same_first_flight_again_gets_the_same_look_and_no_further() {
    let said = flight(&client(), EARLY_BOUND.client);
    let (_, first) = heard(&said, EARLY_BOUND, &knowing());
    let (mut server, second) = heard(&said, EARLY_BOUND, &knowing());
    assert_eq!(first, second);
    // The sender of a replay did not make the ClientHello: it does not have the proof of the first
    // connection.
    let mut greeting = ClientGreeting::after_early(client(), &EARLY_BOUND).unwrap();
    server.handshake_done(Binding::Exporter([0xef; 32]), None);
    server.handle_input(&mut BytesMut::from(&greeting.poll_output().unwrap()[..]));
    let end = knowing().drive(&mut server).unwrap();
    assert_eq!(end.outcome.unwrap_err(), GreetingError::Refused(Refusal::BadCredential));
    assert_eq!(server.poll_output(), None, "frames may have followed the answer: it just closes");
}

#[test]
fn who_has_not_the_secret_of_the_link_gets_no_look_at_it_and_an_ordinary_refusal() {
    let wrong = attaching(BOUND, secret(2));
    let gone = Knowledge { links: vec![], ..knowing() };
    let sibling = ClientSetup { instance: InstanceId([0x23; 16]), ..client() };
    let other = ClientSetup { name: name("other"), ..client() };
    for (setup, knowledge, refusal) in [
        (wrong, knowing(), Refusal::UnknownLink),
        (client(), gone, Refusal::UnknownLink),
        (sibling, knowing(), Refusal::UnknownLink),
        (other, knowing(), Refusal::BadCredential),
    ] {
        let (server, early) = heard(&flight(&setup, EARLY_BOUND.client), EARLY_BOUND, &knowledge);
        assert_eq!(kinds(&early), [message::NONCE]);
        let (outcome, end, _) = finish(setup, server, &early, &knowledge);
        assert_eq!(outcome.unwrap_err(), GreetingError::Refused(refusal));
        assert_eq!(end.outcome.unwrap_err(), GreetingError::Refused(refusal));
    }
}

#[test]
fn a_decoy_is_no_secret_of_a_link_that_is_gone() {
    let said = flight(&client(), EARLY_BOUND.client);
    let hello = &said[MAGIC.len()..said.len() - 4 - 32];
    let mut transcript = transcript::Transcript::early(&EARLY_BOUND.client);
    transcript.push(hello);
    let hash = transcript.hash();
    let mut bytes = BytesMut::from(&MAGIC[..]);
    bytes.extend_from_slice(hello);
    message::write_mac(EARLY, &LinkSecret::decoy(hash).early_proof(&hash), &mut bytes);
    let gone = Knowledge { links: vec![], ..knowing() };
    assert_eq!(kinds(&heard(&bytes, EARLY_BOUND, &gone).1), [message::NONCE]);
}

#[test]
fn a_server_that_has_nothing_to_show_greets_as_ever() {
    let none = Knowledge { previews: false, ..knowing() };
    let (server, early) = heard(&flight(&client(), EARLY_BOUND.client), EARLY_BOUND, &none);
    assert_eq!(kinds(&early), [message::NONCE]);
    let (outcome, end, late) = finish(client(), server, &early, &none);
    assert!(!outcome.unwrap().early && !end.outcome.unwrap().early);
    assert_eq!(kinds(&late), [ACCEPT, SIGNATURE]);
}

#[test]
fn a_client_that_says_nothing_early_is_greeted_as_ever() {
    let mut server = ServerGreeting::early(server_setup(BOUND), EARLY_BOUND);
    let mut greeting = ClientGreeting::new(client()).unwrap();
    let mut input = BytesMut::from(&greeting.poll_output().unwrap()[..]);
    server.handle_input(&mut input);
    assert_eq!((kinds(&input), server.poll_event().is_none()), (vec![PROOF], true));
    server.handshake_done(BOUND, None);
    server.handle_input(&mut input);
    assert!(!knowing().drive(&mut server).unwrap().outcome.unwrap().early);
    greeting.handle_input(&mut BytesMut::from(&server.poll_output().unwrap()[..]));
    assert!(!greeting.poll_outcome().unwrap().unwrap().early);
}

#[test]
fn every_bit_of_the_first_flight_counts() {
    let said = flight(&client(), EARLY_BOUND.client);
    for bit in MAGIC.len() * 8..said.len() * 8 {
        let mut bent = said.to_vec();
        bent[bit / 8] ^= 1 << (bit % 8);
        let mut server = ServerGreeting::early(server_setup(BOUND), EARLY_BOUND);
        server.handle_input(&mut BytesMut::from(&bent[..]));
        let end = knowing().drive(&mut server);
        let early = server.poll_output().unwrap_or_default();
        assert!(!kinds(&early).contains(&ACCEPT), "bit {bit}");
        assert!(end.is_none_or(|end| end.outcome.is_err()), "bit {bit}");
    }
}

#[test]
fn a_client_believes_no_early_answer_that_is_not_of_its_own_handshake() {
    let said = flight(&client(), EARLY_BOUND.client);
    let believed = |early: &[u8]| {
        let mut greeting = ClientGreeting::after_early(client(), &EARLY_BOUND).unwrap();
        greeting.handle_input(&mut BytesMut::from(early));
        greeting.poll_outcome()
    };
    // A man in the middle forwards the messages of the legitimate server.
    let relayed = EarlyBinding { server: [0xe9; 32], ..EARLY_BOUND };
    let (_, early) = heard(&said, relayed, &knowing());
    assert_eq!(believed(&early).unwrap().unwrap_err(), GreetingError::Unproven);
    let (_, early) = heard(&said, EARLY_BOUND, &knowing());
    for bit in MAGIC.len() * 8..early.len() * 8 {
        let mut bent = early.to_vec();
        bent[bit / 8] ^= 1 << (bit % 8);
        assert!(believed(&bent).is_none_or(|outcome| outcome.is_err()), "bit {bit}");
    }
}

#[test]
fn an_early_answer_to_who_said_nothing_early_is_none() {
    let (_, early) = heard(&flight(&client(), EARLY_BOUND.client), EARLY_BOUND, &knowing());
    let mut greeting = ClientGreeting::new(client()).unwrap();
    greeting.handle_input(&mut BytesMut::from(&early[..]));
    let error = greeting.poll_outcome().unwrap().unwrap_err();
    assert!(matches!(error, GreetingError::Malformed(_)), "{error}");
}

#[test]
fn only_who_comes_back_may_say_something_early() {
    let adds = Attach { mode: AttachMode::Adds, ..attach() };
    let adds = ClientSetup { attach: Some((adds, secret(1))), ..client() };
    let code = ClientSetup { identity: Identity::Code(token(TOKEN)), ..client() };
    for setup in [client_setup(BOUND), adds, code] {
        assert_eq!(setup.early_flight(&EARLY_BOUND.client), None);
    }
    // The server also checks this itself, and rejects early data on a connection without it.
    let said = flight(&client(), EARLY_BOUND.client);
    let intent = said.len() - 4 - 32 - 4 - 4 - 16 - 1;
    assert_eq!(said[intent], 2);
    for (intents, early) in [([1, 2], true), ([2, 2], false)] {
        let mut said = said.to_vec();
        said[intent] = intents[0];
        let mut server = match early {
            true => ServerGreeting::early(server_setup(BOUND), EARLY_BOUND),
            false => ServerGreeting::new(server_setup(BOUND)),
        };
        server.handle_input(&mut BytesMut::from(&said[..]));
        let error = knowing().drive(&mut server).unwrap().outcome.unwrap_err();
        assert!(matches!(error, GreetingError::Malformed(_)), "{error}");
    }
}

#[test]
fn a_client_with_a_certificate_comes_back_early_as_well() {
    let setup = ClientSetup { identity: Identity::Certificate, ..client() };
    let knowledge = Knowledge { certificates: true, ..knowing() };
    for (shown, good) in [(Some("home"), true), (Some("other"), false), (None, false)] {
        let (mut server, early) =
            heard(&flight(&setup, EARLY_BOUND.client), EARLY_BOUND, &knowledge);
        let mut greeting = ClientGreeting::after_early(setup.clone(), &EARLY_BOUND).unwrap();
        greeting.handle_input(&mut BytesMut::from(&early[..]));
        server.handshake_done(BOUND, shown.map(str::to_owned));
        server.handle_input(&mut BytesMut::from(&greeting.poll_output().unwrap()[..]));
        let end = knowledge.drive(&mut server).unwrap();
        assert_eq!(end.outcome.is_ok(), good, "{shown:?}");
    }
}
