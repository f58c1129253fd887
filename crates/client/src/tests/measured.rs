//! A client that chooses among its paths by measurement.

use super::*;

/// A server with a listener of TCP and a listener of WebSockets.
async fn server() -> Server {
    let text = format!(
        "listen: [tcp://127.0.0.1:0, ws://127.0.0.1:0]\nworkers: 1\nclients:\n  - {{ name: home, \
         token: {TOKEN} }}\n"
    );
    let text = Text { name: "server.yaml", text: &text };
    let config = loaded(config::load_server(Some(text), &ServerFlags::default(), &sources()));
    Server::start(config, None).await.unwrap()
}

fn client_config(server: &Server, folder: &Path) -> ClientConfig {
    let urls = server.listen().join(", ");
    let text = format!(
        "servers: [{urls}]\nname: home\ntoken: {TOKEN}\nworkers: 1\nconnections: 1\nchoose: \
         measured\nstate_dir: {}\n",
        folder.display()
    );
    let text = Text { name: "client.yaml", text: &text };
    loaded(config::load_client(Some(text), &ClientFlags::default(), &sources()))
}

#[tokio::test]
async fn the_paths_of_a_server_are_measured_shown_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    let server = server().await;
    let client = Client::start(client_config(&server, folder.path())).await.unwrap();
    let measured = async {
        loop {
            let status = client.status().await;
            let paths = &status.sessions[0].paths;
            if paths.len() == 2 && paths.iter().all(|path| path.rtt_micros.is_some()) {
                return paths.clone();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let paths = timeout(SOON, measured).await.expect("both paths are measured");
    assert!(paths[0].in_use && !paths[1].in_use, "{paths:?}");
    assert_eq!(paths[0].why, "it is the first path that answered");
    assert!(paths.iter().all(|path| path.attempts > 0 && path.failures == 0), "{paths:?}");
    assert_eq!(client.status().await.sessions[0].links.len(), 1, "a probe makes no link");
    client.drain().await;
    let kept = std::fs::read_to_string(folder.path().join("paths-home.json"));
    // On a machine without a network nothing is kept.
    if client.status().await.network.is_some() {
        let kept = kept.unwrap();
        assert!(paths.iter().all(|path| kept.contains(&path.path)), "{kept}");
    }
    client.close().await;
    server.close().await;
}
