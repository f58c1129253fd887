//! A server that does not know the feature by which a client restricts the visitors of a service.
//! Such a server skips the lists: it would let everybody visit.

use super::*;

/// Starts a server with these features, and the YAML of a client with an open and a restricted
/// service.
async fn server(
    features: Features,
    target: SocketAddr,
    ports: [SocketAddr; 2],
) -> (Server, String) {
    let [open, few] = ports.map(|address| address.port());
    let text = format!(
        "listen: tcp://127.0.0.1:0\nworkers: 1\npublic_bind: 127.0.0.1\nclients:\n  - {{ name: home, \
         token: {TOKEN}, allow: {{ tcp: [{open}, {few}] }} }}\n"
    );
    let text = Text { name: "server.yaml", text: &text };
    let config = loaded(config::load_server(Some(text), &ServerFlags::default(), &sources()));
    let link = memory::link_config(&config.common);
    let server = Server::start_with(config, None, (link, features), None, None).await.unwrap();
    let url = server.listen().first().unwrap();
    let text = format!(
        "servers: {url}\nname: home\ntoken: {TOKEN}\nworkers: 1\nconnections: 1\nservices:\n  - {{ \
         name: open, target: \"tcp://{target}\", public: \"tcp://:{open}\" }}\n  - {{ name: few, \
         target: \"tcp://{target}\", public: \"tcp://:{few}\", allow_from: 127.0.0.1 }}\n"
    );
    (server, text)
}

async fn client(text: &str) -> Client {
    let text = Text { name: "client.yaml", text };
    let config = loaded(config::load_client(Some(text), &ClientFlags::default(), &sources()));
    Client::start(config).await.unwrap()
}

/// The states of both services, when the first is published.
async fn states(client: &Client) -> [Told<ServiceState>; 2] {
    let poll = async {
        loop {
            let services = client.status().await.sessions.remove(0).services;
            let states = [0, 1].map(|n: usize| services[n].state.clone());
            if states[0] == ServiceState::Up && states[1] != ServiceState::Waiting {
                return states;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, poll).await.unwrap()
}

#[tokio::test]
async fn a_server_that_cannot_restrict_visitors_publishes_no_service_with_a_list() {
    let origin = Origin::echo().unwrap();
    let (open, few) = (free_port(), free_port());
    let (server, text) = server(Features(0), origin.address(), [open, few]).await;
    let client = client(&text).await;
    let [_, state] = states(&client).await;
    assert_eq!(state, ServiceState::Refused);
    let state = state.to_string();
    assert!(state.contains("the server is too old to restrict visitors"), "{state}");
    assert!(state.contains("allow_from") && state.contains("not published"), "{state}");
    drop(visit(open, "open").await);
    let refused = TcpStream::connect(few).await.unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);

    // A reload that adds a list to a published service closes its port.
    let listed = text.replacen("public:", "deny_from: 192.0.2.1, public:", 1);
    let source = Text { name: "client.yaml", text: &listed };
    let config = loaded(config::load_client(Some(source), &ClientFlags::default(), &sources()));
    client.apply(config).await.unwrap();
    let closed = async {
        while TcpStream::connect(open).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(SOON, closed).await.unwrap();
    let services = client.status().await.sessions.remove(0).services;
    assert!(services[0].state.to_string().contains("too old"), "{services:?}");
    client.close().await;
    server.close().await;
}

#[tokio::test]
async fn a_server_that_can_restrict_visitors_publishes_it() {
    let origin = Origin::echo().unwrap();
    let (open, few) = (free_port(), free_port());
    let (server, text) = server(Features::OURS, origin.address(), [open, few]).await;
    let client = client(&text).await;
    assert_eq!(states(&client).await, [ServiceState::Up; 2]);
    drop(visit(few, "few").await);
    client.close().await;
    server.close().await;
}
