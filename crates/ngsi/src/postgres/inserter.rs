//! What is tried with a batch of tasks, how often, and what becomes of each.

use std::time::Duration;

use rustls::RootCertStore;
use tokio::time::timeout;

use crate::postgres::copy::Manner;
use crate::postgres::faults::{Fault, Stage};
use crate::postgres::session::{Connector, Session};
use crate::postgres::tables::Known;
use crate::postgres::work::Work;
use crate::postgres::{Insert, InsertError, Inserted, Settings, insert_batch, insert_single};

/// How long an attempt may take, as in QuantumLeap.
const ATTEMPT_MAX: Duration = Duration::from_secs(180);
/// How long the database may take to say that it is there.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How often a transaction is repeated within an attempt because others got in its way.
const RACES_MAX: u32 = 10;
/// How often a broken connection is made again within an attempt.
const CUTS_MAX: u32 = 1;

/// A session with the database, made when it is needed and again when it broke.
pub struct Inserter {
    connector: Connector,
    session: Option<Session>,
    manner: Manner,
    attempt_max: Duration,
}

impl Inserter {
    /// Nothing is connected yet.
    pub fn new(settings: Settings) -> Self {
        Self::trusting(settings, None)
    }

    /// As [`Self::new`], but trusts a server if it is vouched for by `roots` instead of the system's authorities.
    pub fn with_roots(settings: Settings, roots: RootCertStore) -> Self {
        Self::trusting(settings, Some(roots))
    }

    fn trusting(settings: Settings, roots: Option<RootCertStore>) -> Self {
        Self {
            connector: Connector::new(settings.database, roots),
            session: None,
            manner: Manner {
                keep_raw: settings.keep_raw,
                bytes_max: settings.insert_bytes_max,
            },
            attempt_max: ATTEMPT_MAX,
        }
    }

    /// Gives attempts another limit than 180 s.
    #[must_use]
    pub fn limited_to(self, attempt_max: Duration) -> Self {
        Self {
            attempt_max,
            ..self
        }
    }

    /// Inserts tasks, several in one transaction if all goes well; the outcome of each, in order. A caller that drops
    /// the future does not know what became of them, and has to repeat them with `is_repeat`.
    pub async fn insert(&mut self, tasks: &[Insert]) -> Vec<Result<Inserted, InsertError>> {
        let works: Vec<_> = tasks.iter().map(Work::of).collect();
        let mut outcomes: Vec<_> = works
            .iter()
            .map(|work| match work {
                Ok(work) => Ok(work.inserted()),
                Err(error) => Err(error.clone()),
            })
            .collect();
        let has_rows = |work: &&Work<'_>| work.inserted().rows > 0;
        let ready: Vec<&Work<'_>> = works.iter().flatten().filter(has_rows).collect();

        let failures = self.insert_ready(&ready).await;

        let mut failures = failures.into_iter();
        for (work, outcome) in works.iter().zip(&mut outcomes) {
            if work.as_ref().is_ok_and(|work| has_rows(&work))
                && let Some(Err(error)) = failures.next()
            {
                *outcome = Err(error);
            }
        }
        outcomes
    }

    /// Whether the database answers.
    pub async fn answers(&mut self) -> bool {
        let answered = timeout(ANSWER_MAX, async {
            // A session that was cut while it was idle says nothing about the database.
            self.answers_once().await.is_ok() || self.answers_once().await.is_ok()
        });
        answered.await.unwrap_or(false)
    }

    async fn answers_once(&mut self) -> Result<(), Fault> {
        let session = self.take_session().await?;
        session.execute(Stage::Inserting, "select 1").await?;
        self.session = Some(session);
        Ok(())
    }

    /// Inserts tasks that have rows: together, or if that does not go well one by one.
    async fn insert_ready(&mut self, works: &[&Work<'_>]) -> Vec<Result<(), InsertError>> {
        let mut in_doubt = false;
        let fault = match works {
            [] => return Vec::new(),
            works => match self.attempt(works, How::Together, &mut in_doubt).await {
                Ok(()) => return works.iter().map(|_| Ok(())).collect(),
                Err(fault) => fault,
            },
        };
        let is_hopeless = matches!(fault, Fault::Unreachable(_));
        if is_hopeless || (works.len() == 1 && fault.misfit().is_none()) {
            let error = InsertError::from(fault);
            return works.iter().map(|_| Err(error.clone())).collect();
        }
        self.insert_one_by_one(works, in_doubt).await
    }

    async fn insert_one_by_one(
        &mut self,
        works: &[&Work<'_>],
        in_doubt: bool,
    ) -> Vec<Result<(), InsertError>> {
        let mut outcomes = Vec::with_capacity(works.len());
        let mut unreachable: Option<InsertError> = None;
        for work in works {
            // Once there is no connection to be had, the others need not wait for that as well.
            if let Some(error) = &unreachable {
                outcomes.push(Err(error.clone()));
                continue;
            }
            let mut in_doubt = in_doubt;
            let attempted = self.attempt(&[work], How::Alone, &mut in_doubt).await;
            let outcome = attempted.map_err(|fault| {
                let is_hopeless = matches!(fault, Fault::Unreachable(_));
                let error = InsertError::from(fault);
                unreachable = is_hopeless.then(|| error.clone());
                error
            });
            outcomes.push(outcome);
        }
        outcomes
    }

    /// An attempt within its time.
    async fn attempt(
        &mut self,
        works: &[&Work<'_>],
        how: How,
        in_doubt: &mut bool,
    ) -> Result<(), Fault> {
        let limit = self.attempt_max;
        // If the time is up, the session goes with the future, and stops what it was doing.
        match timeout(limit, self.repeat(works, how, in_doubt)).await {
            Ok(done) => done,
            Err(_) => {
                *in_doubt = true;
                Err(Fault::Late(limit))
            }
        }
    }

    /// Runs transactions until one goes well, or until it makes no sense to repeat it at once.
    async fn repeat(
        &mut self,
        works: &[&Work<'_>],
        how: How,
        in_doubt: &mut bool,
    ) -> Result<(), Fault> {
        let (mut races, mut cuts) = (0, 0);
        loop {
            let mut session = self.take_session().await?;
            session.is_busy = true;
            let done = match how {
                How::Together => {
                    insert_batch::insert(&mut session, works, self.manner, *in_doubt).await
                }
                How::Alone => {
                    insert_single::insert(&mut session, works[0], self.manner, *in_doubt).await
                }
            };
            session.is_busy = false;
            let Err(fault) = done else {
                self.session = Some(session);
                return Ok(());
            };
            *in_doubt |= matches!(fault, Fault::InDoubt(_));
            if fault.has_cut() {
                cuts += 1;
            } else {
                if fault.is_race() {
                    races += 1;
                    session.known = Known::default();
                }
                self.session = Some(session);
            }
            let is_repeated =
                (fault.has_cut() && cuts <= CUTS_MAX) || (fault.is_race() && races <= RACES_MAX);
            if !is_repeated {
                return Err(fault);
            }
        }
    }

    /// The session, or a new one. The caller gives it back if it is still usable.
    async fn take_session(&mut self) -> Result<Session, Fault> {
        match self.session.take() {
            Some(session) if session.is_open() => Ok(session),
            _ => self.connector.connect().await,
        }
    }
}

/// How tasks are inserted.
#[derive(Clone, Copy, Debug)]
enum How {
    /// All tasks in one transaction.
    Together,
    /// One task, with what does not fit saved as JSON.
    Alone,
}
