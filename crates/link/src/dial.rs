//! From configured paths to a carrier: names resolved anew for each attempt, addresses raced
//! (RFC 8305), paths tried in the order of preference with a short head start each.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use net::race::{ADDRESS_STAGGER, interleave};
use transport::{Carrier, CarrierError, Dialer, Dialled, LocalFuture, Say};

/// How long resolving, connecting and shaking hands may take together.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// A dial that is silent for so long gets another beside it: what swallowed its packets may be over,
/// and a handshake's retransmissions come at ever longer intervals (RFC 6298 section 5.5).
const SECOND_TRY: Duration = Duration::from_secs(3);

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;

/// One way to the server.
#[derive(Clone)]
pub struct Path {
    /// The URL, for logs.
    pub url: String,
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// How to connect.
    pub dialer: Rc<dyn Dialer>,
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

/// Connects over one path, within ten seconds.
///
/// # Errors
/// What the best of its addresses failed by.
pub async fn dial(path: &Path) -> Result<Carrier, CarrierError> {
    dial_early(path, None).await.map(|(carrier, _)| carrier)
}

/// The same; with something to say early, where the transport can.
pub(crate) async fn dial_early(path: &Path, say: Option<&Say>) -> Dialled {
    tokio::time::timeout(DIAL_TIMEOUT, twice(path, say)).await.unwrap_or_else(|_| {
        let seconds = DIAL_TIMEOUT.as_secs();
        let text = format!("no answer within {seconds} s");
        Err(io::Error::new(io::ErrorKind::TimedOut, text).into())
    })
}

/// A failure is final: trying again after one is the back-off's to decide.
async fn twice(path: &Path, say: Option<&Say>) -> Dialled {
    let mut first = pin!(race(path, say));
    if let Ok(outcome) = tokio::time::timeout(SECOND_TRY, &mut first).await {
        return outcome;
    }
    let mut second = pin!(race(path, say));
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

async fn race(path: &Path, say: Option<&Say>) -> Dialled {
    let host = &path.host;
    let found = tokio::net::lookup_host((host.as_str(), path.port))
        .await
        .map_err(|e| io::Error::new(e.kind(), format!("cannot resolve {host}: {e}")))?;
    let addresses = interleave(found.collect(), ADDRESSES_MAX);
    let start = |address: SocketAddr| -> LocalFuture<'static, _> {
        let dialer = Rc::clone(&path.dialer);
        let say = say.cloned();
        Box::pin(async move {
            match say {
                Some(say) => dialer.dial_early(address, say).await,
                None => dialer.dial(address).await.map(|carrier| (carrier, None)),
            }
        })
    };
    let outcome = net::race::race(addresses, ADDRESS_STAGGER, start, worse).await;
    outcome.unwrap_or_else(|| {
        let text = format!("{host} has no address");
        Err(io::Error::new(io::ErrorKind::NotFound, text).into())
    })
}

/// The error that says more: a refused certificate is news, a dead second address is not.
fn worse(known: CarrierError, error: CarrierError) -> CarrierError {
    if error.is_network() { known } else { error }
}
