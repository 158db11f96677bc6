//! One message to a webhook: signed, posted, and its answer.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ganger_attention::alert::Webhook;
use ganger_tls::{Connector, Trust};
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::{Request, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use sha2::Sha256;

use super::read_secret;

/// Header with the time of the try and the signature.
pub(super) const SIGNATURE: &str = "ganger-signature";
/// Header with the id of the message, the same for all tries.
pub(super) const MESSAGE: &str = "ganger-message";
/// Longest time until the receiver has answered.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Posts a message to the receiver of an alert and waits for its answer.
///
/// # Errors
/// If the receiver does not answer in time, or not with 2xx; the text never has the address, which may be secret.
pub(super) async fn post(webhook: &Webhook, id: &str, body: Bytes) -> Result<StatusCode, String> {
    let sent = tokio::time::timeout(TIMEOUT, send(webhook, id, body));
    let status = sent.await.map_err(|_| {
        format!(
            "the receiver has not answered within {} s",
            TIMEOUT.as_secs()
        )
    })??;
    if status.is_success() {
        return Ok(status);
    }
    Err(format!(
        "the receiver answered with status {}",
        status.as_u16()
    ))
}

async fn send(webhook: &Webhook, id: &str, body: Bytes) -> Result<StatusCode, String> {
    let uri: Uri = webhook
        .url
        .parse()
        .map_err(|_| "its address cannot be used".to_owned())?;
    let request = request(webhook, &uri, id, body)?;
    let trust = Trust {
        ca: webhook.ca_file.clone(),
        ..Trust::default()
    };
    let connector = Connector::new(trust).with_http1_only();
    let stream = connector.connect(&uri).await;
    let stream = stream.map_err(|error| format!("no connection: {error}"))?;
    let made = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = made.map_err(|error| format!("no connection: {error}"))?;
    // Dropping the task ends the connection; the body of the answer is of no interest.
    let connection = tokio::spawn(connection);
    let answer = sender.send_request(request).await;
    connection.abort();
    let answer = answer.map_err(|error| format!("the connection broke: {error}"))?;
    Ok(answer.status())
}

fn request(
    webhook: &Webhook,
    uri: &Uri,
    id: &str,
    body: Bytes,
) -> Result<Request<Full<Bytes>>, String> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let mut request = Request::post(path)
        .header(HOST, authority)
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, concat!("ganger/", env!("CARGO_PKG_VERSION")))
        .header(MESSAGE, id);
    if let Some(path) = &webhook.secret_file {
        // Read for each message, so that a new secret is used at once.
        let secret =
            read_secret(path).map_err(|reason| format!("the file of its secret {reason}"))?;
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        request = request.header(SIGNATURE, signature(&secret, now.as_secs(), &body));
    }
    request
        .body(Full::new(body))
        .map_err(|error| format!("its address cannot be used: {error}"))
}

/// The signature of a body: HMAC-SHA-256 over the seconds since 1970, a point, and the body.
fn signature(secret: &[u8], seconds: u64, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key of any length");
    mac.update(seconds.to_string().as_bytes());
    mac.update(b".");
    mac.update(body);
    let mut text = format!("t={seconds},v1=");
    for byte in mac.finalize().into_bytes() {
        write!(text, "{byte:02x}").expect("strings take everything");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_time_and_body() {
        // printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac 0123456789abcdef0123456789abcdef
        let secret = b"0123456789abcdef0123456789abcdef";
        assert_eq!(signature(secret, 1_700_000_000, br#"{"a":1}"#), EXPECTED);
    }

    const EXPECTED: &str =
        "t=1700000000,v1=f05f2539e3ae1c49aec5f8cfdad75ef6b06480b133973ffbb7ec9e18827af177";
}
