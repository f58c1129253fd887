//! One order: the authority checks the name by one challenge and signs a new key.

use std::time::Duration;

use instant_acme::{
    Account, AuthorizationStatus, CertificateIdentifier, ChallengeType, Identifier, NewOrder,
    Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};

use super::failure::{Cause, Failure, in_words};
use super::hook::{self, Action, Record};
use super::visible;
use crate::challenge::{Answer, Kind, Pending, Slot, tls_answer};
use crate::ledger::Scope;
use crate::settings::Dns;
use crate::shared::{SealedStore, SharedPlace};

/// How long the outcome of a check or of a signature is polled.
const POLL_MAX: Duration = Duration::from_secs(60);

/// The result of an order.
#[derive(Debug)]
pub(super) struct Issued {
    /// The private key as PEM.
    pub(super) key: String,
    /// The chain as PEM, leaf first.
    pub(super) chain: String,
    /// The challenge that was answered. `None`: the authority remembered an earlier check.
    pub(super) proved_by: Option<Kind>,
}

/// The purpose of an order, and the ways to prove control.
#[derive(Debug)]
pub(super) struct Wish<'a> {
    pub(super) host: &'a str,
    /// The challenges that this server can answer, the preferred challenge first; at least one.
    pub(super) kinds: &'a [Kind],
    /// The slot in which the doors find the response to a challenge.
    pub(super) slot: &'a Slot,
    /// The store in which other nodes find the response to a challenge.
    pub(super) shared: Option<&'a SealedStore>,
    /// The program of dns-01.
    pub(super) dns: Option<&'a Dns>,
}

/// Orders a certificate for a name. `replaces` is the certificate that the new one replaces (RFC
/// 9773 section 5). A record that remains in DNS, also when the future is dropped, is in `record`.
pub(super) async fn obtain(
    account: &Account,
    wish: &Wish<'_>,
    replaces: Option<&CertificateIdentifier<'static>>,
    record: &mut Option<Record>,
) -> Result<Issued, Failure> {
    let host = wish.host;
    let identifiers = [Identifier::Dns(host.to_owned())];
    let mut new = NewOrder::new(&identifiers);
    if let Some(replaced) = replaces {
        new = new.replaces(replaced.clone());
    }
    let mut order = account.new_order(&new).await.map_err(|error| {
        let mut failure = Failure::of("the order was refused", &error);
        if replaces.is_some() && failure.cause == Cause::Other && failure.pause.is_none() {
            failure.cause = Cause::Replaces;
        }
        failure
    })?;
    let mut told = None;
    let proved_by = prove(&mut order, wish, record, &mut told).await;
    if let (Some(place), Some(shared)) = (told, wish.shared) {
        shared.withdraw(place).await;
    }
    let proved_by = proved_by?;

    let (key, request) = request(host).map_err(|error| {
        Failure::new(Scope::Name, format!("making the request for a certificate: {error}"))
    })?;
    order
        .finalize_csr(&request)
        .await
        .map_err(|error| Failure::of("the request for a certificate was refused", &error))?;
    let chain = order
        .poll_certificate(&retries())
        .await
        .map_err(|error| Failure::of("the certificate was not issued", &error))?;
    Ok(Issued { key, chain, proved_by })
}

/// A new key as PEM, and the request to sign it (RFC 2986) as DER.
fn request(host: &str) -> Result<(String, Vec<u8>), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut parameters = CertificateParams::new([host.to_owned()])?;
    parameters.distinguished_name = DistinguishedName::new();
    Ok((key.serialize_pem(), parameters.serialize_request(&key)?.der().to_vec()))
}

const fn retries() -> RetryPolicy {
    RetryPolicy::new().initial_delay(Duration::from_millis(250)).backoff(1.5).timeout(POLL_MAX)
}

/// Answers a challenge, unless the authority remembers an earlier check. `told` is the place of the
/// response that other nodes can find, whether the check succeeds or fails.
async fn prove(
    order: &mut Order,
    &Wish { host, kinds, slot, shared, dns }: &Wish<'_>,
    record: &mut Option<Record>,
    told: &mut Option<SharedPlace>,
) -> Result<Option<Kind>, Failure> {
    let asking = |error| Failure::of("asking for the challenges", &error);
    // The response is served until the check has ended.
    let (kind, answer) = {
        let mut authorizations = order.authorizations();
        let Some(authorization) = authorizations.next().await else {
            return Err(Failure::new(Scope::Name, "the order has no challenges"));
        };
        let mut authorization = authorization.map_err(asking)?;
        match authorization.status {
            AuthorizationStatus::Valid => return Ok(None),
            AuthorizationStatus::Pending => {}
            status @ (AuthorizationStatus::Invalid
            | AuthorizationStatus::Revoked
            | AuthorizationStatus::Expired
            | AuthorizationStatus::Deactivated) => {
                let text = format!("the order cannot be proved: its authorization is {status:?}");
                return Err(Failure::new(Scope::Name, text));
            }
        }
        let is_offered = |kind: &Kind| {
            authorization.challenges.iter().any(|challenge| challenge.r#type == of_kind(*kind))
        };
        let offered = kinds.iter().copied().find(is_offered);
        let found = offered.and_then(|kind| Some((kind, authorization.challenge(of_kind(kind))?)));
        let Some((kind, mut challenge)) = found else {
            let names: Vec<_> = kinds.iter().map(|kind| kind.name()).collect();
            let text = format!("the authority does not offer {} for this name", names.join(" or "));
            return Err(Failure::new(Scope::Name, text));
        };
        let authorization = challenge.key_authorization();
        // The authority may ask any node, and it asks as soon as it may.
        if let (Some(place), Some(shared)) = (place_of(kind, host, &challenge.token), shared) {
            let digest = authorization.digest();
            let proof = match kind {
                Kind::Http => authorization.as_str().as_bytes(),
                Kind::Tls | Kind::Dns => digest.as_ref(),
            };
            // A write whose outcome is unknown may have taken effect.
            let put = shared.answer(told.insert(place), host, proof).await;
            put.map_err(|away| Failure::new(Scope::Authority, away.to_string()))?;
        }
        let answer = match kind {
            Kind::Http => Some(Answer::Http {
                token: challenge.token.clone(),
                authorization: authorization.as_str().to_owned(),
            }),
            Kind::Tls => Some(Answer::Tls(
                tls_answer(host, authorization.digest().as_ref())
                    .map_err(|problem| Failure::new(Scope::Name, problem))?,
            )),
            Kind::Dns => {
                present(dns, Record::new(host, authorization.dns_value()), record).await?;
                None
            }
        };
        let answer = answer.map(|answer| slot.show(Pending { host: host.into(), answer }));
        challenge.set_ready().await.map_err(asking)?;
        (kind, answer)
    };
    let checked = order.poll_ready(&retries()).await;
    drop(answer);
    match checked {
        Ok(OrderStatus::Ready | OrderStatus::Valid | OrderStatus::Processing) => Ok(Some(kind)),
        Ok(OrderStatus::Pending | OrderStatus::Invalid) => {
            Err(why_refused(order, host, kind, None).await)
        }
        // The error of the order itself, not of a query about it.
        Err(instant_acme::Error::Api(problem)) if order.state().error.is_some() => {
            Err(why_refused(order, host, kind, Some(&problem)).await)
        }
        Err(error) => Err(Failure::of("waiting for the check of the name", &error)),
    }
}

/// Where other nodes find the response to a challenge; `None`: no node is asked.
fn place_of(kind: Kind, host: &str, token: &str) -> Option<SharedPlace> {
    match kind {
        Kind::Http => Some(SharedPlace::Challenge(token.into())),
        Kind::Tls => Some(SharedPlace::of_tls_check(host)),
        Kind::Dns => None,
    }
}

/// Lets the program write the record of dns-01, and waits until it is visible.
async fn present(
    dns: Option<&Dns>,
    new: Record,
    record: &mut Option<Record>,
) -> Result<(), Failure> {
    let failed = |why: String| Failure::new(Scope::Name, format!("the proof by dns-01: {why}"));
    let dns = dns.ok_or_else(|| failed("no program is configured".into()))?;
    // A program that fails may have written the record.
    let new = record.insert(new);
    hook::call(dns, Action::Present, new).await.map_err(failed)?;
    visible::wait(dns, new).await.map_err(failed)
}

/// The reason why a check failed. The challenge contains the reason; the order often contains none,
/// or a shorter one.
async fn why_refused(
    order: &mut Order,
    host: &str,
    kind: Kind,
    of_order: Option<&instant_acme::Problem>,
) -> Failure {
    let mut reason = None;
    if let Some(Ok(mut authorization)) = order.authorizations().next().await
        && let Ok(state) = authorization.refresh().await
    {
        let problem = state.challenges.iter().find_map(|challenge| challenge.error.as_ref());
        reason = problem.map(in_words);
    }
    let reason = reason.or_else(|| of_order.map(in_words));
    let reason = reason.unwrap_or_else(|| "the authority names no reason".into());
    let hint = match kind {
        Kind::Http => format!("HTTP requests to port 80 of {host} must reach this server"),
        Kind::Tls => format!("TLS connections to port 443 of {host} must reach this server"),
        Kind::Dns => "every name server of the zone must have the record; a longer `wait` in \
                      `tls_routes.acme.dns` may help"
            .into(),
    };
    Failure::new(
        Scope::Name,
        format!("the check by {} failed: {reason} (hint: {hint})", kind.name()),
    )
}

const fn of_kind(kind: Kind) -> ChallengeType {
    match kind {
        Kind::Http => ChallengeType::Http01,
        Kind::Tls => ChallengeType::TlsAlpn01,
        Kind::Dns => ChallengeType::Dns01,
    }
}
