//! Submissions and messages between servers, over TCP connections.

#![allow(clippy::unwrap_used, reason = "a test fails if a value is missing")]

use ganger_access::Identity;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::NamedService;
use tonic::service::interceptor::InterceptedService;

use ganger_engine::ShardedSubmission;
use ganger_router::{PlainConnector, RouteError, Router, Submitted, Topology};
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
    losses: Losses,
}

fn shard(name: &str) -> ShardId {
    ShardId::new(name).unwrap()
}

/// Returns a topology with a free loopback address for each shard.
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
    let losses = Losses::default();
    let settings = Settings {
        shard: shard(name),
        ..Settings::default()
    };
    let handle = Shard::start(store.clone(), settings, clock, Hooks::default()).unwrap();
    let router = Router::start(
        vec![handle.clone()],
        topology.clone(),
        Arc::new(PlainConnector),
    );
    // Identifies the caller, as the port handler of a server does.
    let lossy_service = LossyService {
        inner: router.service(),
        losses: Arc::clone(&losses),
    };
    let service = InterceptedService::new(lossy_service, |mut request: tonic::Request<()>| {
        request.extensions_mut().insert(Identity::unchecked());
        Ok(request)
    });
    // The address of a server that has just stopped may be in use for a moment.
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
        losses,
    }
}

/// The calls whose next reply is lost, by method; a method stands once for each reply.
type Losses = Arc<Mutex<Vec<&'static str>>>;

/// Service that loses replies to calls after these have taken effect.
#[derive(Clone)]
struct LossyService<S> {
    inner: S,
    losses: Losses,
}

impl<S: NamedService> NamedService for LossyService<S> {
    const NAME: &'static str = S::NAME;
}

impl<S, B> Service<http::Request<B>> for LossyService<S>
where
    S: Service<http::Request<B>, Response = http::Response<Body>>,
    S::Future: Send + 'static,
    S::Error: Send,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<S::Response, S::Error>;

    fn poll_ready(
        &mut self,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let path = request.uri().path();
        let mut losses = self.losses.lock().unwrap();
        let lost = losses
            .iter()
            .position(|method| path.rsplit('/').next() == Some(method));
        let is_lost = lost.map(|place| losses.swap_remove(place)).is_some();
        drop(losses);
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await?;
            Ok(if is_lost {
                tonic::Status::unavailable("the connection broke").into_http()
            } else {
                answer
            })
        })
    }
}

impl Server {
    /// Stops the server with all its connections, as when a process ends.
    async fn stop(self) {
        drop(self.ending);
        self.listener.await.unwrap();
        self.handle.stop().await;
    }

    async fn lease_one(&self) -> Grant {
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
        let held = LeaseRef {
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

fn names(jobs: Vec<(JobRef, bool)>) -> Vec<JobRef> {
    jobs.into_iter().map(|(job, _)| job).collect()
}

fn job() -> NewJob {
    NewJob {
        kind: Kind::from_static("echo"),
        payload: Bytes::from_static(b"[1]"),
        ..NewJob::default()
    }
}

fn sharded_submission(key: Option<&'static str>) -> ShardedSubmission {
    let mut mail = job();
    mail.inputs = (0..2)
        .map(|member| {
            NewInput::Result(NewEdge {
                dependency: Dependency::Member(member),
                policy: FailurePolicy::Fail,
            })
        })
        .collect();
    ShardedSubmission {
        namespace: Namespace::default(),
        idempotency_key: key.map(IdempotencyKey::from_static),
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
        let Submitted { jobs, .. } = router
            .submit(sharded_submission(None), true, None)
            .await
            .unwrap();
        let jobs = names(jobs);
        // A client that has an id finds the job.
        assert_eq!(two.state(&jobs[1]).await, Some(JobState::Ready));
        for (server, result) in [(&two, "\"b\""), (&one, "\"a\"")] {
            let grant = server.lease_one().await;
            server.complete(&grant, result).await;
        }
        let mail = one.lease_one().await;
        assert_eq!(mail.job, jobs[2].id);
        one.complete(&mail, "\"sent\"").await;
        one.stop().await;
        two.stop().await;
    }
}

#[tokio::test]
async fn a_graph_is_read_from_both_servers_and_an_absent_one_is_named() {
    let (topology, at) = topology(&["1", "2"]).await;
    let stores = [MemoryStore::new(), MemoryStore::new()];
    let one = start("1", &stores[0], &topology, at[&shard("1")]).await;
    let two = start("2", &stores[1], &topology, at[&shard("2")]).await;
    let submitted = one
        .router
        .submit(sharded_submission(None), true, None)
        .await;
    let graph = submitted.unwrap().graph.unwrap();
    let namespace = Namespace::default();
    for server in [&one, &two] {
        let graphs = server.router.graphs();
        let state = graphs.read(&namespace, &graph, LONG).await.unwrap();
        assert_eq!(state.shape.members().len(), 3);
        assert_eq!((state.shape.levels(), state.shape.edges()), (2, 2));
        assert_eq!(state.counts.of(JobState::Ready), 2);
        let list = graphs.list(&namespace, None, 10).await.unwrap();
        assert_eq!((list.rows.len(), list.rows[0].jobs), (1, 3));
        assert_eq!(list.rows[0].shards, [shard("1"), shard("2")]);
    }
    two.stop().await;
    let graphs = one.router.graphs();
    let state = graphs.read(&namespace, &graph, LONG).await.unwrap();
    assert_eq!(state.unreachable, [shard("2")]);
    assert_eq!(state.shape.members().len(), 2);
    // The edge to the missing job is counted.
    assert_eq!(state.shape.edges_outside(), 1);
    let list = graphs.list(&namespace, None, 10).await.unwrap();
    assert_eq!((list.rows[0].jobs, list.unreachable), (2, vec![shard("2")]));
    let none = Graph::from_static("none");
    let missing = graphs.read(&namespace, &none, LONG).await;
    assert!(missing.is_err());
    one.stop().await;
}

#[tokio::test]
async fn an_absent_shard_delays_only_jobs_that_need_it() {
    let (topology, at) = topology(&["1", "2"]).await;
    let stores = [MemoryStore::new(), MemoryStore::new()];
    let one = start("1", &stores[0], &topology, at[&shard("1")]).await;
    let two = start("2", &stores[1], &topology, at[&shard("2")]).await;
    let jobs = names(
        one.router
            .submit(sharded_submission(None), true, None)
            .await
            .unwrap()
            .jobs,
    );
    one.stop().await;
    let grant = two.lease_one().await;
    two.complete(&grant, "\"b\"").await;
    two.stop().await;
    // Both servers were down, and the messages are still there.
    let two = start("2", &stores[1], &topology, at[&shard("2")]).await;
    let one = start("1", &stores[0], &topology, at[&shard("1")]).await;
    let first = one.lease_one().await;
    one.complete(&first, "\"a\"").await;
    assert_eq!(one.lease_one().await.job, jobs[2].id);
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn rel_t1_a_dependent_learns_that_a_restored_server_never_had_its_dependency() {
    let (topology, at) = topology(&["1", "2", "3"]).await;
    let stores = [MemoryStore::new(), MemoryStore::new(), MemoryStore::new()];
    let clock = Arc::new(ManualClock::default());
    let one = start_with("1", &stores[0], &topology, at[&shard("1")], clock.clone()).await;
    let two = start("2", &stores[1], &topology, at[&shard("2")]).await;
    let three = start("3", &stores[2], &topology, at[&shard("3")]).await;
    let mut waits = job();
    waits.inputs.push(NewInput::Result(NewEdge {
        dependency: Dependency::Member(1),
        policy: FailurePolicy::Fail,
    }));
    let spread = ShardedSubmission {
        namespace: Namespace::default(),
        idempotency_key: None,
        jobs: vec![
            (shard("3"), job()),
            (shard("2"), job()),
            (shard("1"), waits),
        ],
    };
    let jobs = names(one.router.submit(spread, true, None).await.unwrap().jobs);
    while one.state(&jobs[2]).await.is_none() {
        tokio::task::yield_now().await;
    }
    two.stop().await;
    // Restored from a backup without any rows.
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
async fn an_unreachable_shard_is_reported_and_nothing_of_the_submission_stays() {
    let (topology, at) = topology(&["1", "2"]).await;
    let stores = [MemoryStore::new(), MemoryStore::new()];
    let one = start("1", &stores[0], &topology, at[&shard("1")]).await;
    let error = one
        .router
        .submit(sharded_submission(None), true, None)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, RouteError::Unreachable { shard, .. } if shard.as_str() == "2"),
        "{error}"
    );
    let mut other = sharded_submission(None);
    other.jobs[1].0 = shard("9");
    let error = one.router.submit(other, true, None).await.unwrap_err();
    assert!(error.to_string().contains("has 1, 2"), "{error}");
    let two = start("2", &stores[1], &topology, at[&shard("2")]).await;
    one.router
        .submit(sharded_submission(None), true, None)
        .await
        .unwrap();
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
        one.router.submit(sharded_submission(Some("k")), true, None),
        two.router.submit(sharded_submission(Some("k")), true, None)
    );
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!(first.jobs, second.jobs);
    assert!(first.repeat != second.repeat);
    let mut other = sharded_submission(Some("k"));
    other.jobs[0].1.payload = Bytes::from_static(b"[2]");
    let error = one.router.submit(other, true, None).await.unwrap_err();
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
    let jobs = names(
        one.router
            .submit(sharded_submission(None), true, None)
            .await
            .unwrap()
            .jobs,
    );
    let dependency = |id: JobId| {
        let mut waits = job();
        waits.after = vec![NewEdge {
            dependency: Dependency::Remote {
                job: JobRef {
                    shard: shard("2"),
                    id,
                },
                is_member: false,
            },
            policy: FailurePolicy::Fail,
        }];
        ShardedSubmission {
            namespace: Namespace::default(),
            idempotency_key: None,
            jobs: vec![(shard("1"), waits)],
        }
    };
    let known = dependency(jobs[1].id.clone());
    one.router.submit(known, true, None).await.unwrap();
    let unknown = dependency(JobId::new("never").unwrap());
    let error = one.router.submit(unknown, true, None).await.unwrap_err();
    assert!(
        matches!(error, RouteError::NoSuchDependency { .. }),
        "{error}"
    );
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn a_decision_before_its_part_is_durable_is_refused_as_retryable() {
    let settings = Settings {
        shard: shard("1"),
        ..Settings::default()
    };
    let clock = Arc::new(SystemClock);
    let handle = Shard::start(MemoryStore::new(), settings, clock, Hooks::default()).unwrap();
    let reserve = Command::Reserve(Reserve { jobs: 1 });
    let Reply::Reserved { first, id_tag } = handle.call(reserve).await.unwrap() else {
        panic!("a reservation was requested");
    };
    let spread = ShardedSubmission {
        namespace: Namespace::default(),
        idempotency_key: None,
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

/// Returns a submission of one job under a client-chosen id, on shard 2.
fn submission_with_id(id: &'static str, payload: &'static str) -> ShardedSubmission {
    let job = NewJob {
        id: Some(JobId::new(id).unwrap()),
        payload: Bytes::from_static(payload.as_bytes()),
        ..job()
    };
    ShardedSubmission {
        namespace: Namespace::default(),
        idempotency_key: None,
        jobs: vec![(shard("2"), job)],
    }
}

#[tokio::test]
async fn rel_p1_submissions_of_one_id_through_several_servers_make_one_job() {
    let (topology, at) = topology(&["1", "2"]).await;
    let stores = [MemoryStore::new(), MemoryStore::new()];
    let one = start("1", &stores[0], &topology, at[&shard("1")]).await;
    let two = start("2", &stores[1], &topology, at[&shard("2")]).await;
    let at_once = futures::future::join_all((0..8).map(|number| {
        let router = if number % 2 == 0 {
            &one.router
        } else {
            &two.router
        };
        router.submit(submission_with_id("x", "[1]"), false, None)
    }));
    let answers: Vec<Submitted> = at_once.await.into_iter().map(Result::unwrap).collect();
    let new = answers.iter().filter(|answer| !answer.jobs[0].1).count();
    assert_eq!(new, 1, "{answers:?}");
    let refused = one
        .router
        .submit(submission_with_id("x", "[2]"), false, None)
        .await;
    let refused = refused.unwrap_err();
    assert!(
        matches!(&refused, RouteError::Refused { code, .. } if code == "id_taken"),
        "{refused}"
    );
    // After a lost reply, repeating the submission finds the job.
    two.losses.lock().unwrap().push("Enqueue");
    let lost = one
        .router
        .submit(submission_with_id("y", "[1]"), false, None)
        .await;
    let lost = lost.unwrap_err();
    assert!(matches!(lost, RouteError::OutcomeUnknown { .. }), "{lost}");
    let again = one
        .router
        .submit(submission_with_id("y", "[1]"), false, None)
        .await
        .unwrap();
    assert!(again.jobs[0].1, "{again:?}");
    // A shard that was never reached has changed nothing.
    two.stop().await;
    let away = one
        .router
        .submit(submission_with_id("z", "[1]"), false, None)
        .await;
    assert!(
        matches!(away, Err(RouteError::Unreachable { .. })),
        "{away:?}"
    );
    one.stop().await;
}

#[tokio::test]
async fn a_decision_whose_reply_is_lost_is_requested_again() {
    let (topology, at) = topology(&["1", "2"]).await;
    let stores = [MemoryStore::new(), MemoryStore::new()];
    let one = start("1", &stores[0], &topology, at[&shard("1")]).await;
    let two = start("2", &stores[1], &topology, at[&shard("2")]).await;
    let mut spread = sharded_submission(None);
    spread.jobs.rotate_left(1);
    spread.jobs[1].1.inputs.clear();
    assert_eq!(spread.decider(), Some(&shard("2")));
    two.losses.lock().unwrap().extend(["Decide"; 2]);
    let jobs = names(one.router.submit(spread, true, None).await.unwrap().jobs);
    assert_eq!(two.state(&jobs[0]).await, Some(JobState::Ready));
    assert!(two.losses.lock().unwrap().is_empty());
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn after_a_lost_reply_before_the_decision_nothing_of_the_submission_stays() {
    let (topology, at) = topology(&["1", "2"]).await;
    let stores = [MemoryStore::new(), MemoryStore::new()];
    let one = start("1", &stores[0], &topology, at[&shard("1")]).await;
    let two = start("2", &stores[1], &topology, at[&shard("2")]).await;
    let mut spread = sharded_submission(None);
    for (number, (_, job)) in spread.jobs.iter_mut().enumerate() {
        job.id = Some(JobId::new(format!("job-{number}")).unwrap());
    }
    for method in ["Reserve", "Prepare"] {
        two.losses.lock().unwrap().push(method);
        let lost = one.router.submit(spread.clone(), true, None).await;
        let lost = lost.unwrap_err();
        assert!(matches!(lost, RouteError::Unreachable { .. }), "{lost}");
    }
    let submitted = one.router.submit(spread, true, None).await.unwrap();
    let is_new = submitted.jobs.iter().all(|(_, existed)| !existed);
    assert!(is_new, "{submitted:?}");
    one.stop().await;
    two.stop().await;
}
