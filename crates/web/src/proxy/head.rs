//! Rewrites the header of a request for its target.

use hyper::{
    header::{self, HeaderValue},
    http::request::Parts,
};
use proto::TargetProtocol;

use crate::{Refusal, Rules, Sender, Visitor, addresses::Addresses, fields};

/// The inputs of the rewrite of a request's fields.
pub(super) struct Rewrite<'r> {
    pub(super) rules: &'r Rules,
    pub(super) visitor: (&'r Visitor, Sender),
    /// The host as the visitor wrote it.
    pub(super) field: &'r HeaderValue,
    /// Whether the connection comes from a trusted reverse proxy.
    pub(super) is_trusted: bool,
    /// Whether the visitor uses TLS.
    pub(super) is_secure: bool,
    /// Whether the request is a preflight without the password of the service.
    pub(super) is_preflight: bool,
}

impl<'r> Rewrite<'r> {
    /// Rewrites the fields. `protocol`: the protocol to which the visitor requests to switch.
    /// `expects`: the body waits for `100 Continue`. Returns the addresses of the site, for the
    /// responses.
    pub(super) fn apply(
        &self,
        parts: &mut Parts,
        protocol: Option<&HeaderValue>,
        expects: bool,
    ) -> Result<Addresses<'r>, Refusal> {
        let Self { rules, field, is_secure, .. } = *self;
        let list = &mut parts.headers;
        let trailers = fields::takes_trailers(list);
        if rules.have_password() {
            list.remove(header::AUTHORIZATION);
        }
        fields::strip_hop_by_hop(list);
        if !expects {
            list.remove(header::EXPECT);
        }
        match protocol {
            Some(protocol) => {
                list.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
                list.insert(header::UPGRADE, protocol.clone());
            }
            None if trailers => {
                list.insert(header::CONNECTION, HeaderValue::from_static("te"));
                list.insert(header::TE, HeaderValue::from_static("trailers"));
            }
            None => {}
        }
        if self.is_preflight {
            fields::clean_preflight(list);
        }
        if rules.forwarded {
            fields::forwarded(list, self.visitor, self.is_trusted, field);
            if let Some((prefix, "/")) = stripped(rules) {
                fields::forwarded_prefix(list, prefix);
            }
        }
        if let Some(to) = rules.host() {
            let scheme = match rules.target {
                TargetProtocol::Https => "https",
                TargetProtocol::Http | TargetProtocol::H2c => "http",
            };
            let scheme = Some(scheme).filter(|_| !rules.forwarded);
            fields::rewrite_origin(list, (field, to), is_secure, scheme);
        }
        let site = Addresses::new(rules, field, is_secure);
        site.request(list)?;
        rules.request.apply(list);
        list.insert(header::HOST, rules.host().unwrap_or(field).clone());
        // The extensions keep the case of the field names.
        parts.extensions.remove::<h2::ext::Protocol>();
        parts.extensions.remove::<hyper::upgrade::OnUpgrade>();
        Ok(site)
    }
}

/// The prefix of the path that is hidden from the target, and its replacement.
pub(super) fn stripped(rules: &Rules) -> Option<(&str, &str)> {
    rules.path().zip(rules.stripped.as_deref())
}
