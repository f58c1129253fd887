//! A port mapping of the router to the socket of a trial: the sockets of [`punch::mapper`].

use std::future::{Future, pending};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use net::SocketOptions;
use net::udp::local_address;
use punch::is_private;
use punch::mapper::{Door, Mapped, Mapper, Protocol, Request, Unmapped, Wanted};
use punch::mapper::{default_gateway, is_over};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, sleep, sleep_until};

use super::{PunchSettings, Trial, hosts};

/// The ports of a router: PCP and NAT-PMP, and the discovery of UPnP.
const MAPPING: u16 = 5351;
const SEARCH: u16 = 1900;

/// Larger than any expected answer.
const SPACE: usize = 1_500;

/// The size of one read of an HTTP response.
const PIECE: usize = 4 << 10;

/// Where a direct path exists without a mapping, it is found within this time, unless it is very
/// long.
const PATIENCE: Duration = Duration::from_millis(500);

/// A public address. Nothing is sent there: it only selects the source address by the route.
const SOMEWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9);

/// Completes when a port is no longer used.
pub type Ended = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Receives each port, and finally an error.
pub type MappingReport<'a> = dyn FnMut(Result<Mapped, Unmapped>) + Send + 'a;

/// The router of this machine, as far as it is known from sockets.
#[derive(Debug, Default)]
pub struct Router {
    /// The protocol that worked last.
    known: Mutex<Option<Protocol>>,
}

impl Router {
    /// A router for which this protocol is tried first.
    #[must_use]
    pub fn asked_first_by(protocol: Protocol) -> Self {
        Self { known: Mutex::new(Some(protocol)) }
    }

    /// As [`Self::keep`], for a socket like that of a trial, without a listener.
    ///
    /// # Errors
    /// The system has no socket or no random numbers.
    pub async fn probe(
        &self,
        settings: &PunchSettings,
        ended: Ended,
        report: &mut MappingReport<'_>,
    ) -> io::Result<()> {
        let socket = hosts::bind(settings)?;
        self.keep(socket.local_addr()?.port(), ended, report).await
    }

    /// Requests a mapping from the router to `port` of this machine, and renews it until `ended`
    /// completes; then deletes it, within at most 1.5 s. `tell` receives each port, and finally an
    /// error, which ends this.
    ///
    /// Only the gateway of the default IPv4 route is asked, and only if this machine has a private
    /// address and its packets to the internet take that route.
    ///
    /// # Errors
    /// The system has no socket or no random numbers.
    pub async fn keep(
        &self,
        port: u16,
        ended: Ended,
        report: &mut MappingReport<'_>,
    ) -> io::Result<()> {
        let first = *self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = match wanted(port, first) {
            Ok(wanted) => wanted,
            Err(why) => {
                report(Err(why));
                return Ok(());
            }
        };
        let mut noting = |outcome: Result<Mapped, Unmapped>| {
            if let Ok(Mapped { protocol, .. }) = outcome {
                *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(protocol);
            }
            report(outcome);
        };
        Keeper::new(wanted).await?.run(ended, &mut noting).await;
        Ok(())
    }
}

fn wanted(port: u16, first: Option<Protocol>) -> Result<Wanted, Unmapped> {
    let routes = std::fs::read_to_string("/proc/self/net/route").unwrap_or_default();
    let router = default_gateway(&routes).ok_or(Unmapped::NoRouter)?;
    let by = |to| local_address(to, &SocketOptions::DEFAULT);
    let towards = |to| by(to).map_err(|_| Unmapped::NoRouter);
    let IpAddr::V4(own) = towards(SocketAddr::from((router, MAPPING)))?.to_canonical() else {
        return Err(Unmapped::NoRouter);
    };
    // Behind a VPN a port of the router would reveal the address that the VPN hides.
    if towards(SOMEWHERE)?.to_canonical() != own {
        return Err(Unmapped::OtherWay);
    }
    if !is_private(own.into()) {
        return Err(Unmapped::NoNat);
    }
    Ok(Wanted { router, own: SocketAddrV4::new(own, port), first })
}

impl Trial {
    /// Requests a mapping from the router to the socket of this trial, if no path is found soon:
    /// most NATs need none. The mapping is kept as long as the trial or its carrier uses the
    /// socket.
    ///
    /// # Errors
    /// The system no longer knows the socket.
    pub fn map_port(
        &self,
        router: Arc<Router>,
    ) -> io::Result<impl Future<Output = ()> + Send + use<>> {
        let (port, path, ended) = (self.port()?, self.path(), self.ended());
        Ok(async move {
            let mut ended: Ended = Box::pin(ended);
            tokio::select! {
                () = &mut ended => return,
                () = sleep(PATIENCE) => {}
            }
            if path.pair().is_some() {
                return path.mapped(None);
            }
            let mut report = |outcome: Result<Mapped, Unmapped>| {
                match outcome {
                    Ok(Mapped { outer, protocol }) => {
                        tracing::debug!(%outer, "the router opened a port by {protocol}");
                    }
                    Err(why) => tracing::debug!("the router opens no port: {why}"),
                }
                path.mapped(outcome.ok().map(|mapped| mapped.outer));
            };
            if let Err(error) = router.keep(port, ended, &mut report).await {
                tracing::debug!(%error, "no socket to ask the router for a port");
                path.mapped(None);
            }
        })
    }
}

/// A request in progress.
type Exchange = Pin<Box<dyn Future<Output = (u32, Option<Vec<u8>>)> + Send>>;

/// A mapper with its sockets.
struct Keeper {
    mapper: Mapper,
    router: Ipv4Addr,
    /// Receives datagrams of [`MAPPING`] only from the router.
    mapping: UdpSocket,
    search: UdpSocket,
}

impl Keeper {
    async fn new(wanted: Wanted) -> io::Result<Self> {
        let Wanted { router, own, .. } = wanted;
        let mapping = UdpSocket::bind((*own.ip(), 0)).await?;
        mapping.connect((router, MAPPING)).await?;
        let search = UdpSocket::bind((*own.ip(), 0)).await?;
        let mut failed = None;
        let mut random = |bytes: &mut [u8]| failed = getrandom::fill(bytes).err().or(failed);
        let mapper = Mapper::new(now(), wanted, &mut random);
        match failed {
            Some(error) => Err(io::Error::other(error)),
            None => Ok(Self { mapper, router, mapping, search }),
        }
    }

    async fn run(mut self, mut ended: Ended, report: &mut MappingReport<'_>) {
        let mut has_ended = false;
        let mut exchange: Option<Exchange> = None;
        loop {
            self.send().await;
            if let Some(request) = self.mapper.poll_request() {
                exchange = Some(Box::pin(ask(request)));
            }
            while let Some(event) = self.mapper.poll_event() {
                report(event);
            }
            let Some(due) = self.mapper.poll_timeout() else { return };
            let mut at = [[0; SPACE]; 2];
            let [at_mapping, at_search] = &mut at;
            tokio::select! {
                () = &mut ended, if !has_ended => {
                    has_ended = true;
                    self.mapper.end(now());
                }
                () = sleep_until(due.into()) => self.mapper.handle_timeout(now()),
                got = self.mapping.recv(at_mapping) => match got {
                    Ok(length) => {
                        let datagram = &at_mapping[..length];
                        self.mapper.handle_datagram(now(), Door::Mapping, datagram);
                    }
                    Err(_) => self.mapper.handle_refused(now()),
                },
                got = self.search.recv_from(at_search) => {
                    if let Ok((length, from)) = got
                        && from.ip() == IpAddr::V4(self.router)
                    {
                        let datagram = &at_search[..length];
                        self.mapper.handle_datagram(now(), Door::Search, datagram);
                    }
                }
                (id, response) = under_way(&mut exchange) => {
                    exchange = None;
                    self.mapper.handle_response(now(), id, response.as_deref());
                }
            }
        }
    }

    async fn send(&mut self) {
        while let Some((door, bytes)) = self.mapper.poll_datagram() {
            // A request that cannot be sent is repeated, or abandoned.
            let sent = match door {
                Door::Mapping => self.mapping.send(&bytes).await,
                Door::Search => self.search.send_to(&bytes, (self.router, SEARCH)).await,
            };
            if sent.is_err() && door == Door::Mapping {
                self.mapper.handle_refused(now());
            }
        }
    }
}

async fn under_way(exchange: &mut Option<Exchange>) -> (u32, Option<Vec<u8>>) {
    match exchange {
        Some(exchange) => exchange.await,
        None => pending().await,
    }
}

/// Sends a request, and reads the response to its end. The mapper bounds the time.
async fn ask(request: Request) -> (u32, Option<Vec<u8>>) {
    (request.id, exchange(&request).await.ok())
}

async fn exchange(request: &Request) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(request.to).await?;
    stream.write_all(&request.bytes).await?;
    let mut response = Vec::new();
    let mut piece = [0; PIECE];
    while !is_over(&response) {
        match stream.read(&mut piece).await? {
            0 => break,
            length => response.extend(&piece[..length]),
        }
    }
    Ok(response)
}

/// The time of tokio, which tests may pause.
fn now() -> std::time::Instant {
    Instant::now().into_std()
}
