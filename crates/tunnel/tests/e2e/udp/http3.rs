//! HTTP/3 to a local origin through a UDP service. Debian's curl has no HTTP/3, so both ends are
//! the crate `h3` over quinn.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{Request, Response};
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::pem::PemObject as _;
use quinn::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use quinn::{ClientConfig, Endpoint, ServerConfig};
use testkit::certs::Authority;
use tokio::time::timeout;

use super::{one_service, start};
use crate::harness::{LONG, Scheme, side_by_side};

/// Answers GET /N with N bytes, and every other request with the number of its bytes.
async fn serve(incoming: quinn::Incoming) {
    let Ok(connection) = incoming.await else { return };
    let connection = h3_quinn::Connection::new(connection);
    let mut connection = h3::server::Connection::<_, Bytes>::new(connection).await.unwrap();
    while let Ok(Some(resolver)) = connection.accept().await {
        tokio::spawn(async move {
            let (request, mut stream) = resolver.resolve_request().await.unwrap();
            let body = match request.uri().path()[1..].parse() {
                Ok(size) => super::pattern(size),
                Err(_) => {
                    let mut total = 0;
                    while let Some(part) = stream.recv_data().await.unwrap() {
                        total += part.remaining();
                    }
                    total.to_string().into_bytes()
                }
            };
            stream.send_response(Response::new(())).await.unwrap();
            stream.send_data(body.into()).await.unwrap();
            stream.finish().await.unwrap();
        });
    }
}

/// Makes one request and returns the body of the answer.
async fn fetch(
    requests: &mut h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>,
    request: Request<()>,
    body: Option<Vec<u8>>,
) -> Vec<u8> {
    let mut stream = requests.send_request(request).await.unwrap();
    if let Some(body) = body {
        stream.send_data(body.into()).await.unwrap();
    }
    stream.finish().await.unwrap();
    assert_eq!(stream.recv_response().await.unwrap().status(), 200);
    let mut answer = Vec::new();
    while let Some(mut part) = stream.recv_data().await.unwrap() {
        answer.extend_from_slice(&part.copy_to_bytes(part.remaining()));
    }
    answer
}

async fn visit(port: u16, roots: RootCertStore) {
    let mut endpoint = Endpoint::client(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    endpoint
        .set_default_client_config(ClientConfig::with_root_certificates(Arc::new(roots)).unwrap());
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let connection = endpoint.connect(address, "localhost").unwrap().await.unwrap();
    let (mut driver, mut requests) =
        h3::client::new(h3_quinn::Connection::new(connection)).await.unwrap();
    let driving = tokio::spawn(async move { driver.wait_idle().await });
    for size in [0, 1, 1_200, 100_000, 3_000_000] {
        let get = Request::get(format!("https://localhost/{size}")).body(()).unwrap();
        assert!(fetch(&mut requests, get, None).await == super::pattern(size), "{size}");
        let put = Request::put("https://localhost/count").body(()).unwrap();
        let answer = fetch(&mut requests, put, Some(super::pattern(size))).await;
        assert_eq!(answer, size.to_string().into_bytes());
    }
    drop(requests);
    driving.abort();
}

#[test]
fn http3_reaches_an_origin_behind_a_udp_service() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let authority = Authority::new("an authority").unwrap();
    let leaf = authority.server(&["localhost"]).unwrap();
    let key = PrivateKeyDer::from_pem_slice(leaf.key.as_bytes()).unwrap();
    let chain = vec![CertificateDer::from_pem_slice(leaf.certificate.as_bytes()).unwrap()];
    let config = ServerConfig::with_single_cert(chain, key).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
    let origin = runtime.block_on(async {
        Endpoint::server(config, SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap()
    });
    let target = origin.local_addr().unwrap().port();
    runtime.spawn(async move {
        while let Some(incoming) = origin.accept().await {
            tokio::spawn(serve(incoming));
        }
    });
    side_by_side(Scheme::ALL, |scheme| {
        let (setup, port) = one_service(scheme, target);
        let _running = start(setup, 1);
        let visit = async { timeout(LONG, visit(port, roots.clone())).await };
        runtime.block_on(visit).unwrap_or_else(|_| panic!("{scheme:?}: not done in time"));
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
}
