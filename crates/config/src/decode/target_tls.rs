//! `target_tls`: how the client verifies the certificate of an `https://` target.

use super::target::Targets;
use super::{Section, paths, values};
use crate::keys::TARGET_TLS;
use crate::model::{TargetTls, Trust};
use crate::{BadValue, Target};

/// Decodes the section. Without it, the certificate is verified by the authorities of the system.
pub(super) fn target_tls(s: &Section<'_>, target: Option<&Targets>) -> TargetTls {
    let is_https = |target: &Targets| matches!(target, Targets::One(Target::Https { .. }));
    of_targets(s, "https", target.is_none_or(is_https))
}

/// Decodes the section for targets with this scheme. `fits`: the targets have this scheme.
pub(super) fn of_targets(s: &Section<'_>, scheme: &str, fits: bool) -> TargetTls {
    let Some(own) = s.section("target_tls", &TARGET_TLS) else { return TargetTls::default() };
    if !fits {
        let bad = BadValue::new(format!("`target_tls` without a target of {scheme}://"));
        let hint = format!("write `target: {scheme}://HOST:PORT`, or remove the key");
        s.bad("target_tls", bad.hint(hint));
    }
    let is_insecure = own.value("insecure", values::switch).unwrap_or_default();
    let trust = paths::trust(&own);
    if is_insecure && trust != Trust::System {
        let bad = BadValue::new("insecure together with pin or ca");
        own.bad("insecure", bad.hint("a pin is as easy, and verifies the target: remove insecure"));
    }
    if let Some(item) = own.key("insecure").filter(|_| is_insecure) {
        let bad = BadValue::new("the certificate of the target is not verified");
        s.cx.warn(item.at(), &item.path, bad.hint("pin its key: `target_tls: { pin: … }`"));
    }
    TargetTls {
        trust: (!is_insecure).then_some(trust),
        server_name: own.value("server_name", str::parse),
    }
}
