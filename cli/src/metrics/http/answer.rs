//! HTTP requests and their answers, as bytes.

/// Limit on the bytes of a request.
const MOST_REQUEST_BYTES: usize = 4 * 1024;
const MOST_HEADERS: usize = 32;
/// The exposition format, under Prometheus' name for it.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// An answer, and what happens to the connection after it.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::metrics) struct Answer {
    pub(in crate::metrics) bytes: Vec<u8>,
    pub(in crate::metrics) then: Then,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::metrics) enum Then {
    /// The request was this many bytes long; the next one may follow.
    Next(usize),
    Close,
}

/// Returns the answer to the first request in `bytes`; None while the request is incomplete.
pub(in crate::metrics) fn answer(bytes: &[u8], text: &impl Fn() -> String) -> Option<Answer> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Partial) if bytes.len() <= MOST_REQUEST_BYTES => return None,
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            let status = "431 Request Header Fields Too Large";
            return Some(response(status, "too long\n", Then::Close));
        }
        Err(_) => {
            let body = "this is no HTTP request\n";
            return Some(response("400 Bad Request", body, Then::Close));
        }
    };
    let then = if ends(&request) { Then::Close } else { Then::Next(length) };
    let is_head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => {
            let body = "only GET and HEAD\n";
            return Some(response("405 Method Not Allowed", body, Then::Close));
        }
    };
    let (status, body) = match request.path.unwrap_or_default().split('?').next() {
        Some("/metrics") => ("200 OK", text()),
        _ => ("404 Not Found", "there is only /metrics here\n".to_owned()),
    };
    let mut answer = response(status, &body, then);
    if is_head {
        answer.bytes.truncate(answer.bytes.len() - body.len());
    }
    Some(answer)
}

/// True if no request can follow this one. Bodies are not read, so a request with a body ends the
/// connection.
fn ends(request: &httparse::Request<'_, '_>) -> bool {
    request.version != Some(1)
        || request.headers.iter().any(|header| {
            let is = |name: &str| header.name.eq_ignore_ascii_case(name);
            let mut words = header.value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
            is("Transfer-Encoding")
                || is("Content-Length") && header.value.trim_ascii() != b"0"
                || is("Connection") && words.any(|word| word.eq_ignore_ascii_case(b"close"))
        })
}

fn response(status: &str, body: &str, then: Then) -> Answer {
    let kind = if status.starts_with('2') { CONTENT_TYPE } else { "text/plain; charset=utf-8" };
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let close = if then == Then::Close { "Connection: close\r\n" } else { "" };
    let length = body.len();
    let bytes = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}{close}\
         \r\n{body}"
    );
    Answer { bytes: bytes.into_bytes(), then }
}
