//! Waiting for jobs that were submitted together, with bars for people.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use ganger_client::{Accepted, Client, GraphProgress, JobFilter, JobState};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tokio::time::{Instant, timeout_at};

use crate::exit::Failure;
use crate::show::escape;

/// A wait without an end given takes at most so long; nobody waits longer.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 86_400);

/// After so long without news the members are counted again: a wait must not hang on one lost event.
const RECOUNT_AFTER: Duration = Duration::from_secs(15);

/// Lines of running jobs shown below the bar.
const RUNNING_LINES_MAX: usize = 6;

/// How a wait ended.
pub(crate) enum Ended {
    /// All jobs have ended; their states in the order of the submission.
    All(Vec<JobState>),
    /// The time was up before.
    TimeIsUp,
}

/// Waits until all jobs of a submission have ended.
pub(crate) async fn wait(
    client: &Client,
    accepted: &Accepted,
    timeout: Option<Duration>,
    bars: Option<Bars>,
) -> Result<Ended, Failure> {
    let until = Instant::now() + timeout.unwrap_or(FOR_EVER);
    match &accepted.graph {
        Some(graph) => wait_for_graph(client, accepted, graph, until, bars).await,
        None => wait_for_each(client, accepted, until).await,
    }
}

async fn wait_for_graph(
    client: &Client,
    accepted: &Accepted,
    graph: &str,
    until: Instant,
    mut bars: Option<Bars>,
) -> Result<Ended, Failure> {
    let mut watch = client.watch_graph(graph).await?;
    loop {
        let look_again_at = Instant::now() + RECOUNT_AFTER;
        match timeout_at(until.min(look_again_at), watch.next()).await {
            Err(_) if Instant::now() >= until => return Ok(Ended::TimeIsUp),
            Err(_) => watch = client.watch_graph(graph).await?,
            Ok(None) => break,
            Ok(Some(progress)) => {
                let progress = progress?;
                if let Some(bars) = &mut bars {
                    bars.show(&progress);
                }
            }
        }
    }
    if let Some(bars) = bars {
        bars.finish();
    }
    let bad = unsuccessful(client, graph).await?;
    let state = |id: &String| bad.get(id).copied().unwrap_or(JobState::Succeeded);
    Ok(Ended::All(
        accepted.jobs.iter().map(|job| state(&job.id)).collect(),
    ))
}

/// The members that did not succeed.
async fn unsuccessful(client: &Client, graph: &str) -> Result<HashMap<String, JobState>, Failure> {
    let mut bad = HashMap::new();
    for state in [JobState::Failed, JobState::Cancelled] {
        let mut filter = JobFilter {
            graph: Some(graph.to_owned()),
            state: Some(state),
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
) -> Result<Ended, Failure> {
    let mut states = Vec::with_capacity(accepted.jobs.len());
    for job in &accepted.jobs {
        let rest = until.saturating_duration_since(Instant::now());
        let job = client.wait(&job.id, rest).await?;
        if !job.state.is_terminal() {
            return Ok(Ended::TimeIsUp);
        }
        states.push(job.state);
    }
    Ok(Ended::All(states))
}

/// A bar for all jobs, and a line for each of some that run.
pub(crate) struct Bars {
    all: MultiProgress,
    whole: ProgressBar,
    running: BTreeMap<String, ProgressBar>,
    /// How the document calls each job.
    names: HashMap<String, String>,
}

impl Bars {
    pub(crate) fn new(accepted: &Accepted, called: &[Option<String>]) -> Self {
        let all = MultiProgress::new();
        let whole = all.add(ProgressBar::new(
            u64::try_from(accepted.jobs.len()).unwrap_or(0),
        ));
        let style =
            ProgressStyle::with_template("{wide_bar:.green/dim} {pos}/{len} {msg} {elapsed}");
        whole.set_style(style.expect("the template is valid"));
        whole.enable_steady_tick(Duration::from_millis(250));
        let names = accepted.jobs.iter().zip(called);
        let names = names.filter_map(|(job, name)| Some((job.id.clone(), name.clone()?)));
        Self {
            all,
            whole,
            running: BTreeMap::new(),
            names: names.collect(),
        }
    }

    fn show(&mut self, progress: &GraphProgress) {
        self.whole.set_length(progress.total);
        self.whole.set_position(progress.ended());
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
