//! Waits for jobs that were submitted together, with progress bars on a terminal.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use ganger_client::{Accepted, Client, Enqueued, GraphProgress, JobFilter, JobState, ShardId};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tokio::time::{Instant, timeout_at};

use crate::command::waiting::{LineWriter, Reporter, WaitTarget};
use crate::context::remark;
use crate::exit::Failure;
use crate::show::escape;

/// Longest wait if no timeout is given: in effect no limit.
const NO_TIMEOUT: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Time without events after which the members are counted again: a wait must not hang on one lost event.
const RECOUNT_AFTER: Duration = Duration::from_secs(15);

/// Time within which a shard that was away learns the decision about a submission.
const DECIDED_WITHIN: Duration = Duration::from_secs(60);
const UNDECIDED_PAUSE: Duration = Duration::from_millis(200);

/// Maximum number of running jobs shown below the bar.
const RUNNING_LINES_MAX: usize = 6;

/// How a wait ended.
pub(crate) enum WaitEnd {
    /// All jobs have ended; their states in the order of the submission.
    All(Vec<JobState>),
    /// The timeout passed before.
    TimeIsUp,
}

/// Waits until all jobs of a submission have ended.
pub(crate) async fn wait(
    client: &Client,
    accepted: &Accepted,
    timeout: Option<Duration>,
    bars: Option<Bars>,
    reporter: Reporter,
) -> Result<WaitEnd, Failure> {
    let until = Instant::now() + timeout.unwrap_or(NO_TIMEOUT);
    let reporter = match &bars {
        Some(bars) => reporter.saying(bars.say()),
        None => reporter,
    };
    let Some(graph) = &accepted.graph else {
        return wait_for_each(client, accepted, until, &reporter).await;
    };
    let awaited = WaitTarget::Graph {
        graph: graph.clone(),
        shards: accepted.jobs.iter().map(|job| job.shard.clone()).collect(),
    };
    let wait = wait_for_graph(client, accepted, graph, until, bars);
    reporter.during(&awaited, wait).await
}

/// Waits for the members on one shard after the other: all must have ended, in any order.
async fn wait_for_graph(
    client: &Client,
    accepted: &Accepted,
    graph: &str,
    until: Instant,
    mut bars: Option<Bars>,
) -> Result<WaitEnd, Failure> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for job in &accepted.jobs {
        *counts.entry(&job.shard).or_default() += 1;
    }
    let is_one = counts.len() == 1;
    let mut bad = HashMap::new();
    let mut before = 0;
    for (shard, count) in counts {
        let client = at_shard(client, shard);
        let show = |progress: &GraphProgress| {
            if let Some(bars) = &mut bars {
                bars.show(progress, before);
            }
        };
        // On a single shard the members are visible at once; jobs that existed before are not members.
        let expected = if is_one { 0 } else { count };
        if !wait_for_part(&client, graph, expected, until, show).await? {
            return Ok(WaitEnd::TimeIsUp);
        }
        for (id, state) in unsuccessful(&client, graph).await? {
            bad.insert((shard.to_owned(), id), state);
        }
        before += count;
    }
    if let Some(bars) = bars {
        bars.finish();
    }
    let state = |job: &Enqueued| {
        let found = bad.get(&(job.shard.clone(), job.id.clone()));
        found.copied().unwrap_or(JobState::Succeeded)
    };
    Ok(WaitEnd::All(accepted.jobs.iter().map(state).collect()))
}

/// Waits for the members on the client's shard; returns false if the timeout passes before.
async fn wait_for_part(
    client: &Client,
    graph: &str,
    expected: u64,
    until: Instant,
    mut show: impl FnMut(&GraphProgress),
) -> Result<bool, Failure> {
    let mut watch = client.watch_graph(graph).await?;
    let all_seen_by = Instant::now() + DECIDED_WITHIN;
    loop {
        let look_again_at = Instant::now() + RECOUNT_AFTER;
        match timeout_at(until.min(look_again_at), watch.next()).await {
            Err(_) if Instant::now() >= until => return Ok(false),
            Err(_) => watch = client.watch_graph(graph).await?,
            Ok(None) => return Ok(true),
            Ok(Some(progress)) => {
                let progress = progress?;
                // A shard that has not learned the decision shows no members yet.
                if progress.total < expected && Instant::now() < all_seen_by.min(until) {
                    tokio::time::sleep(UNDECIDED_PAUSE).await;
                    watch = client.watch_graph(graph).await?;
                } else {
                    show(&progress);
                }
            }
        }
    }
}

/// Returns a client for a shard; unchanged if the name is invalid.
fn at_shard(client: &Client, shard: &str) -> Client {
    ShardId::new(shard).map_or_else(|| client.clone(), |shard| client.at_shard(&shard))
}

/// Returns the members that did not succeed.
async fn unsuccessful(client: &Client, graph: &str) -> Result<HashMap<String, JobState>, Failure> {
    let mut bad = HashMap::new();
    for state in [JobState::Failed, JobState::Cancelled] {
        let mut filter = JobFilter {
            graph: Some(graph.to_owned()),
            states: vec![state],
            limit: 1_000,
            brief: true,
            ..JobFilter::default()
        };
        loop {
            let page = client.list(filter.clone()).await?;
            bad.extend(page.jobs.into_iter().map(|job| (job.id, state)));
            filter.cursor = page.next;
            if filter.cursor.is_none() {
                break;
            }
        }
    }
    Ok(bad)
}

async fn wait_for_each(
    client: &Client,
    accepted: &Accepted,
    until: Instant,
    reporter: &Reporter,
) -> Result<WaitEnd, Failure> {
    let mut states = Vec::with_capacity(accepted.jobs.len());
    for job in &accepted.jobs {
        let id = job.to_string();
        let rest = until.saturating_duration_since(Instant::now());
        let awaited = WaitTarget::Job(id.clone());
        let job = reporter.during(&awaited, client.wait(&id, rest)).await?;
        if !job.state.is_terminal() {
            return Ok(WaitEnd::TimeIsUp);
        }
        states.push(job.state);
    }
    Ok(WaitEnd::All(states))
}

/// A progress bar for all jobs, and lines for some running jobs.
pub(crate) struct Bars {
    all: MultiProgress,
    whole: ProgressBar,
    running: BTreeMap<String, ProgressBar>,
    /// Names of the jobs in the document.
    names: HashMap<String, String>,
}

impl Bars {
    pub(crate) fn new(accepted: &Accepted, names: &[Option<String>]) -> Self {
        let all = MultiProgress::new();
        let whole = all.add(ProgressBar::new(
            u64::try_from(accepted.jobs.len()).unwrap_or(0),
        ));
        let style =
            ProgressStyle::with_template("{wide_bar:.green/dim} {pos}/{len} {msg} {elapsed}");
        whole.set_style(style.expect("the template is valid"));
        whole.enable_steady_tick(Duration::from_millis(250));
        let names = accepted.jobs.iter().zip(names);
        // Progress names a job `shard/id`.
        let names = names.filter_map(|(job, name)| Some((job.to_string(), name.clone()?)));
        Self {
            all,
            whole,
            running: BTreeMap::new(),
            names: names.collect(),
        }
    }

    /// Prints lines above the bars.
    fn say(&self) -> LineWriter {
        let all = self.all.clone();
        Box::new(move |line| all.suspend(|| remark(line)))
    }

    /// Updates the bar with the progress on one shard, after `before` ended members on others.
    fn show(&mut self, progress: &GraphProgress, before: u64) {
        self.whole.set_position(before + progress.ended());
        let counts = &progress.counts;
        let mut parts = vec![format!("{} running", counts.running)];
        for (count, word) in [(counts.failed, "failed"), (counts.cancelled, "cancelled")] {
            if count > 0 {
                parts.push(format!("{count} {word}"));
            }
        }
        self.whole.set_message(parts.join(", "));
        if let Some((job, state)) = &progress.moved {
            self.move_job(job, *state);
        }
    }

    fn move_job(&mut self, job: &str, state: JobState) {
        if state != JobState::Running {
            if let Some(line) = self.running.remove(job) {
                line.finish_and_clear();
            }
        } else if self.running.len() < RUNNING_LINES_MAX {
            let line = self.all.add(ProgressBar::new_spinner());
            let style = ProgressStyle::with_template("  {spinner} {msg} {elapsed}");
            line.set_style(style.expect("the template is valid"));
            let name = self.names.get(job).map_or(job, String::as_str);
            line.set_message(escape::short(name, 60));
            line.enable_steady_tick(Duration::from_millis(120));
            if let Some(old) = self.running.insert(job.to_owned(), line) {
                old.finish_and_clear();
            }
        }
    }

    fn finish(self) {
        for line in self.running.into_values() {
            line.finish_and_clear();
        }
        self.whole.finish();
    }
}
