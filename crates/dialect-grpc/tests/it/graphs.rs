//! The service `Graphs`, over one shard and over two.

use ganger_proto::v1::graphs_client::GraphsClient;
use ganger_proto::v1::{self, edge::Dependency, input::Input};
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::shards::{self, ServiceContext};
use crate::support::Server;

/// The calls of the service.
struct Graphs(GraphsClient<Channel>);

impl Graphs {
    fn over(channel: &Channel) -> Self {
        Self(GraphsClient::new(channel.clone()))
    }

    async fn list(&mut self, after: &str, limit: u32) -> Result<v1::ListGraphsReply, Status> {
        let request = v1::ListGraphsRequest {
            after: after.to_owned(),
            limit,
            ..v1::ListGraphsRequest::default()
        };
        Ok(self.0.list(request).await?.into_inner())
    }

    async fn show(&mut self, graph: &str) -> Result<v1::GraphSummary, Status> {
        let request = v1::ShowGraphRequest {
            graph: graph.to_owned(),
            ..v1::ShowGraphRequest::default()
        };
        Ok(self.0.show(request).await?.into_inner())
    }

    async fn layout(&mut self, request: v1::GraphLayoutRequest) -> Result<v1::GraphLayout, Status> {
        Ok(self.0.layout(request).await?.into_inner())
    }
}

/// One job, `width` jobs that take its result, and one that takes theirs.
fn diamond(width: u32) -> Vec<v1::NewJob> {
    let job = |kind: &str, of: &[u32]| v1::NewJob {
        kind: kind.to_owned(),
        name: format!("{kind} {}", of.len()),
        inputs: of
            .iter()
            .map(|member| v1::Input {
                input: Some(Input::Result(v1::Edge {
                    dependency: Some(Dependency::Member(*member)),
                    policy: 0,
                })),
            })
            .collect(),
        ..v1::NewJob::default()
    };
    let mut jobs = vec![job("split", &[])];
    jobs.extend((0..width).map(|_| v1::NewJob {
        name: String::new(),
        ..job("resize", &[0])
    }));
    let middle: Vec<u32> = (1..=width).collect();
    jobs.push(job("join", &middle));
    jobs
}

async fn submit(server: &Server, jobs: Vec<v1::NewJob>) -> String {
    let request = v1::EnqueueRequest {
        jobs,
        graph: true,
        ..v1::EnqueueRequest::default()
    };
    let reply = server.jobs().enqueue(request).await.expect("accepted");
    reply.into_inner().graph
}

/// A change of a request that makes it wrong.
type Change = fn(&mut v1::GraphLayoutRequest);

#[tokio::test]
async fn graphs_are_listed_page_by_page_newest_first() {
    let server = Server::start().await;
    let mut graphs = Graphs::over(&server.channel);
    assert!(graphs.list("", 0).await.expect("listed").graphs.is_empty());
    let first = submit(&server, diamond(1)).await;
    let second = submit(&server, diamond(2)).await;
    let page = graphs.list("", 1).await.expect("listed");
    let names = |page: &v1::ListGraphsReply| -> Vec<String> {
        page.graphs.iter().map(|item| item.graph.clone()).collect()
    };
    assert_eq!(names(&page), [second]);
    let item = &page.graphs[0];
    let counts = item.counts.as_ref().expect("counted");
    assert_eq!((counts.ready, counts.blocked, item.jobs), (1, 3, 4));
    assert!(item.submitted_at_us > 0);
    assert_eq!(item.shards, ["1"]);
    let last = graphs.list(&page.next, 1).await.expect("listed");
    assert_eq!((names(&last), &*last.next), (vec![first], ""));
    assert!(last.complete);
    for refused in [graphs.list("x", 1).await, graphs.list("", 1_001).await] {
        assert_eq!(refused.expect_err("refused").code(), Code::InvalidArgument);
    }
}

#[tokio::test]
async fn a_graph_shows_its_critical_path_and_what_holds_it_up() {
    let server = Server::start().await;
    let mut graphs = Graphs::over(&server.channel);
    let name = submit(&server, diamond(3)).await;
    let shown = graphs.show(&name).await.expect("shown");
    assert_eq!((shown.jobs, shown.levels, shown.edges), (5, 3, 6));
    assert_eq!(shown.state(), v1::JobState::Running);
    let path = shown.critical_path.iter();
    let kinds: Vec<&str> = path.map(|job| job.kind.as_str()).collect();
    assert_eq!(shown.critical_length, 3);
    assert_eq!(kinds, ["split", "resize", "join"]);
    let held = &shown.holding_up[0];
    let job = held.job.as_ref().expect("a job");
    assert_eq!((&*job.kind, held.behind, held.exact), ("split", 4, true));
    let missing = graphs.show("none").await.expect_err("there is none");
    assert_eq!(missing.code(), Code::NotFound, "{missing}");
    let unnamed = graphs.show("").await.expect_err("no name");
    assert!(unnamed.message().contains("graph"), "{unnamed}");
}

#[tokio::test]
async fn a_drawing_is_bounded_and_its_boxes_open() {
    let server = Server::start().await;
    let mut graphs = Graphs::over(&server.channel);
    let name = submit(&server, diamond(200)).await;
    let request = v1::GraphLayoutRequest {
        graph: name,
        ..v1::GraphLayoutRequest::default()
    };
    let drawn = graphs.layout(request.clone()).await.expect("drawn");
    assert!(drawn.collapsed);
    assert_eq!(
        (drawn.levels, drawn.boxes.len(), drawn.lines.len()),
        (3, 3, 2)
    );
    let jobs: u64 = drawn.boxes.iter().map(|one| one.jobs).sum();
    assert_eq!(jobs, 202, "each job is in one box");
    let group = drawn.boxes.iter().find(|one| one.jobs == 200);
    let group = group.expect("the jobs of the middle are one box");
    assert_eq!(group.kind.as_deref(), Some("resize"));
    assert!(
        drawn
            .lines
            .iter()
            .all(|line| line.carries_data && line.jobs == 200)
    );
    let opened = v1::GraphLayoutRequest {
        open: vec![group.id.clone()],
        ..request.clone()
    };
    let opened = graphs.layout(opened).await.expect("drawn");
    assert!(opened.boxes.len() > 50, "{} boxes", opened.boxes.len());
    let refused: [(Change, &str); 4] = [
        (|request| request.max = 151, "max"),
        (|request| request.max = 9, "max"),
        (|request| request.depth = 6, "depth"),
        (|request| request.open = vec![String::new(); 21], "open"),
    ];
    for (change, field) in refused {
        let mut request = request.clone();
        change(&mut request);
        let refused = graphs.layout(request).await.expect_err("out of range");
        assert!(refused.message().starts_with(field), "{refused}");
    }
}

#[tokio::test]
async fn a_graph_over_two_shards_is_one_graph_for_both_servers() {
    let (one, two) = shards::two().await;
    let name = one
        .submit(shards::walk(), "")
        .await
        .expect("accepted")
        .graph;
    let graphs = |context: &ServiceContext| Graphs::over(&context.0);
    let (mut one, mut two) = (graphs(&one), graphs(&two));
    for graphs in [&mut one, &mut two] {
        let page = graphs.list("", 0).await.expect("listed");
        assert_eq!((page.graphs.len(), page.unreachable.len()), (1, 0));
        let item = &page.graphs[0];
        assert_eq!((&item.graph, item.jobs), (&name, 3));
        assert_eq!(item.shards, ["1", "2"]);
        let shown = graphs.show(&name).await.expect("shown");
        assert_eq!((shown.jobs, shown.edges, shown.levels), (3, 2, 2));
        assert_eq!((shown.complete, shown.shards.len()), (true, 2));
        let request = v1::GraphLayoutRequest {
            graph: name.clone(),
            ..v1::GraphLayoutRequest::default()
        };
        let drawn = graphs.layout(request).await.expect("drawn");
        let mut jobs: Vec<&str> = drawn
            .boxes
            .iter()
            .filter_map(|one| one.job.as_deref())
            .collect();
        jobs.sort_unstable();
        assert_eq!((jobs.len(), drawn.lines.len()), (3, 2));
        let places: Vec<&str> = jobs.iter().map(|job| &job[..2]).collect();
        assert_eq!(places, ["1/", "1/", "2/"]);
    }
}
