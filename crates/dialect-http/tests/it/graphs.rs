//! Graphs as a whole: the list, how far one is, and its drawing.

use http::Method;
use serde_json::{Value, json};

use crate::shards::two;
use crate::support::{Face, face};

/// A job, `width` jobs that wait for it, and one that waits for all of these.
fn diamond(width: usize) -> Value {
    let mut jobs = vec![json!({"name": "first", "kind": "split"})];
    let names: Vec<String> = (0..width).map(|at| format!("part-{at}")).collect();
    jobs.extend(
        names.iter().map(
            |name| json!({"name": name, "kind": "resize", "inputs": [{"result_of": "first"}]}),
        ),
    );
    jobs.push(json!({"name": "last", "kind": "join", "after": names}));
    json!({ "jobs": jobs })
}

async fn submit(face: &Face, graph: Value) -> String {
    let done = face.post("/api/v1/graphs", graph).await;
    done["graph"].as_str().expect("a graph").to_owned()
}

/// Runs the next job; with `false`, fails it for good.
async fn run(face: &Face, succeeds: bool) {
    let lease = face.lease().await;
    let job = json!({"job": lease["id"], "token": lease["token"]});
    let (path, more) = if succeeds {
        ("/api/v1/leases/complete", json!({"result": 1}))
    } else {
        (
            "/api/v1/leases/fail",
            json!({"message": "no", "permanent": true}),
        )
    };
    let mut body = job;
    body.as_object_mut()
        .expect("an object")
        .extend(more.as_object().expect("an object").clone());
    face.post(path, body).await;
}

#[tokio::test]
async fn a_graph_tells_how_far_it_is_and_what_holds_it_up() {
    let face = face();
    let name = submit(&face, diamond(3)).await;
    run(&face, true).await;
    let shown = face.get(&format!("/api/v1/graphs/{name}")).await;
    assert_eq!(shown["state"], "running");
    assert_eq!(shown["jobs"], 5);
    assert_eq!(shown["counts"]["succeeded"], 1);
    assert_eq!(shown["counts"]["ready"], 3);
    assert_eq!(shown["counts"]["blocked"], 1);
    assert_eq!((&shown["levels"], &shown["edges"]), (&json!(3), &json!(6)));
    assert_eq!(shown["critical_path"]["length"], 2);
    assert_eq!(shown["critical_path"]["jobs"][1]["name"], "last");
    let holding = shown["holding_up"].as_array().expect("a list");
    assert_eq!(holding.len(), 3);
    assert_eq!(holding[0]["kind"], "resize");
    assert_eq!(holding[0]["behind"], 1);
    assert!(shown["submitted_at"].is_string() && shown.get("ended_at").is_none());

    for _ in 0..4 {
        run(&face, true).await;
    }
    let shown = face.get(&format!("/api/v1/graphs/{name}")).await;
    assert_eq!(shown["state"], "succeeded");
    assert_eq!(shown["critical_path"]["length"], 0);
    assert!(shown["ended_at"].is_string(), "{shown}");
}

#[tokio::test]
async fn graphs_are_listed_from_the_newest_page_by_page() {
    let face = face();
    assert_eq!(face.get("/api/v1/graphs").await["graphs"], json!([]));
    let mut names = Vec::new();
    for _ in 0..3 {
        names.push(submit(&face, diamond(1)).await);
    }
    face.enqueue(json!({"kind": "alone"})).await;
    run(&face, false).await;
    let mut seen = Vec::new();
    let mut path = "/api/v1/graphs?limit=2".to_owned();
    loop {
        let page = face.get(&path).await;
        assert_eq!(
            (&page["complete"], &page["unreachable"]),
            (&json!(true), &json!([]))
        );
        seen.extend(page["graphs"].as_array().expect("a list").clone());
        let Some(next) = page["next"].as_str() else {
            break;
        };
        path = format!("/api/v1/graphs?limit=2&after={next}");
    }
    let found: Vec<_> = seen
        .iter()
        .map(|item| item["graph"].as_str().expect("a name"))
        .collect();
    names.reverse();
    assert_eq!(found, names);
    // The first job failed, and with it those that wait for it.
    assert_eq!(
        (&seen[2]["state"], &seen[2]["counts"]["failed"]),
        (&json!("failed"), &json!(3))
    );
    assert_eq!(
        (&seen[0]["state"], &seen[0]["jobs"]),
        (&json!("running"), &json!(3))
    );
    let refused = face.text(Method::GET, "/api/v1/graphs?after=no", "").await;
    assert_eq!(refused.status, 400, "{refused:?}");
}

#[tokio::test]
async fn a_drawing_collapses_opens_and_focuses() {
    let face = face();
    let name = submit(&face, diamond(400)).await;
    let path = format!("/api/v1/graphs/{name}/layout");
    let drawn = face.get(&path).await;
    assert_eq!(
        (&drawn["collapsed"], &drawn["levels"]),
        (&json!(true), &json!(3))
    );
    let boxes = drawn["boxes"].as_array().expect("boxes");
    let jobs: Vec<_> = boxes
        .iter()
        .map(|it| it["jobs"].as_u64().expect("a number"))
        .collect();
    assert_eq!(jobs, [1, 400, 1]);
    assert_eq!(boxes[1]["counts"]["blocked"], 400);
    assert_eq!(
        (&boxes[1]["job"], &boxes[1]["x"]),
        (&Value::Null, &json!(1))
    );
    let lines = drawn["lines"].as_array().expect("lines");
    assert_eq!(lines[0]["carries_data"], true);
    assert_eq!(
        (&lines[1]["carries_data"], &lines[1]["jobs"]),
        (&json!(false), &json!(400))
    );

    let id = boxes[1]["id"].as_str().expect("an id");
    let opened = face.get(&format!("{path}?open={id}")).await;
    assert_eq!(opened["boxes"].as_array().map(Vec::len), Some(53));

    let job = boxes[2]["job"].as_str().expect("a job");
    let near = face
        .get(&format!("{path}?focus={job}&depth=1&max=20"))
        .await;
    let boxes = near["boxes"].as_array().expect("boxes");
    assert!(boxes.len() <= 20, "{}", boxes.len());
    let jobs = boxes
        .iter()
        .map(|it| it["jobs"].as_u64().expect("a number"));
    assert_eq!(jobs.sum::<u64>(), 401);

    for (query, status) in [
        ("max=9", 400),
        ("max=151", 400),
        ("depth=6", 400),
        ("focus=1/none", 404),
        ("open=a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r,s,t,u", 400),
    ] {
        let refused = face.text(Method::GET, &format!("{path}?{query}"), "").await;
        assert_eq!(refused.status, status, "{query}: {refused:?}");
    }
    let missing = face
        .text(Method::GET, "/api/v1/graphs/none/layout", "")
        .await;
    assert_eq!(missing.json()["code"], "graph_not_found");
}

#[tokio::test]
async fn a_graph_of_two_shards_is_shown_whole_by_either() {
    let (one, two) = two();
    let graph = json!({"jobs": [
        {"name": "a", "kind": "k", "shard": "1"},
        {"name": "b", "kind": "k", "shard": "2", "inputs": [{"result_of": "a"}]},
        {"name": "c", "kind": "k", "shard": "1", "inputs": [{"result_of": "b"}]},
    ]});
    // The name of a graph over several shards has a slash in it.
    let name = submit(&one, graph).await.replace('/', "%2F");
    for face in [&one, &two] {
        let shown = face.get(&format!("/api/v1/graphs/{name}")).await;
        assert_eq!(
            (&shown["jobs"], &shown["levels"]),
            (&json!(3), &json!(3)),
            "{shown}"
        );
        assert_eq!(shown["shards"], json!(["1", "2"]));
        assert_eq!(shown["critical_path"]["length"], 3);
        let listed = face.get("/api/v1/graphs").await;
        assert_eq!(listed["graphs"][0]["counts"]["blocked"], 2, "{listed}");
        assert_eq!(listed["graphs"].as_array().map(Vec::len), Some(1));
    }
}

#[tokio::test]
async fn a_job_with_more_dependencies_than_are_shown_is_named() {
    let face = face();
    let name = submit(&face, diamond(1_001)).await;
    let drawn = face.get(&format!("/api/v1/graphs/{name}/layout")).await;
    let last = drawn["boxes"][2]["job"].as_str().expect("a job");
    let id = last.strip_prefix("1/").expect("of shard 1");
    let mut path = format!("/api/v1/jobs/{id}/graph?limit=1000");
    let mut cut = Vec::new();
    loop {
        let page = face.get(&path).await;
        cut.extend(page["edges_cut"].as_array().into_iter().flatten().cloned());
        let Some(next) = page["next"].as_str() else {
            break;
        };
        path = format!("/api/v1/jobs/{id}/graph?limit=1000&after={next}");
    }
    assert_eq!(cut, [json!(last)]);
    let summary = face.get(&format!("/api/v1/graphs/{name}")).await;
    assert_eq!(summary["edges"], 2_002);
}
