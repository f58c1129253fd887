//! One logical server of several nodes: the rules by which nodes agree, without any socket, clock
//! or task. Times, random numbers, requests of the node and answers of the engine come in as
//! arguments; requests to the engine and to other nodes come out.
//!
//! | question | module |
//! |---|---|
//! | what can the engine be asked, and what does it answer | [`engine`] |

pub mod engine;
