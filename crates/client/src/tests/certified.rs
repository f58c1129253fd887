//! A visit that began with a certificate ends with its carrier, once the certificate is not valid
//! any more.

use std::fs;

use config::ClientConfig;
use testkit::certs::{Authority, Flaw};

use super::*;
use peer::material;

const OTHER: &str = "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xYzA1bC2dE3fG";

fn client_of(text: &str) -> ClientConfig {
    let text = Text { name: "client.yaml", text };
    loaded(config::load_client(Some(text), &ClientFlags::default(), &sources()))
}

/// Loses the carriers of the link between the two clients.
async fn cut(client: &Client) {
    let cut = |worker: &Rc<Worker>| {
        let links = worker.state.all_links().into_iter();
        links.filter(|(session, link)| session.name == "home/echo" && link.cut()).count()
    };
    assert_eq!(client.workers.handles()[0].call(cut).await.unwrap(), 1);
}

#[tokio::test]
async fn a_link_takes_no_further_carrier_after_the_end_of_the_certificate_that_began_it() {
    let (folder, forward) = (tempfile::tempdir().unwrap(), free_port());
    let (ours, theirs) = (Authority::new("ours").unwrap(), Authority::new("theirs").unwrap());
    let ca = ours.save(folder.path()).unwrap();
    let tls = |name: &str| {
        let leaf = ours.client(&[], name, Flaw::None).unwrap();
        let (cert, key) = leaf.save(folder.path(), name).unwrap();
        format!("{{ ca: {}, cert: {}, key: {} }}", ca.display(), cert.display(), key.display())
    };
    let (of_home, of_laptop) = (tls("home"), tls("laptop"));
    let text = format!(
        "listen: tcp://127.0.0.1:0\nworkers: 1\nclients:\n  - {{ name: home, token: {TOKEN} }}\n  - \
         {{ name: laptop, token: {OTHER}, allow: {{ visit: home/echo }} }}\n"
    );
    let text = Text { name: "server.yaml", text: &text };
    let config = loaded(config::load_server(Some(text), &ServerFlags::default(), &sources()));
    let server = Server::start(config, None).await.unwrap();
    let url = server.listen()[0].clone();
    let client = |name, token| {
        format!(
            "servers: {url}\nname: {name}\ntoken: {token}\nworkers: 1\nconnections: 1\nretry: {{ \
             min: 5ms, max: 20ms }}\n"
        )
    };
    let origin = Origin::echo().unwrap();
    let home = client("home", TOKEN)
        + &format!(
            "services:\n  - {{ name: echo, target: \"tcp://{}\", public: private, visitors: \
             [laptop], visitor_tls: {of_home} }}\n",
            origin.address()
        );
    let home = Client::start(client_of(&home)).await.unwrap();
    let laptop = client("laptop", OTHER)
        + &format!(
            "forwards:\n  - {{ listen: \"tcp://{forward}\", target: \"service://home/echo\", p2p: \
             relay, tls: {of_laptop} }}\n"
        );
    let laptop = Client::start(client_of(&laptop)).await.unwrap();

    let mut visitor = timeout(SOON, visit(forward, "first")).await.unwrap();
    cut(&laptop).await;
    timeout(SOON, converse(&mut visitor, "resumed")).await.unwrap();
    // As at the end of the certificate: no reload looks at the links.
    fs::remove_file(&ca).unwrap();
    theirs.save(folder.path()).unwrap();
    home.shared.materials.replace(material::read(&home.shared.config.load()).unwrap());
    timeout(SOON, converse(&mut visitor, "the carrier stands")).await.unwrap();
    cut(&laptop).await;
    visitor.write_all(b"late").await.unwrap();
    let mut echoed = [0; 4];
    let read = timeout(SOON, visitor.read(&mut echoed)).await.unwrap();
    assert!(matches!(read, Ok(0) | Err(_)), "the link goes on: {read:?}");
    laptop.close().await;
    home.close().await;
    server.close().await;
}
