//! A server of one shard with a store in memory, and a connection to it.

use std::sync::Arc;

use ganger_dialect_grpc::Peer;
use ganger_proto::v1;
use ganger_shard::{Handle, Hooks, Settings, Shard, SystemClock};
use ganger_store::MemoryStore;
use tonic::transport::Channel;

/// The address that the server takes every request to come from.
pub(crate) const PEER: &str = "192.0.2.7:41000";

pub(crate) struct Server {
    pub(crate) channel: Channel,
    pub(crate) handle: Handle,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let settings = Settings {
            reserve_bytes: 0,
            ..Settings::default()
        };
        let (store, clock) = (MemoryStore::new(), Arc::new(SystemClock));
        let handle = Shard::start(store, settings, clock, Hooks::default()).expect("it starts");
        let options = ganger_dialect_grpc::Options {
            unidentified: ganger_access::Identity::unchecked(),
            shown_settings: [("listen".to_owned(), "127.0.0.1:1".to_owned())].into(),
            ..ganger_dialect_grpc::Options::default()
        };
        let router = ganger_dialect_grpc::router(handle.clone(), options);
        let router = router.layer(axum::Extension(Peer(PEER.parse().expect("an address"))));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port");
        let address = listener.local_addr().expect("bound");
        tokio::spawn(async move { axum::serve(listener, router).await });
        let uri = format!("http://{address}");
        let endpoint = Channel::from_shared(uri).expect("a uri");
        let endpoint = endpoint.user_agent("mailer/1.2").expect("text");
        let channel = endpoint.connect_lazy();
        Self { channel, handle }
    }

    pub(crate) fn jobs(&self) -> v1::jobs_client::JobsClient<Channel> {
        v1::jobs_client::JobsClient::new(self.channel.clone())
    }

    pub(crate) fn leases(&self) -> v1::leases_client::LeasesClient<Channel> {
        v1::leases_client::LeasesClient::new(self.channel.clone())
    }

    pub(crate) fn queues(&self) -> v1::queues_client::QueuesClient<Channel> {
        v1::queues_client::QueuesClient::new(self.channel.clone())
    }

    pub(crate) fn insight(&self) -> v1::insight_client::InsightClient<Channel> {
        v1::insight_client::InsightClient::new(self.channel.clone())
    }

    pub(crate) fn operations(&self) -> v1::operations_client::OperationsClient<Channel> {
        v1::operations_client::OperationsClient::new(self.channel.clone())
    }

    pub(crate) fn admin(&self) -> v1::admin_client::AdminClient<Channel> {
        v1::admin_client::AdminClient::new(self.channel.clone())
    }

    pub(crate) fn schedules(&self) -> v1::schedules_client::SchedulesClient<Channel> {
        v1::schedules_client::SchedulesClient::new(self.channel.clone())
    }
}
