//! Whether a new connection asks for a sign of life and nothing else.

use tokio::net::TcpStream;

/// Bytes that are looked at: a method, a path, and a space behind it.
const FIRST_BYTES: usize = 64;

/// Waits for the first bytes of a connection and leaves them in it: whether they ask for one of the paths over HTTP/1.
///
/// A head that comes in several parts may be taken for something else: then it is answered like any other request.
pub(super) async fn first_request(stream: &TcpStream, paths: &[&str]) -> bool {
    let mut first = [0; FIRST_BYTES];
    // What is wrong with it shows itself again when it is read.
    let count = stream.peek(&mut first).await.unwrap_or(0);
    asks_for(&first[..count], paths)
}

fn asks_for(first: &[u8], paths: &[&str]) -> bool {
    let rest = first.strip_prefix(b"GET ");
    let is_path = |rest: &[u8]| {
        paths.iter().any(|path| {
            rest.strip_prefix(path.as_bytes())
                .is_some_and(|behind| behind.starts_with(b" "))
        })
    };
    rest.is_some_and(is_path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_paths_of_a_get_count() {
        let paths = ["/healthz", "/readyz"];
        for yes in [
            "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /readyz HTTP/1.0\r\n",
        ] {
            assert!(asks_for(yes.as_bytes(), &paths), "{yes}");
        }
        let others = [
            "",
            "GET",
            "GET /healthz",
            "GET /healthzebra HTTP/1.1\r\n",
            "GET /api/v1/jobs HTTP/1.1\r\n",
            "POST /healthz HTTP/1.1\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ];
        for no in others {
            assert!(!asks_for(no.as_bytes(), &paths), "{no}");
        }
    }
}
