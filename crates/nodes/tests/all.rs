//! Nodes of a cluster in one process, over loopback, with certificates of one authority. The cluster
//! itself is a table that the test fills.

mod ground;
mod links;
mod proofs;
mod streams;
