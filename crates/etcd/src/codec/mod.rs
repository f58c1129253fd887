//! The JSON of the gateway (etcd, `rpc.proto`; the JSON mapping of protobuf): keys and values are
//! base64, 64-bit integers are strings, fields with their default are left out.

mod answer;
mod request;
mod values;

pub(crate) use answer::{
    AnswerHead, WatchLine, granted, page, read_watch_line, renewed, status, token, transacted, unit,
};
pub(crate) use request::{fits, grant, lease, log_in, range, transaction, watch};

#[cfg(test)]
mod tests;
