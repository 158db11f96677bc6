//! Detects health checks on new connections.

use tokio::net::TcpStream;

/// Number of bytes examined: a method, a path, and a following space.
const FIRST_BYTES: usize = 64;

/// Waits for the first bytes of a connection and leaves them unread; returns whether they ask for one of the paths
/// over HTTP/1.
///
/// A head that arrives in several parts may not be recognised; it is then answered like any other request.
pub(super) async fn first_request(stream: &TcpStream, paths: &[&str]) -> bool {
    let mut first = [0; FIRST_BYTES];
    // An error shows again when the connection is read.
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
