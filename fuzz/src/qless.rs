//! Calls of the qless script with any arguments, and recognition of the script's text.
//!
//! The first byte chooses: the rest is a text to recognise, or calls of a generation of the script, one per line, with
//! words separated by spaces. A refused call must change nothing and publish nothing, JSON answers must be valid, indexes
//! must agree with the rows, and the reported changes must add up to the same rows.

use std::collections::BTreeMap;

use bytes::Bytes;
use ganger_qless::{Qless, recognise};
use ganger_types::Elapsed;
use ganger_types::qless::{Generation, QlessKey, QlessReply, QlessRequest, QlessRow};

/// Number of changes after which the rest of an input is skipped: a single call can create thousands of jobs.
const CHANGES_MAX: usize = 4_000;

/// Commands whose text answers are JSON.
const ANSWERS_WITH_JSON: [&[u8]; 12] = [
    b"get",
    b"multiget",
    b"pop",
    b"peek",
    b"failed",
    b"tag",
    b"track",
    b"queues",
    b"stats",
    b"workers",
    b"recur.get",
    b"throttle.get",
];

/// Recognises the text after the first byte, or makes the calls.
///
/// # Panics
/// If a call violates one of these rules.
pub fn run(data: &[u8]) {
    let Some((choice, text)) = data.split_first() else {
        return;
    };
    let generations: &[Generation] = match choice % 5 {
        0 => {
            recognise(text);
            return;
        }
        1 => &[Generation::One],
        2 => &[Generation::Two],
        3 => &[Generation::Three],
        _ => &[Generation::Two, Generation::Three, Generation::One],
    };
    let mut model = Model::default();
    for (line, generation) in text
        .split(|byte| *byte == b'\n')
        .zip(generations.iter().cycle())
    {
        if model.changes > CHANGES_MAX {
            break;
        }
        model.call(*generation, line);
    }
    model.check_final_state();
}

/// The state under test, and its rows as a store would have them.
#[derive(Default)]
struct Model {
    state: Qless,
    stored: BTreeMap<QlessKey, QlessRow>,
    changes: usize,
}

impl Model {
    fn call(&mut self, generation: Generation, line: &[u8]) {
        let words: Vec<Bytes> = line
            .split(|byte| *byte == b' ')
            .map(Bytes::copy_from_slice)
            .collect();
        let command = words[0].clone();
        let mut messages = Vec::new();
        let request = QlessRequest::Script { generation, words };
        let answer = self.state.call(Elapsed::default(), request, &mut messages);
        let changed = self.state.take_changed();
        match answer {
            Ok(QlessReply::Text(text)) if ANSWERS_WITH_JSON.contains(&&command[..]) => {
                assert_json(&text);
            }
            Ok(_) => {}
            Err(refusal) => {
                assert!(!refusal.0.is_empty(), "a refusal without a reason");
                assert!(messages.is_empty(), "a refused call published {messages:?}");
                assert!(changed.is_empty(), "a refused call changed {changed:?}");
            }
        }
        for message in messages {
            if message.payload.starts_with(b"{") && message.channel == "ql:log" {
                assert_json(&message.payload);
            }
        }
        self.changes += changed.len();
        for (key, row) in changed {
            match row {
                Some(row) => self.stored.insert(key, row),
                None => self.stored.remove(&key),
            };
        }
    }

    fn check_final_state(&self) {
        let rows = self.state.rows();
        assert!(
            self.stored.values().eq(&rows),
            "the changes do not add up to the rows"
        );
        let mut again = Qless::default();
        for row in rows {
            again.load(row);
        }
        let mut wrong = Vec::new();
        self.state.check(&mut wrong);
        again.check(&mut wrong);
        assert!(wrong.is_empty(), "{wrong:#?}");
    }
}

/// Checks that a text is JSON. Invalid UTF-8 and deep nesting are allowed.
fn assert_json(text: &[u8]) {
    let text = String::from_utf8_lossy(text);
    if let Err(error) = serde_json::from_str::<serde_json::Value>(&text) {
        let reason = error.to_string();
        assert!(reason.starts_with("recursion limit"), "{reason}: {text}");
    }
}

/// Returns calls of each command, and fragments of the scripts.
pub fn seeds() -> Vec<Vec<u8>> {
    let calls: [&str; 9] = [
        "put 1.5 w q j k {\"a\":[]} 0 priority 1 tags [\"t\",2] retries 1 depends []\npop 2.5 q w 1\n\
         heartbeat 3 j w {}\nget 3 j\nmultiget 3 j x j\npop 70 q w2 5\npop 81 q w2 5\ncomplete 90 j w2 q {}\nlength 90 q",
        "put 0 w q a k {} 0\nput 0 w q b k {} 9 depends [\"a\"]\nput 0 w q c k {} 5\npop 1 q w 9\n\
         complete 2 a w q [] next p delay 5 depends [\"b\",\"c\"]\ndepends 2 a off b\ndepends 2 a on c\ncancel 3 a b c",
        "put 0 w q j k {} 0\ntrack 0 track j\npop 1 q w 1\nfail 2 j w g m {}\nfailed 2\nfailed 2 g 0 25\nunfail 3 q g 1\n\
         pop 4 q w 1\nretry 5 j q w 1 g m\nrequeue 6 w p j k [] 0\nstats 6 q 6\ntrack 6",
        "recur 0.5 q r k {} interval 60.5 10.25 backlog 2 tags [1] priority 1 retries 2\npop 300.75 q w 1\npeek 400 q 3\n\
         recur.get 1 r\nrecur.update 1 r interval 5 queue p data []\nrecur.tag 1 r a\nrecur.untag 1 r a\nunrecur 1 r",
        "config.set 0 grace-period 0\nconfig.set 0 q-heartbeat -5\nconfig.set 0 q-max-concurrency 1\nconfig.get 0\n\
         config.set 0 max-job-history 2\nconfig.set 0 jobs-history-count 1\nput 0 w q j k 1 0\npop 1 q w 1\npop 2 q w 1\n\
         log 3 j what {\"a\":[[]]}\ntimeout 3 j\npriority 3 j 1e3\nconfig.unset 3 heartbeat\nworkers 3\nworkers 3 w",
        "put 0 w q j k {} 0\ntag 0 add j a b\ntag 0 add j a\ntag 0 remove j c\ntag 0 get a 0 0\ntag 0 top 0 -1\n\
         jobs 0 complete\njobs 0 running q\njobs 0 stalled q\njobs 0 scheduled q\njobs 0 depends q\njobs 0 recurring q",
        "pause 0 q\nunpause 0 q\nqueue.forget 0 q\nqueues 0\nqueues 0 q\nworker.deregister 0 w\nnothing 0\nput x\n",
        "throttle.set 0 t 1\nput 0 w q a k {} 0 throttles [\"t\"]\nput 0 w q b k {} 0 throttles [\"t\"]\npop 1 q w 5\n\
         jobs 1 throttled q\nthrottle.locks 1 t\nthrottle.pending 1 t\nthrottle.release 1 t a\nthrottle.delete 1 t",
        "queue.throttle.set 0 q 1\nqueue.throttle.get 0 q\nthrottle.get 0 t\nthrottle.ttl 0 t\nput q j k {} 0\n\
         recur 0 q r k {} interval 1 0 throttles [\"t\"]\npeek 9 q 1 5\npop 9 q w 5\ncomplete 10 r-1 w q {}",
    ];
    let with_each = calls
        .iter()
        .flat_map(|calls| (1..5).map(|choice| [&[choice], calls.as_bytes()].concat()));
    let scripts: [&[u8]; 3] = [
        b"\0-- x\nlocal ns = 'ql:' cjson QlessAPI.put = function(now, queue, jid)",
        b"\0'ql:' cjson --[==[ ]==] QlessAPI['throttle.set'] = QlessAPI.put",
        b"\0\"'ql:'\" cjson [[ x ]] ReqlessAPI[\"queue.put\"] = function(now, me, queue)",
    ];
    with_each
        .chain(scripts.iter().map(|it| it.to_vec()))
        .collect()
}
