//! Unknown clients at a server that accepts introductions: which are admitted and which are
//! refused.

use super::message::{INTRODUCE, INTRODUCTION, NONCE};
use super::*;
use crate::wire::put_tlv;
use bytes::BufMut;

fn open(binding: Binding) -> ServerSetup {
    ServerSetup { introductions: true, ..server_setup(binding) }
}

fn stranger(binding: Binding) -> ClientSetup {
    ClientSetup { identity: Identity::Introducing(token(OTHER_TOKEN)), ..client_setup(binding) }
}

/// Whether a message of this kind is among those of a direction.
fn says(direction: &[u8], kind: u8) -> bool {
    let mut rest = &direction[MAGIC.len().min(direction.len())..];
    while let [found, a, b, c, tail @ ..] = rest {
        if *found == kind {
            return true;
        }
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        rest = &tail[length.min(tail.len())..];
    }
    false
}

#[test]
fn a_stranger_comes_in_with_the_token_that_it_has() {
    let talk = talk(stranger(BOUND), open(BOUND), &Knowledge::default());
    let (client, server) = talk.accepted();
    let (ours, theirs) = (client.secret.as_ref().unwrap(), server.secret.as_ref().unwrap());
    assert!(same_secret(ours, theirs));
    let grant = talk.server.as_ref().unwrap().grant.as_ref().unwrap();
    assert_eq!(grant.introduced, Some(token(OTHER_TOKEN).stored()));
    let whole = OTHER_TOKEN.as_bytes();
    assert!(!talk.from_client.windows(whole.len()).any(|window| window == whole));
}

#[test]
fn whoever_is_known_is_not_asked() {
    let talk = talk(client_setup(BOUND), open(BOUND), &Knowledge::default());
    talk.accepted();
    assert_eq!(talk.server.unwrap().grant.unwrap().introduced, None);
    assert!(!says(&talk.from_server, INTRODUCE) && !says(&talk.from_client, INTRODUCTION));
}

#[test]
fn a_name_that_is_taken_gets_the_answers_of_one_that_is_not() {
    let refuse = Knowledge { decision: Err(Refusal::BadCredential), ..Knowledge::default() };
    let known = talk(stranger(BOUND), open(BOUND), &refuse);
    let setup = ClientSetup { name: name("else"), ..stranger(BOUND) };
    let unknown = talk(setup, open(BOUND), &refuse);
    known.refused(Refusal::BadCredential);
    assert_eq!(known.from_server, unknown.from_server);
}

#[test]
fn without_an_exporter_nobody_introduces_himself() {
    let talk = talk(stranger(Binding::None), open(Binding::None), &Knowledge::default());
    talk.refused(Refusal::BadCredential);
    assert!(!says(&talk.from_server, INTRODUCE) && !says(&talk.from_client, INTRODUCTION));
}

#[test]
fn a_code_or_a_certificate_does_not_introduce() {
    for identity in [Identity::Code(token(OTHER_TOKEN)), Identity::Certificate] {
        let setup = ClientSetup { identity, ..client_setup(BOUND) };
        let server = ServerSetup { certificate_name: Some("home".into()), ..open(BOUND) };
        talk(setup, server, &Knowledge::default()).refused(Refusal::BadCredential);
    }
}

#[test]
fn a_link_that_nobody_knows_any_more_begins_anew() {
    let claim = Attach {
        link: LinkId([0x77; 16]),
        carrier: CarrierNumber(2),
        mode: AttachMode::Replaces(CarrierNumber(1)),
    };
    let attach = Some((claim, LinkSecret::decoy([1; 32])));
    let setup = ClientSetup { attach, ..stranger(BOUND) };
    talk(setup, open(BOUND), &Knowledge::default()).refused(Refusal::UnknownLink);
}

#[test]
fn a_credential_that_is_not_that_of_the_proof_is_refused() {
    let other = token(TOKEN).stored();
    talk_tampered(stranger(BOUND), open(BOUND), &Knowledge::default(), |mine, bytes| {
        if !(mine && says(&[&MAGIC[..], &bytes].concat(), INTRODUCTION)) {
            return bytes.to_vec();
        }
        let mut out = BytesMut::new();
        message::write_introduction(&other, &mut out);
        out.to_vec()
    })
    .refused(Refusal::BadCredential);
}

#[test]
fn a_client_tells_what_verifies_its_token_once_and_only_as_long_as_it_is_greeted() {
    let question = |times: usize| {
        let mut out = BytesMut::from(&MAGIC[..]);
        put_tlv(&mut out, NONCE, |out| out.put_slice(&[0x55; 32]));
        for _ in 0..times {
            put_tlv(&mut out, INTRODUCE, |_| ());
        }
        out
    };
    let asked = |setup: ClientSetup, times| {
        let mut client = ClientGreeting::new(setup).unwrap();
        client.poll_output();
        client.handle_input(&mut question(times));
        (client.poll_output().is_some(), client.poll_outcome())
    };
    assert!(matches!(asked(stranger(BOUND), 1), (true, None)));
    let out_of_turn = |(_, outcome): (bool, Option<ClientEnd>)| {
        matches!(outcome, Some(Err(GreetingError::Introduction)))
    };
    assert!(out_of_turn(asked(stranger(BOUND), 2)));
    let unasked = Identity::Token(token(OTHER_TOKEN));
    for identity in [unasked, Identity::Code(token(OTHER_TOKEN)), Identity::Certificate] {
        let (said, outcome) = asked(ClientSetup { identity, ..client_setup(BOUND) }, 1);
        assert!(!said && out_of_turn((said, outcome)));
    }
    let mut client = ClientGreeting::new(stranger(Binding::None)).unwrap();
    client.handle_input(&mut question(1));
    assert!(matches!(client.poll_outcome(), Some(Err(GreetingError::Introduction))));
}
