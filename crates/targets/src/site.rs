//! The TLS of connections to `https://` and `tls://` targets.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use config::{Service, Target};
use relay::{Attended, Layer, LayerError, Layered, Socket};
use tls::TargetTls;
use tokio::time::Instant;
use transport::LocalFuture;

use families::trust;

/// The minimum interval between two reloads of the files after failures: loading the authorities of
/// a system takes milliseconds of a worker, and visitors cause the failures.
const RENEWAL: Duration = Duration::from_secs(10);

/// The layer above the sockets of one target.
pub(super) struct Site {
    trust: Option<config::Trust>,
    name: String,
    /// The target speaks HTTP, whose version is negotiated in the handshake.
    is_site: bool,
    /// Loaded from the files at the first connection, and again after a failure: the file of an
    /// authority may have been replaced.
    made: Rc<RefCell<Option<Made>>>,
}

/// The TLS settings that were loaded from the files, and the time of loading.
type Made = (Rc<TargetTls>, Instant);

impl std::fmt::Debug for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Site").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Site {
    /// The layer of a target of a service. `None`: the target is reached without TLS.
    pub(super) fn of(service: &Service, target: &Target) -> Option<Rc<dyn Layer>> {
        let (Target::Https { host, .. } | Target::Tls { host, .. }) = target else { return None };
        let is_site = matches!(target, Target::Https { .. });
        // A certificate does not name an interface of this machine.
        let name = service.target_tls.server_name.as_ref().unwrap_or(host).unscoped().bare();
        let trust = service.target_tls.trust.clone();
        Some(Rc::new(Self { trust, name, is_site, made: Rc::default() }))
    }

    fn tls(&self) -> Result<Rc<TargetTls>, String> {
        if let Some((made, _)) = &*self.made.borrow() {
            return Ok(Rc::clone(made));
        }
        let failed = |error: &dyn std::fmt::Display| {
            format!("cannot be verified: {error}; see `target_tls` of the service")
        };
        let trust = self.trust.as_ref().map(trust).transpose().map_err(|error| failed(&error))?;
        let made = TargetTls::new(trust.as_ref(), &self.name).map_err(|error| failed(&error))?;
        let made = Rc::new(made);
        *self.made.borrow_mut() = Some((Rc::clone(&made), Instant::now()));
        Ok(made)
    }
}

impl Layer for Site {
    fn asks_first_bytes(&self) -> bool {
        self.is_site
    }

    fn wrap(
        &self,
        socket: Socket,
        is_http2: bool,
    ) -> LocalFuture<'static, Result<Layered, LayerError>> {
        let (tls, made, is_site) = (self.tls(), Rc::clone(&self.made), self.is_site);
        Box::pin(async move {
            let Socket::Tcp(socket) = socket else {
                return Err("is no TCP socket".to_owned().into());
            };
            let socket = Attended::new(socket, |socket| Some(socket));
            let tls = tls?;
            let connecting = async {
                if is_site {
                    tls.connect(socket, is_http2).await
                } else {
                    tls.connect_bytes(socket).await
                }
            };
            let connected = connecting.await.map_err(|error| {
                made.borrow_mut().take_if(|(_, at)| at.elapsed() >= RENEWAL);
                LayerError { reason: error.reason, is_of_visitor: error.lacks_protocol }
            });
            let stream = connected?;
            Ok(Layered::new(stream, Bytes::new()))
        })
    }
}
