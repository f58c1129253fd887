//! `load bridge`: a visitor's bytes pass through two bridges and back, and so does the end.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the verdict")]

use std::net::{Ipv4Addr, SocketAddr};

use benches::bridge::{self, Far, Options};
use benches::options::Words;
use benches::origin::{self, Kind};
use benches::{runtime, server::Server};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

const ANYWHERE: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

async fn start(far: Far) -> SocketAddr {
    let (tell, received) = oneshot::channel();
    let options = Options { listen: ANYWHERE.into(), far };
    tokio::task::spawn_local(async {
        bridge::run(options, |address| tell.send(address).unwrap()).await.unwrap();
    });
    received.await.unwrap()
}

#[test]
fn bytes_and_their_end_come_through_and_back() {
    runtime().unwrap().block_on(async {
        let listener = origin::listen(ANYWHERE.into()).unwrap();
        let echo = listener.local_addr().unwrap();
        tokio::task::spawn_local(origin::serve(listener, Kind::Echo));
        let far = start(Far::Target(echo)).await;
        let words = ["--server".to_owned(), format!("ws://{far}/any")];
        let server = Server::read(&mut Words::read(words, &[]).unwrap()).unwrap();
        let near = start(Far::Server(server)).await;

        let sent: Vec<u8> = (0..3_000_000u32).map(|i| (i ^ (i >> 9)) as u8).collect();
        let (mut reader, mut writer) = TcpStream::connect(near).await.unwrap().into_split();
        let (got, ()) = tokio::join!(
            async {
                let mut got = Vec::new();
                reader.read_to_end(&mut got).await.unwrap();
                got
            },
            async {
                writer.write_all(&sent).await.unwrap();
                writer.shutdown().await.unwrap();
            }
        );
        assert!(got == sent, "{} of {} bytes", got.len(), sent.len());
    });
}

#[test]
fn one_end_has_a_server_and_the_other_a_target() {
    let read = |text: &str| {
        let words = text.split_whitespace().map(ToOwned::to_owned);
        let mut words = Words::read(words, &[]).unwrap();
        Options::read(&mut words).and_then(|options| words.finish().map(|()| options.far))
    };
    assert!(matches!(read("--listen 127.0.0.1:1 --target 127.0.0.1:2"), Ok(Far::Target(_))));
    assert!(matches!(read("--listen 127.0.0.1:1 --server ws://127.0.0.1:2"), Ok(Far::Server(_))));
    let both = read("--listen 127.0.0.1:1 --target 127.0.0.1:2 --server ws://127.0.0.1:2");
    assert_eq!(both.unwrap_err().to_string(), "no such option: --server");
    let none = read("--listen 127.0.0.1:1");
    assert_eq!(none.unwrap_err().to_string(), "--server is missing");
}
