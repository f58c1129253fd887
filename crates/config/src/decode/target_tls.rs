//! `target_tls`: how the client verifies the certificate of an `https://` target.

use super::target::Targets;
use crate::key_table::KeyTable as _;
use crate::model::TargetTls;
use crate::model::entry::Written;
use crate::section::Section;
use crate::{BadValue, Target};

/// Decodes the section. Without it, the certificate is verified by the authorities of the system.
pub(super) fn target_tls(s: &Section<'_>, target: Option<&Targets>) -> TargetTls {
    let is_https = |target: &Targets| matches!(target, Targets::One(Target::Https { .. }));
    of_targets(s, "https", target.is_none_or(is_https))
}

/// Decodes the section for targets with this scheme. `fits`: the targets have this scheme.
pub(super) fn of_targets(s: &Section<'_>, scheme: &str, fits: bool) -> TargetTls {
    let own = s.map::<TargetTls>("target_tls", Written::map("target_tls"));
    let Some(own) = own else { return TargetTls::default() };
    if !fits {
        let bad = BadValue::new(format!("`target_tls` without a target of {scheme}://"));
        let hint = format!("write `target: {scheme}://HOST:PORT`, or remove the key");
        s.bad("target_tls", bad.hint(hint));
    }
    own
}
