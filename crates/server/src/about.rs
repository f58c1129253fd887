//! What a claim says to other nodes about its services: all that an entrance needs to admit and to
//! route visitors. It is the registration of these services in the form of the wire (`proto`, kind
//! Register), in the alphabet of URLs, so each option of a service is there without a codec of its
//! own.
//!
//! Passwords and secret header fields never reach the engine, and a record is bounded. Services
//! with secrets, or with longer lists than fit, are described without these terms, and the
//! description says so: a node that needs the terms asks the home of the client for them. Such a
//! description has a mark, which differs where the terms differ, so that a change of a password is
//! a new claim as any other change of the terms. The mark is a hash under a key, so nobody can try
//! passwords by it. The key is derived from the secret of the cluster, so that all nodes with links
//! of one process give the same mark; without a secret only this process has the key.

use std::hash::{BuildHasher as _, RandomState};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use bytes::Bytes;
use config::secrets::is_secret_field;
use proto::HttpOptions;
use proto::control::{ControlDecoder, ControlMessage, Register, ServiceSpec, ServiceTerms};
use termination::CommonSecret;

/// The most bytes of a description. A batch of the engine has up to 120 records, and etcd refuses
/// requests of more than 1.5 MiB. Two lists of 256 IPv4 networks fit.
pub(crate) const ABOUT_MAX: usize = 8 << 10;

/// The first character of a description that is not whole. The mark of the terms and [`MARKED`]
/// follow.
const CUT: char = '~';

/// The character behind the mark.
const MARKED: char = '.';

/// The purpose of the key of the marks.
const PURPOSE: &str = "marks of terms";

/// The key of the marks.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// The secret of the cluster.
    common: Option<CommonSecret>,
    /// A key that only this process has.
    own: RandomState,
}

impl Marks {
    /// Marks that all nodes with this secret compute alike.
    pub(crate) fn new(common: Option<CommonSecret>) -> Self {
        Self { common, own: RandomState::new() }
    }

    /// The secret of the cluster.
    pub(crate) const fn common(&self) -> Option<&CommonSecret> {
        self.common.as_ref()
    }

    fn mark(&self, services: &[ServiceSpec]) -> u64 {
        let mut text = Vec::new();
        for spec in services {
            let bytes = message(vec![spec.clone()]).unwrap_or_default();
            let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            text.extend_from_slice(&length.to_be_bytes());
            text.extend_from_slice(&bytes);
        }
        let common = self.common.as_ref().and_then(|secret| secret.mark(PURPOSE, &text));
        common.unwrap_or_else(|| self.own.hash_one(text))
    }
}

/// The services at a resource. Several services share a name by different paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct About {
    /// The services, each with its public address at the resource, as the node of the client
    /// publishes it.
    pub(crate) services: Vec<ServiceSpec>,
    /// The terms of the services are complete. Otherwise the home of the client alone knows who may
    /// visit, and how requests are handled.
    pub(crate) is_whole: bool,
}

/// Why a text describes no services.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadAbout {
    /// The text is longer than any description.
    #[error("a description has at most {ABOUT_MAX} bytes, this text has {0}")]
    Long(usize),
    /// The text is not in the alphabet of URLs.
    #[error("the description is no base64")]
    Alphabet,
    /// The bytes are no registration. A later version may have options that this version must not
    /// ignore.
    #[error("the description cannot be read: {0}")]
    Content(String),
}

/// Describes the services at a resource.
pub(crate) fn encode(services: &[ServiceSpec], marks: &Marks) -> String {
    let has_secret = |spec: &ServiceSpec| is_secret(&spec.terms.http);
    let without = |terms: fn(&ServiceTerms) -> ServiceTerms| {
        let cut = |spec: &ServiceSpec| ServiceSpec { terms: terms(&spec.terms), ..spec.clone() };
        services.iter().map(cut).collect::<Vec<_>>()
    };
    let whole = (!services.iter().any(has_secret)).then(|| text(None, services.to_vec())).flatten();
    whole.unwrap_or_else(|| {
        let mark = format!("{CUT}{:016x}{MARKED}", marks.mark(services));
        text(Some(mark.clone()), without(without_http))
            .or_else(|| text(Some(mark.clone()), without(without_lists)))
            .unwrap_or(mark)
    })
}

/// The bytes of the complete services at a resource, for another node; `None`: they are too long
/// for a message.
pub(crate) fn message(services: Vec<ServiceSpec>) -> Option<Bytes> {
    let (leaving, standby) = (false, false);
    let register = Register { generation: 0, services, leaving, standby };
    ControlMessage::Register(register).encode().ok()
}

/// The description, if it is not too long.
fn text(mark: Option<String>, services: Vec<ServiceSpec>) -> Option<String> {
    // Addresses of a server are a little longer than those of its clients, so a limit may be hit.
    let bytes = message(services)?;
    let mut text = mark.unwrap_or_default();
    BASE64.encode_string(&bytes, &mut text);
    (text.len() <= ABOUT_MAX).then_some(text)
}

/// Whether the options have a secret of the client.
fn is_secret(http: &HttpOptions) -> bool {
    let mut fields = http.request.set.iter().chain(&http.response.set);
    !http.basic_auth.is_empty() || fields.any(|(name, value)| is_secret_field(name, value))
}

fn without_http(terms: &ServiceTerms) -> ServiceTerms {
    let HttpOptions { path, .. } = terms.http.clone();
    ServiceTerms { http: HttpOptions { path, ..HttpOptions::default() }, ..terms.clone() }
}

fn without_lists(terms: &ServiceTerms) -> ServiceTerms {
    let private = terms.private.as_ref().map(|_| Vec::new().into());
    ServiceTerms { visitors: proto::Visitors::default(), private, ..without_http(terms) }
}

/// Reads the description of another node.
///
/// # Errors
/// The text is too long, or no description that this version understands.
pub(crate) fn decode(text: &str) -> Result<About, BadAbout> {
    if text.len() > ABOUT_MAX {
        return Err(BadAbout::Long(text.len()));
    }
    let (is_whole, rest) = match text.strip_prefix(CUT) {
        Some(rest) => (false, rest.split_once(MARKED).map_or(rest, |(_, services)| services)),
        None => (true, text),
    };
    if rest.is_empty() && !is_whole {
        return Ok(About { services: Vec::new(), is_whole });
    }
    let bytes = Bytes::from(BASE64.decode(rest).map_err(|_| BadAbout::Alphabet)?);
    Ok(About { services: read(bytes)?, is_whole })
}

/// Reads the services of a [`message`].
///
/// # Errors
/// The bytes are no message that this version understands.
pub(crate) fn read(mut bytes: Bytes) -> Result<Vec<ServiceSpec>, BadAbout> {
    let bad = |why: &str| BadAbout::Content(why.to_owned());
    let message = ControlDecoder::new().decode(&mut bytes);
    let message = message.map_err(|why| BadAbout::Content(why.to_string()))?;
    match message {
        Some(ControlMessage::Register(Register { services, .. })) if bytes.is_empty() => {
            Ok(services)
        }
        Some(_) => Err(bad("it is more or other than one registration")),
        None => Err(bad("it ends too early")),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::sync::Arc;
    use std::time::Duration;

    use proptest::prelude::*;
    use proto::control::{FlowTimes, Timeouts};
    use proto::greeting::Name;
    use proto::{Balance, FieldEdits, Network, Priority, Visitors};

    use super::*;

    fn spec(name: &str, address: &str, terms: ServiceTerms) -> ServiceSpec {
        let (name, public) = (Name::new(name).unwrap(), vec![address.to_owned()]);
        ServiceSpec { name, public, terms }
    }

    fn encode(services: &[ServiceSpec]) -> String {
        super::encode(services, &secret("q7xJ2vKp0mZrT5wYb8NcLd3fHs9GaEu1oRiVk4XtWjQ"))
    }

    /// The marks of nodes with this secret.
    fn secret(secret: &str) -> Marks {
        Marks::new(CommonSecret::new([secret]))
    }

    fn networks(count: u32) -> Visitors {
        let network = |n: u32| Network::new(Ipv4Addr::from(n << 8).into(), 24).unwrap();
        Visitors {
            allow_from: Some((0..count).map(network).collect()),
            deny_from: [].into_iter().collect(),
        }
    }

    fn with_http(http: HttpOptions) -> ServiceTerms {
        ServiceTerms { http, ..ServiceTerms::default() }
    }

    #[test]
    fn a_service_without_options_is_short_and_whole() {
        let services = [spec("ssh", "tcp://:10022", ServiceTerms::default())];
        let text = encode(&services);
        assert!(text.len() < 80, "{}: {text}", text.len());
        assert_eq!(decode(&text), Ok(About { services: services.to_vec(), is_whole: true }));
    }

    #[test]
    fn secrets_are_left_out_and_the_description_says_so() {
        let set = vec![("Authorization".to_owned(), "Basic swordfish".to_owned())];
        let request = FieldEdits { set, ..FieldEdits::default() };
        let path = Some("/api".to_owned());
        for http in [
            HttpOptions { basic_auth: vec!["ann:swordfish".into()], ..HttpOptions::default() },
            HttpOptions { request: request.clone(), ..HttpOptions::default() },
            HttpOptions { response: request, ..HttpOptions::default() },
        ] {
            let terms = ServiceTerms {
                visitors: networks(2),
                priority: Priority::Bulk,
                ..with_http(HttpOptions { path: path.clone(), ..http })
            };
            let open = spec("b", "http://a.example", ServiceTerms::default());
            let text = encode(&[spec("a", "http://a.example", terms.clone()), open.clone()]);
            let about = decode(&text).unwrap();
            assert!(!about.is_whole && !format!("{about:?}").contains("swordfish"), "{about:?}");
            let cut = with_http(HttpOptions { path: path.clone(), ..HttpOptions::default() });
            let cut = ServiceTerms { visitors: terms.visitors, priority: terms.priority, ..cut };
            assert_eq!(about.services, [spec("a", "http://a.example", cut), open]);
        }
        let set = vec![("X-Frame-Options".to_owned(), "DENY".to_owned())];
        let response = FieldEdits { set, ..FieldEdits::default() };
        let public = with_http(HttpOptions { response, ..HttpOptions::default() });
        assert!(decode(&encode(&[spec("a", "http://a.example", public)])).unwrap().is_whole);
    }

    #[test]
    fn what_does_not_fit_is_left_out_and_the_description_says_so() {
        let terms = |count| ServiceTerms { visitors: networks(count), ..ServiceTerms::default() };
        let of = |terms| encode(&[spec("a", "tcp://:1", terms)]);
        assert!(decode(&of(terms(256))).unwrap().is_whole);
        let network =
            |n: u16| Network::new(Ipv6Addr::from(u128::from(n) << 64).into(), 64).unwrap();
        let long: proto::Networks = (0..256).map(network).collect();
        let visitors = Visitors { allow_from: Some(long.clone()), deny_from: long };
        let text = of(ServiceTerms { visitors, ..ServiceTerms::default() });
        assert!(text.len() < 100, "{}", text.len());
        let open = spec("a", "tcp://:1", ServiceTerms::default());
        assert_eq!(decode(&text), Ok(About { services: vec![open], is_whole: false }));
        let many: Vec<_> =
            (0..200).map(|n| spec(&format!("{n:064}"), "http://a", terms(0))).collect();
        let nothing = About { services: Vec::new(), is_whole: false };
        assert_eq!(decode(&encode(&many)), Ok(nothing));
    }

    #[test]
    fn a_changed_secret_changes_the_description_without_being_in_it() {
        let of = |password: &str| {
            let basic_auth = vec![format!("ann:{password}")];
            let http = HttpOptions { basic_auth, ..HttpOptions::default() };
            vec![spec("a", "http://a.example", with_http(http))]
        };
        let text = encode(&of("swordfish"));
        assert_eq!(text, encode(&of("swordfish")));
        assert_ne!(text, encode(&of("marlin")));
        assert_eq!(decode(&text), decode(&encode(&of("marlin"))));
        assert_eq!(read(message(of("marlin")).unwrap()).unwrap(), of("marlin"));
        // Nodes without a secret, or with another secret, have marks of their own.
        for marks in [Marks::default(), secret("Zt5RkW1xQ8bN4mVc7LpYs2HdJf9GaE3u")] {
            let other = super::encode(&of("swordfish"), &marks);
            assert_eq!(other, super::encode(&of("swordfish"), &marks));
            assert_ne!(other, text);
            assert_ne!(other, super::encode(&of("marlin"), &marks));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let good = encode(&[spec("a", "tcp://:1", ServiceTerms::default())]);
        let twice =
            BASE64.encode([BASE64.decode(&good).unwrap(), BASE64.decode(&good).unwrap()].concat());
        let other =
            ControlMessage::Strained(proto::control::Strained { rate: 1 }).encode().unwrap();
        for (text, wanted) in [
            ("", "ends too early"),
            ("a b", "no base64"),
            (&good[..good.len() - 4], "ends too early"),
            (&twice, "more or other"),
            (&BASE64.encode(other), "more or other"),
            ("/////////", "no base64"),
            ("_______9", "cannot be read"),
            (&"A".repeat(ABOUT_MAX + 1), "at most 8192 bytes"),
        ] {
            let why = decode(text).unwrap_err().to_string();
            assert!(why.contains(wanted), "{text}: {why}");
        }
    }

    prop_compose! {
        /// The options of a service that entrances obey.
        fn any_terms()(
            priority in prop_oneof![Just(Priority::Bulk), Just(Priority::Normal), Just(Priority::Interactive)],
            shared in proptest::option::of(Just(Balance::SourceHash)),
            resume: bool,
            ephemeral: bool,
            forwarded: bool,
            allowed in proptest::option::of(0_u32..20),
            path in proptest::option::of("/[a-z]{1,9}"),
            idle in 0_u64..1_000_000,
            answered in 1_u32..10_000,
        ) -> ServiceTerms {
            ServiceTerms {
                priority, shared, resume, ephemeral,
                visitors: allowed.map(networks).unwrap_or_default(),
                http: HttpOptions { path, forwarded, ..HttpOptions::default() },
                timeouts: Timeouts { idle: Duration::from_millis(idle), ..Timeouts::default() },
                flows: FlowTimes { answered, ..FlowTimes::default() },
                private: None::<Arc<[_]>>,
                ..ServiceTerms::default()
            }
        }
    }

    proptest! {
        #[test]
        fn a_description_reads_back(
            all in proptest::collection::vec(("[a-z]{1,20}", any_terms()), 1..4),
        ) {
            let of = |(name, terms): (String, ServiceTerms)| spec(&name, "https://a.example", terms);
            let services: Vec<_> = all.into_iter().map(of).collect();
            let text = encode(&services);
            prop_assert_eq!(decode(&text), Ok(About { services, is_whole: true }));
        }

        #[test]
        fn no_text_panics(text in "[~A-Za-z0-9_-]{0,60}") {
            let _ = decode(&text);
        }
    }
}
