//! Attacks by a peer or by an attacker on the path, which must fail.

use super::message::{ACCEPT, HELLO, NONCE, PROOF, REFUSED, SIGNATURE};
use super::*;
use crate::wire::put_tlv;
use bytes::BufMut;

#[test]
fn a_captured_greeting_is_worth_nothing_on_another_connection() {
    for attach in [false, true] {
        for (binding, other) in [
            (BOUND, ServerSetup { binding: Binding::Exporter([0xef; 32]), ..server_setup(BOUND) }),
            (Binding::None, ServerSetup { nonce: [0x56; 32], ..server_setup(Binding::None) }),
        ] {
            let secret = LinkSecret::decoy([1; 32]);
            let claim = Attach {
                link: LinkId([0x77; 16]),
                carrier: CarrierNumber(2),
                mode: AttachMode::Adds,
            };
            let links = vec![("home", InstanceId([0x22; 16]), claim.link, secret.clone())];
            let knowledge = Knowledge { links, ..Knowledge::default() };
            let setup =
                ClientSetup { attach: attach.then_some((claim, secret)), ..client_setup(binding) };
            let captured = talk(setup, server_setup(binding), &knowledge);
            captured.accepted();
            let (end, _) = replay(&captured.from_client, other, &knowledge);
            assert_eq!(
                end.unwrap().outcome.unwrap_err(),
                GreetingError::Refused(Refusal::BadCredential)
            );
        }
    }
}

#[test]
fn a_server_s_captured_answer_is_worth_nothing_either() {
    for binding in BOTH {
        let captured = talk(client_setup(binding), server_setup(binding), &Knowledge::default());
        let setup = ClientSetup { nonce: [0xcd; 32], ..client_setup(binding) };
        let mut client = ClientGreeting::new(setup).unwrap();
        client.handle_input(&mut BytesMut::from(&captured.from_server[..]));
        assert_eq!(client.poll_outcome().unwrap().unwrap_err(), GreetingError::Unproven);
    }
}

#[test]
fn a_bound_greeting_cannot_be_made_an_unbound_one() {
    let knowledge = Knowledge::default();
    talk(client_setup(BOUND), server_setup(Binding::None), &knowledge).refused(Refusal::Binding);
    talk(client_setup(Binding::None), server_setup(BOUND), &knowledge).refused(Refusal::Binding);
    // With the flag inverted on the path, the proof covers another transcript.
    for (client, server) in [(BOUND, Binding::None), (Binding::None, BOUND)] {
        // An unbound client has sent the magic before.
        let magic = if client.is_bound() { MAGIC.len() } else { 0 };
        let flags = magic + 4 + 2 + 2 + 8;
        talk_tampered(client_setup(client), server_setup(server), &knowledge, |mine, bytes| {
            let mut bytes = bytes.to_vec();
            if mine && bytes.len() > MAGIC.len() {
                bytes[flags] ^= 1;
            }
            bytes
        })
        .refused(Refusal::BadCredential);
    }
}

#[test]
fn no_byte_can_be_changed_on_the_way() {
    for binding in BOTH {
        let whole = talk(client_setup(binding), server_setup(binding), &Knowledge::default());
        for (mine, length) in [(true, whole.from_client.len()), (false, whole.from_server.len())] {
            for at in 0..length {
                let mut passed = 0;
                let changed = talk_tampered(
                    client_setup(binding),
                    server_setup(binding),
                    &Knowledge::default(),
                    |from_client, bytes| {
                        let mut bytes = bytes.to_vec();
                        if from_client == mine {
                            if let Some(byte) =
                                at.checked_sub(passed).and_then(|i| bytes.get_mut(i))
                            {
                                *byte ^= 0x10;
                            }
                            passed += bytes.len();
                        }
                        bytes
                    },
                );
                let good = changed.client.as_ref().is_some_and(Result::is_ok);
                assert!(!good, "byte {at}, from the client: {mine}");
                if mine {
                    let server = changed.server.as_ref();
                    assert!(server.is_none_or(|end| end.outcome.is_err()), "byte {at}");
                }
            }
        }
    }
}

#[test]
fn a_server_without_the_key_of_the_client_is_not_believed() {
    // The strongest false server: it has the stored key (so it can verify the proof) but not the
    // server key.
    for binding in BOTH {
        let mut stored = token(TOKEN).stored();
        stored.server_key[0] ^= 1;
        let knowledge = Knowledge { credentials: vec![("home", stored)], ..Knowledge::default() };
        let talk = talk(client_setup(binding), server_setup(binding), &knowledge);
        assert_eq!(talk.client.unwrap().unwrap_err(), GreetingError::Unproven);
    }
}

#[test]
fn another_protocol_is_turned_away_at_its_first_wrong_byte_and_without_a_word() {
    for binding in BOTH {
        for (bytes, what) in [
            (&b"G"[..], GreetingError::Magic),
            (b"GET / HTTP/1.1\r\n\r\n", GreetingError::Magic),
            (b"TNL0", GreetingError::Magic),
            (b"\0", GreetingError::Magic),
            (b"\x16\x03\x01", GreetingError::Tls),
            (b"\x15", GreetingError::Tls),
        ] {
            let mut server = ServerGreeting::new(server_setup(binding));
            let nonce = server.poll_output().unwrap();
            assert_eq!(nonce.len(), 4 + 4 + 32);
            server.handle_input(&mut BytesMut::from(bytes));
            let failed = server.poll_event();
            assert!(matches!(failed, Some(ServerEvent::Failed(error)) if error == what));
            assert!(server.poll_output().is_none());
            let mut client = ClientGreeting::new(client_setup(binding)).unwrap();
            client.handle_input(&mut BytesMut::from(bytes));
            assert_eq!(client.poll_outcome().unwrap().unwrap_err(), what);
        }
    }
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    put_tlv(&mut out, kind, |out| out.put_slice(body));
    out.to_vec()
}

fn after_magic(messages: &[Vec<u8>]) -> Vec<u8> {
    [MAGIC.to_vec(), messages.concat()].concat()
}

#[test]
fn a_length_beyond_the_limit_is_refused_at_the_head() {
    for binding in BOTH {
        let head = [&MAGIC[..], &[HELLO, 0, 0x10, 0]].concat();
        let (end, answer) = replay(&head, server_setup(binding), &Knowledge::default());
        assert_eq!(end.unwrap().outcome.unwrap_err(), GreetingError::TooLong);
        assert_eq!(answer[answer.len() - 6..], [REFUSED, 0, 0, 2, 0, 7]);
        let mut client = ClientGreeting::new(client_setup(binding)).unwrap();
        client.handle_input(&mut BytesMut::from(&head[..]));
        assert_eq!(client.poll_outcome().unwrap().unwrap_err(), GreetingError::TooLong);
        // The receiver waits for a message of the maximum length.
        let most = GREETING_MAX - MAGIC.len() - 4;
        let head = [&MAGIC[..], &[HELLO, 0], &u16::try_from(most).unwrap().to_be_bytes()].concat();
        let (end, _) = replay(&head, server_setup(binding), &Knowledge::default());
        assert!(end.is_none());
        // The limit also applies to the sum of all messages of a direction.
        let first = message(NONCE, &[0; 32]);
        let second = message(ACCEPT, &vec![0; GREETING_MAX - MAGIC.len() - 36 - 4 + 1]);
        let mut client = ClientGreeting::new(client_setup(binding)).unwrap();
        client.handle_input(&mut BytesMut::from(&after_magic(&[first, second])[..]));
        assert_eq!(client.poll_outcome().unwrap().unwrap_err(), GreetingError::TooLong);
    }
}

/// A Hello of the test client, to be modified by tests.
fn hello(binding: Binding) -> Vec<u8> {
    let talk = talk(client_setup(binding), server_setup(binding), &Knowledge::default());
    let proof = 4 + 32;
    talk.from_client[MAGIC.len()..talk.from_client.len() - proof].to_vec()
}

#[test]
fn malformed_messages_of_a_client_are_refused_as_such() {
    let good = hello(BOUND);
    let body = &good[4..];
    let name_length = 2 + 2 + 8 + 1 + 16 + 32;
    let bend = |at: usize, byte: u8| {
        let mut bent = body.to_vec();
        bent[at] = byte;
        message(HELLO, &bent)
    };
    let cases = [
        ("empty hello", vec![message(HELLO, b"")]),
        ("hello cut short", vec![message(HELLO, &body[..body.len() - 1])]),
        ("empty version range", vec![bend(1, 9)]),
        ("name of no length", vec![bend(name_length, 0)]),
        ("name beyond the end", vec![bend(name_length, 65)]),
        ("blank in the name", vec![bend(name_length + 1, b' ')]),
        ("unknown intent", vec![bend(body.len() - 1, 4)]),
        ("attach without a link", vec![bend(body.len() - 1, 1)]),
        ("half a TLV", vec![message(HELLO, &[body, &[9, 0, 0]].concat())]),
        ("proof first", vec![message(PROOF, &[0; 32])]),
        ("two hellos", vec![good.clone(), good.clone()]),
        ("short proof", vec![good.clone(), message(PROOF, &[0; 31])]),
        ("proof of a link that is not asked for", vec![good.clone(), message(PROOF, &[0; 64])]),
        ("a server's message", vec![message(NONCE, &[0; 32])]),
        ("an unknown message", vec![message(99, b"")]),
    ];
    for (what, messages) in cases {
        let (end, answer) =
            replay(&after_magic(&messages), server_setup(BOUND), &Knowledge::default());
        let error = end.unwrap().outcome.unwrap_err();
        assert!(matches!(error, GreetingError::Malformed(_)), "{what}: {error}");
        assert_eq!(answer[answer.len() - 6..], [REFUSED, 0, 0, 2, 0, 7], "{what}");
    }
}

#[test]
fn fields_of_a_newer_client_are_skipped_and_covered_by_its_proof() {
    let mut newer = hello(BOUND)[4..].to_vec();
    newer.extend_from_slice(&[200, 0, 0, 3, 1, 2, 3]);
    let newer = message(HELLO, &newer);
    let mut transcript = transcript::Transcript::new(&BOUND);
    transcript.push(&newer);
    let proof = message(PROOF, &token(TOKEN).keys().proof(&transcript.hash()));
    let bytes = after_magic(&[newer, proof]);
    let (end, _) = replay(&bytes, server_setup(BOUND), &Knowledge::default());
    assert!(end.unwrap().outcome.is_ok());
}

#[test]
fn malformed_answers_of_a_server_are_not_believed() {
    let nonce = || message(NONCE, &[0; 32]);
    let accept = |version: u16, features: u64, carrier: u32, resume: u32, keepalive: u32| {
        let mut body = Vec::new();
        body.put_u16(version);
        body.put_u64(features);
        body.put_slice(&NEW_LINK.0);
        body.put_u32(carrier);
        body.put_u32(resume);
        body.put_u32(keepalive);
        message(ACCEPT, &body)
    };
    type Expected = fn(&GreetingError) -> bool;
    let malformed: Expected = |error| matches!(error, GreetingError::Malformed(_));
    let answer: Expected = |error| matches!(error, GreetingError::Answer(_));
    let cases: Vec<(&str, Vec<Vec<u8>>, Expected)> = vec![
        ("short nonce", vec![message(NONCE, &[0; 31])], malformed),
        ("long nonce", vec![message(NONCE, &[0; 33])], malformed),
        ("accept before nonce", vec![accept(1, 2, 1, 60, 15)], malformed),
        ("two nonces", vec![nonce(), nonce()], malformed),
        ("short accept", vec![nonce(), message(ACCEPT, &[0; 37])], malformed),
        ("empty refusal", vec![message(REFUSED, b"")], malformed),
        ("signature before accept", vec![nonce(), message(SIGNATURE, &[0; 32])], malformed),
        (
            "refusal after accept",
            vec![nonce(), accept(1, 2, 1, 60, 15), message(REFUSED, &[0, 1])],
            malformed,
        ),
        (
            "short signature",
            vec![nonce(), accept(1, 2, 1, 60, 15), message(SIGNATURE, &[0; 31])],
            malformed,
        ),
        ("another version", vec![nonce(), accept(2, 2, 1, 60, 15)], answer),
        ("a feature not offered", vec![nonce(), accept(1, 1, 1, 60, 15)], answer),
        ("another carrier", vec![nonce(), accept(1, 2, 2, 60, 15)], answer),
        ("endless resume", vec![nonce(), accept(1, 2, 1, u32::MAX, 15)], answer),
        ("no keepalive", vec![nonce(), accept(1, 2, 1, 60, 0)], answer),
        (
            "unsigned",
            vec![nonce(), accept(1, 2, 1, 60, 15), message(SIGNATURE, &[0; 32])],
            |error| *error == GreetingError::Unproven,
        ),
    ];
    for (what, messages, expected) in cases {
        for binding in BOTH {
            let mut client = ClientGreeting::new(client_setup(binding)).unwrap();
            client.handle_input(&mut BytesMut::from(&after_magic(&messages)[..]));
            let error = client.poll_outcome().unwrap().unwrap_err();
            assert!(expected(&error), "{what}: {error}");
        }
    }
}
