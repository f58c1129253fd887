//! A test of a service: its targets are dialled as for a visitor, and each step is reported with
//! its time. The user of the client requests it, or the server over a link. Of the target's bytes
//! only the HTTP status is reported.

use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use bytes::Bytes;
use config::{Host, Over, Public, Service, Target};
use net::SocketOptions;
use net::resolve::Lookups;
use ops::tested::{Step, TARGETS, Tested, TestedTarget};
use relay::dial::dial;
use relay::{Layered, TargetAddr, proxy_header};
use tokio::sync::oneshot;
use tokio::task::spawn_local;
use tokio::time::{timeout, timeout_at};

use super::address::address;
use super::checks::{ANSWER, NOWHERE, request, status};
use super::local::proxy_version;
use super::site::Site;
use node::descriptors;
use node::session::{Handle, Worker};

/// The timeout for the test of a target.
pub const LIMIT: Duration = Duration::from_secs(10);

/// The maximum number of concurrent tests.
const TESTS: u32 = 4;

/// The maximum number of addresses of a name that are tried, in sequence.
const ADDRESSES: usize = 4;

/// The maximum length of the text of an outcome, in characters.
const TEXT: usize = 200;

/// The number of running tests.
static UNDER_WAY: AtomicU32 = AtomicU32::new(0);

/// A slot for a test, which this counter counts. Dropping it frees the slot.
#[derive(Debug)]
pub struct Place(&'static AtomicU32);

impl Place {
    /// `None`: the maximum number of tests is running.
    pub fn take() -> Option<Self> {
        Self::take_of(&UNDER_WAY)
    }

    fn take_of(under_way: &'static AtomicU32) -> Option<Self> {
        let more = |taken: u32| (taken < TESTS).then_some(taken + 1);
        let taken = under_way.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        // A `Place` must exist only for a slot that was taken, because its drop frees the slot.
        taken.is_ok().then(|| Self(under_way))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Tests the targets of a service in parallel. Runs on a worker.
pub async fn test(service: &Service, _place: Place) -> Vec<TestedTarget> {
    let begin = |(target, _): (&Target, _)| {
        let (service, target) = (service.clone(), target.clone());
        spawn_local(async move { one(&service, &target).await })
    };
    let under_way: Vec<_> = service.targets().take(TARGETS).map(begin).collect();
    let mut tested = Vec::new();
    for one in under_way {
        // A panic was logged by the panic hook.
        tested.extend(one.await.ok());
    }
    tested
}

/// Tests a service of this process, on its first worker.
///
/// # Errors
/// There is no such service, or too many tests are running.
pub async fn here(
    handles: &[Handle],
    found: Option<Service>,
    service: String,
) -> anyhow::Result<Tested> {
    let found = found.with_context(|| format!("there is no service `{service}`"))?;
    let place = Place::take().context("too many tests are under way: try again")?;
    let handle = handles.first().context("the daemon is stopping")?;
    let (reply, outcome) = oneshot::channel();
    let job = move |_: &Rc<Worker>| {
        spawn_local(async move {
            // The caller may have left.
            let _ = reply.send(test(&found, place).await);
        });
    };
    handle.run(job).await?;
    let targets = outcome.await.context("the daemon is stopping")?;
    Ok(Tested { service, client: None, ok: all_serve(&targets), link_micros: None, targets })
}

/// Whether every target serves.
pub fn all_serve(targets: &[TestedTarget]) -> bool {
    !targets.is_empty() && targets.iter().all(|target| target.ok)
}

async fn one(service: &Service, target: &Target) -> TestedTarget {
    let mut steps = Vec::new();
    let outcome = timeout(LIMIT, go_through(service, target, &mut steps)).await;
    let late = |_| Err(format!("no answer within {} s", LIMIT.as_secs()));
    let error = outcome.unwrap_or_else(late).err().map(|why| brief(&why));
    TestedTarget { target: brief(&target.to_string()), ok: error.is_none(), steps, error }
}

fn brief(text: &str) -> String {
    text.chars().take(TEXT).collect()
}

fn step(step: &str, begin: Instant, found: Option<String>) -> Step {
    let micros = u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX);
    Step { step: step.to_owned(), micros, found: found.map(|found| brief(&found)) }
}

/// Runs the steps of a visitor's connection.
async fn go_through(
    service: &Service,
    target: &Target,
    steps: &mut Vec<Step>,
) -> Result<(), String> {
    let begin = Instant::now();
    match target {
        Target::Files(dir) => {
            let dir = dir.clone();
            let opened = tokio::task::spawn_blocking(move || std::fs::read_dir(dir).map(drop));
            let opened = opened.await.map_err(|why| why.to_string())?;
            opened.map_err(|why| format!("the folder cannot be opened: {why}"))?;
            steps.push(step("open", begin, None));
            return Ok(());
        }
        Target::Socks5 | Target::HttpProxy | Target::Redirect(_) | Target::Private(_) => {
            steps.push(step("inside", begin, None));
            return Ok(());
        }
        Target::Tcp { .. }
        | Target::Udp { .. }
        | Target::Https { .. }
        | Target::H2c { .. }
        | Target::Tls { .. }
        | Target::Unix(_) => {}
    }
    let lookups = Lookups::of_targets();
    let addresses = resolve(target, &lookups, steps).await?;
    if !service.carries(Over::Tcp) {
        steps.push(step("unheard", Instant::now(), None));
        return Ok(());
    }
    let options = families::dial_options(&service.dial, SocketOptions::DEFAULT);
    let begin = Instant::now();
    let mut failed = None;
    let mut dialled = None;
    for address in addresses {
        match dial(&address, None, LIMIT, (descriptors::room(), &options), &lookups).await {
            Ok(socket) => {
                steps.push(step("connect", begin, Some(shown(&address))));
                dialled = Some(socket);
                break;
            }
            Err(why) => failed = failed.or_else(|| Some(why.to_string())),
        }
    }
    let Some(dialled) = dialled else {
        return Err(failed.unwrap_or_else(|| "it has no address".to_owned()));
    };
    if let Some(version) = service.proxy_protocol.map(proxy_version) {
        // A target that expects a header would log a connection without one as broken.
        let header = proxy_header(version, None, NOWHERE);
        dialled.write_all(&header).await.map_err(|why| why.to_string())?;
    }
    let socket = dialled.keep();
    let layered = match Site::of(service, target) {
        Some(layer) => {
            let begin = Instant::now();
            let wrapped = layer.wrap(socket, false).await;
            let layered = wrapped.map_err(|why| format!("the target {}", why.reason))?;
            steps.push(step("tls", begin, None));
            layered
        }
        None => Layered::new(socket, Bytes::new()),
    };
    if !speaks_http(service, target) {
        return Ok(());
    }
    let begin = Instant::now();
    let path = service.health.as_ref().and_then(|check| check.path.as_deref()).unwrap_or("/");
    let end = tokio::time::Instant::now() + LIMIT;
    let answer = timeout_at(end, layered.ask(&request(service, target, path), ANSWER)).await;
    let answer = answer.map_err(|_| "no answer to a request".to_owned())?;
    let answer = answer.map_err(|why| format!("the target breaks the request off: {why}"))?;
    match status(&answer) {
        // Any answer means that the target serves.
        Some(status) => steps.push(step("first_byte", begin, Some(format!("HTTP {status}")))),
        None => return Err("the target does not answer over HTTP".to_owned()),
    }
    Ok(())
}

/// The addresses of a target, each of which is dialled separately.
async fn resolve(
    target: &Target,
    lookups: &Lookups,
    steps: &mut Vec<Step>,
) -> Result<Vec<TargetAddr>, String> {
    let Some((Host::Name(name), port)) = target.port() else {
        let over = if matches!(target, Target::Udp { .. }) { Over::Udp } else { Over::Tcp };
        return Ok(address(target, over).into_iter().collect());
    };
    let begin = Instant::now();
    let found = lookups.resolve(name).await;
    let found = found.map_err(|why| format!("{name} does not resolve: {why}"))?;
    let all: Vec<_> = found.iter().map(ToString::to_string).collect();
    steps.push(step("resolve", begin, Some(all.join(", "))));
    let of = |host: String| TargetAddr::Tcp { host, port };
    Ok(all.into_iter().take(ADDRESSES).map(of).collect())
}

fn shown(address: &TargetAddr) -> String {
    address.to_string()
}

/// Whether visitors speak HTTP/1.1 with the target, according to the configuration.
fn speaks_http(service: &Service, target: &Target) -> bool {
    if matches!(target, Target::H2c { .. } | Target::Tls { .. }) {
        return false;
    }
    let has_path = service.health.as_ref().is_some_and(|check| check.path.is_some());
    matches!(target, Target::Https { .. }) || has_path || service.public.iter().any(Public::is_http)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use config::{ClientFlags, Sources, Text};
    use testkit::certs::{Authority, Flaw, Leaf};
    use tls::VisitorTls;
    use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::task::LocalSet;

    use super::*;

    /// A service of a client by an HTTP name, with this target and these keys after it.
    fn service(target: &str, more: &str) -> Service {
        let read = |_: &Path| Err(String::new());
        let sources = Sources { env: &|_| None, read: &read };
        let text = format!(
            "servers: tls://a\nname: home\ntoken: q7Xb2LmZ0aKc9RtYv4WnPs8DfGh3JeUi\nservices:\n  \
             - {{ name: web, target: \"{target}\", public: \"http://app.example.com\"{more} }}\n"
        );
        let text = Some(Text { name: "c", text: &text });
        let loaded = config::load_client(text, &ClientFlags::default(), &sources).unwrap();
        loaded.config.services[0].clone()
    }

    /// A target that answers each connection in this way. Returns its port.
    async fn target(answer: &'static str) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        spawn_local(async move {
            while let Ok((socket, _)) = listener.accept().await {
                serve(socket, answer).await;
            }
        });
        port
    }

    async fn serve(mut socket: impl AsyncRead + AsyncWrite + Unpin, answer: &str) {
        let mut request = [0; 1024];
        let n = socket.read(&mut request).await.unwrap();
        let request = String::from_utf8_lossy(&request[..n]).into_owned();
        assert!(request.starts_with("GET / HTTP/1.1\r\nHost: app.example.com\r\n"), "{request}");
        socket.write_all(answer.as_bytes()).await.unwrap();
        socket.shutdown().await.unwrap();
    }

    /// A target over TLS that shows this certificate. Returns its port.
    async fn target_over_tls(leaf: &Leaf) -> u16 {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = leaf.save(folder.path(), "target").unwrap();
        let tls = VisitorTls::load(&certificate, &key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        spawn_local(async move {
            while let Ok((socket, _)) = listener.accept().await {
                // A client that refuses the certificate ends the handshake.
                if let Ok(inside) = tls.accept(socket).await {
                    serve(inside, "HTTP/1.1 204 No Content\r\n\r\n").await;
                }
            }
        });
        port
    }

    async fn tested(target: &str) -> TestedTarget {
        tested_with(target, "").await
    }

    async fn tested_with(target: &str, more: &str) -> TestedTarget {
        let service = service(target, more);
        // Tests beside this one may have all places for a moment.
        let place = loop {
            match Place::take() {
                Some(place) => break place,
                None => tokio::task::yield_now().await,
            }
        };
        let mut all = test(&service, place).await;
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    fn words(tested: &TestedTarget) -> Vec<&str> {
        tested.steps.iter().map(|step| step.step.as_str()).collect()
    }

    #[tokio::test]
    async fn each_step_is_told_until_the_first_that_fails() {
        LocalSet::new()
            .run_until(async {
                let port = target("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").await;
                let good = tested(&format!("http://localhost:{port}")).await;
                assert!(good.ok && good.error.is_none(), "{good:?}");
                assert_eq!(words(&good), ["resolve", "connect", "first_byte"]);
                assert!(good.steps[1].found.as_deref().unwrap().ends_with(&format!(":{port}")));
                assert_eq!(good.steps[2].found.as_deref(), Some("HTTP 404"), "it serves");

                let port = target("SSH-2.0-x\r\n").await;
                let other = tested(&format!("http://127.0.0.1:{port}")).await;
                assert_eq!(words(&other), ["connect"]);
                assert!(other.error.as_deref().unwrap().contains("does not answer over HTTP"));

                let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let port = nobody.local_addr().unwrap().port();
                drop(nobody);
                let refused = tested(&format!("http://127.0.0.1:{port}")).await;
                assert!(!refused.ok && refused.steps.is_empty(), "{refused:?}");
                assert!(refused.error.as_deref().unwrap().contains("refused"), "{refused:?}");

                let folder = tempfile::tempdir().unwrap();
                let open = tested(&format!("file://{}", folder.path().display())).await;
                assert_eq!(words(&open), ["open"]);
                let gone = folder.path().join("gone");
                let gone = tested(&format!("file://{}", gone.display())).await;
                assert!(gone.error.as_deref().unwrap().contains("cannot be opened"), "{gone:?}");
            })
            .await;
    }

    #[tokio::test]
    async fn the_step_of_tls_succeeds_or_says_what_is_wrong() {
        let authority = Authority::new("the authority of the test").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let ca = authority.save(folder.path()).unwrap();
        let trusted = format!(", target_tls: {{ ca: {:?} }}", ca.display());
        let body = async {
            let good = target_over_tls(&authority.server(&["127.0.0.1"]).unwrap()).await;
            let target = format!("https://127.0.0.1:{good}");
            let served = tested_with(&target, &trusted).await;
            assert_eq!(words(&served), ["connect", "tls", "first_byte"], "{served:?}");
            assert_eq!(served.steps[2].found.as_deref(), Some("HTTP 204"));
            assert!(served.ok && served.error.is_none(), "{served:?}");

            // Each certificate, with the words of the error and the setting that would help.
            let of = |name: &str, flaw| authority.flawed_server(&[name], flaw).unwrap();
            let own = Leaf::self_signed("127.0.0.1", false).unwrap();
            let cases = [
                (of("other.example", Flaw::None), "that is not for 127.0.0.1", "other.example"),
                (of("127.0.0.1", Flaw::Expired), "that has expired", "the authority of the test"),
                (of("127.0.0.1", Flaw::NotYetValid), "that is not valid yet", "clock"),
                (own, "that is self-signed", "issued by itself"),
            ];
            for (leaf, why, more) in &cases {
                let port = target_over_tls(leaf).await;
                let tested = tested_with(&format!("https://127.0.0.1:{port}"), &trusted).await;
                // The target is reached: the fault is that of the certificate.
                assert_eq!(words(&tested), ["connect"], "{why}: {tested:?}");
                let error = tested.error.as_deref().unwrap_or_default();
                assert!(!tested.ok && error.contains(why) && error.contains(more), "{error}");
                let insecure = ", target_tls: { insecure: true }";
                let any = tested_with(&format!("https://127.0.0.1:{port}"), insecure).await;
                assert_eq!(words(&any), ["connect", "tls", "first_byte"], "{why}: {any:?}");
            }

            // A port that answers without TLS, and a port that never answers.
            for (answer, why) in [
                (Some("HTTP/1.1 400 Bad Request\r\n\r\n"), "does not speak TLS on this port"),
                (None, "no answer within 10 s"),
            ] {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let port = listener.local_addr().unwrap().port();
                let target = format!("https://127.0.0.1:{port}");
                let asking = tested_with(&target, &trusted);
                let answering = async {
                    let (mut socket, _) = listener.accept().await.unwrap();
                    let mut hello = [0; 1024];
                    assert_eq!((socket.read(&mut hello).await.unwrap() > 5, hello[0]), (true, 22));
                    match answer {
                        Some(answer) => socket.write_all(answer.as_bytes()).await.unwrap(),
                        // Only the limit of the test is left to wait for.
                        None => tokio::time::pause(),
                    }
                    socket
                };
                let (tested, _socket) = tokio::join!(asking, answering);
                assert_eq!(words(&tested), ["connect"], "{tested:?}");
                let error = tested.error.as_deref().unwrap_or_default();
                assert!(!tested.ok && error.contains(why), "{error}");
            }
        };
        LocalSet::new().run_until(body).await;
    }

    #[test]
    fn the_places_are_few_and_come_back() {
        // The places of the process belong to the tests beside this one.
        static PLACES: AtomicU32 = AtomicU32::new(0);
        let take = || Place::take_of(&PLACES);
        let all: Vec<_> = std::iter::from_fn(take).collect();
        assert_eq!(all.len(), TESTS as usize);
        assert!(take().is_none());
        drop(all);
        assert!(take().is_some());
    }
}
