//! The reading side of a store: records, listings and logs, from committed state only.

use ganger_types::command::{ExpiredJob, ExpiredJobsQuery};
use ganger_types::query::JobQuery;
use ganger_types::{
    Bytes, Day, Graph, InputRow, JobId, JobKey, LabelKey, Namespace, Part, Queue, StatisticsRecord,
    StoredJob, Timestamp,
};

use crate::error::StoreError;
use crate::graph::{GraphEdge, GraphEntry, GraphPage, GraphPosition, GraphQuery, MemberState};

/// A page of a listing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The jobs of the page, in order.
    pub jobs: Vec<StoredJob>,
    /// Value of `after` for the next page; `None`: there is none.
    pub next: Option<JobKey>,
    /// How far the records were looked at.
    pub looked: Looked,
}

/// How far a listing or a count has looked at records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// Number of records that were looked at.
    pub records: u64,
    /// Time at which the last of them was enqueued; `None` if there was none, and in counts.
    pub back_to: Option<Timestamp>,
    /// Whether the budget of the query ended it before the page was full or all was looked at.
    pub is_cut: bool,
}

/// A count of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of jobs that were found.
    pub jobs: u64,
    /// How far the records were looked at; if it was cut, there may be more jobs.
    pub looked: Looked,
}

/// A page of jobs in the order of their ends.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndedPage {
    /// The jobs of the page, the latest end first.
    pub jobs: Vec<StoredJob>,
    /// Value of `after` for the next page: the number of an end; `None`: there is none.
    pub next: Option<u64>,
    /// How far the records were looked at.
    pub looked: Looked,
}

/// A property of jobs whose values the secondary index has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexedValue {
    /// Keys of the labels of jobs.
    LabelKey,
    /// Values of the label with this key.
    Label(LabelKey),
    /// Graphs that jobs belong to.
    Graph,
}

/// Which values of the secondary index are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueQuery {
    /// Bytes that the values begin with.
    pub prefix: Vec<u8>,
    /// Value after which the page begins; `None`: from the first.
    pub after: Option<Vec<u8>>,
    /// Maximum number of values.
    pub limit: usize,
    /// Maximum number of jobs of each value that are counted; 0: none are, which is quicker.
    pub count_max: u64,
}

/// Values of the secondary index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValuePage {
    /// The values of the page, in order.
    pub values: Vec<ValueCount>,
    /// Whether there are more values.
    pub has_more: bool,
}

/// A value of the secondary index, and its jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueCount {
    /// Bytes of the value.
    pub value: Vec<u8>,
    /// Number of jobs with the value, up to the limit of the query.
    pub jobs: u64,
    /// Number of those that have not ended.
    pub live: u64,
    /// Whether the value has more jobs than were counted.
    pub has_more: bool,
}

/// A chunk of an attempt's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogChunk {
    /// Attempt that wrote the log.
    pub attempt: u32,
    /// Position of the chunk in the log of this attempt.
    pub offset: u64,
    /// Time at which the chunk was written.
    pub at: Timestamp,
    /// Content of the chunk.
    pub bytes: Bytes,
}

impl LogChunk {
    /// The offset behind the chunk.
    #[must_use]
    pub fn end(&self) -> u64 {
        let length = u64::try_from(self.bytes.len()).unwrap_or(u64::MAX);
        self.offset.saturating_add(length)
    }

    /// The part of the chunk after a position in the log, given as an attempt and an offset; `None` if nothing is
    /// left.
    #[must_use]
    pub fn after(mut self, (attempt, offset): (u32, u64)) -> Option<Self> {
        if self.attempt != attempt {
            return (self.attempt > attempt).then_some(self);
        }
        let known = usize::try_from(offset.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        if known >= self.bytes.len() {
            return None;
        }
        self.bytes = self.bytes.slice(known..);
        self.offset = self.offset.max(offset);
        Some(self)
    }
}

/// The reading side of a store. Each call is a short transaction and sees committed state only. Every record's
/// checksum is verified before it is used (`rel D8`).
pub trait Reader: Send + 'static {
    /// The job with this number, live or finished.
    ///
    /// # Errors
    /// If the store is damaged or cannot be read.
    fn job(&mut self, key: JobKey) -> Result<Option<StoredJob>, StoreError>;

    /// The live or finished job with this id.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn find(&mut self, namespace: &Namespace, id: &JobId) -> Result<Option<StoredJob>, StoreError>;

    /// A page of jobs, by number. It ends early, with the last record that was looked at as `next`, once the budget of
    /// the query is used up.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn list(&mut self, query: &JobQuery) -> Result<Page, StoreError>;

    /// The number of jobs that a query matches, on all pages. Live and finished jobs are counted one after the other,
    /// so a job that ends meanwhile may be counted twice or not at all.
    ///
    /// Payloads are never read. Finished jobs are counted from an index if the query only has a namespace, a queue,
    /// states, and one of tag, label, graph, schedule and group; so are all jobs if it only has one of these five.
    /// Otherwise, and for live jobs, the records that [`Reader::list`] would read are counted.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn count(&mut self, query: &JobQuery) -> Result<Count, StoreError>;

    /// A page of the jobs that ended, the latest end first, after the end with the number `after`. Not in the budget:
    /// one look for each queue and outcome that the query may match.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn list_by_end(
        &mut self,
        query: &JobQuery,
        after: Option<u64>,
    ) -> Result<EndedPage, StoreError>;

    /// Values of the secondary index that begin with `prefix`, in order of length and then of bytes, each with its
    /// number of jobs.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn values(
        &mut self,
        namespace: &Namespace,
        of: &IndexedValue,
        query: &ValueQuery,
    ) -> Result<ValuePage, StoreError>;

    /// The payload of a job; `None` if the job does not exist.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn payload(&mut self, key: JobKey) -> Result<Option<Bytes>, StoreError>;

    /// The payloads of several jobs, in the order of `keys`: for each what [`Reader::payload`] would return. A store
    /// that reads many rows more cheaply than one by one overrides this.
    fn payloads(&mut self, keys: &[JobKey]) -> Vec<Result<Option<Bytes>, StoreError>> {
        keys.iter().map(|key| self.payload(*key)).collect()
    }

    /// At most `limit` inputs and dependencies of a job, in order of their slots, from the slot `from` on.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn inputs(&mut self, key: JobKey, from: u32, limit: usize)
    -> Result<Vec<InputRow>, StoreError>;

    /// At most `limit` jobs of this shard that have this one as an input or dependency, in order of their numbers.
    /// Edges that ignored a failure no longer name their dependency.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn dependents(&mut self, key: JobKey, limit: usize) -> Result<Vec<JobKey>, StoreError>;

    /// The result of a finished job; `None` if it has none.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn result(&mut self, key: JobKey) -> Result<Option<Bytes>, StoreError>;

    /// The log of a job in order of attempt and offset, at most about `bytes` bytes. `after` is the attempt and
    /// offset to start at: (0, 0) is the beginning, and the end of the last chunk continues after it.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn log(
        &mut self,
        key: JobKey,
        after: (u32, u64),
        bytes: usize,
    ) -> Result<Vec<LogChunk>, StoreError>;

    /// The length of the log of an attempt in bytes; 0 without one.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn log_bytes(&mut self, key: JobKey, attempt: u32) -> Result<u64, StoreError>;

    /// At most `limit` finished jobs whose retention may have passed, oldest first. Jobs with a retention of their
    /// own count towards `excess`, but are not returned for it.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn expired_jobs(
        &mut self,
        query: &ExpiredJobsQuery,
        limit: usize,
    ) -> Result<Vec<ExpiredJob>, StoreError>;

    /// The statistics of a queue and day; `None` if none are stored.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn statistics(
        &mut self,
        namespace: &Namespace,
        queue: &Queue,
        day: Day,
    ) -> Result<Option<StatisticsRecord>, StoreError>;

    /// The undecided part of a submission, with its jobs and the present record.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn part(&mut self, namespace: &Namespace, graph: &Graph) -> Result<Option<Part>, StoreError>;

    /// A page of the members of a graph with the edges that lead to them.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn graph_page(&mut self, query: &GraphQuery) -> Result<GraphPage, StoreError> {
        read_graph(self, query)
    }

    /// At most `limit` members of a graph after a job, in the order of their numbers, with their states.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn graph_states(
        &mut self,
        namespace: &Namespace,
        graph: &Graph,
        after: Option<JobKey>,
        limit: usize,
    ) -> Result<Vec<MemberState>, StoreError> {
        let page = self.list(&JobQuery {
            namespace: namespace.clone(),
            graph: Some(graph.clone()),
            after,
            limit,
            ..JobQuery::default()
        })?;
        Ok(page.jobs.iter().map(MemberState::from).collect())
    }

    /// At most `limit` graphs that have jobs, those before a graph, the one with the last name first. Shorter names
    /// come before longer ones, so graphs whose names the engine made are in the order of their submission.
    ///
    /// # Errors
    /// See [`Reader::job`].
    fn graphs(
        &mut self,
        namespace: &Namespace,
        before: Option<&Graph>,
        limit: usize,
    ) -> Result<Vec<GraphEntry>, StoreError>;
}

/// Rows of inputs that are read at a time: they may hold values, which are large.
const INPUTS_PAGE: usize = 64;

/// Reads a page of a graph with a reader's listings, for stores without a quicker way.
fn read_graph<R: Reader + ?Sized>(
    reader: &mut R,
    query: &GraphQuery,
) -> Result<GraphPage, StoreError> {
    let mut page = GraphPage::default();
    if let Some(GraphPosition {
        job,
        slot: Some(slot),
    }) = query.after
        && !read_edges(reader, (job, slot), query.limit, &mut page)?
    {
        return Ok(page);
    }
    let jobs = reader.list(&JobQuery {
        namespace: query.namespace.clone(),
        graph: Some(query.graph.clone()),
        after: query.after.map(|position| position.job),
        limit: query.limit.max(1),
        ..JobQuery::default()
    })?;
    let mut last = None;
    for job in jobs.jobs {
        if page.rows() >= query.limit && !page.members.is_empty() {
            page.next = last;
            return Ok(page);
        }
        let key = job.record.key;
        page.members.push(job.into());
        if !read_edges(reader, (key, 0), query.limit, &mut page)? {
            return Ok(page);
        }
        last = Some(GraphPosition {
            job: key,
            slot: None,
        });
    }
    page.next = jobs.next.and(last);
    Ok(page)
}

/// Adds the edges of a job from a slot on. Returns whether these were all; otherwise the page is full.
fn read_edges<R: Reader + ?Sized>(
    reader: &mut R,
    (job, mut slot): (JobKey, u32),
    limit: usize,
    page: &mut GraphPage,
) -> Result<bool, StoreError> {
    let mut looked_at = 0;
    loop {
        let rows = reader.inputs(job, slot, INPUTS_PAGE)?;
        let is_last = rows.len() < INPUTS_PAGE;
        looked_at += rows.len();
        let after = rows.last().and_then(|row| row.slot.checked_add(1));
        page.edges
            .extend(rows.into_iter().filter_map(GraphEdge::of));
        let Some(next) = after.filter(|_| !is_last) else {
            return Ok(true);
        };
        slot = next;
        // Rows of values are no edges, but reading them takes time too.
        if page.rows().max(looked_at) >= limit {
            let slot = Some(slot);
            page.next = Some(GraphPosition { job, slot });
            return Ok(false);
        }
    }
}
