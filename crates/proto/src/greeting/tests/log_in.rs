//! New links: which clients are admitted, which are refused, and the result at both sides.

use super::*;

#[test]
fn for_a_code_there_is_a_token_that_both_know_and_that_never_travels() {
    let knowledge = Knowledge { code: Some(token(OTHER_TOKEN).stored()), ..Knowledge::default() };
    let mut made = Vec::new();
    for binding in BOTH {
        for nonce in [[0xcc; 32], [0xcd; 32]] {
            let identity = Identity::Code(token(OTHER_TOKEN));
            let setup = ClientSetup { identity, nonce, ..client_setup(binding) };
            let talk = talk(setup, server_setup(binding), &knowledge);
            let enrolled = talk.accepted().0.token.clone().unwrap();
            let grant = talk.server.as_ref().unwrap().grant.as_ref().unwrap();
            let kept = token(enrolled.reveal()).stored();
            assert_eq!(grant.enrolled.as_ref(), Some(&kept));
            assert_ne!(kept, token(OTHER_TOKEN).stored());
            for bytes in [&talk.from_client, &talk.from_server] {
                let whole = enrolled.reveal().as_bytes();
                assert!(!bytes.windows(whole.len()).any(|window| window == whole));
            }
            made.push(enrolled.reveal().to_owned());
        }
    }
    made.sort();
    made.dedup();
    assert_eq!(made.len(), 4, "another one each time");
}

#[test]
fn a_code_is_no_token_and_a_token_is_no_code() {
    let knowledge = Knowledge { code: Some(token(OTHER_TOKEN).stored()), ..Knowledge::default() };
    for (identity, knowledge) in [
        (Identity::Token(token(OTHER_TOKEN)), &knowledge),
        (Identity::Code(token(TOKEN)), &knowledge),
        (Identity::Code(token(OTHER_TOKEN)), &Knowledge::default()),
    ] {
        let setup = ClientSetup { identity, ..client_setup(BOUND) };
        talk(setup, server_setup(BOUND), knowledge).refused(Refusal::BadCredential);
    }
    let talk = talk(client_setup(BOUND), server_setup(BOUND), &Knowledge::default());
    assert_eq!(talk.accepted().0.token, None);
    assert_eq!(talk.server.unwrap().grant.unwrap().enrolled, None);
}

#[test]
fn both_sides_agree_on_everything() {
    for binding in BOTH {
        let talk = talk(client_setup(binding), server_setup(binding), &Knowledge::default());
        let (client, server) = talk.accepted();
        assert_eq!((client.version, server.version), (1, 1));
        assert_eq!((client.features, server.features), (Features(0b0010), Features(0b0010)));
        assert_eq!((client.link, server.link), (NEW_LINK, NEW_LINK));
        assert_eq!((client.carrier, server.carrier), (CarrierNumber(1), CarrierNumber(1)));
        assert_eq!(client.resume_timeout, Duration::from_secs(60));
        assert_eq!(client.keepalive, Duration::from_secs(15));
        let (ours, theirs) = (client.secret.as_ref().unwrap(), server.secret.as_ref().unwrap());
        assert!(same_secret(ours, theirs));
        let grant = talk.server.as_ref().unwrap().grant.as_ref().unwrap();
        assert_eq!((grant.name.as_str(), grant.takeover), ("home", true));
        assert_eq!((grant.instance, grant.attach), (InstanceId([0x22; 16]), None));
        assert!(!grant.certificate);
    }
}

#[test]
fn every_greeting_makes_another_link_secret() {
    for binding in BOTH {
        let first = talk(client_setup(binding), server_setup(binding), &Knowledge::default());
        let setup = ServerSetup { nonce: [0x56; 32], ..server_setup(binding) };
        let second = talk(client_setup(binding), setup, &Knowledge::default());
        let secret = |talk: &Talk| talk.accepted().0.secret.clone().unwrap();
        assert!(!same_secret(&secret(&first), &secret(&second)));
    }
}

#[test]
fn with_an_exporter_the_client_waits_for_nothing_and_without_it_says_what_it_is() {
    let first = |binding| ClientGreeting::new(client_setup(binding)).unwrap().poll_output();
    assert!(first(BOUND).is_some_and(|said| said.len() > MAGIC.len()));
    assert_eq!(first(Binding::None).as_deref(), Some(&MAGIC[..]), "what it is, and no more");
}

#[test]
fn bytes_may_come_one_by_one_and_those_behind_the_greeting_stay() {
    for binding in BOTH {
        let whole = talk(client_setup(binding), server_setup(binding), &Knowledge::default());
        for cut in 0..=whole.from_client.len() {
            let mut server = ServerGreeting::new(server_setup(binding));
            let mut input = BytesMut::from(&whole.from_client[..cut]);
            server.handle_input(&mut input);
            let early = Knowledge::default().drive(&mut server);
            assert_eq!(early.is_some(), cut == whole.from_client.len());
            if early.is_none() {
                input.extend_from_slice(&whole.from_client[cut..]);
                input.extend_from_slice(b"frames");
                server.handle_input(&mut input);
                assert!(Knowledge::default().drive(&mut server).unwrap().outcome.is_ok());
                assert_eq!(&input[..], b"frames");
            }
            server.handle_input(&mut input);
        }
        let mut client = ClientGreeting::new(client_setup(binding)).unwrap();
        let mut input = BytesMut::new();
        for (i, byte) in whole.from_server.iter().enumerate() {
            assert!(client.poll_outcome().is_none(), "over before byte {i}");
            input.extend_from_slice(&[*byte]);
            client.handle_input(&mut input);
        }
        assert!(client.poll_outcome().unwrap().is_ok());
        input.extend_from_slice(b"frames");
        client.handle_input(&mut input);
        assert_eq!(&input[..], b"frames");
    }
}

#[test]
fn a_wrong_token_and_an_unknown_name_get_the_same_answer() {
    for binding in BOTH {
        let wrong = Identity::Token(token(OTHER_TOKEN));
        let wrong = ClientSetup { identity: wrong, ..client_setup(binding) };
        let wrong = talk(wrong, server_setup(binding), &Knowledge::default());
        wrong.refused(Refusal::BadCredential);
        let unknown = ClientSetup { name: name("away"), ..client_setup(binding) };
        let unknown = talk(unknown, server_setup(binding), &Knowledge::default());
        unknown.refused(Refusal::BadCredential);
        assert_eq!(wrong.from_server, unknown.from_server);
    }
}

#[test]
fn nobody_can_log_in_with_what_stands_in_for_an_absent_credential() {
    for binding in BOTH {
        let knowledge = Knowledge { credentials: vec![], ..Knowledge::default() };
        talk(client_setup(binding), server_setup(binding), &knowledge)
            .refused(Refusal::BadCredential);
    }
}

#[test]
fn the_old_and_the_new_token_both_work_during_a_change() {
    let both = vec![("home", token(OTHER_TOKEN).stored()), ("home", token(TOKEN).stored())];
    let knowledge = Knowledge { credentials: both, ..Knowledge::default() };
    for text in [TOKEN, OTHER_TOKEN] {
        let identity = Identity::Token(token(text));
        let setup = ClientSetup { identity, ..client_setup(BOUND) };
        talk(setup, server_setup(BOUND), &knowledge).accepted();
    }
}

#[test]
fn the_driver_may_refuse_whoever_proved_himself_and_says_why() {
    for raw in 1..=11 {
        let refusal = Refusal::from_raw(raw);
        let knowledge = Knowledge { decision: Err(refusal), ..Knowledge::default() };
        for binding in BOTH {
            talk(client_setup(binding), server_setup(binding), &knowledge).refused(refusal);
        }
    }
}

#[test]
fn a_busy_server_may_refuse_before_the_client_spoke() {
    for binding in BOTH {
        let mut server = ServerGreeting::new(server_setup(binding));
        server.refuse(Refusal::Limit);
        server.refuse(Refusal::Denied);
        let event = server.poll_event();
        let Some(ServerEvent::Failed(GreetingError::Refused(Refusal::Limit))) = event else {
            panic!("{event:?}")
        };
        assert!(server.poll_event().is_none());
        let mut input = BytesMut::from(&server.poll_output().unwrap()[..]);
        let mut client = ClientGreeting::new(client_setup(binding)).unwrap();
        client.handle_input(&mut input);
        let end = client.poll_outcome().unwrap();
        assert_eq!(end.unwrap_err(), GreetingError::Refused(Refusal::Limit));
        assert!(server.poll_output().is_none(), "one refusal");
    }
}

#[test]
fn a_certificate_alone_is_enough_only_where_the_server_says_so() {
    let client = || ClientSetup { identity: Identity::Certificate, ..client_setup(BOUND) };
    let server = |certificate: Option<&str>| ServerSetup {
        certificate_name: certificate.map(str::to_owned),
        ..server_setup(BOUND)
    };
    let yes = Knowledge { certificates: true, ..Knowledge::default() };
    let talked = talk(client(), server(Some("home")), &yes);
    let (ours, theirs) = talked.accepted();
    assert!(same_secret(ours.secret.as_ref().unwrap(), theirs.secret.as_ref().unwrap()));
    assert!(talked.server.as_ref().unwrap().grant.as_ref().unwrap().certificate);

    let bad = Refusal::BadCredential;
    talk(client(), server(Some("home")), &Knowledge::default()).refused(bad);
    talk(client(), server(Some("other")), &yes).refused(Refusal::CertificateName);
    talk(client(), server(None), &yes).refused(bad);
    let unbound = ClientSetup { identity: Identity::Certificate, ..client_setup(Binding::None) };
    assert_eq!(ClientGreeting::new(unbound).err(), Some(GreetingError::CertificateUnbound));
}

#[test]
fn the_name_of_a_certificate_is_the_name_of_the_client() {
    let server =
        |name: &str| ServerSetup { certificate_name: Some(name.to_owned()), ..server_setup(BOUND) };
    talk(client_setup(BOUND), server("home"), &Knowledge::default()).accepted();
    for other in ["Home", "home ", "homer", ""] {
        talk(client_setup(BOUND), server(other), &Knowledge::default())
            .refused(Refusal::CertificateName);
    }
}

#[test]
fn the_name_of_a_certificate_is_compared_before_anybody_looks_for_the_client() {
    let setup = ServerSetup { certificate_name: Some("other".into()), ..server_setup(BOUND) };
    let mut server = ServerGreeting::new(setup);
    let mut client = ClientGreeting::new(client_setup(BOUND)).unwrap();
    server.handle_input(&mut BytesMut::from(&client.poll_output().unwrap()[..]));
    assert!(matches!(
        server.poll_event(),
        Some(ServerEvent::Failed(GreetingError::Refused(Refusal::CertificateName)))
    ));
}

#[test]
fn a_token_client_does_not_pass_as_one_with_a_certificate() {
    let mut server = ServerGreeting::new(ServerSetup {
        certificate_name: Some("home".into()),
        ..server_setup(BOUND)
    });
    let mut client = ClientGreeting::new(client_setup(BOUND)).unwrap();
    server.handle_input(&mut BytesMut::from(&client.poll_output().unwrap()[..]));
    assert!(matches!(
        server.poll_event(),
        Some(ServerEvent::Credentials { certificate: false, .. })
    ));
    server.certificate_suffices();
    assert!(matches!(
        server.poll_event(),
        Some(ServerEvent::Failed(GreetingError::Refused(Refusal::BadCredential)))
    ));
}

#[test]
fn the_newest_common_version_is_chosen() {
    let range = |min, max| Versions { min, max };
    for (client, server, chosen) in [
        (range(1, 1), range(1, 1), Some(1)),
        (range(1, 3), range(1, 1), Some(1)),
        (range(1, 3), range(2, 9), Some(3)),
        (range(2, 3), range(1, 1), None),
        (range(1, 1), range(2, 3), None),
    ] {
        for binding in BOTH {
            let talk = talk(
                ClientSetup { versions: client, ..client_setup(binding) },
                ServerSetup { versions: server, ..server_setup(binding) },
                &Knowledge::default(),
            );
            match chosen {
                Some(version) => assert_eq!(talk.accepted().0.version, version),
                None => talk.refused(Refusal::Version),
            }
        }
    }
}

#[test]
fn times_beyond_reason_are_brought_back() {
    let mut server = ServerGreeting::new(server_setup(BOUND));
    let mut client = ClientGreeting::new(client_setup(BOUND)).unwrap();
    server.handle_input(&mut BytesMut::from(&client.poll_output().unwrap()[..]));
    assert!(server.accept(&terms()).is_none(), "not asked yet");
    server.poll_event().unwrap();
    server.credentials(&[token(TOKEN).stored()]);
    let terms = Terms { resume_timeout: Duration::MAX, keepalive: Duration::ZERO, ..terms() };
    assert!(server.accept(&terms).is_some());
    assert!(server.accept(&terms).is_none(), "asked once");
    client.handle_input(&mut BytesMut::from(&server.poll_output().unwrap()[..]));
    let accepted = client.poll_outcome().unwrap().unwrap();
    assert_eq!(accepted.resume_timeout, Duration::from_secs(24 * 60 * 60));
    assert_eq!(accepted.keepalive, Duration::from_secs(1));
}

#[test]
fn refusals_keep_their_numbers_and_fit_a_log_line() {
    for raw in 0..=300 {
        assert_eq!(Refusal::from_raw(raw).raw(), raw);
        assert!(!Refusal::from_raw(raw).to_string().contains('\n'));
    }
    assert_eq!(Refusal::BadCredential.raw(), 1);
    assert_eq!(Refusal::NameTaken.raw(), 10);
    assert_eq!(Refusal::CertificateName.raw(), 11);
}
