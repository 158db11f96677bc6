//! The screens, and what each needs from the server.

/// A screen, with the thing that it is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Screen {
    /// All queues of the namespace.
    #[default]
    Queues,
    /// Jobs that match: of a queue, a failure group, a graph or a worker, or the newest of all.
    Jobs(Which),
    /// Failure groups with their jobs.
    Failures,
    /// Workers and what they hold.
    Workers,
    /// Graphs with their progress.
    Graphs,
    /// Events as they happen.
    Events,
    /// Shards and the messages between them.
    Shards,
    /// One job, as `shard/id`.
    Job(String),
}

/// Which jobs a list has. All conditions hold together; `None` is any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Which {
    /// Name of the queue.
    pub queue: Option<String>,
    /// Name of the failure group.
    pub group: Option<String>,
    /// Name of the graph.
    pub graph: Option<String>,
    /// Name of the worker that holds the jobs.
    pub worker: Option<String>,
}

impl Screen {
    /// Returns the screen behind a digit key; `None` if there is none. Jobs are of `queue`, if one is open.
    pub fn of_digit(digit: char, queue: Option<String>) -> Option<Self> {
        Some(match digit {
            '1' => Self::Queues,
            '2' => Self::Jobs(Which {
                queue,
                ..Which::default()
            }),
            '3' => Self::Failures,
            '4' => Self::Workers,
            '5' => Self::Graphs,
            '6' => Self::Events,
            '7' => Self::Shards,
            _ => return None,
        })
    }

    /// Returns the words of the breadcrumb.
    pub fn title(&self) -> String {
        match self {
            Self::Queues => "QUEUES".to_owned(),
            Self::Jobs(which) => which.title(),
            Self::Failures => "FAILURES".to_owned(),
            Self::Workers => "WORKERS".to_owned(),
            Self::Graphs => "GRAPHS".to_owned(),
            Self::Events => "EVENTS".to_owned(),
            Self::Shards => "SHARDS".to_owned(),
            Self::Job(job) => format!("JOB {job}"),
        }
    }

    /// Returns the columns by which the list can be sorted, the usual one first; empty if it has one order only.
    pub fn sorts(&self) -> &'static [&'static str] {
        match self {
            Self::Queues => &["ready", "oldest", "failed", "running", "done", "name"],
            Self::Failures => &["jobs", "group"],
            Self::Workers => &["last sign", "holds", "name"],
            Self::Graphs => &["newest", "jobs", "failed"],
            _ => &[],
        }
    }
}

impl Which {
    fn title(&self) -> String {
        let of = [
            ("queue", &self.queue),
            ("group", &self.group),
            ("graph", &self.graph),
            ("worker", &self.worker),
        ];
        let mut of = of
            .into_iter()
            .filter_map(|(word, name)| Some((word, name.as_ref()?)));
        of.next().map_or_else(
            || "JOBS".to_owned(),
            |(word, name)| format!("JOBS of {word} {name}"),
        )
    }
}
