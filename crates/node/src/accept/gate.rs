//! The limits of streams, flows and requests of a backend, and those of the visitor's source.

use relay::Permit;

use super::visit::Guest;
use crate::backends::Backend;
use crate::limits;

pub(super) fn enter<G: Guest>(backend: &Backend, guest: &G) -> Option<Permit> {
    let permit = backend.gate.admit_from(limits::source(guest.peer()));
    if let (None, Some(counted)) = (&permit, G::COUNTED) {
        // The targets of a proxy get connections and no streams of a link.
        let counted = if backend.session.is_here() { "connections" } else { counted };
        tracing::debug!(service = backend.picked.aim.name, "limit of {counted} reached");
    }
    permit
}
