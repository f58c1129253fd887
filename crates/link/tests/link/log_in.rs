//! Which clients are admitted and which are refused, and with which messages.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use link::State;
use proto::InstanceId;
use proto::control::{
    ControlMessage, Register, Registered, ServiceResult, ServiceSpec, ServiceTerms,
};
use proto::greeting::{Identity, Name, Refusal, Token};

use crate::rig::{
    Client, Rules, Server, Tls, couple, direct, path, plan, really, serve, until, virtually,
};

#[test]
fn a_client_with_the_right_token_has_a_link() {
    virtually(async {
        let (server, client, _) = couple().await;
        until("the server's link", || server.link().is_live()).await;
        assert_eq!(*client.connected.borrow(), [(1, false)]);
        assert_eq!(*client.owner.states.borrow(), [State::Live]);
        assert_eq!(*server.owner().states.borrow(), [State::Live]);
        assert!(client.failures.borrow().is_empty());
    });
}

#[test]
fn a_wrong_token_and_an_unknown_name_are_told_alike_and_tried_again_slowly() {
    virtually(async {
        for wrong_name in [false, true] {
            let (server, dialer) = serve();
            let mut plan = plan(vec![direct(&dialer)]);
            if wrong_name {
                plan.name = Name::new("stranger").unwrap();
            } else {
                let token = Token::new("ABJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQz").unwrap();
                plan.identity = Identity::Token(token);
            }
            let client = Client::start(plan);
            tokio::time::sleep(Duration::from_mins(5)).await;
            assert!(client.link().is_none() && server.links().is_empty());
            let failures = client.failures.borrow();
            let text = Refusal::BadCredential.to_string();
            assert!(failures.iter().all(|(error, _)| error.contains(&text)), "{failures:?}");
            let (_, last) = failures.last().unwrap();
            assert!(*last >= Duration::from_secs(15), "{last:?}");
            assert!(failures.len() < 40, "{}", failures.len());
        }
    });
}

#[test]
fn a_superseded_process_waits_and_never_kicks_the_newer_one() {
    virtually(async {
        let (server, older, dialer) = couple().await;
        let mut plan = plan(vec![direct(&dialer)]);
        plan.instance = InstanceId([8; 16]);
        plan.logged_in = Arc::new(AtomicBool::new(false));
        let newer = Client::start(plan);
        newer.live().await;
        // The older one's link ends, as the registry of a server would end it.
        server.forget();
        newer.live().await;
        tokio::time::sleep(Duration::from_mins(3)).await;
        let failures = older.failures.borrow();
        assert!((2..=7).contains(&failures.len()), "{failures:?}");
        assert!(failures.iter().all(|(_, pause)| *pause >= Duration::from_secs(30)));
        assert_eq!((older.links.get(), newer.links.get()), (1, 2));
    });
}

#[test]
fn a_registration_and_its_answer_cross_on_the_control_stream() {
    virtually(async {
        let (server, client, _) = couple().await;
        let services = (0..300)
            .map(|n| ServiceSpec {
                name: Name::new(&format!("service-{n}")).unwrap(),
                public: vec![format!("tcp://:{}", 10_000 + n)],
                terms: ServiceTerms::default(),
            })
            .collect();
        let register = ControlMessage::Register(Register {
            generation: 3,
            services,
            leaving: false,
            standby: false,
        });
        assert!(client.live().await.send_message(&register));
        let owner = server.owner();
        until("the registration", || !owner.messages.borrow().is_empty()).await;
        assert_eq!(*owner.messages.borrow(), [register]);
        let name = Name::new("service-0").unwrap();
        let results = vec![ServiceResult::whole(name, Ok(vec!["tcp://a:10000".to_owned()]))];
        let registered = ControlMessage::Registered(Registered { generation: 3, results });
        assert!(server.link().send_message(&registered));
        until("the answer", || !client.owner.messages.borrow().is_empty()).await;
        assert_eq!(*client.owner.messages.borrow(), [registered]);
    });
}

#[test]
fn a_client_logs_in_over_tcp_and_tls() {
    really(async {
        let tls = Tls::new();
        let (listener, port) = tls.listen();
        let (bare, bare_port) = Tls::listen_bare();
        let server = Server::start(vec![listener, bare], Rules::default());
        let sealed = Client::start(plan(vec![path(tls.dialer(), port)]));
        sealed.live().await;
        let dialer = Rc::new(transport_tcp::TcpDialer::new(None));
        let plain = Client::start(plan(vec![path(dialer, bare_port)]));
        plain.live().await;
        until("both links", || server.links().len() == 2).await;
        assert!(sealed.failures.borrow().is_empty() && plain.failures.borrow().is_empty());
    });
}
