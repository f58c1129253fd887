//! Additional carriers of a link: only the client of the link, with its secret, and unmodified.

use super::*;

pub(super) const LINK: LinkId = LinkId([0x77; 16]);
pub(super) const INSTANCE: InstanceId = InstanceId([0x22; 16]);

pub(super) fn secret(byte: u8) -> LinkSecret {
    LinkSecret::decoy([byte; 32])
}

pub(super) fn attach() -> Attach {
    Attach { link: LINK, carrier: CarrierNumber(3), mode: AttachMode::Replaces(CarrierNumber(2)) }
}

pub(super) fn attaching(binding: Binding, secret: LinkSecret) -> ClientSetup {
    ClientSetup { attach: Some((attach(), secret)), takeover: false, ..client_setup(binding) }
}

pub(super) fn knowing() -> Knowledge {
    let credentials = vec![("home", token(TOKEN).stored()), ("other", token(OTHER_TOKEN).stored())];
    let links = vec![("home", INSTANCE, LINK, secret(1))];
    Knowledge { credentials, links, ..Knowledge::default() }
}

#[test]
fn a_carrier_attaches_as_it_asked() {
    for binding in BOTH {
        for mode in [AttachMode::Adds, AttachMode::Replaces(CarrierNumber(2))] {
            let attach = Attach { mode, ..attach() };
            let setup =
                ClientSetup { attach: Some((attach, secret(1))), ..attaching(binding, secret(1)) };
            let talk = talk(setup, server_setup(binding), &knowing());
            let (client, server) = talk.accepted();
            assert_eq!((client.link, server.link), (LINK, LINK));
            assert_eq!((client.carrier, server.carrier), (attach.carrier, attach.carrier));
            assert!(client.secret.is_none() && server.secret.is_none(), "the link keeps its own");
            let grant = talk.server.as_ref().unwrap().grant.as_ref().unwrap();
            assert_eq!(grant.attach, Some(attach));
        }
    }
}

#[test]
fn a_wrong_secret_and_an_unknown_link_get_the_same_answer() {
    for binding in BOTH {
        let wrong = talk(attaching(binding, secret(2)), server_setup(binding), &knowing());
        wrong.refused(Refusal::UnknownLink);
        let gone = Knowledge { links: vec![], ..knowing() };
        let gone = talk(attaching(binding, secret(1)), server_setup(binding), &gone);
        gone.refused(Refusal::UnknownLink);
        assert_eq!(wrong.from_server, gone.from_server);
    }
}

#[test]
fn nobody_can_attach_with_what_stands_in_for_an_absent_secret() {
    // The decoy secret can be computed from the transcript, so a client can prove it.
    for binding in BOTH {
        let gone = Knowledge { links: vec![], ..knowing() };
        let whole = talk(attaching(binding, secret(1)), server_setup(binding), &gone);
        let (hello, _) = whole.from_client.split_at(whole.from_client.len() - 4 - 64);
        let mut transcript = transcript::Transcript::new(&binding);
        if !binding.is_bound() {
            transcript.push(&whole.from_server[MAGIC.len()..MAGIC.len() + 4 + 32]);
        }
        transcript.push(&hello[MAGIC.len()..]);
        let hash = transcript.hash();
        let proof = message::Macs {
            credential: token(TOKEN).keys().proof(&hash),
            link: Some(LinkSecret::decoy(hash).attach_proof(&hash)),
        };
        let mut bytes = BytesMut::from(hello);
        proof.write(message::PROOF, &mut bytes);
        let (end, _) = replay(&bytes, server_setup(binding), &gone);
        assert_eq!(end.unwrap().outcome.unwrap_err(), GreetingError::Refused(Refusal::UnknownLink));
    }
}

#[test]
fn the_secret_of_a_link_does_not_help_another_client_or_process() {
    for binding in BOTH {
        let identity = Identity::Token(token(OTHER_TOKEN));
        let thief = ClientSetup { name: name("other"), identity, ..attaching(binding, secret(1)) };
        talk(thief, server_setup(binding), &knowing()).refused(Refusal::UnknownLink);
        let instance = InstanceId([0x23; 16]);
        let sibling = ClientSetup { instance, ..attaching(binding, secret(1)) };
        talk(sibling, server_setup(binding), &knowing()).refused(Refusal::UnknownLink);
    }
}

#[test]
fn the_secret_of_a_link_does_not_replace_the_token() {
    for binding in BOTH {
        let identity = Identity::Token(token(OTHER_TOKEN));
        let setup = ClientSetup { identity, ..attaching(binding, secret(1)) };
        talk(setup, server_setup(binding), &knowing()).refused(Refusal::BadCredential);
    }
}

#[test]
fn a_carrier_attaches_without_the_certificate_of_the_link_only_where_the_server_says_so() {
    let client = |secret| {
        let identity = Identity::Certificate;
        ClientSetup { identity, ..attaching(BOUND, secret) }
    };
    let server = |links_suffice| ServerSetup { links_suffice, ..server_setup(BOUND) };
    let knowing = Knowledge { certificates: true, ..knowing() };
    talk(client(secret(1)), server(true), &knowing).accepted();
    talk(client(secret(2)), server(true), &knowing).refused(Refusal::UnknownLink);
    talk(client(secret(1)), server(false), &knowing).refused(Refusal::BadCredential);
    // A new link begins with the certificate.
    let new = ClientSetup { attach: None, ..client(secret(1)) };
    talk(new, server(true), &knowing).refused(Refusal::BadCredential);
}

#[test]
fn the_proof_of_one_carrier_number_is_none_of_another() {
    // The client's bytes with another carrier number or mode: still well formed, but not proved.
    for binding in BOTH {
        for (offset_from_end, byte) in [(5, 4), (1, 1)] {
            let talk = talk_tampered(
                attaching(binding, secret(1)),
                server_setup(binding),
                &knowing(),
                |from_client, bytes| {
                    let mut bytes = bytes.to_vec();
                    if from_client && bytes.len() > MAGIC.len() {
                        let proof = 4 + 64;
                        let at = bytes.len() - proof - offset_from_end;
                        assert_eq!(bytes[at], if offset_from_end == 5 { 3 } else { 2 });
                        bytes[at] = byte;
                    }
                    bytes
                },
            );
            talk.refused(Refusal::BadCredential);
        }
    }
}

#[test]
fn a_server_that_lost_the_link_secret_cannot_pretend() {
    // The server knows the credential but signs with another link secret.
    for binding in BOTH {
        let mut client = ClientGreeting::new(attaching(binding, secret(1))).unwrap();
        let mut server = ServerGreeting::new(server_setup(binding));
        let mut to_client = BytesMut::from(&server.poll_output().unwrap()[..]);
        client.handle_input(&mut to_client);
        server.handle_input(&mut BytesMut::from(&client.poll_output().unwrap()[..]));
        knowing().drive(&mut server).unwrap();
        let mut answer = BytesMut::from(&server.poll_output().unwrap()[..]);
        let last = answer.len() - 1;
        answer[last] ^= 1;
        client.handle_input(&mut answer);
        assert_eq!(client.poll_outcome().unwrap().unwrap_err(), GreetingError::Unproven);
    }
}

#[test]
fn the_secret_of_a_greeting_opens_its_link_again() {
    for binding in BOTH {
        let first = talk(client_setup(binding), server_setup(binding), &Knowledge::default());
        let (client, server) = first.accepted();
        let links = vec![("home", INSTANCE, server.link, server.secret.clone().unwrap())];
        let attach = Attach { link: client.link, ..attach() };
        let setup = ClientSetup {
            attach: Some((attach, client.secret.clone().unwrap())),
            nonce: [0xcd; 32],
            ..client_setup(binding)
        };
        let again = ServerSetup { nonce: [0x57; 32], ..server_setup(binding) };
        talk(setup, again, &Knowledge { links, ..Knowledge::default() }).accepted();
    }
}

#[test]
fn a_link_id_shows_its_generation_and_never_prints() {
    let id = LinkId::compose([1, 2, 3, 4], [9; 12]);
    assert_eq!(id.generation(), [1, 2, 3, 4]);
    assert_eq!(id.0[4..], [9; 12]);
    assert_eq!(format!("{:?}", secret(0)), "LinkSecret(..)");
}
