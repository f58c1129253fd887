//! Dials a path. Each attempt resolves the name again and races the addresses (RFC 8305).

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use net::race::{ADDRESS_STAGGER, interleave};
use net::resolve::Lookups;
use proto::ScopedAddr;
use transport::{Carrier, CarrierError, Dialer, Dialled, EarlyDataFn, LocalFuture, PathDialer};

/// The maximum number of addresses of a name to try.
const ADDRESSES_MAX: usize = 8;

/// A path to the server.
#[derive(Clone)]
pub struct Path {
    /// The URL of the path, for logs.
    pub url: String,
    /// How the path is dialled.
    pub dialer: Rc<dyn PathDialer>,
}

/// A path to a host: the name is resolved again for each attempt, and the addresses are raced.
#[derive(Clone, Debug)]
pub struct Host {
    /// Host name or IP address.
    pub name: String,
    /// Port.
    pub port: u16,
    /// The dialer of the transport.
    pub dialer: Rc<dyn Dialer>,
}

impl PathDialer for Host {
    fn dial(&self, say: Option<EarlyDataFn>) -> LocalFuture<'static, Dialled> {
        Box::pin(race(self.clone(), say))
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

/// Connects over one path, within the path's time-out ([`PathDialer::patience`]).
///
/// # Errors
/// The most informative error of the addresses.
pub async fn dial(path: &Path) -> Result<Carrier, CarrierError> {
    dial_early(path, None).await.map(|(carrier, _)| carrier)
}

/// As [`dial()`]. Sends `say` as early data if the transport supports early data.
pub(crate) async fn dial_early(path: &Path, say: Option<&EarlyDataFn>) -> Dialled {
    let whole = path.dialer.patience().whole;
    tokio::time::timeout(whole, twice(path, say)).await.unwrap_or_else(|_| {
        let seconds = whole.as_secs();
        let text = format!("no answer within {seconds} s");
        Err(io::Error::new(io::ErrorKind::TimedOut, text).into())
    })
}

/// Dials, and starts a second dial in parallel with a silent one. Does not retry a failed dial:
/// retries belong to the backoff.
async fn twice(path: &Path, say: Option<&EarlyDataFn>) -> Dialled {
    let mut first = path.dialer.dial(say.cloned());
    let Some(until_second) = path.dialer.patience().second else { return first.await };
    if let Ok(outcome) = tokio::time::timeout(until_second, &mut first).await {
        return outcome;
    }
    let mut second = path.dialer.dial(say.cloned());
    tokio::select! {
        outcome = &mut first => match outcome {
            Ok(carrier) => Ok(carrier),
            Err(error) => second.await.map_err(|other| worse(error, other)),
        },
        outcome = &mut second => match outcome {
            Ok(carrier) => Ok(carrier),
            Err(error) => first.await.map_err(|other| worse(error, other)),
        },
    }
}

async fn race(host: Host, say: Option<EarlyDataFn>) -> Dialled {
    let Host { name, port, dialer } = host;
    let found = addresses(&name, port).await;
    let addresses =
        found.map_err(|e| io::Error::new(e.kind(), format!("cannot resolve {name}: {e}")))?;
    let addresses = interleave(addresses, ADDRESSES_MAX);
    let start = |address: SocketAddr| -> LocalFuture<'static, _> {
        let (dialer, say) = (Rc::clone(&dialer), say.clone());
        Box::pin(async move {
            match say {
                Some(say) => dialer.dial_early(address, say).await,
                None => dialer.dial(address).await.map(|carrier| (carrier, None)),
            }
        })
    };
    let outcome = net::race::race(addresses, ADDRESS_STAGGER, start, worse).await;
    if matches!(outcome, Some(Err(_))) {
        // The next attempt resolves the name again, because a server that moved has another
        // address.
        Lookups::of_servers().forget(&name);
    }
    outcome.unwrap_or_else(|| {
        let text = format!("{name} has no address");
        Err(io::Error::new(io::ErrorKind::NotFound, text).into())
    })
}

/// Resolves a host. The interface of a link-local address is looked up at each call.
async fn addresses(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(at) = name.parse::<ScopedAddr>() {
        return Ok(vec![net::zone::socket_addr(at.ip(), at.zone(), port)?]);
    }
    let found = Lookups::of_servers().resolve(name).await?;
    Ok(found.into_iter().map(|ip| SocketAddr::new(ip, port)).collect())
}

/// Returns the more informative of two errors: a refused certificate is more informative than an
/// unreachable second address.
fn worse(known: CarrierError, error: CarrierError) -> CarrierError {
    if error.is_network() { known } else { error }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::time::Duration;

    use transport::memory::{MemoryDialer, network};
    use transport::{Listener as _, Patience};

    use super::*;

    /// A peer that is not found by an address.
    #[derive(Debug)]
    struct Found(MemoryDialer);

    impl PathDialer for Found {
        fn dial(&self, _: Option<EarlyDataFn>) -> LocalFuture<'static, Dialled> {
            let dial = self.0.dial(SocketAddr::from(([0, 0, 0, 0], 0)));
            Box::pin(async { Ok((dial.await?, None)) })
        }
    }

    /// Answers late, and counts its dials.
    #[derive(Debug, Default)]
    struct Late(Rc<Cell<u32>>, Option<Patience>);

    impl PathDialer for Late {
        fn dial(&self, _: Option<EarlyDataFn>) -> LocalFuture<'static, Dialled> {
            self.0.set(self.0.get() + 1);
            Box::pin(async {
                tokio::time::sleep(Duration::from_secs(20)).await;
                Err(CarrierError::Config("the reason".to_owned()))
            })
        }

        fn patience(&self) -> Patience {
            self.1.unwrap_or_default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_path_is_dialled_twice_within_ten_seconds_unless_it_wants_otherwise() {
        let longer = Patience { whole: Duration::from_secs(25), second: None };
        for (patience, dials, why) in
            [(None, 2, "no answer within 10 s"), (Some(longer), 1, "the reason")]
        {
            let count = Rc::<Cell<u32>>::default();
            let dialer = Rc::new(Late(Rc::clone(&count), patience));
            let path = Path { url: "late://peer".to_owned(), dialer };
            let error = dial(&path).await.unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert_eq!(count.get(), dials);
        }
    }

    #[tokio::test]
    async fn a_link_local_address_is_dialled_behind_its_interface() {
        let at = addresses("fe80::1%lo", 7000).await.unwrap();
        let [SocketAddr::V6(at)] = at[..] else { panic!("{at:?}") };
        assert!(at.scope_id() > 0 && at.port() == 7000, "{at}");
        let error = addresses("fe80::1%absent0", 7000).await.unwrap_err();
        assert_eq!(error.to_string(), "this machine has no interface absent0");
    }

    #[tokio::test]
    async fn a_path_needs_no_address() {
        let (mut listener, dialer) = network();
        let path = Path { url: "memory://peer".to_owned(), dialer: Rc::new(Found(dialer)) };
        let accept = async {
            let incoming = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
            incoming.handshake().await.unwrap()
        };
        let (dialled, accepted) = tokio::join!(dial(&path), accept);
        assert_eq!(dialled.unwrap().peer.transport, accepted.peer.transport);
    }
}
