//! Certificates for tests, made on the spot.
