//! Graphs: members, edges, states and names.

use ganger_types::{
    Change, FailurePolicy, Graph, InputRow, InputState, JobId, JobKey, JobRecord, JobRef, JobState,
    Namespace, Outcome, ShardId,
};

use super::StoreFixture;
use super::sample::{ended, job, lease};
use super::script::{Script, finish, put};
use crate::graph::{Dependency, GraphEdge, GraphPage, GraphQuery, MemberState};
use crate::reader::Reader;

fn member(key: u64, graph: &'static str) -> JobRecord {
    JobRecord {
        graph: Some(Graph::from_static(graph)),
        ..job(key)
    }
}

fn edge(job: u64, slot: u32, state: InputState) -> Change {
    Change::PutInput(InputRow {
        job: JobKey(job),
        slot,
        state,
    })
}

fn missing(dependency: u64) -> InputState {
    InputState::Missing {
        dependency: JobKey(dependency),
        id: job(dependency).id,
        policy: FailurePolicy::Wait,
    }
}

fn elsewhere() -> JobRef {
    JobRef {
        shard: ShardId::new("2").expect("a shard"),
        id: JobId::new("there").expect("an id"),
    }
}

/// Jobs 1 to 4 are a graph: 1 has succeeded, 2 runs, 3 waits for both and for 200 other inputs, 4 waits for a job of
/// another shard. Job 5 is in another graph, job 6 in none, job 7 in another namespace.
fn fill<G: StoreFixture>(script: &mut Script<'_, G>) {
    let mut changes = vec![
        finish(&ended(member(1, "g"), Outcome::Succeeded, 1, 5)),
        put(&member(2, "g")),
        Change::PutLease(Box::new(lease(2, "w"))),
        put(&JobRecord {
            state: JobState::Blocked,
            ..member(3, "g")
        }),
        put(&member(4, "g")),
        put(&member(5, "other")),
        put(&job(6)),
        put(&JobRecord {
            namespace: Namespace::from_static("away"),
            ..member(7, "g")
        }),
    ];
    changes.push(edge(3, 0, InputState::Value(b"1"[..].into())));
    changes.extend((1..=200).map(|slot| edge(3, slot, missing(1 + u64::from(slot % 2)))));
    changes.push(edge(
        4,
        0,
        InputState::Remote {
            dependency: elsewhere(),
            policy: FailurePolicy::Fail,
            is_member: true,
        },
    ));
    changes.push(edge(4, 1, InputState::Ignored { id: elsewhere().id }));
    script.put(changes);
}

fn whole<R: Reader>(reader: &mut R, limit: usize) -> GraphPage {
    let mut query = GraphQuery {
        namespace: Namespace::default(),
        graph: Graph::from_static("g"),
        after: None,
        limit,
    };
    let mut all = GraphPage::default();
    loop {
        let page = reader.graph_page(&query).expect("reads");
        assert!(page.rows() <= limit.max(64) + 64, "{} rows", page.rows());
        all.members.extend(page.members);
        all.edges.extend(page.edges);
        query.after = page.next;
        if query.after.is_none() {
            return all;
        }
    }
}

/// Pages of every size together have every member and every edge once.
pub fn a_graph_is_read_in_pages_with_all_its_edges<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    fill(&mut script);
    let mut reader = script.reader();
    let all = whole(&mut reader, 10_000);
    let members: Vec<_> = all.members.iter().map(|it| (it.key.0, it.state)).collect();
    let expected = [
        (1, JobState::Succeeded),
        (2, JobState::Running),
        (3, JobState::Blocked),
        (4, JobState::Ready),
    ];
    assert_eq!(members, expected);
    assert_eq!(all.edges.len(), 202);
    let last: Vec<&GraphEdge> = all.edges.iter().filter(|it| it.to == JobKey(4)).collect();
    assert_eq!(last[0].from, Dependency::Elsewhere(elsewhere()));
    assert_eq!(last[1].from, Dependency::Ignored(elsewhere().id));
    assert_eq!(last[1].policy, FailurePolicy::Ignore);
    let of_one = all
        .edges
        .iter()
        .filter(|it| it.from == Dependency::Here(JobKey(1)));
    assert_eq!(of_one.count(), 100);
    for limit in [1, 2, 50, 101] {
        assert_eq!(whole(&mut reader, limit), all, "{limit}");
    }
    let (namespace, graph) = (Namespace::default(), Graph::from_static("g"));
    let mut states: Vec<MemberState> = Vec::new();
    loop {
        let after = states.last().map(|it| it.key);
        let more = reader.graph_states(&namespace, &graph, after, 3);
        let more = more.expect("reads");
        if more.is_empty() {
            break;
        }
        states.extend(more);
    }
    let ends: Vec<_> = states.iter().map(|it| it.ended_at).collect();
    let expected_ends: Vec<_> = all.members.iter().map(|it| it.ended_at).collect();
    assert_eq!(ends, expected_ends);
    assert!(ends[0].is_some() && ends[1].is_none());
    let states: Vec<_> = states.iter().map(|it| (it.key.0, it.state)).collect();
    assert_eq!(states, expected);
}

/// Each graph of a namespace once, with its first job.
pub fn graphs_are_named_from_the_last_to_the_first<G: StoreFixture>(fixture: &mut G) {
    let mut script = Script::start(fixture);
    fill(&mut script);
    let mut reader = script.reader();
    let mut names = |before: Option<&str>, limit| {
        let before = before.map(|name| Graph::new(name).expect("a name"));
        let found = reader.graphs(&Namespace::default(), before.as_ref(), limit);
        let found = found.expect("reads").into_iter();
        found
            .map(|it| (it.graph.to_text().into_owned(), it.first.0))
            .collect::<Vec<_>>()
    };
    let (g, other) = (("g".to_owned(), 1), ("other".to_owned(), 5));
    assert_eq!(names(None, 10), [other.clone(), g.clone()]);
    assert_eq!(names(None, 1), [other]);
    assert_eq!(names(Some("other"), 10), [g]);
    assert_eq!(names(Some("g"), 10), []);
}
