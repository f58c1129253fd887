//! The responses to checks of an authority: those of the order in progress here, and those of
//! another node of the cluster.

use std::fmt;
use std::io;
use std::sync::Arc;

use h1::host::normal;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio_rustls::TlsAcceptor;

use crate::acme::Authority;
use crate::challenge::{self, Kind};
use crate::settings::MinVersion;
use crate::shared::{SharedPlace, is_token};
use crate::terminator::Terminator;

/// A check by tls-alpn-01 that is expected, with its response.
pub struct AwaitedCheck {
    host: Box<str>,
    config: Arc<ServerConfig>,
}

impl fmt::Debug for AwaitedCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AwaitedCheck").field(&self.host).finish()
    }
}

impl Terminator {
    /// The body of the response to `GET /.well-known/acme-challenge/TOKEN` for a host, while the
    /// authority checks the host by http-01. Otherwise `None`, and the request belongs to the
    /// service.
    #[must_use]
    pub fn challenge_token(&self, host: &str, token: &str) -> Option<String> {
        self.slot.http(&normal(host), token)
    }

    /// Whether another node may have the response to `GET /.well-known/acme-challenge/TOKEN`, so
    /// that [`Self::challenge_token_elsewhere`] is worth its wait.
    #[must_use]
    pub fn may_answer_elsewhere(&self, host: &str, token: &str) -> bool {
        let (host, live) = (normal(host), self.live.load());
        let is_checked = |of: &Arc<Authority>| live.kinds(of).contains(&Kind::Http);
        self.shared().is_some()
            && is_token(token)
            && live.authority_for(&host).is_some_and(is_checked)
    }

    /// As [`Self::challenge_token`], for a check of a name that another node orders. The number of
    /// look-ups is bounded, and a look-up takes at most 1 s.
    pub async fn challenge_token_elsewhere(&self, host: &str, token: &str) -> Option<String> {
        if !self.may_answer_elsewhere(host, token) {
            return None;
        }
        let proof = self.shared()?.proof(SharedPlace::Challenge(token.into()), &normal(host)).await;
        String::from_utf8(proof?).ok()
    }

    /// The check by tls-alpn-01 that a connection is, if it is expected: the ClientHello offers
    /// only `acme-tls/1` (RFC 8737 section 3). Where another node may have ordered the name, this
    /// takes up to 1 s.
    pub async fn awaited_check(
        &self,
        server_name: &str,
        alpn: &[Box<[u8]>],
    ) -> Option<AwaitedCheck> {
        if !matches!(alpn, [only] if &**only == challenge::ALPN) {
            return None;
        }
        let host = normal(server_name);
        if let Some(config) = self.slot.tls(&host) {
            return Some(AwaitedCheck { host: host.into(), config });
        }
        let live = self.live.load_full();
        let is_checked = |of: &Arc<Authority>| live.kinds(of).contains(&Kind::Tls);
        if !live.authority_for(&host).is_some_and(is_checked) {
            return None;
        }
        let digest = self.shared()?.proof(SharedPlace::of_tls_check(&host), &host).await?;
        let config = challenge::tls_answer(&host, &digest).ok()?;
        Some(AwaitedCheck { host: host.into(), config })
    }

    /// Completes the handshake of a check by tls-alpn-01, then closes.
    ///
    /// # Errors
    /// The handshake failed.
    pub async fn answer_challenge<IO>(&self, io: IO, check: AwaitedCheck) -> io::Result<()>
    where
        IO: AsyncRead + AsyncWrite + Unpin,
    {
        let AwaitedCheck { host, config } = check;
        match TlsAcceptor::from(config).accept(io).await {
            Ok(mut stream) => stream.shutdown().await,
            Err(error) => Err(self.explained(&error, &host, MinVersion::Tls12)),
        }
    }
}
