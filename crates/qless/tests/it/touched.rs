//! Which jobs a call has touched, with their positions before; and results, which only ganger's own workers report.

use crate::harness::Database;
use bytes::Bytes;
use ganger_qless::Touched;
use ganger_types::qless::{Generation, QlessReply, QlessRequest};

fn database() -> Database {
    Database::new(Generation::Three)
}

fn shown(touched: Touched<'_>) -> String {
    let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
    let before = touched.before.map_or("new".to_owned(), |before| {
        let mut words = vec![before.state.as_str().to_owned(), text(&before.queue)];
        words.extend((!before.worker.is_empty()).then(|| text(&before.worker)));
        words.push(before.handed_out.to_string());
        words.join(" ")
    });
    let now = match (touched.is_gone, touched.has_failed) {
        (true, _) => " gone",
        (_, true) => " failed",
        _ => "",
    };
    format!(
        "{}: {before} > {}{now}",
        text(&touched.job.jid),
        touched.job.state.as_str()
    )
}

/// Makes a call and returns a line for each job that it touched.
fn touched_by(it: &mut Database, line: &str) -> Vec<String> {
    it.qless.take_touched(|_| {});
    it.call(line);
    let mut lines = Vec::new();
    it.qless.take_touched(|touched| lines.push(shown(touched)));
    lines
}

#[test]
fn a_call_touches_a_job_once_and_reports_its_earlier_position() {
    let mut it = database();
    let touched = touched_by(&mut it, "put 1 w q a k {} 0");
    assert_eq!(touched, ["a: new > waiting"]);
    let touched = touched_by(&mut it, r#"put 1 w q b k {} 0 depends ["a"]"#);
    assert_eq!(
        touched,
        ["b: new > depends", "a: waiting q 0 > waiting"],
        "a has a dependent now"
    );
    let touched = touched_by(&mut it, "pop 2 q w 1");
    assert_eq!(touched, ["a: waiting q 0 > running"]);
    let touched = touched_by(&mut it, "complete 3 a w q {}");
    let expected = ["a: running q w 1 > complete", "b: depends q 0 > waiting"];
    assert_eq!(touched, expected);
    assert!(touched_by(&mut it, "get 4 a").is_empty());
}

#[test]
fn a_touched_job_shows_whether_the_call_recorded_a_failure() {
    let mut it = database();
    it.call("put 1 w q a k {} 0");
    it.call("pop 2 q w 1");
    let touched = touched_by(&mut it, "retry 3 a q w 0 group message");
    assert_eq!(touched, ["a: running q w 1 > waiting failed"]);
    it.call("pop 4 q w 1");
    let touched = touched_by(&mut it, "retry 5 a q w");
    assert_eq!(touched, ["a: running q w 2 > waiting"], "nothing was said");
    it.call("pop 6 q w 1");
    let touched = touched_by(&mut it, "fail 7 a w group message");
    assert_eq!(touched, ["a: running q w 3 > failed failed"]);
}

#[test]
fn a_removed_job_is_reported_in_its_last_state() {
    let mut it = database();
    it.call("config.set 0 jobs-history-count 1");
    it.call("put 1 w q a k {} 0");
    it.call("put 1 w q b k {} 0");
    it.call("pop 2 q w 2");
    it.call("complete 3 a w q {}");
    let touched = touched_by(&mut it, "complete 4 b w q {}");
    let expected = [
        "b: running q w 1 > complete",
        "a: complete  1 > complete gone",
    ];
    assert_eq!(touched, expected);
    it.call("put 5 w q c k {} 0");
    let touched = touched_by(&mut it, "cancel 6 c");
    assert_eq!(touched, ["c: waiting q 0 > waiting gone"]);
    it.call("config.set 7 jobs-history-count 0");
    it.call("put 7 w q d k {} 0");
    it.call("pop 8 q w 1");
    let touched = touched_by(&mut it, "complete 9 d w q {}");
    let expected = [
        "d: running q w 1 > complete gone",
        "b: complete  1 > complete gone",
    ];
    assert_eq!(touched, expected);
}

#[test]
fn jobs_that_are_forgotten_all_at_once_or_loaded_are_not_touched() {
    let mut it = database();
    it.call("put 1 w q a k {} 0");
    let rows = it.qless.rows();
    let clear = QlessRequest::Clear;
    let answer = it.qless.call(it.at, clear, &mut Vec::new());
    assert_eq!(answer, Ok(QlessReply::Nil));
    for row in rows {
        it.qless.load(row);
    }
    let mut count = 0;
    it.qless.take_touched(|_| count += 1);
    assert_eq!(count, 0);
    let touched = touched_by(&mut it, "pop 2 q w 1");
    assert_eq!(touched, ["a: waiting q 0 > running"]);
}

fn result(it: &Database) -> Option<Bytes> {
    it.qless
        .job_by_id(b"a")
        .expect("it is there")
        .result
        .clone()
}

#[test]
fn a_result_stays_with_a_complete_job_until_that_is_put_again_and_no_client_sees_it() {
    let mut it = database();
    let given = Some(Bytes::from_static(b"\xff result"));
    it.call("put 1 w q a k {} 0");
    it.qless.keep_result(&"a".into(), given.clone());
    assert_eq!(result(&it), None, "it is not complete");
    it.call("pop 2 q w 1");
    it.call("complete 3 a w q {}");
    let before = it.json("get 4 a");
    it.qless.keep_result(&"a".into(), given.clone());
    assert_eq!(it.json("get 4 a"), before);
    it.call("tag 5 add a x");
    it.call("priority 5 a 3");
    assert_eq!(result(&it), given);
    it.call("requeue 6 w q a k {} 0");
    assert_eq!(result(&it), None);
    it.qless.keep_result(&"nobody".into(), given);
}

#[test]
fn the_child_of_a_recurring_job_that_takes_the_place_of_a_complete_one_has_no_result() {
    let mut it = database();
    for round in [0, 100] {
        it.call(&format!("recur {round} q a k {{}} interval 10 0"));
        it.call(&format!("pop {round} q w 1"));
        if round == 0 {
            it.call("complete 1 a-1 w q {}");
            it.qless.keep_result(&"a-1".into(), Some("result".into()));
            it.call("unrecur 2 a");
        }
    }
    let child = it.qless.job_by_id(b"a-1").expect("it is there");
    assert_eq!((child.handed_out, &child.result), (2, &None));
}
