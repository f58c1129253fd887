//! Why bytes are no acceptable request.

/// The reason why a request is refused. The connection closes after the answer, because the place
/// at which a next request would begin is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The bytes are no request of HTTP/1.
    NotHttp,
    /// The first line is malformed (RFC 9112 section 3).
    RequestLine,
    /// The version is neither 1.0 nor 1.1 (RFC 9112 section 2.3).
    Version,
    /// The form of the target does not fit the method (RFC 9112 section 3.2).
    Target,
    /// A line ends without CR (RFC 9112 section 2.2).
    BareLf,
    /// CR, NUL or another control character inside a line (RFC 9112 section 2.2, RFC 9110
    /// section 5.5).
    Control,
    /// A field is continued on a second line (RFC 9112 section 5.2).
    Fold,
    /// White space before the colon of a field (RFC 9112 section 5.1).
    Blank,
    /// A field is malformed (RFC 9112 section 5).
    Field,
    /// `Content-Length` and `Transfer-Encoding` in one request (RFC 9112 section 6.3).
    LengthAndEncoding,
    /// `Content-Length` is no number, or too large a number (RFC 9110 section 8.6).
    Length,
    /// More than one `Content-Length`, equal or not (RFC 9110 section 8.6).
    Lengths,
    /// `Transfer-Encoding` does not end in `chunked`, or is malformed (RFC 9112 section 6.1).
    Encoding,
    /// `Transfer-Encoding` in a request of HTTP/1.0 (RFC 9112 section 6.1).
    Encoding10,
    /// A request of HTTP/1.1 without `Host` (RFC 9112 section 3.2).
    NoHost,
    /// More than one `Host` (RFC 9112 section 3.2).
    Hosts,
    /// `Host`, or the host of the target, is no valid name or address (RFC 9112 section 3.2).
    Host,
    /// The target and `Host` name different hosts (RFC 9112 section 3.2.2).
    HostDiffers,
    /// The field that names the host occurs twice, or names no host.
    RouteHeader,
    /// CONNECT with a body (RFC 9110 section 9.3.6).
    ConnectBody,
    /// The head is larger than 32 KiB.
    HeadSize,
    /// The head has more than 100 fields.
    Fields,
    /// A chunk is malformed (RFC 9112 section 7.1).
    Chunk,
    /// The line of a chunk's size, or the trailer section, is too long.
    ChunkSize,
}

impl Fault {
    /// The status of the answer.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::HeadSize | Self::Fields => 431,
            Self::Version => 505,
            Self::NotHttp
            | Self::RequestLine
            | Self::Target
            | Self::BareLf
            | Self::Control
            | Self::Fold
            | Self::Blank
            | Self::Field
            | Self::LengthAndEncoding
            | Self::Length
            | Self::Lengths
            | Self::Encoding
            | Self::Encoding10
            | Self::NoHost
            | Self::Hosts
            | Self::Host
            | Self::HostDiffers
            | Self::RouteHeader
            | Self::ConnectBody
            | Self::Chunk
            | Self::ChunkSize => 400,
        }
    }

    /// The reason in a few words, for the log and for the page. It has no text of the visitor.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NotHttp => "the bytes are no HTTP request",
            Self::RequestLine => "the request line is malformed",
            Self::Version => "the HTTP version is neither 1.0 nor 1.1",
            Self::Target => "the request target does not fit the method",
            Self::BareLf => "a line ends in LF without CR",
            Self::Control => "a line contains a control character",
            Self::Fold => "a header field is continued on a second line",
            Self::Blank => "a header field has white space before its colon",
            Self::Field => "a header field is malformed",
            Self::LengthAndEncoding => "Content-Length and Transfer-Encoding in one request",
            Self::Length => "Content-Length is not a valid number",
            Self::Lengths => "Content-Length occurs more than once",
            Self::Encoding => "Transfer-Encoding is malformed or does not end in chunked",
            Self::Encoding10 => "Transfer-Encoding in an HTTP/1.0 request",
            Self::NoHost => "the Host field is missing",
            Self::Hosts => "the Host field occurs more than once",
            Self::Host => "the host is not a valid name or address",
            Self::HostDiffers => "the request target and the Host field name different hosts",
            Self::RouteHeader => "the field that names the host is invalid or occurs twice",
            Self::ConnectBody => "a CONNECT request has a body",
            Self::HeadSize => "the request head is larger than 32 KiB",
            Self::Fields => "the request has more than 100 header fields",
            Self::Chunk => "a chunk of the request body is malformed",
            Self::ChunkSize => "a chunk size line or the trailer section is too long",
        }
    }
}
