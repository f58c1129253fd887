//! The links of this node to other nodes: made by dialling, for the streams of this node's visitors
//! and for the messages of its cluster.

mod dialling;
mod follow;
mod keeper;
mod news;
mod owner;
mod paths;
mod post;
mod remote;
mod trouble;

pub(crate) use dialling::Outgoings;
pub(crate) use follow::follow;
pub(crate) use paths::in_order;
