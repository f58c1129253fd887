//! The options of the visitor's socket, which the terms of the service decide.

use relay::socket_options;

use super::visit::Guest;
use crate::backends::Backend;

pub(super) fn give(backend: &Backend, guest: &impl Guest) {
    guest.obey(&socket_options(&backend.picked.aim.terms));
}
