//! Dials a path. Each attempt resolves the name anew and races the addresses (RFC 8305).

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use net::race::{ADDRESS_STAGGER, interleave};
use transport::{Carrier, CarrierError, Dialer, Dialled, LocalFuture, Say};

/// Time limit for name resolution, connect and handshake together.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// After this time without an answer a second dial starts beside the first dial. The loss that hit
/// the first dial may be over, and a handshake is retransmitted at growing intervals (RFC 6298,
/// section 5.5).
const SECOND_TRY: Duration = Duration::from_secs(3);

/// Most addresses of a name that are tried.
const ADDRESSES_MAX: usize = 8;

/// A path to the server.
#[derive(Clone)]
pub struct Path {
    /// The URL of the path, for logs.
    pub url: String,
    /// Host name or IP address.
    pub host: String,
    /// Port.
    pub port: u16,
    /// The dialer of the transport.
    pub dialer: Rc<dyn Dialer>,
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

/// Connects over one path within 10 seconds.
///
/// # Errors
/// The error of the address that came closest to a connection.
pub async fn dial(path: &Path) -> Result<Carrier, CarrierError> {
    dial_early(path, None).await.map(|(carrier, _)| carrier)
}

/// As [`dial()`]. Sends `say` as early data if the transport supports early data.
pub(crate) async fn dial_early(path: &Path, say: Option<&Say>) -> Dialled {
    tokio::time::timeout(DIAL_TIMEOUT, twice(path, say)).await.unwrap_or_else(|_| {
        let seconds = DIAL_TIMEOUT.as_secs();
        let text = format!("no answer within {seconds} s");
        Err(io::Error::new(io::ErrorKind::TimedOut, text).into())
    })
}

/// Dials, and dials a second time beside a silent dial. Does not retry a failed dial: retries
/// belong to the backoff.
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

/// The more informative of two errors. A refused certificate says more than a dead second address.
fn worse(known: CarrierError, error: CarrierError) -> CarrierError {
    if error.is_network() { known } else { error }
}
