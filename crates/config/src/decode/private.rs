//! Private services: `public: private` with `visitors` on the side that has the service, and the
//! tokens and `p2p` on the visiting side.

use std::collections::{BTreeMap, BTreeSet};

use proto::NamePattern;
use proto::control::VISITORS_MAX;

use super::http::{BASIC_AUTH, PROXIED};
use super::target::Targets;
use crate::key_table::{KeyMap, KeyTable as _};
use crate::model::{
    Forward, PRIVATE, PeerPath, PeerTls, Private, Proof, Service, Visit, Visitor, credentials,
};
use crate::section::{Item, Section};
use crate::{BadValue, PrivateService, Target, values};

/// Keys that have no effect without a public address, beside those of HTTP.
const PUBLIC_KEYS: [&str; 8] = [
    "shared",
    "allow_from",
    "deny_from",
    "proxy_protocol",
    "pass_through",
    "requests",
    "remember",
    "target_tls",
];

/// Whether `public` has the value of a private service. A list that also has other addresses is an
/// error.
pub(super) fn is_private(s: &Section<'_>) -> bool {
    let items = s.one_or_list("public");
    if !items.iter().any(|item| item.node.text() == Some(PRIVATE)) {
        return false;
    }
    if items.len() > 1 {
        let bad = BadValue::new("a private service has no public address");
        s.bad("public", bad.hint("`public: private` alone, or the addresses as another service"));
    }
    true
}

/// Decodes `visitors`. `None` for a service that is not private.
pub(super) fn private(s: &Section<'_>, is_private: bool) -> Option<Private> {
    let list = s.key("visitors");
    if !is_private {
        for (key, hint) in [
            ("visitors", "it is for `public: private`; `allow_from` lists networks"),
            ("browser", "it is for `public: private`; browsers reach a public name"),
            ("visitor_tls", "it is for `public: private`"),
        ] {
            s.no_effect(key, " at a public address", hint);
        }
        return None;
    }
    if !s.has("name") {
        s.missing("name", "the name by which visitors ask for the service, like ssh");
    }
    let Some(list) = list else {
        s.missing("visitors", "who may visit: [{ name: laptop, token_file: laptop.token }]");
        return None;
    };
    let items = s.cx.one_or_list(&list);
    if items.len() > VISITORS_MAX {
        s.bad("visitors", BadValue::new(format!("more than {VISITORS_MAX} visitors")));
        return None;
    }
    let mut seen = BTreeSet::new();
    let tls = peer_tls(s, "visitor_tls", PeerTls::MAP);
    let has_tls = s.has("visitor_tls");
    let visitors: Vec<_> =
        items.into_iter().filter_map(|item| visitor(s, item, has_tls, &mut seen)).collect();
    if has_tls && !visitors.is_empty() && visitors.iter().all(|one| !one.tokens.is_empty()) {
        let bad = BadValue::new("each visitor has a token, and none shows a certificate");
        let hint = "remove the token of those who have a certificate, or remove `visitor_tls`";
        s.warn("visitor_tls", bad.hint(hint));
    }
    let browser = s.value("browser", values::switch) == Some(true);
    Some(Private { visitors, tls, browser })
}

/// Decodes the certificates that one authority issues. `None` without the section, or after a
/// problem.
fn peer_tls(s: &Section<'_>, key: &str, map: KeyMap) -> Option<PeerTls> {
    let own = Section::open(s.cx, s.key(key)?, map)?;
    if !own.has("ca") {
        own.missing("ca", "the file of the authority that issues the certificates of both clients");
    }
    let identity = credentials::key_pair(&own);
    Some(PeerTls { ca: values::path(&own, "ca")?, identity })
}

fn visitor(
    s: &Section<'_>,
    item: Item,
    has_tls: bool,
    seen: &mut BTreeSet<NamePattern>,
) -> Option<Visitor> {
    let item = if item.node.text().is_some() { item.keyed("name") } else { item };
    let own = Section::open(s.cx, item, Visitor::MAP)?;
    let name = own.required("name", "the name of a client, or office-* for several", |text| {
        let bad = |why: proto::NamePatternError| {
            BadValue::new(format!("`{text}` is no name of a client")).hint(why.to_string())
        };
        NamePattern::new(text).map_err(bad)
    });
    let tokens = credentials::tokens(&own, 2, credentials::Kept::OrHashed, None);
    let name = name?;
    if !has_tls && !has_token(&own) {
        let bad = BadValue::new(format!("the visitor {name} has no token, and cannot visit"));
        let hint = format!(
            "{{ name: {name}, token_file: FILE }}; `tunnel generate token` makes it; or `visitor_tls`"
        );
        s.cx.warn(own.at(), &own.path("name"), bad.hint(hint));
    }
    if !seen.insert(name.clone()) {
        own.bad("name", BadValue::new(format!("a second visitor {name}")).hint("keep one of them"));
    }
    Some(Visitor { name, tokens })
}

/// Reports keys and a target that do not fit a private service. False for a target that cannot be a
/// service.
pub(super) fn fit(s: &Section<'_>, target: Option<&Targets>) -> bool {
    let is_https = matches!(target, Some(Targets::One(Target::Https { .. })));
    for key in PUBLIC_KEYS.into_iter().chain(PROXIED).filter(|key| *key != BASIC_AUTH) {
        if key == "target_tls" && is_https {
            continue;
        }
        let hint = match key {
            "allow_from" | "deny_from" => "`visitors` says who may visit: remove the key",
            _ => "remove the key: the bytes of visitors go to the target as they are",
        };
        s.no_effect(key, " at a private service", hint);
    }
    if let Some(target @ Targets::One(Target::Private(_))) = target {
        s.bad("target", super::fit::of_another(target));
    }
    let is_exit = target.is_some_and(Targets::is_exit);
    // An exit has it for its own visitors.
    if !is_exit {
        let hint = "`visitors` says who may visit: remove the key";
        s.no_effect(BASIC_AUTH, " at a private service", hint);
    }
    if let Some(target) = target.filter(|target| target.width() > 0) {
        let bad = BadValue::new("a private service has one port, not a range");
        s.bad("target", bad.hint(format!("make {} services", u32::from(target.width()) + 1)));
        return false;
    }
    true
}

/// Decodes the keys of a forward that concern private services.
pub(super) fn of_forward(
    s: &Section<'_>,
    target: Option<&Target>,
) -> (Option<crate::Token>, Option<PeerTls>, PeerPath) {
    let is_private = matches!(target, Some(Target::Private(_)));
    if !is_private {
        for key in ["token", "token_file", "tls", "p2p"].into_iter().filter(|key| s.has(key)) {
            let bad = BadValue::new(format!("`{key}` is for a target service://CLIENT/SERVICE"));
            s.bad(key, bad.hint("remove the key"));
        }
        return (None, None, PeerPath::Auto);
    }
    let token = credentials::tokens(s, 1, credentials::Kept::Plain, None).pop();
    let tls = peer_tls(s, "tls", PeerTls::MAP);
    both(s);
    (token, tls, s.parse("p2p").unwrap_or_default())
}

fn has_token(s: &Section<'_>) -> bool {
    s.has("token") || s.has("token_file")
}

/// Reports a token that is set in addition to certificates.
fn both(s: &Section<'_>) {
    if has_token(s) && s.has("tls") {
        let bad = BadValue::new("a token and certificates together");
        s.bad("tls", bad.hint("keep what the client of the service demands of this client"));
    }
}

/// Decodes `visits`: the tokens for private services of other clients.
pub(super) fn visits(s: &Section<'_>, forwards: &[Forward]) -> Vec<Visit> {
    let mut seen = BTreeSet::new();
    let of_forwards = forwards.iter().filter_map(Forward::private);
    let mut names: BTreeMap<String, PrivateService> =
        of_forwards.map(|service| (service.asked_name(), service.clone())).collect();
    let visit = |item: Item| {
        let own = Section::open(s.cx, item, Visit::MAP)?;
        let service = own.required("service", "the client and its service: home/ssh", str::parse);
        let wanted = (!own.has("tls")).then_some(TOKEN_WANTED);
        let token = credentials::tokens(&own, 1, credentials::Kept::Plain, wanted).pop();
        let tls = peer_tls(&own, "tls", PeerTls::MAP);
        both(&own);
        let p2p = own.parse("p2p").unwrap_or_default();
        let service: PrivateService = service?;
        if !seen.insert(service.clone()) {
            let bad = BadValue::new(format!("a second entry for {service}"));
            own.bad("service", bad.hint("keep one of them"));
        }
        let name = service.asked_name();
        if let Some(other) = names.get(&name).filter(|other| **other != service) {
            let bad = BadValue::new(format!(
                "{service} and {other} have one name for programs of a proxy: {name}.service.tunnel"
            ));
            own.bad("service", bad.hint("keep one of them, or give one service another name"));
        }
        names.entry(name).or_insert_with(|| service.clone());
        let proof = token.map(Proof::Token).or_else(|| tls.map(Proof::Certificate))?;
        Some(Visit { service, proof, p2p })
    };
    s.list("visits").into_iter().filter_map(visit).collect()
}

/// The hint for a missing token of a visit.
const TOKEN_WANTED: &str = "the token that `visitors` of the service has for this client, or `tls` where it has \
                            `visitor_tls`";

/// Reports forwards of the file to private services without a token.
pub(super) fn check(s: &Section<'_>, forwards: &[Forward], visits: &[Visit]) {
    let has_token = |service: &PrivateService| {
        let own = |forward: &Forward| {
            let has = forward.token.is_some() || forward.tls.is_some();
            has && forward.private() == Some(service)
        };
        forwards.iter().any(own) || visits.iter().any(|visit| visit.service == *service)
    };
    let mut reported = BTreeSet::new();
    for service in forwards.iter().filter_map(Forward::private) {
        if !has_token(service) && reported.insert(service) {
            let bad = BadValue::new(format!("there is no token for service://{service}"));
            let hint = "add `token`, `token_file` or `tls` to the forward, or an entry to `visits`";
            s.warn("forwards", bad.hint(hint));
        }
    }
}

/// Reports a `p2p` that has no effect: one link carries all traffic from this client to a service.
pub(super) fn check_ways(s: &Section<'_>, forwards: &[Forward], visits: &[Visit]) {
    let counts = |service: &PrivateService| {
        let mut own = forwards.iter().filter(|forward| forward.private() == Some(service));
        let of_visits = || visits.iter().find(|visit| visit.service == *service).cloned();
        own.find_map(Forward::visit).or_else(of_visits).map(|visit| visit.p2p)
    };
    let of_forward = |forward: &Forward| {
        let has_proof = forward.visit().is_some();
        Some(("forwards", forward.private()?.clone(), forward.p2p, has_proof))
    };
    let of_visit = |visit: &Visit| ("visits", visit.service.clone(), visit.p2p, false);
    let all = forwards.iter().filter_map(of_forward).chain(visits.iter().map(of_visit));
    for (key, service, p2p, has_proof) in all {
        // An entry without the key may have `auto`.
        let is_meant = has_proof || p2p != PeerPath::Auto;
        let Some(way) = counts(&service).filter(|way| is_meant && *way != p2p) else { continue };
        let bad = BadValue::new(format!(
            "`p2p: {p2p}` has no effect for service://{service}, where `{way}` of another entry counts"
        ));
        s.warn(key, bad.hint("give all entries for a service the same `p2p`"));
    }
}

/// Reports certificates of one authority where this client has no certificate of that authority.
/// `has_one`: the client logs in with a certificate.
pub(super) fn check_identities(
    s: &Section<'_>,
    has_one: bool,
    services: &[Service],
    forwards: &[Forward],
    visits: &[Visit],
) {
    if has_one {
        return;
    }
    let lacks = |tls: Option<&PeerTls>| tls.is_some_and(|tls| tls.identity.is_none());
    let of_visit = |visit: &Visit| match &visit.proof {
        Proof::Certificate(tls) => lacks(Some(tls)),
        Proof::Token(_) => false,
    };
    let of_service = |service: &Service| {
        lacks(service.private.as_ref().and_then(|private| private.tls.as_ref()))
    };
    let all = [
        ("services", "visitor_tls", services.iter().any(of_service)),
        ("forwards", "tls", forwards.iter().any(|forward| lacks(forward.tls.as_ref()))),
        ("visits", "tls", visits.iter().any(of_visit)),
    ];
    for (key, section, _) in all.into_iter().filter(|(.., is_bad)| *is_bad) {
        let bad = BadValue::new(format!("`{section}` without a certificate of this client"));
        s.bad(key, bad.hint("add `cert` and `key` there, or to `tls` of the client"));
    }
}
