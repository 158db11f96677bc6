//! Fixed data, and frames as text.

use std::time::{Duration, SystemTime};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ganger_client::{
    AttentionItem, Event, Explanation, GraphItem, Gravity, Happening, HeldJob, HistoryEntry, Job,
    JobMoved, JobState, QueueCounts, QueuePace, QueueSettings, QueueView, Reason, ServerInfo,
    StateCounts, Worker,
};
use ganger_top::data::{
    EventRow, FailureRow, JobDetail, QueueRow, Rates, Rights, Shard, Snapshot, Update, WorkerRow,
};
use ganger_top::keys::{Request, press};
use ganger_top::{Screen, State, Theme};
use ganger_types::{JobId, JobKey, JobRecord, Kind, Namespace, Queue, ShardId, StoredJob};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

/// The present of all frames.
pub(crate) fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000)
}

pub(crate) fn ago(seconds: u64) -> SystemTime {
    now() - Duration::from_secs(seconds)
}

pub(crate) const COLORED: Theme = Theme {
    has_color: true,
    is_ascii: false,
};
pub(crate) const PLAIN: Theme = Theme {
    has_color: false,
    is_ascii: true,
};

/// A state with the data of a busy server.
pub(crate) fn state(theme: Theme, screen: Screen) -> State {
    let mut state = State::new(theme, screen);
    state.update(Update::Data(Box::new(snapshot())));
    state.now = now();
    "12:31:05".clone_into(&mut state.clock);
    state
}

/// Presses keys: characters as they are, `\n` for Enter and `\u{1b}` for Escape. Returns what the last one asks for.
pub(crate) fn keys(state: &mut State, keys: &str) -> Request {
    let mut last = Request::Draw;
    for key in keys.chars() {
        let code = match key {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            key => KeyCode::Char(key),
        };
        last = press(state, KeyEvent::new(code, KeyModifiers::NONE));
    }
    last
}

/// A frame as lines of text, and below them the styles that differ from the usual one.
pub(crate) fn frame(state: &State, columns: u16, lines: u16) -> String {
    let mut terminal =
        Terminal::new(TestBackend::new(columns, lines)).expect("a terminal in memory");
    let mut state = state.clone();
    state.size = (columns, lines);
    terminal
        .draw(|frame| ganger_top::draw::draw(&state, frame))
        .expect("memory takes everything");
    terminal.backend().to_string()
}

fn queue(name: &str, counts: QueueCounts, oldest: Option<u64>) -> QueueView {
    QueueView {
        queue: name.to_owned(),
        counts,
        oldest_ready_for: oldest.map(Duration::from_secs),
        schedules: 0,
        created_at: ago(86_400),
        enqueued_total: 5_000,
        finished_total: 4_000,
        settings: QueueSettings::default(),
        pace: QueuePace::default(),
        version: None,
        askers: None,
        effective: None,
        shard: None,
    }
}

fn row(view: QueueView, done: u64, p95: Option<f64>, ended: [u64; 10]) -> QueueRow {
    QueueRow {
        shard: "1".to_owned(),
        has_no_worker: view.queue == "mail",
        rates: Some(Rates {
            succeeded_per_minute: done,
            ended_by_minute: ended.to_vec(),
            run_p95_seconds: p95,
            ..Rates::default()
        }),
        view,
    }
}

pub(crate) fn job(id: &str, state: JobState) -> Job {
    let record = JobRecord {
        state,
        attempt: 1,
        ..JobRecord::new(
            JobKey(7),
            JobId::new(id).expect("short"),
            Namespace::default(),
            Queue::from_static("mail"),
            Kind::from_static("resize"),
        )
    };
    let shard = ShardId::new("1").expect("a shard");
    Job {
        created_at: ago(724),
        ..Job::new(&shard, StoredJob::new(record, None))
    }
}

fn queues() -> Vec<QueueRow> {
    let counts = |ready, running, failed| QueueCounts {
        ready,
        running,
        failed,
        ..QueueCounts::default()
    };
    let mail = queue("mail", counts(1_204, 0, 3), Some(724));
    let mut images = queue("img", counts(40, 8, 212), Some(3));
    images.settings.running_max = Some(8);
    images.counts.scheduled = 12;
    let mut billing = queue("billing", counts(9, 0, 0), Some(7_260));
    billing.settings.paused = true;
    billing.counts.blocked = 1;
    let long = "a-queue-with-a-very-long-name-\u{202e}that-nobody-can-read-at-once";
    let long = queue(long, counts(0, 0, 0), None);
    vec![
        row(mail, 0, None, [1, 1, 1, 1, 2, 1, 1, 0, 0, 0]),
        row(images, 310, Some(1.2), [3, 4, 6, 8, 7, 6, 7, 8, 6, 5]),
        row(billing, 0, None, [0; 10]),
        row(long, 0, Some(0.31), [0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
    ]
}

fn item(code: &str, gravity: Gravity, text: &str, queue: &str) -> AttentionItem {
    AttentionItem {
        code: code.to_owned(),
        gravity,
        text: text.to_owned(),
        shard: Some("1".to_owned()),
        queue: Some(queue.to_owned()),
        schedule: None,
        alert: None,
        since: Some(ago(724)),
        count: Some(1_204),
    }
}

fn shard() -> Shard {
    let info = ServerInfo {
        version: "0.4.0".to_owned(),
        shard: "1".to_owned(),
        health: "ready".to_owned(),
        reason: String::new(),
        uptime: Duration::from_secs(266_400),
        draining: false,
        live_jobs: 1_270,
        shards: vec!["1".to_owned()],
    };
    Shard {
        shard: "1".to_owned(),
        health: "ready".to_owned(),
        live_jobs: Some(1_270),
        info: Some(info),
        peers: Vec::new(),
    }
}

fn detail() -> JobDetail {
    let mut job = job("3kq9f2", JobState::Ready);
    let mut attempt = HistoryEntry::new(ago(600), "attempt");
    attempt.attempt = Some(1);
    attempt.worker = Some("w-3".to_owned());
    attempt.leased_at = Some(ago(604));
    attempt.end = Some("failed".into());
    attempt.message = Some("exit code 1: no such file".to_owned());
    job.history = vec![HistoryEntry::new(ago(724), "enqueued"), attempt];
    let reason = |code: &'static str, text: &str| Reason {
        code: code.into(),
        text: text.to_owned(),
        ..Reason::default()
    };
    JobDetail {
        why: Explanation {
            job: job.r#ref.clone(),
            state: job.state,
            queue: job.queue.clone(),
            reasons: vec![
                reason(
                    "no_worker",
                    "no worker has asked for jobs of the queue mail for 12 min",
                ),
                reason("behind", "1203 jobs of the queue run before it"),
            ],
        },
        job,
        log: (1..=30)
            .map(|line| format!("line {line}\u{1b}[2J"))
            .collect(),
        has_more_log: false,
    }
}

fn event(job: &str, to: JobState) -> EventRow {
    EventRow::One(Box::new(Event {
        position: 7,
        at: now(),
        namespace: "default".to_owned(),
        happening: Happening::JobMoved(JobMoved {
            job: job.to_owned(),
            number: 7,
            queue: "mail".to_owned(),
            kind: "resize".to_owned(),
            from: Some(JobState::Ready),
            to,
            attempt: 1,
            worker: Some("w-3".to_owned()),
            reason: String::new(),
        }),
    }))
}

/// What a busy server answers.
pub(crate) fn snapshot() -> Snapshot {
    let held = HeldJob {
        job: "3kq9f1".to_owned(),
        queue: "img".to_owned(),
        kind: "resize".to_owned(),
        leased_at: ago(12),
    };
    let worker = |name: &str, holds| WorkerRow {
        shard: "1".to_owned(),
        worker: Worker {
            worker: name.to_owned(),
            seen_at: ago(2),
            holds,
            state: "busy".to_owned(),
            address: None,
            version: None,
            queues: Vec::new(),
            slots: None,
            free_slots: None,
            since: None,
            completed: 0,
            completed_per_minute: 0.0,
            failed: 0,
            lost: 0,
            shard: None,
        },
    };
    let group = |group: &str, jobs| FailureRow {
        group: group.to_owned(),
        jobs,
    };
    Snapshot {
        namespace: "default".to_owned(),
        shards: vec![shard()],
        attention: vec![
            item(
                "no_worker",
                Gravity::Error,
                "Queue mail: 1,204 ready, no worker has asked for 12 min",
                "mail",
            ),
            item(
                "failing",
                Gravity::Warning,
                "Queue img: 18 % of attempts failed in the last 5 min (212)",
                "img",
            ),
        ],
        total: Rates {
            enqueued_per_minute: 48_720,
            succeeded_per_minute: 47_400,
            failed_per_minute: 24,
            ..Rates::default()
        },
        queues: queues(),
        rights: Rights {
            cancel: true,
            operate: true,
        },
        jobs: vec![
            job("3kq9f2", JobState::Ready),
            job(
                "\u{65e5}\u{672c}\u{8a9e}\u{306e}\u{540d}\u{524d}",
                JobState::Failed,
            ),
            job("3kq9f0", JobState::Running),
        ],
        has_more_jobs: false,
        failures: vec![group("exit-1", 212), group("timeout", 3)],
        workers: vec![worker("w-1", Vec::new()), worker("w-3", vec![held])],
        graphs: vec![GraphItem {
            graph: "g-81".to_owned(),
            state: Some(JobState::Running),
            jobs: 9,
            counts: Some(StateCounts {
                blocked: 2,
                ready: 1,
                running: 1,
                succeeded: 4,
                failed: 1,
                ..StateCounts::default()
            }),
            submitted_at: ago(60),
            ended_at: None,
            shards: vec!["1".to_owned()],
        }],
        has_more_graphs: false,
        job: Some(Box::new(detail())),
        events: vec![
            event("1/a", JobState::Running),
            event("1/b", JobState::Running),
        ],
    }
}
