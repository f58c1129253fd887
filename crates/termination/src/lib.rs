//! TLS that ends at the server.
