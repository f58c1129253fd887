//! The reasons why bytes are not an acceptable request.

/// The reason why a request is refused. The connection closes after the response, because the start
/// of the next request is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The bytes are not an HTTP/1 request.
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
    /// `Content-Length` is not a number, or too large (RFC 9110 section 8.6).
    Length,
    /// More than one `Content-Length`, equal or not (RFC 9110 section 8.6).
    Lengths,
    /// `Transfer-Encoding` does not end in `chunked`, or is malformed (RFC 9112 section 6.1).
    Encoding,
    /// A transfer coding before `chunked` (RFC 9112 section 6.1).
    Coding,
    /// `Transfer-Encoding` in a request of HTTP/1.0 (RFC 9112 section 6.1).
    Encoding10,
    /// A request of HTTP/1.1 without `Host` (RFC 9112 section 3.2).
    NoHost,
    /// More than one `Host` (RFC 9112 section 3.2).
    Hosts,
    /// `Host`, or the host of the target, is not a valid name or address (RFC 9112 section 3.2).
    Host,
    /// The target and `Host` name different hosts (RFC 9112 section 3.2.2).
    HostDiffers,
    /// The field that names the host occurs twice, or names no host.
    RouteHeader,
    /// CONNECT with a body (RFC 9110 section 9.3.6).
    ConnectBody,
    /// The first line is larger than 32 KiB (RFC 9112 section 3).
    LineSize,
    /// The head is larger than 32 KiB.
    HeadSize,
    /// The head has more than 100 fields.
    Fields,
    /// A chunk is malformed (RFC 9112 section 7.1).
    Chunk,
    /// A chunk size line, or the trailer section, is too long.
    ChunkSize,
}

impl Fault {
    /// The status code of the response.
    #[must_use]
    pub const fn status(self) -> u16 {
        match self {
            Self::LineSize => 414,
            Self::HeadSize | Self::Fields => 431,
            Self::Coding => 501,
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

    /// The reason in one sentence, for the error page. It contains no text of the visitor.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::NotHttp => "The bytes are no request of HTTP/1.",
            Self::RequestLine => "The request line is malformed.",
            Self::Version => "The server speaks HTTP/1.1, HTTP/1.0 and HTTP/2.",
            Self::Target => "The address of the request does not fit its method.",
            Self::BareLf => "A line of the request ends without CR.",
            Self::Control => "A line of the request contains a control character.",
            Self::Fold => "A field of the request continues on a second line.",
            Self::Blank => "A field of the request has white space before its colon.",
            Self::Field => "A field of the request is malformed.",
            Self::LengthAndEncoding => "The request has both Content-Length and Transfer-Encoding.",
            Self::Length => "The value of Content-Length is no number.",
            Self::Lengths => "The request has Content-Length more than once.",
            Self::Encoding => "The Transfer-Encoding of the request does not end with chunked.",
            Self::Coding => "The server knows no transfer coding but chunked.",
            Self::Encoding10 => "A request of HTTP/1.0 has Transfer-Encoding.",
            Self::NoHost => "The request names no host.",
            Self::Hosts => "The request has the field Host more than once.",
            Self::Host => "The host of the request is malformed.",
            Self::HostDiffers => {
                "The field Host and the address of the request name different hosts."
            }
            Self::RouteHeader => "The field that names the host is malformed or occurs twice.",
            Self::ConnectBody => "A CONNECT request has a body.",
            Self::LineSize => "The address of the request is longer than 32 KiB.",
            Self::HeadSize => "The head of the request is longer than 32 KiB.",
            Self::Fields => "The request has more than 100 fields.",
            Self::Chunk => "A chunk of the request is malformed.",
            Self::ChunkSize => "A chunk size or the trailer section of the request is too long.",
        }
    }
}
