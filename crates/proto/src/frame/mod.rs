//! Frames: the single table of kinds and flags, headers, and bodies. `SPEC.md` shows every kind in
//! hex.

mod body;
mod head;

pub(crate) use body::{
    CREDIT_LENGTH, Credit, END_LENGTH, Entry, PING_LENGTH, RESUME_ENTRY, RESUME_FIXED, decode_open,
    decode_request, encode_code, encode_credit, encode_fin, encode_open, encode_ping,
    encode_resume_head, put_request,
};
pub(crate) use head::{
    FLAG_ACK_END, FLAG_MORE, FLAG_WAITING, MAX_RESUME, OFFSET_LENGTH, write_data_head,
};
pub use head::{HEAD, Head, Kind, MAX_OPEN, MAX_PAYLOAD};
