//! Submissions over two shards of one process, to either face.

use std::sync::Arc;

use ganger_dialect_grpc::Options;
use ganger_proto::v1::{self, edge::Dependency, input::Input};
use ganger_router::{PlainConnector, Router, Topology};
use ganger_shard::{Handle, Hooks, Settings, Shard, SystemClock};
use ganger_store::MemoryStore;
use ganger_types::ShardId;
use tonic::Status;
use tonic::transport::Channel;

pub(crate) struct ServiceContext(pub(crate) Channel);

impl ServiceContext {
    fn jobs(&self) -> v1::jobs_client::JobsClient<Channel> {
        v1::jobs_client::JobsClient::new(self.0.clone())
    }

    pub(crate) async fn submit(
        &self,
        jobs: Vec<v1::NewJob>,
        key: &str,
    ) -> Result<v1::EnqueueReply, Status> {
        let request = v1::EnqueueRequest {
            jobs,
            idempotency_key: key.to_owned(),
            graph: true,
            ..v1::EnqueueRequest::default()
        };
        Ok(self.jobs().enqueue(request).await?.into_inner())
    }

    /// As a stream of parts; the answer's parts as one.
    async fn submit_graph(&self, jobs: Vec<v1::NewJob>) -> Result<v1::EnqueueReply, Status> {
        let parts = jobs.into_iter().map(|job| v1::GraphPart {
            jobs: vec![job],
            ..v1::GraphPart::default()
        });
        let parts: Vec<_> = parts.collect();
        let stream = futures::stream::iter(parts);
        let mut answer = self.jobs().submit_graph(stream).await?.into_inner();
        let mut all = v1::EnqueueReply::default();
        while let Some(part) = answer.message().await? {
            all.jobs.extend(part.jobs);
            all.graph = part.graph;
        }
        Ok(all)
    }

    /// Runs the next job, and gives it as it was handed out.
    async fn run(&self, result: &'static str) -> v1::Delivery {
        let mut leases = v1::leases_client::LeasesClient::new(self.0.clone());
        let request = v1::LeaseRequest {
            queues: vec![v1::TakeFrom {
                queue: "default".into(),
                ..v1::TakeFrom::default()
            }],
            worker: "w".into(),
            wait_ms: 10_000,
            ..v1::LeaseRequest::default()
        };
        let reply = leases.lease(request).await.expect("leased").into_inner();
        let delivery = reply.deliveries.into_iter().next().expect("a job");
        let completion = v1::Completion {
            held: Some(v1::Held {
                job: delivery.job.clone(),
                token: delivery.token.clone(),
            }),
            result: Some(result.into()),
            next: None,
        };
        let request = v1::CompleteRequest {
            items: vec![completion],
            ..v1::CompleteRequest::default()
        };
        leases.complete(request).await.expect("reported");
        delivery
    }

    async fn job_count(&self) -> usize {
        let page = self.jobs().list(v1::ListRequest::default()).await;
        page.expect("listed").into_inner().jobs.len()
    }
}

/// The faces of shards 1 and 2, which know each other.
pub(crate) async fn two() -> (ServiceContext, ServiceContext) {
    let start = |name: &str| {
        let settings = Settings {
            shard: ShardId::new(name).expect("a shard's name"),
            reserve_bytes: 0,
            ..Settings::default()
        };
        let (store, clock) = (MemoryStore::new(), Arc::new(SystemClock));
        Shard::start(store, settings, clock, Hooks::default()).expect("it starts")
    };
    let (one, two) = (start("1"), start("2"));
    let shards = vec![one.clone(), two.clone()];
    let router = Router::start(shards, Topology::default(), Arc::new(PlainConnector));
    (face(one, &router).await, face(two, &router).await)
}

async fn face(shard: Handle, router: &Router) -> ServiceContext {
    let options = Options {
        unidentified: ganger_access::Identity::unchecked(),
        router: Some(router.clone()),
        ..Options::default()
    };
    let service = ganger_dialect_grpc::router(shard, options);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move { axum::serve(listener, service).await });
    let uri = format!("http://{address}");
    ServiceContext(Channel::from_shared(uri).expect("a uri").connect_lazy())
}

fn edge(dependency: Dependency) -> v1::Edge {
    v1::Edge {
        dependency: Some(dependency),
        policy: 0,
    }
}

fn job(kind: &str, shard: &str, results_of: Vec<Dependency>) -> v1::NewJob {
    let inputs = results_of.into_iter().map(|dependency| v1::Input {
        input: Some(Input::Result(edge(dependency))),
    });
    v1::NewJob {
        kind: kind.to_owned(),
        name: format!("{kind} {shard}"),
        shard: shard.to_owned(),
        inputs: inputs.collect(),
        ..v1::NewJob::default()
    }
}

/// Two saves on shards 1 and 2, and a mail on 1 that takes both results.
pub(crate) fn walk() -> Vec<v1::NewJob> {
    let results = vec![Dependency::Member(0), Dependency::Name("save 2".into())];
    vec![
        job("save", "1", Vec::new()),
        job("save", "2", Vec::new()),
        job("mail", "1", results),
    ]
}

fn names(reply: &v1::EnqueueReply) -> Vec<String> {
    let jobs = reply.jobs.iter();
    jobs.map(|job| format!("{}/{}", job.shard, job.id))
        .collect()
}

#[tokio::test]
async fn a_mail_takes_the_results_of_two_shards_in_order() {
    let (one, two) = two().await;
    for in_parts in [false, true] {
        let reply = if in_parts {
            one.submit_graph(walk()).await
        } else {
            two.submit(walk(), "").await
        };
        let reply = reply.expect("accepted");
        let shards: Vec<_> = reply.jobs.iter().map(|job| &*job.shard).collect();
        assert_eq!(shards, ["1", "2", "1"]);
        assert_eq!(reply.jobs[1].name, "save 2");
        assert!(!reply.graph.is_empty());
        two.run("\"two\"").await;
        assert_eq!(one.run("\"one\"").await.kind, "save");
        let mail = one.run("null").await;
        assert_eq!((&*mail.kind, mail.job), ("mail", reply.jobs[2].id.clone()));
        assert_eq!(mail.inputs, ["\"one\"", "\"two\""]);
    }
}

#[tokio::test]
async fn one_job_waits_for_a_job_of_another_shard() {
    let (one, two) = two().await;
    let mut up = job("up", "2", Vec::new());
    up.id = Some("x".into());
    let reply = one.submit(vec![up], "").await.expect("accepted");
    assert_eq!(names(&reply), ["2/x"]);
    let down = job("down", "", vec![Dependency::Job("2/x".into())]);
    let reply = one.submit(vec![down], "").await.expect("accepted");
    assert_eq!(reply.jobs[0].shard, "1");
    two.run("7").await;
    assert_eq!(one.run("8").await.inputs, ["7"]);
}

#[tokio::test]
async fn a_repeat_under_one_key_is_answered_with_the_first_ids() {
    let (one, two) = two().await;
    let first = one.submit(walk(), "k").await.expect("accepted");
    let again = two.submit(walk(), "k").await.expect("accepted");
    assert_eq!((first.repeat, again.repeat), (false, true));
    assert_eq!((names(&first), &first.graph), (names(&again), &again.graph));
    assert_eq!((one.job_count().await, two.job_count().await), (2, 1));
}

#[tokio::test]
async fn what_is_wrong_over_shards_is_refused_whole() {
    let (one, two) = two().await;
    let circle = vec![
        job("a", "1", vec![Dependency::Member(1)]),
        job("b", "2", vec![Dependency::Member(0)]),
    ];
    let unidentified = vec![job("a", "2", Vec::new()), job("b", "9", Vec::new())];
    let nobody = vec![job("a", "1", vec![Dependency::Job("2/nobody".into())])];
    let mut elsewhere = job("a", "2", Vec::new());
    elsewhere.id = Some("1/x".into());
    for (jobs, code, words) in [
        (circle, "cycle", "in a cycle"),
        (unidentified, "unknown_shard", "jobs[1].shard"),
        (nobody, "dependency_not_found", "2/nobody"),
        (vec![elsewhere], "invalid_value", "jobs[0].id"),
    ] {
        let status = one.submit(jobs, "").await.expect_err("refused");
        let told = status.metadata().get("ganger-code").expect("a code");
        assert_eq!(told, code, "{status}");
        assert!(status.message().contains(words), "{status}");
    }
    assert_eq!((one.job_count().await, two.job_count().await), (0, 0));
}
