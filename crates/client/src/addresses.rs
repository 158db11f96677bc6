//! The addresses of a server, which has several if it is a cluster: a connection is made to the first node that takes it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use ganger_tls::{Connecting, Connector};
use tokio::time::timeout;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;

/// Makes connections to one of several addresses: that of the last connection, or else the next one that takes it.
#[derive(Clone)]
pub(crate) struct Addresses {
    all: Arc<[Uri]>,
    /// Index of the address of the last connection, or of the one to try first.
    at: Arc<AtomicUsize>,
    /// Longest time for one address.
    connect_for: Duration,
    connector: Connector,
}

impl Addresses {
    /// Makes connections to the addresses, of which there is one at least, within `connect_for` each.
    pub(crate) fn new(all: Vec<Uri>, connect_for: Duration, connector: Connector) -> Self {
        Self {
            all: all.into(),
            at: Arc::default(),
            connect_for,
            connector,
        }
    }

    async fn connect(mut self) -> <Connecting as Future>::Output {
        let first = self.at.load(Ordering::Relaxed);
        let mut last = None;
        for offset in 0..self.all.len() {
            let index = (first + offset) % self.all.len();
            let connecting = self.connector.call(self.all[index].clone());
            match timeout(self.connect_for, connecting).await {
                Ok(Ok(stream)) => {
                    self.at.store(index, Ordering::Relaxed);
                    return Ok(stream);
                }
                Ok(Err(error)) => last = Some(error),
                Err(_) => last = Some(io::ErrorKind::TimedOut.into()),
            }
        }
        Err(last.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into()))
    }
}

impl Service<Uri> for Addresses {
    type Response = <Connector as Service<Uri>>::Response;
    type Error = io::Error;
    type Future = Connecting;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Connects to one of the addresses; the one that the caller gives is the first of them.
    fn call(&mut self, _: Uri) -> Connecting {
        Box::pin(self.clone().connect())
    }
}

#[cfg(test)]
mod tests {
    use ganger_tls::Trust;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_connection_is_made_to_the_next_address_that_takes_it_and_then_to_the_same() {
        let (one, two) = (
            TcpListener::bind("127.0.0.1:0").await.expect("a free port"),
            TcpListener::bind("127.0.0.1:0").await.expect("a free port"),
        );
        let address = |listener: &TcpListener| -> Uri {
            let address = listener.local_addr().expect("it listens");
            format!("http://{address}").parse().expect("an address")
        };
        let all = vec![address(&one), address(&two)];
        let connector = Connector::new(Trust::default());
        let addresses = Addresses::new(all, Duration::from_secs(60), connector);
        addresses
            .clone()
            .connect()
            .await
            .expect("the first one listens");
        one.accept().await.expect("it was connected to");
        drop(one);
        for _ in 0..2 {
            addresses
                .clone()
                .connect()
                .await
                .expect("the second one listens");
            two.accept().await.expect("it was connected to");
        }
        assert_eq!(addresses.at.load(Ordering::Relaxed), 1);
        drop(two);
        assert!(addresses.connect().await.is_err());
    }
}
