//! Ties early data to its connection by MACs under two secrets of TLS.
//!
//! rustls exports no keying material before a handshake is done. But it passes two secrets to its
//! key log when it derives them: the secret of the ClientHello, and the secret of all messages up
//! to the server's Finished (RFC 8446 section 7.1). Each connection has a key log of its own, which
//! keeps only the MACs and no secret.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use proto::greeting::EarlyBinding;
use rustls::KeyLog;
use tokio::sync::Notify;

/// The labels of the key log, each with the text that is MACed under its secret.
const CLIENT: (&str, &[u8]) = ("CLIENT_EARLY_TRAFFIC_SECRET", b"tunnel early client");
const SERVER: (&str, &[u8]) = ("EXPORTER_SECRET", b"tunnel early server");

/// The key log of one connection.
pub(crate) struct EarlySecrets {
    known: Mutex<Known>,
    settled: Notify,
    /// The key log of the configuration, which receives every secret as well.
    next: Arc<dyn KeyLog>,
}

#[derive(Clone, Copy, Default)]
struct Known {
    client: Option<[u8; 32]>,
    server: Option<[u8; 32]>,
    /// Whether the server accepts early data; unset on a client.
    takes: Option<bool>,
}

impl Known {
    fn binding(self) -> Option<EarlyBinding> {
        Some(EarlyBinding { client: self.client?, server: self.server? })
    }
}

impl EarlySecrets {
    pub(crate) fn new(next: &Arc<dyn KeyLog>) -> Arc<Self> {
        let (known, settled, next) = (Mutex::default(), Notify::new(), Arc::clone(next));
        Arc::new(Self { known, settled, next })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The MAC of the ClientHello; `None` when the ClientHello offered no early data.
    pub(crate) fn client(&self) -> Option<[u8; 32]> {
        self.known().client
    }

    /// The binding of the handshake, when the handshake offered early data.
    pub(crate) fn binding(&self) -> Option<EarlyBinding> {
        self.known().binding()
    }

    /// Records that a server's TLS has read bytes of the client, and whether it accepts early data.
    pub(crate) fn read(&self, takes_early_data: bool) {
        let mut known = self.known();
        if known.server.is_some() && known.takes.is_none() {
            known.takes = Some(takes_early_data);
            self.settled.notify_one();
        }
    }

    /// Completes when the server has answered the ClientHello; `None` if it accepts no early data.
    pub(crate) async fn settled(&self) -> Option<EarlyBinding> {
        loop {
            let known = *self.known();
            match known.takes {
                Some(true) => return known.binding(),
                Some(false) => return None,
                None => self.settled.notified().await,
            }
        }
    }
}

impl KeyLog for EarlySecrets {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        self.next.log(label, client_random, secret);
        let mac = |text: &[u8]| {
            let tag = sign(&Key::new(HMAC_SHA256, secret), text);
            <[u8; 32]>::try_from(tag.as_ref()).ok()
        };
        if label == CLIENT.0 {
            self.known().client = mac(CLIENT.1);
        } else if label == SERVER.0 {
            self.known().server = mac(SERVER.1);
        }
    }

    fn will_log(&self, label: &str) -> bool {
        [CLIENT.0, SERVER.0].contains(&label) || self.next.will_log(label)
    }
}

impl fmt::Debug for EarlySecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EarlySecrets(..)")
    }
}
