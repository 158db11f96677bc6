//! The state of the screen: what the server answered, and what the person has chosen.

use std::time::{Duration, SystemTime};

use ganger_client::GraphItem;

use crate::action::Action;
use crate::data::{FailureRow, QueueRow, Snapshot, Update, WorkerRow};
use crate::screen::Screen;
use crate::theme::Theme;

/// Shortest and longest time between two questions to the server.
pub const EVERY_MIN: Duration = Duration::from_millis(500);
/// Longest time between two questions to the server.
pub const EVERY_MAX: Duration = Duration::from_secs(30);
/// Time without an answer from which the first line says so.
const SILENT_AFTER: Duration = Duration::from_secs(3);
/// Characters of a filter or an answer.
const TYPED_MAX: usize = 200;

/// A question on the last line, and the action that it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Text of the question.
    pub text: String,
    /// What must be typed before Enter; `None` for a yes or no.
    pub number: Option<u64>,
    /// What was typed so far.
    pub typed: String,
    pub(crate) action: Action,
}

/// Everything that a frame shows.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own on the screen"
)]
pub struct State {
    /// How the screen looks.
    pub theme: Theme,
    /// What the server answered last.
    pub data: Snapshot,
    /// Whether the server has answered at all.
    pub has_data: bool,
    /// The present, as the person's clock shows it.
    pub now: SystemTime,
    /// The same as text, `12:31:05`.
    pub clock: String,
    /// Time since the last answer.
    pub silent_for: Duration,
    /// Error of the last question; `None` after an answer.
    pub error: Option<String>,
    /// The screens that were opened, the visible one last; never empty.
    pub screens: Vec<Screen>,
    /// Name of the row under the cursor; `None`: the first row.
    pub cursor: Option<String>,
    /// Whether the row under the cursor is marked.
    pub has_cursor: bool,
    /// First visible line of a screen without rows.
    pub scroll: usize,
    /// Text that the names of rows must contain; empty: all rows.
    pub filter: String,
    /// The filter while it is typed; `None` if it is not.
    pub typing: Option<String>,
    /// Number of the column by which the list is sorted.
    pub sort: usize,
    /// Whether the order is turned.
    pub is_turned: bool,
    /// Whether the screen keeps what it shows.
    pub is_frozen: bool,
    /// Whether the end of the log is followed.
    pub follows: bool,
    /// Whether all columns are shown, even if others are cut for them.
    pub is_wide: bool,
    /// Whether the help is shown.
    pub shows_help: bool,
    /// Whether nothing can be changed, whatever the rights are.
    pub is_read_only: bool,
    /// Time between two questions to the server.
    pub every: Duration,
    /// The question on the last line; `None` if there is none.
    pub question: Option<Question>,
    /// What was done, or why not; shown until the next key.
    pub notice: Option<String>,
    /// Ids to print on leaving.
    pub kept: Vec<String>,
    /// Size of the screen: columns and lines.
    pub size: (u16, u16),
    /// Newest answer while the screen is frozen.
    held: Option<Box<Snapshot>>,
}

impl State {
    /// Creates the state of a new screen.
    pub fn new(theme: Theme, screen: Screen) -> Self {
        Self {
            theme,
            data: Snapshot::default(),
            has_data: false,
            now: SystemTime::UNIX_EPOCH,
            clock: String::new(),
            silent_for: Duration::ZERO,
            error: None,
            screens: vec![screen],
            cursor: None,
            has_cursor: true,
            scroll: 0,
            filter: String::new(),
            typing: None,
            sort: 0,
            is_turned: false,
            is_frozen: false,
            follows: false,
            is_wide: false,
            shows_help: false,
            is_read_only: false,
            every: Duration::from_secs(1),
            question: None,
            notice: None,
            kept: Vec::new(),
            size: (80, 24),
            held: None,
        }
    }

    /// Returns the visible screen.
    pub fn screen(&self) -> &Screen {
        self.screens.last().unwrap_or(&Screen::Queues)
    }

    /// Returns the queue that is open, if one is: jobs are then of this queue.
    pub fn open_queue(&self) -> Option<String> {
        self.screens.iter().rev().find_map(|screen| match screen {
            Screen::Jobs(which) => which.queue.clone(),
            _ => None,
        })
    }

    /// Takes over what the feed reports.
    pub fn update(&mut self, update: Update) {
        match update {
            Update::Data(data) => {
                self.error = None;
                self.silent_for = Duration::ZERO;
                if self.is_frozen {
                    self.held = Some(data);
                } else {
                    self.data = *data;
                    self.has_data = true;
                }
            }
            Update::Missed(reason) => self.error = Some(reason),
            Update::Said(text) => self.notice = Some(text),
        }
    }

    /// Freezes the screen, or shows the newest answer again.
    pub fn freeze(&mut self, is_frozen: bool) {
        self.is_frozen = is_frozen;
        if let Some(held) = self.held.take().filter(|_| !is_frozen) {
            self.data = *held;
            self.has_data = true;
        }
    }

    /// Returns since when the server has not answered, if it is long enough to say so.
    pub fn silence(&self) -> Option<Duration> {
        (self.silent_for >= SILENT_AFTER.max(self.every * 2)).then_some(self.silent_for)
    }

    /// Whether the caller may cancel jobs, here and now.
    pub fn may_cancel(&self) -> bool {
        !self.is_read_only && self.data.rights.cancel
    }

    /// Whether the caller may retry and delete jobs and pause queues, here and now.
    pub fn may_operate(&self) -> bool {
        !self.is_read_only && self.data.rights.operate
    }

    /// Opens a screen on top of the others.
    pub(crate) fn open(&mut self, screen: Screen) {
        self.screens.push(screen);
        self.start_at_top();
    }

    /// Replaces all screens by one.
    pub(crate) fn switch(&mut self, screen: Screen) {
        self.screens = vec![screen];
        self.start_at_top();
    }

    /// Goes back one step: out of the filter, or to the screen before.
    pub(crate) fn back(&mut self) {
        if !self.filter.is_empty() {
            self.filter.clear();
        } else if self.screens.len() > 1 {
            self.screens.pop();
            self.start_at_top();
        }
    }

    fn start_at_top(&mut self) {
        self.cursor = None;
        self.scroll = 0;
        self.filter.clear();
        self.sort = 0;
        self.is_turned = false;
        self.follows = false;
        self.freeze(false);
    }

    /// Names of the rows of the visible screen, in their order; empty for screens without rows.
    pub fn rows(&self) -> Vec<String> {
        match self.screen() {
            Screen::Queues => self.queues().iter().map(|row| queue_key(row)).collect(),
            Screen::Jobs(_) => self.jobs().iter().map(|job| job.r#ref.clone()).collect(),
            Screen::Failures => self
                .failures()
                .iter()
                .map(|row| row.group.clone())
                .collect(),
            Screen::Workers => self.workers().iter().map(|row| worker_key(row)).collect(),
            Screen::Graphs => self.graphs().iter().map(|row| row.graph.clone()).collect(),
            Screen::Events | Screen::Shards | Screen::Job(_) => Vec::new(),
        }
    }

    /// Returns the place of the cursor among the rows; a row that is gone leaves the first one.
    pub fn place(&self) -> usize {
        let rows = self.rows();
        let cursor = self.cursor.as_ref();
        cursor
            .and_then(|cursor| rows.iter().position(|row| row == cursor))
            .unwrap_or(0)
    }

    /// Returns the number of the row to mark among so many; `None` if none is marked.
    pub(crate) fn mark(&self, rows: usize) -> Option<usize> {
        (rows > 0 && self.has_cursor).then(|| self.place())
    }

    /// Moves the cursor, or the text of a screen without rows.
    pub(crate) fn go(&mut self, by: isize) {
        let rows = self.rows();
        if rows.is_empty() {
            self.scroll = self.scroll.saturating_add_signed(by);
            self.follows &= by > 0;
            return;
        }
        let to = self.place().saturating_add_signed(by).min(rows.len() - 1);
        self.cursor = rows.get(to).cloned();
    }

    /// Returns the queues that match the filter, in the chosen order.
    pub fn queues(&self) -> Vec<&QueueRow> {
        let mut rows: Vec<_> = self
            .data
            .queues
            .iter()
            .filter(|row| self.matches(&row.view.queue))
            .collect();
        let done = |row: &QueueRow| {
            let rates = row.rates.as_ref();
            rates.map_or(0, |rates| {
                rates.succeeded_per_minute + rates.failed_per_minute
            })
        };
        rows.sort_by(|left, right| {
            let (one, other) = (&left.view, &right.view);
            let order = match self.sort {
                0 => other.counts.ready.cmp(&one.counts.ready),
                1 => other.oldest_ready_for.cmp(&one.oldest_ready_for),
                2 => other.counts.failed.cmp(&one.counts.failed),
                3 => other.counts.running.cmp(&one.counts.running),
                4 => done(right).cmp(&done(left)),
                _ => std::cmp::Ordering::Equal,
            };
            order.then_with(|| (&one.queue, &left.shard).cmp(&(&other.queue, &right.shard)))
        });
        self.turned(rows)
    }

    /// Returns the jobs that match the filter, in the order of the server.
    pub fn jobs(&self) -> Vec<&ganger_client::Job> {
        let matches = |job: &&ganger_client::Job| {
            self.matches(&job.r#ref) || self.matches(&job.kind) || self.matches(&job.queue)
        };
        self.data.jobs.iter().filter(matches).collect()
    }

    /// Returns the failure groups that match the filter, in the chosen order.
    pub fn failures(&self) -> Vec<&FailureRow> {
        let rows = self.data.failures.iter();
        let mut rows: Vec<_> = rows.filter(|row| self.matches(&row.group)).collect();
        rows.sort_by(|left, right| {
            let order = match self.sort {
                0 => right.jobs.cmp(&left.jobs),
                _ => std::cmp::Ordering::Equal,
            };
            order.then_with(|| left.group.cmp(&right.group))
        });
        self.turned(rows)
    }

    /// Returns the workers that match the filter, in the chosen order.
    pub fn workers(&self) -> Vec<&WorkerRow> {
        let rows = self.data.workers.iter();
        let mut rows: Vec<_> = rows
            .filter(|row| self.matches(&row.worker.worker))
            .collect();
        rows.sort_by(|left, right| {
            let (one, other) = (&left.worker, &right.worker);
            let order = match self.sort {
                0 => other.seen_at.cmp(&one.seen_at),
                1 => other.holds.len().cmp(&one.holds.len()),
                _ => std::cmp::Ordering::Equal,
            };
            order.then_with(|| one.worker.cmp(&other.worker))
        });
        self.turned(rows)
    }

    /// Returns the graphs that match the filter, in the chosen order.
    pub fn graphs(&self) -> Vec<&GraphItem> {
        let rows = self.data.graphs.iter();
        let mut rows: Vec<_> = rows.filter(|row| self.matches(&row.graph)).collect();
        match self.sort {
            1 => rows.sort_by_key(|row| std::cmp::Reverse(row.jobs)),
            2 => rows.sort_by_key(|row| {
                let failed = row.counts.as_ref().map(|counts| counts.failed);
                std::cmp::Reverse(failed)
            }),
            // The newest come first from the server.
            _ => {}
        }
        self.turned(rows)
    }

    fn turned<T>(&self, mut rows: Vec<T>) -> Vec<T> {
        if self.is_turned {
            rows.reverse();
        }
        rows
    }

    fn matches(&self, name: &str) -> bool {
        let filter = self.typing.as_ref().unwrap_or(&self.filter);
        name.to_lowercase().contains(&filter.to_lowercase())
    }

    /// The queue under the cursor of the queues' screen.
    pub(crate) fn chosen_queue(&self) -> Option<&QueueRow> {
        match self.screen() {
            Screen::Queues => self.queues().get(self.place()).copied(),
            _ => None,
        }
    }

    /// The job under the cursor, or the opened one.
    pub(crate) fn chosen_job(&self) -> Option<&ganger_client::Job> {
        match self.screen() {
            Screen::Jobs(_) => self.jobs().get(self.place()).copied(),
            Screen::Job(_) => self.data.job.as_ref().map(|detail| &detail.job),
            _ => None,
        }
    }
}

/// Adds a character to a text that is typed, up to its limit.
pub(crate) fn type_into(text: &mut String, character: char) {
    if text.chars().count() < TYPED_MAX {
        text.push(character);
    }
}

pub(crate) fn queue_key(row: &QueueRow) -> String {
    format!("{}/{}", row.shard, row.view.queue)
}

pub(crate) fn worker_key(row: &WorkerRow) -> String {
    format!("{}/{}", row.shard, row.worker.worker)
}
