//! Two servers and what goes between them, over real connections.

#![allow(
    clippy::unwrap_used,
    reason = "a test that unwraps wrongly fails, as it should"
)]

use ganger_access::Identity;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tonic::service::interceptor::InterceptedService;

use ganger_engine::Spread;
use ganger_router::{Plain, RouteError, Router, Submitted, Topology};
use ganger_shard::{Clock, Handle, Hooks, ManualClock, Settings, Shard, SystemClock};
use ganger_store::MemoryStore;
use ganger_types::command::*;
use ganger_types::*;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;

const LONG: Duration = Duration::from_secs(60);

struct Server {
    router: Router,
    handle: Handle,
    listener: JoinHandle<()>,
    ending: oneshot::Sender<()>,
}

fn shard(name: &str) -> ShardId {
    ShardId::new(name).unwrap()
}

/// Addresses that are free now, one a shard.
async fn topology(names: &[&str]) -> (Topology, BTreeMap<ShardId, SocketAddr>) {
    let mut addresses = BTreeMap::new();
    let mut listeners = Vec::new();
    for name in names {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        addresses.insert(shard(name), listener.local_addr().unwrap());
        listeners.push(listener);
    }
    let list: Vec<String> = addresses
        .iter()
        .map(|(shard, address)| format!("{shard}={address}"))
        .collect();
    let text = format!("static:{}", list.join(","));
    (Topology::parse(&text).unwrap(), addresses)
}

async fn start(name: &str, store: &MemoryStore, topology: &Topology, at: SocketAddr) -> Server {
    start_with(name, store, topology, at, Arc::new(SystemClock)).await
}

async fn start_with(
    name: &str,
    store: &MemoryStore,
    topology: &Topology,
    at: SocketAddr,
    clock: Arc<dyn Clock>,
) -> Server {
    let settings = Settings {
        shard: shard(name),
        ..Settings::default()
    };
    let handle = Shard::start(store.clone(), settings, clock, Hooks::default()).unwrap();
    let router = Router::start(vec![handle.clone()], topology.clone(), Arc::new(Plain));
    // What a server at the front does: it knows who speaks.
    let service = InterceptedService::new(router.service(), |mut request: tonic::Request<()>| {
        request.extensions_mut().insert(Identity::unchecked());
        Ok(request)
    });
    // The address of a server that was just stopped may be held for a moment.
    let listener = loop {
        match TcpListener::bind(at).await {
            Ok(listener) => break listener,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    let (ending, ended) = oneshot::channel::<()>();
    let listener = tokio::spawn(async move {
        let until = async move { drop(ended.await) };
        let served = tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming_shutdown(TcpListenerStream::new(listener), until);
        served.await.unwrap();
    });
    Server {
        router,
        handle,
        listener,
        ending,
    }
}

impl Server {
    /// Ends it with all its connections, as a process ends: nobody goes on talking to a server that is no more.
    async fn stop(self) {
        drop(self.ending);
        self.listener.await.unwrap();
        self.handle.stop().await;
    }

    async fn take(&self) -> Grant {
        let lease = Lease {
            queues: vec![TakeFrom {
                queue: Queue::default(),
                weight: 1,
            }],
            worker: Some(Worker::from_static("w")),
            jobs_max: 1,
            ..Lease::default()
        };
        let mut deliveries = self.handle.lease(lease, LONG).await.unwrap();
        deliveries.remove(0).grant
    }

    async fn complete(&self, grant: &Grant, result: &'static str) {
        let held = Held {
            namespace: grant.namespace.clone(),
            job: grant.job.clone(),
            token: grant.token,
        };
        let result = Some(Bytes::from_static(result.as_bytes()));
        let complete = Complete {
            held,
            result,
            next: None,
        };
        let command = Command::Complete(Box::new(complete));
        self.handle.call(command).await.unwrap();
    }

    async fn state(&self, job: &JobRef) -> Option<JobState> {
        let namespace = Namespace::default();
        let found = self.handle.job(&namespace, &job.id).await.unwrap();
        found.map(|job| job.record.state)
    }
}

fn job() -> NewJob {
    NewJob {
        kind: Kind::from_static("echo"),
        payload: Bytes::from_static(b"[1]"),
        ..NewJob::default()
    }
}

fn walk(key: Option<&'static str>) -> Spread {
    let mut mail = job();
    mail.inputs = (0..2)
        .map(|member| {
            NewInput::Result(NewEdge {
                upstream: Upstream::Member(member),
                policy: FailurePolicy::Fail,
            })
        })
        .collect();
    Spread {
        namespace: Namespace::default(),
        claim: key.map(ClaimKey::from_static),
        jobs: vec![(shard("1"), job()), (shard("2"), job()), (shard("1"), mail)],
    }
}

#[tokio::test]
async fn a_graph_submitted_to_either_server_runs_on_both() {
    for through in [0, 1] {
        let (topology, at) = topology(&["1", "2"]).await;
        let stores = [MemoryStore::new(), MemoryStore::new()];
        let one = start("1", &stores[0], &topology, at[&shard("1")]).await;
        let two = start("2", &stores[1], &topology, at[&shard("2")]).await;
        let router = [&one.router, &two.router][through];
        let Submitted { jobs, .. } = router.submit(walk(None)).await.unwrap();
        // Whoever was told an id finds the job.
        assert_eq!(two.state(&jobs[1]).await, Some(JobState::Ready));
        for (server, result) in [(&two, "\"b\""), (&one, "\"a\"")] {
            let grant = server.take().await;
            server.complete(&grant, result).await;
        }
        let mail = one.take().await;
        assert_eq!(mail.job, jobs[2].id);
        one.complete(&mail, "\"sent\"").await;
        one.stop().await;
        two.stop().await;
    }
}

#[tokio::test]
async fn a_shard_that_is_away_delays_only_what_needs_it() {
    let (topology, at) = topology(&["1", "2"]).await;
    let stores = [MemoryStore::new(), MemoryStore::new()];
    let one = start("1", &stores[0], &topology, at[&shard("1")]).await;
    let two = start("2", &stores[1], &topology, at[&shard("2")]).await;
    let jobs = one.router.submit(walk(None)).await.unwrap().jobs;
    one.stop().await;
    let grant = two.take().await;
    two.complete(&grant, "\"b\"").await;
    two.stop().await;
    // Both were down; what waited is still there.
    let two = start("2", &stores[1], &topology, at[&shard("2")]).await;
    let one = start("1", &stores[0], &topology, at[&shard("1")]).await;
    let first = one.take().await;
    one.complete(&first, "\"a\"").await;
    assert_eq!(one.take().await.job, jobs[2].id);
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn rel_t1_who_waits_for_a_job_that_a_restored_server_never_had_learns_it() {
    let (topology, at) = topology(&["1", "2", "3"]).await;
    let stores = [MemoryStore::new(), MemoryStore::new(), MemoryStore::new()];
    let clock = Arc::new(ManualClock::default());
    let one = start_with("1", &stores[0], &topology, at[&shard("1")], clock.clone()).await;
    let two = start("2", &stores[1], &topology, at[&shard("2")]).await;
    let three = start("3", &stores[2], &topology, at[&shard("3")]).await;
    let mut waits = job();
    waits.inputs.push(NewInput::Result(NewEdge {
        upstream: Upstream::Member(1),
        policy: FailurePolicy::Fail,
    }));
    let spread = Spread {
        namespace: Namespace::default(),
        claim: None,
        jobs: vec![
            (shard("3"), job()),
            (shard("2"), job()),
            (shard("1"), waits),
        ],
    };
    let jobs = one.router.submit(spread).await.unwrap().jobs;
    while one.state(&jobs[2]).await.is_none() {
        tokio::task::yield_now().await;
    }
    two.stop().await;
    // Restored from before it had anything.
    let two = start("2", &MemoryStore::new(), &topology, at[&shard("2")]).await;
    clock.advance(Duration::from_secs(60));
    let namespace = Namespace::default();
    let ended = one.handle.wait(&namespace, &jobs[2].id, LONG).await;
    let failure = ended.unwrap().unwrap().record.failure.unwrap();
    assert!(failure.message.contains("does not exist"), "{failure:?}");
    for server in [one, two, three] {
        server.stop().await;
    }
}

#[tokio::test]
async fn an_unreachable_shard_is_said_and_nothing_of_the_submission_stays() {
    let (topology, at) = topology(&["1", "2"]).await;
    let stores = [MemoryStore::new(), MemoryStore::new()];
    let one = start("1", &stores[0], &topology, at[&shard("1")]).await;
    let error = one.router.submit(walk(None)).await.unwrap_err();
    assert!(
        matches!(&error, RouteError::Unreachable { shard, .. } if shard.as_str() == "2"),
        "{error}"
    );
    let mut other = walk(None);
    other.jobs[1].0 = shard("9");
    let error = one.router.submit(other).await.unwrap_err();
    assert!(error.to_string().contains("has 1, 2"), "{error}");
    let two = start("2", &stores[1], &topology, at[&shard("2")]).await;
    one.router.submit(walk(None)).await.unwrap();
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn rel_p1_a_repeated_submission_gets_the_first_ones_ids() {
    let (topology, at) = topology(&["1", "2"]).await;
    let stores = [MemoryStore::new(), MemoryStore::new()];
    let one = start("1", &stores[0], &topology, at[&shard("1")]).await;
    let two = start("2", &stores[1], &topology, at[&shard("2")]).await;
    let (first, second) = tokio::join!(
        one.router.submit(walk(Some("k"))),
        two.router.submit(walk(Some("k")))
    );
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first.jobs, second.jobs);
    assert!(first.repeat != second.repeat);
    let mut other = walk(Some("k"));
    other.jobs[0].1.payload = Bytes::from_static(b"[2]");
    let error = one.router.submit(other).await.unwrap_err();
    assert!(error.to_string().contains("idempotency key"), "{error}");
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn a_job_that_does_not_exist_elsewhere_is_refused() {
    let (topology, at) = topology(&["1", "2"]).await;
    let stores = [MemoryStore::new(), MemoryStore::new()];
    let one = start("1", &stores[0], &topology, at[&shard("1")]).await;
    let two = start("2", &stores[1], &topology, at[&shard("2")]).await;
    let jobs = one.router.submit(walk(None)).await.unwrap().jobs;
    let upstream = |id: JobId| {
        let mut waits = job();
        waits.after = vec![NewEdge {
            upstream: Upstream::Remote {
                job: JobRef {
                    shard: shard("2"),
                    id,
                },
                is_member: false,
            },
            policy: FailurePolicy::Fail,
        }];
        Spread {
            namespace: Namespace::default(),
            claim: None,
            jobs: vec![(shard("1"), waits)],
        }
    };
    let known = upstream(jobs[1].id.clone());
    one.router.submit(known).await.unwrap();
    let unknown = upstream(JobId::new("never").unwrap());
    let error = one.router.submit(unknown).await.unwrap_err();
    assert!(
        matches!(error, RouteError::NoSuchUpstream { .. }),
        "{error}"
    );
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn a_decision_that_does_not_wait_for_its_part_is_told_to_try_again() {
    let settings = Settings {
        shard: shard("1"),
        ..Settings::default()
    };
    let clock = Arc::new(SystemClock);
    let handle = Shard::start(MemoryStore::new(), settings, clock, Hooks::default()).unwrap();
    let reserve = Command::Reserve(Reserve { jobs: 1 });
    let Reply::Reserved { first, id_tag } = handle.call(reserve).await.unwrap() else {
        panic!("numbers were asked for");
    };
    let spread = Spread {
        namespace: Namespace::default(),
        claim: None,
        jobs: vec![(shard("1"), job())],
    };
    let numbers = [(shard("1"), (first, id_tag))].into();
    let mut parts = spread.split(&numbers);
    let decide = Command::Decide(Box::new(Decide {
        namespace: Namespace::default(),
        graph: parts.graph,
        is_committed: true,
    }));
    let prepare = Command::Prepare(Box::new(parts.parts.remove(0).1));
    let answers = handle
        .call_all(vec![prepare, decide.clone()])
        .await
        .unwrap();
    assert!(answers[0].is_ok(), "{answers:?}");
    let refused = answers[1].as_ref().unwrap_err();
    assert!(refused.to_string().contains("try again"), "{refused}");
    handle.call(decide).await.unwrap();
    handle.stop().await;
}
