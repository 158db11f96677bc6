//! Reads of the store as data, so that they can run beside the shard.

use ganger_engine::Members;
use ganger_store::{Reader, StoreError, StoredJob};
use ganger_types::limits::BULK_JOBS_MAX;
use ganger_types::query::JobQuery;
use ganger_types::{Bytes, Graph, InputRow, JobId, JobKey, JobState, Namespace, Part};

/// Number of inputs read from the store at a time.
pub(super) const INPUTS_PAGE: usize = 1_000;

/// One read of the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowQuery {
    /// The job with this id.
    Find(Namespace, JobId),
    /// The job with this number.
    Job(JobKey),
    /// A page of the inputs of a job, from this slot on.
    Inputs(JobKey, u32),
    /// The jobs that have this one as a dependency.
    Dependents(JobKey),
    /// The members of a graph that failed or were cancelled, after this one, and at most so many.
    Members(Namespace, Graph, Option<JobKey>, usize),
    /// The undecided part of a submission.
    Part(Namespace, Graph),
    /// The payload of a job.
    Payload(JobKey),
    /// The result of a finished job.
    Result(JobKey),
}

/// The answer to a [`RowQuery`].
#[derive(Clone, Debug)]
pub enum RowAnswer {
    /// To `Find` and `Job`: the job, if there is one.
    Job(Option<Box<StoredJob>>),
    /// To `Inputs`: the page.
    Inputs(Vec<InputRow>),
    /// To `Dependents` and `Members`: the jobs, and for members the last one looked at if there may be more.
    Keys(Vec<JobKey>, Option<JobKey>),
    /// To `Part`: the part, if it is undecided.
    Part(Option<Box<Part>>),
    /// To `Payload` and `Result`: the bytes, if there are any.
    Blob(Option<Bytes>),
}

/// The reads that one request or delivery waits for.
#[derive(Clone, Debug)]
pub struct RowRead {
    /// Number of the read in this core.
    pub round: u64,
    /// The queries, each of which is answered once.
    pub queries: Vec<RowQuery>,
}

/// The answers to a [`RowRead`], in the order of its queries.
#[derive(Debug)]
pub struct RowsRead {
    /// Number of the read.
    pub round: u64,
    /// The queries with their answers.
    pub answers: Vec<(RowQuery, Result<RowAnswer, StoreError>)>,
}

impl RowRead {
    /// Runs all queries with one reader, one after the other.
    pub fn run(self, reader: &mut dyn Reader) -> RowsRead {
        let answer = |query: RowQuery| {
            let answer = query.read(reader);
            (query, answer)
        };
        RowsRead {
            round: self.round,
            answers: self.queries.into_iter().map(answer).collect(),
        }
    }

    /// Answers every query with the same error.
    pub fn fail(self, error: &StoreError) -> RowsRead {
        let queries = self.queries.into_iter();
        RowsRead {
            round: self.round,
            answers: queries.map(|query| (query, Err(error.clone()))).collect(),
        }
    }
}

impl RowQuery {
    fn read(&self, reader: &mut dyn Reader) -> Result<RowAnswer, StoreError> {
        Ok(match self {
            Self::Find(namespace, id) => RowAnswer::Job(reader.find(namespace, id)?.map(Box::new)),
            Self::Job(key) => RowAnswer::Job(reader.job(*key)?.map(Box::new)),
            Self::Inputs(key, from) => {
                RowAnswer::Inputs(reader.inputs(*key, *from, INPUTS_PAGE)?)
            }
            // With one more than a command may change, the engine refuses the command.
            Self::Dependents(key) => {
                RowAnswer::Keys(reader.dependents(*key, BULK_JOBS_MAX + 1)?, None)
            }
            Self::Members(namespace, graph, after, limit) => {
                let page = reader.list(&JobQuery {
                    namespace: namespace.clone(),
                    graph: Some(graph.clone()),
                    states: [JobState::Failed, JobState::Cancelled]
                        .into_iter()
                        .collect(),
                    after: *after,
                    limit: *limit,
                    ..JobQuery::default()
                })?;
                let keys = page.jobs.into_iter().map(|job| job.record.key);
                RowAnswer::Keys(keys.collect(), page.next)
            }
            Self::Part(namespace, graph) => {
                RowAnswer::Part(reader.part(namespace, graph)?.map(Box::new))
            }
            Self::Payload(key) => RowAnswer::Blob(reader.payload(*key)?),
            Self::Result(key) => RowAnswer::Blob(reader.result(*key)?),
        })
    }

    /// The answer if there is nothing.
    fn nothing(&self) -> RowAnswer {
        match self {
            Self::Find(..) | Self::Job(_) => RowAnswer::Job(None),
            Self::Inputs(..) => RowAnswer::Inputs(Vec::new()),
            Self::Dependents(_) | Self::Members(..) => RowAnswer::Keys(Vec::new(), None),
            Self::Part(..) => RowAnswer::Part(None),
            Self::Payload(_) | Self::Result(_) => RowAnswer::Blob(None),
        }
    }
}

/// Rows that were read beside the shard for one request or delivery.
#[derive(Debug, Default)]
pub(super) struct RowsBeside {
    answers: std::collections::BTreeMap<RowQuery, Result<RowAnswer, StoreError>>,
    /// What was asked for and is not there.
    missing: std::collections::BTreeSet<RowQuery>,
}

impl RowsBeside {
    pub(super) fn add(&mut self, read: RowsRead) {
        self.answers.extend(read.answers);
    }

    /// Returns the answer. Without one the query is noted as missing and answered with nothing, so that the caller's
    /// further queries are noted too.
    fn get(&mut self, query: RowQuery) -> Result<RowAnswer, StoreError> {
        if let Some(answer) = self.answers.get(&query) {
            return answer.clone();
        }
        let nothing = query.nothing();
        self.missing.insert(query);
        Ok(nothing)
    }

    /// Whether something was asked for that is not there.
    pub(super) fn is_incomplete(&self) -> bool {
        !self.missing.is_empty()
    }

    /// Number of queries that have no answer.
    pub(super) fn lacking(&self) -> usize {
        self.missing.len()
    }

    /// Takes the queries that have no answer.
    pub(super) fn take_missing(&mut self) -> Vec<RowQuery> {
        std::mem::take(&mut self.missing).into_iter().collect()
    }
}

/// Where the shard finds rows of the store: with a reader at once, or among the rows that were read beside it.
pub(super) struct RowSource<'a, R> {
    pub(super) reader: &'a mut R,
    pub(super) beside: Option<&'a mut RowsBeside>,
}

impl<R: Reader> RowSource<'_, R> {
    pub(super) fn find(
        &mut self,
        namespace: &Namespace,
        id: &JobId,
    ) -> Result<Option<StoredJob>, StoreError> {
        let Some(beside) = &mut self.beside else {
            return self.reader.find(namespace, id);
        };
        let answer = beside.get(RowQuery::Find(namespace.clone(), id.clone()))?;
        Ok(answer.into_job())
    }

    pub(super) fn job(&mut self, key: JobKey) -> Result<Option<StoredJob>, StoreError> {
        let Some(beside) = &mut self.beside else {
            return self.reader.job(key);
        };
        Ok(beside.get(RowQuery::Job(key))?.into_job())
    }

    pub(super) fn inputs(&mut self, key: JobKey, from: u32) -> Result<Vec<InputRow>, StoreError> {
        let Some(beside) = &mut self.beside else {
            return self.reader.inputs(key, from, INPUTS_PAGE);
        };
        match beside.get(RowQuery::Inputs(key, from))? {
            RowAnswer::Inputs(rows) => Ok(rows),
            _ => Ok(Vec::new()),
        }
    }

    pub(super) fn dependents(&mut self, key: JobKey) -> Result<Vec<JobKey>, StoreError> {
        Ok(self.keys(RowQuery::Dependents(key))?.0)
    }

    pub(super) fn members(
        &mut self,
        asked: &Members,
    ) -> Result<(Vec<JobKey>, Option<JobKey>), StoreError> {
        let (namespace, graph) = (asked.namespace.clone(), asked.graph.clone());
        self.keys(RowQuery::Members(
            namespace,
            graph,
            asked.after,
            asked.limit,
        ))
    }

    fn keys(&mut self, query: RowQuery) -> Result<(Vec<JobKey>, Option<JobKey>), StoreError> {
        match self.get(query)? {
            RowAnswer::Keys(keys, next) => Ok((keys, next)),
            _ => Ok((Vec::new(), None)),
        }
    }

    pub(super) fn part(
        &mut self,
        namespace: &Namespace,
        graph: &Graph,
    ) -> Result<Option<Part>, StoreError> {
        match self.get(RowQuery::Part(namespace.clone(), graph.clone()))? {
            RowAnswer::Part(part) => Ok(part.map(|part| *part)),
            _ => Ok(None),
        }
    }

    /// The payloads of several jobs, in the order of `keys`.
    pub(super) fn payloads(&mut self, keys: &[JobKey]) -> Vec<Result<Option<Bytes>, StoreError>> {
        let Some(beside) = &mut self.beside else {
            return self.reader.payloads(keys);
        };
        let read = |key: &JobKey| Ok(beside.get(RowQuery::Payload(*key))?.into_blob());
        keys.iter().map(read).collect()
    }

    pub(super) fn result(&mut self, key: JobKey) -> Result<Option<Bytes>, StoreError> {
        let Some(beside) = &mut self.beside else {
            return self.reader.result(key);
        };
        Ok(beside.get(RowQuery::Result(key))?.into_blob())
    }

    fn get(&mut self, query: RowQuery) -> Result<RowAnswer, StoreError> {
        match &mut self.beside {
            None => query.read(self.reader),
            Some(beside) => beside.get(query),
        }
    }
}

impl RowAnswer {
    fn into_job(self) -> Option<StoredJob> {
        match self {
            Self::Job(job) => job.map(|job| *job),
            _ => None,
        }
    }

    fn into_blob(self) -> Option<Bytes> {
        match self {
            Self::Blob(bytes) => bytes,
            _ => None,
        }
    }
}
