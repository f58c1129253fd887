//! A published service.

use std::mem;
use std::num::NonZeroU32;
use std::path::PathBuf;

use proto::control::ServiceTerms;
use proto::{Compress, HttpOptions, Limits, Networks, PORTS_MAX, Sticky, TargetProtocol, Visitors};

use crate::key_table::KeyTable;
use crate::model::check::Check;
use crate::model::dial_options::DialOptions;
use crate::model::path::Trust;
use crate::model::private::Private;
use crate::model::public::Public;
use crate::model::spread::Spread;
use crate::section::Section;
use crate::words::words;
use crate::{BadValue, ForwardRights, Host, Moment, NameKind, Over, Secret, Span, Target, values};

/// The `public` of a private service.
pub(crate) const PRIVATE: &str = "private";

/// How many networks of a list the summary shows.
const SHOWN: usize = 8;

/// A published service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// The unique name of the service.
    pub name: String,
    /// The address that the client dials. It fits the public addresses: a service with ports of UDP
    /// alone has a [`Target::Udp`], a service without a port of UDP has no such target, and a
    /// service with both has a target with host and port. A private service has either kind.
    pub target: Target,
    /// The other targets, which are dialled in the same way.
    pub spread: Spread,
    /// How the certificate of a [`Target::Https`] is verified; the default for all other targets.
    pub target_tls: TargetTls,
    /// Public addresses on the server: at least one, or none for a private service.
    pub public: Vec<Public>,
    /// The clients that may visit a private service; `None`: the service is not private.
    pub private: Option<Private>,
    /// The servers that publish the service, by name. Empty: every server.
    pub servers: Vec<String>,
    /// The terms for its visitors, except the lists that the service inherits
    /// ([`ClientConfig::terms_of`](crate::ClientConfig::terms_of)).
    pub(crate) terms: ServiceTerms,
    /// The largest number of UDP flows that the client accepts.
    pub limits: FlowLimits,
    /// Limits of its streams on this client.
    pub stream_limits: Limits,
    /// How the client checks the health of the target; `None`: it is not checked.
    pub health: Option<Check>,
    /// Whether the service was added at run time, by a command.
    pub kept: bool,
    /// When the client withdraws the service; `None`: never.
    pub until: Option<Moment>,
    /// The lists of permitted and refused visitors. An absent list is inherited from the client.
    pub visitors: VisitorLists,
    /// The header that tells the target the visitor's address; `None`: no header.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Who may use an exit, and for what; empty unless [`Target::is_exit`].
    pub exit: Exit,
    /// The file of users whose hashes are part of the terms; `None`: no file.
    pub user_file: Option<UserFile>,
    /// `forwarded: false`: the targets of an `https://` name are not told about the visitor.
    pub unforwarded: bool,
    /// How files are served; the default for a target other than [`Target::Files`].
    pub files: Files,
    /// What the packets to its targets are like.
    pub dial: DialOptions,
    /// Whether datagrams may go to all machines of a network. A server cannot request this.
    pub broadcast: bool,
    /// Whether the client records the latest requests of the visitors for inspection.
    pub requests: bool,
}

/// A file of users of `basic_auth`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserFile {
    /// The path as written.
    pub path: PathBuf,
    /// The number of hashes of the terms that are not of the file. They come first.
    pub inline: usize,
}

/// How the client verifies the certificate of a target.
#[derive(Clone, Debug, PartialEq, Eq, KeyTable)]
#[keys(first = trust)]
#[row(pin: "`sha256:…`, one or list", none,
    text = "The pins of public keys that are accepted from targets {of} over TLS.")]
#[row(ca: "file (PEM)", absent = "the authorities of the system", holds = KeyFile,
    text = "The CA file that verifies the certificates of targets {of} over TLS.")]
#[row(insecure: "`true`, `false`", default = "false",
    text = "Disables the verification of certificates of targets {of} over TLS.")]
pub struct TargetTls {
    /// The requirement for the certificate. `None`: any certificate is accepted (`insecure`).
    #[key(from = trust)]
    pub trust: Option<Trust>,
    /// The server name for SNI and the certificates of targets {of} over TLS.
    ///
    /// `None`: the host of the target.
    #[key("host name or IP address", absent = "the host of `target`")]
    pub server_name: Option<Host>,
}

impl Default for TargetTls {
    fn default() -> Self {
        Self { trust: Some(Trust::System), server_name: None }
    }
}

/// How the client serves the files of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// Whether a directory without `index.html` is listed.
    pub list: bool,
    /// The files that are served if the path of a request names none, in the order in which they
    /// are tried: paths relative to the directory. `{path}` stands for the path of the request.
    pub try_files: Vec<String>,
    /// The only file of the directory that is served; only `tunnel share` sets it.
    pub only: Option<String>,
}

/// The settings of a service whose visitors choose what the client dials (`socks5`, `http-proxy`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    /// Pairs `user:password`, one of which a visitor must present; user and password have at most
    /// 255 bytes each (RFC 1929). If empty, the exit requires no password, and the configuration
    /// restricts its visitors otherwise.
    pub basic_auth: Vec<Secret>,
    /// The destinations that visitors may reach. `None`: every ordinary destination, as with the
    /// right `*:*` ([`ForwardRights::ordinary`]).
    pub allow: Option<ForwardRights>,
}

/// Lists of visitors as written. Absent lists are inherited; empty lists are not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VisitorLists {
    /// Only these networks may visit.
    pub allow_from: Option<Networks>,
    /// These networks may not visit.
    pub deny_from: Option<Networks>,
}

impl Service {
    /// Whether only the name, addresses, target and command line options
    /// ([`ServiceOptions`](crate::ServiceOptions)) are set.
    pub(crate) fn is_short(&self) -> bool {
        let (http, basic_auth) = (self.terms.http.clone(), Vec::new());
        let http =
            HttpOptions { basic_auth, hashes: Vec::new(), path: None, host_rewrite: None, ..http };
        let terms = ServiceTerms { http, ..self.terms.clone() };
        let trust = self.target_tls.trust.as_ref();
        let is_of_flags = matches!(trust, None | Some(Trust::System | Trust::Ca(_)))
            && self.target_tls.server_name.is_none();
        self.visitors.deny_from.is_none()
            && self.private.is_none()
            && self.user_file.is_none()
            && !self.unforwarded
            && self.proxy_protocol.is_none()
            && is_of_flags
            && self.spread == Spread::default()
            && self.health.is_none()
            && terms == ServiceTerms::default()
            && self.exit.allow.is_none()
            && self.files == Files::default()
            && !self.requests
            && self.limits == FlowLimits::default()
            && self.stream_limits == Limits::default()
    }

    /// The targets with their weights; the first is [`Self::target`].
    pub fn targets(&self) -> impl Iterator<Item = (&Target, u16)> {
        let others = self.spread.others.iter().map(|other| (&other.target, other.weight));
        std::iter::once((&self.target, self.spread.weight)).chain(others)
    }

    /// The targets in readable form.
    #[must_use]
    pub fn aims(&self) -> String {
        let all: Vec<_> = self.targets().map(|(target, _)| target.to_string()).collect();
        all.join(", ")
    }

    /// Whether other clients may serve the same addresses.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        self.terms.shared.is_some()
    }

    /// The HTTP options as configured.
    #[must_use]
    pub const fn http(&self) -> &HttpOptions {
        &self.terms.http
    }

    /// The HTTP options as sent to the server: including those that follow from the public
    /// addresses and the targets.
    pub(crate) fn http_terms(&self) -> HttpOptions {
        let mut http = self.terms.http.clone();
        let is_https =
            |public: &Public| matches!(public, Public::Name { kind: NameKind::Https, .. });
        // A target that does not know of the visitors' TLS takes its own address to be `http://`.
        http.forwarded |=
            !self.unforwarded && http.redirect.is_none() && self.public.iter().any(is_https);
        if http.need_proxy() {
            let ports = self.targets().filter_map(|(target, _)| target.port());
            for (_, port) in ports {
                if http.ports.len() < PORTS_MAX && !http.ports.contains(&port) {
                    http.ports.push(port);
                }
            }
        }
        http
    }

    /// Whether HTTP visitors need a user name and a password.
    #[must_use]
    pub fn asks_for_passwords(&self) -> bool {
        !self.terms.http.basic_auth.is_empty() || !self.terms.http.hashes.is_empty()
    }

    /// The public addresses in readable form, or `private`.
    #[must_use]
    pub fn places(&self) -> String {
        if self.private.is_some() {
            return PRIVATE.to_owned();
        }
        let public: Vec<_> = self.public.iter().map(ToString::to_string).collect();
        public.join(", ")
    }

    /// Whether visitors come over UDP, over TCP (also to a name), or both.
    #[must_use]
    pub fn carries(&self, over: Over) -> bool {
        if self.private.is_some() {
            return over
                == if matches!(self.target, Target::Udp { .. }) { Over::Udp } else { Over::Tcp };
        }
        self.public.iter().any(|public| public.over() == over)
    }

    /// Takes over all settings of another service except name, addresses, target and expiry, and
    /// except the command line options that this service sets.
    pub(crate) fn take_settings(&mut self, from: &Self) {
        let own = mem::replace(self, from.clone());
        let Self { name, target, spread, public, kept, until, target_tls, broadcast, .. } = own;
        let target = Self { name, target, spread, public, kept, until, ..from.clone() };
        *self = Self { private: None, ..target };
        self.broadcast |= broadcast;
        if !self.public.iter().all(Public::is_http) {
            // The options applied to the names of the other service.
            self.terms.http = HttpOptions::default();
            self.user_file = None;
        }
        let is_https =
            |public: &Public| matches!(public, Public::Name { kind: NameKind::Https, .. });
        if self.public.iter().any(is_https) {
            self.terms.http.pass_through = false;
        }
        if target_tls != TargetTls::default() {
            self.target_tls = target_tls;
        }
        let HttpOptions { basic_auth, hashes, path, host_rewrite, .. } = own.terms.http;
        if !basic_auth.is_empty() || !hashes.is_empty() {
            let http = &mut self.terms.http;
            (http.basic_auth, http.hashes, self.user_file) = (basic_auth, hashes, None);
        }
        if path.is_some() {
            self.terms.http.path = path;
        }
        if host_rewrite.is_some() {
            self.terms.http.host_rewrite = host_rewrite;
        }
        if own.visitors.allow_from.is_some() {
            self.visitors.allow_from = own.visitors.allow_from;
        }
        if !own.exit.basic_auth.is_empty() {
            self.exit.basic_auth = own.exit.basic_auth;
        }
        self.drop_unfit();
    }

    /// The service as a command adds it that ends it again: the server does not remember its names.
    #[must_use]
    pub fn of_the_moment(mut self) -> Self {
        self.kept = true;
        self.terms.ephemeral = true;
        self
    }

    /// Whether `known` has the addresses, the target and all command line options of this service.
    /// The name and the expiry are ignored.
    #[must_use]
    pub fn is_in(&self, known: &Self) -> bool {
        let mut whole = self.clone();
        whole.take_settings(known);
        (whole.kept, whole.until) = (known.kept, known.until);
        whole.name.clone_from(&known.name);
        // Files of earlier versions have the address instead of `localhost`.
        if whole.target.to_string().replace("://localhost:", "://127.0.0.1:")
            == known.target.to_string()
        {
            whole.target.clone_from(&known.target);
        }
        whole == *known
    }

    /// Drops the settings that a former kind of target had.
    fn drop_unfit(&mut self) {
        let dials = match self.target {
            Target::Tcp { .. }
            | Target::Udp { .. }
            | Target::Https { .. }
            | Target::H2c { .. }
            | Target::Tls { .. }
            | Target::Unix(_) => true,
            Target::Socks5
            | Target::HttpProxy
            | Target::Files(_)
            | Target::Redirect(_)
            | Target::Private(_) => false,
        };
        if !dials || self.carries(Over::Udp) {
            self.proxy_protocol = None;
        }
        let is_udp = self.health.as_ref().is_some_and(|check| check.udp.is_some());
        if !dials || !self.carries(if is_udp { Over::Udp } else { Over::Tcp }) {
            self.health = None;
        }
        if !self.target.is_exit() {
            self.exit = Exit::default();
        }
        if !matches!(self.target, Target::Https { .. }) {
            self.target_tls = TargetTls::default();
        }
        self.broadcast &= self.carries(Over::Udp);
        self.terms.http.target = if self.public.iter().all(Public::is_http) {
            self.target.protocol()
        } else {
            TargetProtocol::Http
        };
        if !matches!(self.target, Target::Redirect(_)) {
            self.terms.http.redirect = None;
        }
        if !matches!(self.target, Target::Files(_)) {
            self.files = Files::default();
        }
    }

    /// Whether anybody who reaches the server could use the exit. `visitors` are the lists of the
    /// service.
    pub(crate) fn is_open_exit(&self, visitors: &Visitors) -> bool {
        let everybody = |list: &Networks| list.iter().any(|network| network.prefix() == 0);
        let is_local = |public: &Public| match public {
            Public::Tcp { bind: Some(ip), .. } => ip.to_canonical().is_loopback(),
            Public::Tcp { bind: None, .. } | Public::Udp { .. } | Public::Name { .. } => false,
        };
        self.target.is_exit()
            && self.exit.basic_auth.is_empty()
            && visitors.allow_from.as_ref().is_none_or(everybody)
            && !self.public.iter().all(is_local)
    }

    /// The settings beside addresses, for people: `, allow_from [10.0.0.0/8], PROXY protocol v2`.
    pub(super) fn extras(&self, visitors: &Visitors) -> String {
        let mut extras = String::new();
        if let Some(Private { visitors: named, tls, browser }) = &self.private {
            let shown: Vec<_> = named.iter().take(SHOWN).map(|one| one.name.to_string()).collect();
            let more = named.len() - shown.len();
            extras.push_str(&format!(", visitors [{}", shown.join(", ")));
            extras.push_str(&if more > 0 { format!(" and {more} more]") } else { "]".to_owned() });
            if let Some(tls) = tls {
                let ca = tls.ca.display();
                extras.push_str(&format!(", visitors without a token by certificates of {ca}"));
            }
            extras.push_str(if *browser { ", also browsers" } else { "" });
        }
        extras.push_str(&lists(visitors));
        if !self.spread.others.is_empty() {
            extras.push_str(&format!(", {}", self.spread.balance));
        }
        if let Some(until) = self.until {
            extras.push_str(&format!(", until {until}"));
        }
        if let Some(version) = self.proxy_protocol {
            extras.push_str(&format!(", PROXY protocol {version}"));
        }
        if !self.servers.is_empty() {
            extras.push_str(&format!(", at {}", self.servers.join(" and ")));
        }
        extras.push_str(&self.dial.extras());
        let TargetTls { trust, server_name } = &self.target_tls;
        match trust {
            Some(Trust::System) => {}
            Some(Trust::Pins(pins)) => {
                extras.push_str(&format!(", target pin {}", pins.join(", ")))
            }
            Some(Trust::Ca(file)) => extras.push_str(&format!(", target ca {}", file.display())),
            None => extras.push_str(", target not verified"),
        }
        if let Some(name) = server_name {
            extras.push_str(&format!(", target name {name}"));
        }
        let Exit { basic_auth: users, allow } = &self.exit;
        if !users.is_empty() {
            extras.push_str(", basic_auth");
        }
        if let Some(ForwardRights(allow)) = allow {
            let shown: Vec<_> = allow.iter().map(ToString::to_string).collect();
            extras.push_str(&format!(", may reach [{}]", shown.join(", ")));
        }
        let Files { list, try_files, only: _ } = &self.files;
        if *list {
            extras.push_str(", list");
        }
        if !try_files.is_empty() {
            extras.push_str(&format!(", try_files [{}]", try_files.join(", ")));
        }
        let HttpOptions { pass_through, basic_auth, host_rewrite, request, response, .. } =
            &self.terms.http;
        let HttpOptions { forwarded, path, compress, strip_prefix, hsts, hashes, .. } =
            &self.terms.http;
        if let Some(path) = path {
            extras.push_str(&format!(", path {path}"));
        }
        if let Some(path) = strip_prefix {
            extras.push_str(&format!(" as {path}"));
        }
        if let Some(seconds) = hsts {
            extras.push_str(&format!(", hsts {}", Span::from_millis(u64::from(*seconds) * 1000)));
        }
        if let Some(host) = host_rewrite {
            extras.push_str(&format!(", Host {host}"));
        }
        for (is_set, what) in [
            (*pass_through, "pass_through"),
            (!basic_auth.is_empty() || !hashes.is_empty(), "basic_auth"),
            (!request.is_empty(), "headers"),
            (!response.is_empty(), "response_headers"),
            (*forwarded, "forwarded"),
            (self.unforwarded, "not forwarded"),
            (self.terms.http.preflight_pass, "preflight pass"),
            (self.terms.http.no_https_redirect, "no redirect from http://"),
            (self.terms.ephemeral, "not remembered"),
            (self.terms.shared.is_some(), "shared"),
            (self.terms.http.sticky != Sticky::Off, "sticky cookie"),
            (self.broadcast, "broadcast"),
            (self.requests, "requests kept"),
            (*compress == Compress::Public, "compress"),
            (*compress == Compress::Always, "compress always"),
        ] {
            if is_set {
                extras.push_str(&format!(", {what}"));
            }
        }
        extras
    }
}

/// The lists of visitors for people.
fn lists(visitors: &Visitors) -> String {
    let mut extras = String::new();
    let Visitors { allow_from, deny_from } = visitors;
    let denies = (!deny_from.is_empty()).then_some(deny_from);
    for (key, list) in [("allow_from", allow_from.as_ref()), ("deny_from", denies)] {
        let Some(list) = list else { continue };
        let shown: Vec<_> = list.iter().take(SHOWN).map(ToString::to_string).collect();
        let more = list.len() - shown.len();
        extras.push_str(&format!(", {key} [{}", shown.join(", ")));
        extras.push_str(&if more > 0 { format!(" and {more} more]") } else { "]".to_owned() });
    }
    extras
}

words! {
    /// The version of the PROXY protocol that tells a target the visitor's address.
    pub enum ProxyProtocol: "version" "of the PROXY protocol" {
        /// A line of text.
        #[default]
        V1 = "v1",
        /// Binary.
        V2 = "v2",
    }
}

/// The largest number of UDP flows at one address. Absent limits get the defaults of the role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowLimits {
    /// In all.
    pub most: Option<NonZeroU32>,
    /// The largest number per source address.
    pub per_source: Option<NonZeroU32>,
}

/// What [`TargetTls`] demands of a certificate.
pub(crate) struct Demanded {
    pub(crate) trust: Option<Trust>,
}

/// Decodes `pin`, `ca` and `insecure`.
pub(crate) fn trust(s: &Section<'_>) -> Option<Demanded> {
    let is_insecure = s.value("insecure", values::switch).unwrap_or_default();
    let trust = super::path::trust(s);
    if is_insecure && trust != Trust::System {
        let bad = BadValue::new("insecure together with pin or ca");
        s.bad("insecure", bad.hint("a pin is as easy, and verifies the target: remove insecure"));
    }
    if let Some(item) = s.key("insecure").filter(|_| is_insecure) {
        let bad = BadValue::new("the certificate of the target is not verified");
        s.cx.warn(item.at(), &item.path, bad.hint("pin its key: `target_tls: { pin: … }`"));
    }
    Some(Demanded { trust: (!is_insecure).then_some(trust) })
}
