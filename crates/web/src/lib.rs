//! The HTTP proxy for services by name.
