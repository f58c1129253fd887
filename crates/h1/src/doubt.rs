//! The reasons why a response is not passed on.

use crate::Fault;

/// The reason why a response is refused: parsers disagree about where such a response ends, or
/// about whether it is a response at all. A reverse proxy that sees an earlier end would take the
/// rest for the response to another request (response smuggling).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The bytes are not a response of HTTP/1.0 or HTTP/1.1.
    NotHttp,
    /// The status line is malformed, or its version is neither 1.0 nor 1.1 (RFC 9112 section 4).
    StatusLine,
    /// A line of the head ends without CR (RFC 9112 section 2.2).
    BareLf,
    /// CR, NUL or another control character inside a line (RFC 9110 section 5.5).
    Control,
    /// The first field line is a continuation without a field before it (RFC 9112 section 5.2).
    /// Other continued fields are mended.
    Fold,
    /// White space before the colon of a field (RFC 9112 section 5.1), in a head with a further
    /// fault that cannot be mended.
    Blank,
    /// A field is malformed (RFC 9112 section 5).
    Field,
    /// The head has more than [`ANSWER_FIELDS`](crate::ANSWER_FIELDS) fields.
    Fields,
    /// The head is larger than [`ANSWER_HEAD`](crate::ANSWER_HEAD).
    HeadSize,
    /// The head arrives in pieces, and the server has too little memory to keep more of it.
    Memory,
    /// `Content-Length` is not a plain number, or too large (RFC 9110 section 8.6).
    Length,
    /// More than one `Content-Length`, and they differ (RFC 9110 section 8.6).
    Lengths,
    /// `Content-Length` and `Transfer-Encoding` in one response (RFC 9112 section 6.3), in a head
    /// with a further fault that cannot be mended.
    LengthAndEncoding,
    /// `Transfer-Encoding` has a value other than `chunked` (RFC 9112 section 6.1).
    Encoding,
    /// `Transfer-Encoding` in a response of HTTP/1.0 (RFC 9112 section 6.1).
    Encoding10,
    /// An interim response of HTTP/1.0, or with a body, or to HEAD. nginx before version 1.29 takes
    /// an interim response for the final response, which is complete if it has no body.
    Interim,
    /// Too many interim responses, or too many bytes of them.
    Interims,
    /// 101 without a request for another protocol (RFC 9110 section 15.2.2).
    Switch,
    /// A 2xx response to CONNECT with a body, or with a status that never has a body (RFC 9110
    /// section 9.3.6). A reverse proxy that does not know CONNECT sees a complete response and
    /// sends the next request into the tunnel.
    Connect,
    /// A chunk of the body, or a trailer field, is malformed (RFC 9112 section 7.1).
    Chunk,
    /// A chunk size line, or the trailer section, is too long.
    ChunkSize,
}

impl Doubt {
    /// The reason in a few words, for the log and for the error page. It contains no text of the
    /// target.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NotHttp => "the bytes are no HTTP response",
            Self::StatusLine => "the status line is malformed",
            Self::BareLf => "a line ends in LF without CR",
            Self::Control => "a line contains a control character",
            Self::Fold => "a header field is continued on a second line",
            Self::Blank => "a header field has white space before its colon",
            Self::Field => "a header field is malformed",
            Self::Fields => "the head has more than 500 header fields",
            Self::HeadSize => "the head is larger than 128 KiB",
            Self::Memory => "the server has too little memory for the rest of its head",
            Self::Length => "Content-Length is not a plain number",
            Self::Lengths => "Content-Length occurs more than once",
            Self::LengthAndEncoding => "Content-Length and Transfer-Encoding in one response",
            Self::Encoding => "Transfer-Encoding is not chunked alone",
            Self::Encoding10 => "Transfer-Encoding in an HTTP/1.0 response",
            Self::Interim => "an interim response has a body, or answers HEAD or in HTTP/1.0",
            Self::Interims => "too many interim responses",
            Self::Switch => "the protocol was switched without a request for it",
            Self::Connect => "a response to CONNECT has a body",
            Self::Chunk => "a chunk of the body is malformed",
            Self::ChunkSize => "a chunk size line or the trailer section is too long",
        }
    }
}

impl From<Fault> for Doubt {
    /// The doubt about a response whose lines or fields have this fault.
    fn from(fault: Fault) -> Self {
        let same = [
            (Fault::Control, Self::Control),
            (Fault::Fold, Self::Fold),
            (Fault::Blank, Self::Blank),
            (Fault::Fields, Self::Fields),
            (Fault::Length, Self::Length),
            (Fault::Lengths, Self::Lengths),
            (Fault::LengthAndEncoding, Self::LengthAndEncoding),
            (Fault::Encoding, Self::Encoding),
            (Fault::Coding, Self::Encoding),
            (Fault::Encoding10, Self::Encoding10),
            (Fault::Chunk, Self::Chunk),
            (Fault::ChunkSize, Self::ChunkSize),
        ];
        let found = same.iter().find(|(of_request, _)| *of_request == fault);
        found.map_or(Self::Field, |(_, doubt)| *doubt)
    }
}
