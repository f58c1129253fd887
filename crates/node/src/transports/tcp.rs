//! `tls://` and `tcp://`: our own protocol over TCP, with TLS or without.

use std::rc::Rc;
use std::sync::Arc;

use anyhow::ensure;
use config::{Common, Endpoint};
use net::Current;
use transport::PathDialer;
use transport_tcp::{Speech, TcpDialer, TcpListener, TlsClient, Via};

use super::material::NextHop;
use super::{Bound, Dials, Family, Listeners, Renewal, Setup, bind_tcp, bound_tcp, material};

pub(super) struct Tcp;

impl Family for Tcp {
    fn schemes(&self) -> &'static [&'static str] {
        const NAMES: &[&str] = &[transport_tcp::TLS.name(), transport_tcp::TCP.name()];
        NAMES
    }

    fn listeners(&self, setup: &Setup<'_>) -> anyhow::Result<Arc<dyn Listeners>> {
        let tls = material::tls_server(setup, Speech::Tunnel)?.map(Into::into);
        Ok(Arc::new(TcpListeners { tls }))
    }

    fn dials(&self, path: &config::Path, _: &Common) -> anyhow::Result<Arc<dyn Dials>> {
        let tls = material::tls_client(path, Speech::Tunnel)?;
        let via = material::via(path).map(|(.., via)| via);
        Ok(Arc::new(TcpDials { hop: NextHop::new(path), tls, via }))
    }
}

#[derive(Debug)]
struct TcpListeners {
    tls: Option<Current<tls::ServerConfig>>,
}

impl Listeners for TcpListeners {
    fn bind(&self, endpoint: &Endpoint, _: &Common, workers: usize) -> anyhow::Result<Bound> {
        let tls = self.tls.clone().filter(|_| endpoint.scheme.tls);
        ensure!(tls.is_some() == endpoint.scheme.tls, "{endpoint} without a certificate");
        bound_tcp(bind_tcp(endpoint, workers)?, move |socket| {
            Ok(Box::new(TcpListener::new(socket, tls.clone())?))
        })
    }

    fn renew(&self, setup: &Setup<'_>) -> anyhow::Result<Renewal> {
        let new = material::tls_server(setup, Speech::Tunnel)?;
        let tls = self.tls.clone();
        Ok(Box::new(move || material::replace(tls.as_ref(), new)))
    }
}

#[derive(Debug)]
struct TcpDials {
    hop: NextHop,
    tls: Option<TlsClient>,
    via: Option<Via>,
}

impl Dials for TcpDials {
    fn dialer(&self, _: Option<u8>) -> Rc<dyn PathDialer> {
        self.hop.dialled(TcpDialer::new(self.tls.clone()).through(self.via.clone()))
    }
}
