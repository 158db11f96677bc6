//! Events that a shard keeps: the last of them, or those from a position on. A second with many is summed.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use ganger_document::view::event::kind;
use ganger_shard::{CallError, Handle, Subscription};
use ganger_types::time::MICROS_PER_SECOND;
use ganger_types::{Event, Happening, JobId, Kind, Namespace, Position, Queue, ShardId, Worker};
use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::question::Question;
use crate::view::View;

/// Events of one second that are listed; further ones are summed.
pub(crate) const LISTED_PER_SECOND: usize = 50;
/// Events of one shard that are looked at for a page.
pub(crate) const LOOKED_MAX: u64 = 50_000;
/// Events that are looked at before the rows are counted again.
const STEP: u64 = 2_000;

/// Which events are listed: those that meet all conditions.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Filter {
    pub(crate) namespace: Namespace,
    pub(crate) queue: Option<Queue>,
    /// Kind of the job that moved.
    pub(crate) kind: Option<Kind>,
    /// Word for the kind of event.
    pub(crate) event: Option<String>,
    pub(crate) job: Option<JobId>,
}

/// A row of the list.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Row {
    Event(ShardId, Event),
    /// So many more events of a second, which is counted from the epoch.
    Sum {
        second: u64,
        more: u64,
    },
}

/// Where the events of one shard that were looked at lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) shard: ShardId,
    /// Position of the oldest event that is kept; `end` if none is.
    pub(crate) oldest: u64,
    /// Position behind the newest event; 0 before the first.
    pub(crate) end: u64,
    /// Position of the first event that was looked at.
    pub(crate) from: u64,
    /// Position behind the last event that was looked at.
    pub(crate) to: u64,
    /// Whether no more events than [`LOOKED_MAX`] were looked at, and there may be others that match.
    pub(crate) is_cut: bool,
}

/// The events of one shard that were found.
#[derive(Serialize, Deserialize)]
pub(crate) struct Found {
    pub(crate) place: Place,
    tally: Tally,
    events: Vec<Event>,
}

/// Events that match, counted by second.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Tally(BTreeMap<u64, Second>);

/// The events of one second.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Second {
    /// Positions of the first ones, in order.
    first: VecDeque<u64>,
    total: u64,
}

/// The events of a shard that match, enough for so many rows.
#[derive(Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) filter: Filter,
    /// Position of the first one; `None`: the newest ones.
    pub(crate) first: Option<u64>,
    pub(crate) rows: usize,
}

impl Question for Kept {
    const NAME: &'static str = "events";
    type Answer = Found;

    fn operation(&self) -> &'static str {
        "followEvents"
    }

    async fn ask(&self, view: &View, shard: &Handle) -> Result<Found, Fault> {
        let filter = Filter {
            namespace: view.namespace().clone(),
            ..self.filter.clone()
        };
        match self.first {
            Some(first) => from(shard, &filter, first, self.rows).await,
            None => last(shard, &filter, self.rows),
        }
    }
}

impl Filter {
    fn takes(&self, event: &Event) -> bool {
        let happening = &event.happening;
        event.namespace == self.namespace
            && self
                .event
                .as_ref()
                .is_none_or(|word| kind(happening) == word)
            && self
                .queue
                .as_ref()
                .is_none_or(|queue| queue_of(happening) == Some(queue))
            && self
                .kind
                .as_ref()
                .is_none_or(|kind| kind_of(happening) == Some(kind))
            && self
                .job
                .as_ref()
                .is_none_or(|job| job_of(happening) == Some(job))
    }
}

impl Tally {
    /// Counts an event. Events come in the order of their positions, or in the opposite one.
    fn note(&mut self, event: &Event) {
        let position = event.position.0;
        let second = self.0.entry(second_of(event)).or_default();
        second.total += 1;
        if second.first.front().is_some_and(|first| position < *first) {
            second.first.push_front(position);
            second.first.truncate(LISTED_PER_SECOND);
        } else if second.first.len() < LISTED_PER_SECOND {
            second.first.push_back(position);
        }
    }

    /// Number of rows that all seconds but one have.
    fn rows_without(&self, second: Option<u64>) -> usize {
        let counted = self.0.iter().filter(|(of, _)| Some(**of) != second);
        counted
            .map(|(_, of)| of.first.len() + usize::from(of.total > count(of.first.len())))
            .sum()
    }

    fn positions(&self) -> BTreeSet<u64> {
        let seconds = self.0.values();
        seconds.flat_map(|of| of.first.iter().copied()).collect()
    }
}

fn second_of(event: &Event) -> u64 {
    event.at.0 / MICROS_PER_SECOND
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// The last events of a shard that match, enough for so many rows, if so many are kept.
pub(crate) fn last(shard: &Handle, filter: &Filter, rows: usize) -> Result<Found, Fault> {
    let tally = RefCell::new(Tally::default());
    let at = Cell::new((None, 0_u64));
    let mut place: Option<Place> = None;
    let (mut before, mut looked) = (None, 0);
    loop {
        let past = shard.past_events(before, usize::MAX, STEP, |event| {
            at.set((Some(second_of(event)), event.position.0));
            if filter.takes(event) {
                tally.borrow_mut().note(event);
            }
            false
        })?;
        let place = place.get_or_insert_with(|| Place {
            shard: shard.id().clone(),
            oldest: past.oldest.0,
            end: past.end.0,
            from: past.end.0,
            to: past.end.0,
            is_cut: false,
        });
        let (second, position) = at.get();
        if second.is_some() {
            place.from = position;
        }
        looked += STEP;
        before = past.next;
        // Of the second that was looked at last, the first events may be missing.
        let is_enough = tally.borrow().rows_without(second) >= rows;
        if before.is_some() && !is_enough && looked < LOOKED_MAX {
            continue;
        }
        place.is_cut = before.is_some() && !is_enough;
        let mut tally = tally.into_inner();
        if let Some(second) = second.filter(|_| before.is_some() && tally.0.len() > 1) {
            tally.0.remove(&second);
        }
        return Ok(Found {
            place: place.clone(),
            events: fetch(shard, &tally)?,
            tally,
        });
    }
}

/// What a reader that goes forward has seen.
#[derive(Default)]
struct Ahead {
    tally: Tally,
    /// The second of the last event.
    second: u64,
    looked: u64,
    /// Position behind the last event of a page that is full.
    full_at: Option<u64>,
}

impl Ahead {
    /// Counts the next event, unless the page has enough rows.
    fn note(&mut self, event: &Event, filter: &Filter, rows: usize) {
        let second = second_of(event);
        let is_next = second != self.second;
        if self.full_at.is_none() && is_next && self.tally.rows_without(None) >= rows {
            self.full_at = Some(event.position.0);
        }
        if self.full_at.is_none() {
            self.second = second;
            self.looked += 1;
            if filter.takes(event) {
                self.tally.note(event);
            }
        }
    }
}

/// The first events of a shard from a position on that match, enough for so many rows and whole seconds.
pub(crate) async fn from(
    shard: &Handle,
    filter: &Filter,
    position: u64,
    rows: usize,
) -> Result<Found, Fault> {
    let kept = shard.past_events(None, 0, 1, |_| false)?;
    let (oldest, end) = (kept.oldest.0, kept.end.0);
    let from = position.max(oldest);
    let mut place = Place {
        shard: shard.id().clone(),
        oldest,
        end,
        from,
        to: from,
        is_cut: false,
    };
    let ahead = Mutex::new(Ahead::default());
    let note = |event: &Event| -> Option<()> {
        let mut ahead = ahead.lock().unwrap_or_else(PoisonError::into_inner);
        ahead.note(event, filter, rows);
        None
    };
    if from < end {
        // A subscription begins behind a position, so it never has the very first event.
        if from == 0 {
            shard.past_events(Some(Position(1)), 1, 1, |event| note(event).is_some())?;
        }
        let mut events = subscribe(shard, from.saturating_sub(1))?;
        loop {
            let next = events.position().map_or(0, |at| at.0 + 1);
            let is_done = {
                let ahead = ahead.lock().unwrap_or_else(PoisonError::into_inner);
                place.to = ahead.full_at.unwrap_or(next);
                place.is_cut = ahead.full_at.is_none() && ahead.looked >= LOOKED_MAX && next < end;
                ahead.full_at.is_some() || place.is_cut || next >= end
            };
            if is_done {
                break;
            }
            events.pick(note).await?;
        }
    }
    let tally = ahead
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
        .tally;
    Ok(Found {
        place,
        events: fetch(shard, &tally)?,
        tally,
    })
}

/// Subscribes to the events behind a position, or from the oldest one on if that has gone meanwhile.
fn subscribe(shard: &Handle, from: u64) -> Result<Subscription, Fault> {
    match shard.events(Some(Position(from))) {
        Err(CallError::PositionTooOld { oldest, .. }) if from < oldest => {
            Ok(shard.events(Some(Position(oldest.saturating_sub(1))))?)
        }
        other => Ok(other?),
    }
}

/// Reads the events that are listed.
fn fetch(shard: &Handle, tally: &Tally) -> Result<Vec<Event>, Fault> {
    let wanted = tally.positions();
    let (Some(first), Some(last)) = (wanted.first(), wanted.last()) else {
        return Ok(Vec::new());
    };
    let before = Some(Position(last.saturating_add(1)));
    let is_wanted = |event: &Event| wanted.contains(&event.position.0);
    let read = shard.past_events(before, wanted.len(), last - first + 1, is_wanted)?;
    Ok(read.events)
}

/// The rows of all shards together, the newest first.
pub(crate) fn rows(found: Vec<Found>) -> Vec<Row> {
    let mut seconds: BTreeMap<u64, (u64, Vec<(ShardId, Event)>)> = BTreeMap::new();
    for Found {
        place,
        tally,
        events,
    } in found
    {
        for (second, of) in &tally.0 {
            seconds.entry(*second).or_default().0 += of.total;
        }
        for event in events {
            let of = seconds.entry(second_of(&event)).or_default();
            of.1.push((place.shard.clone(), event));
        }
    }
    let mut rows = Vec::new();
    for (second, (total, mut events)) in seconds.into_iter().rev() {
        events.sort_by(|(shard, a), (other, b)| {
            (a.at, shard, a.position).cmp(&(b.at, other, b.position))
        });
        events.truncate(LISTED_PER_SECOND);
        let more = total.saturating_sub(count(events.len()));
        if more > 0 {
            rows.push(Row::Sum { second, more });
        }
        let events = events.into_iter().rev();
        rows.extend(events.map(|(shard, event)| Row::Event(shard, event)));
    }
    rows
}

/// The position of the newest event; 0 before the first.
pub(crate) fn position(shard: &Handle) -> Result<Position, Fault> {
    Ok(shard.events(None)?.position().unwrap_or_default())
}

/// The queue that an event is about; `None` if about none.
pub(crate) fn queue_of(happening: &Happening) -> Option<&Queue> {
    match happening {
        Happening::JobMoved { queue, .. }
        | Happening::JobRemoved { queue, .. }
        | Happening::QueueChanged { queue, .. } => Some(queue),
        _ => None,
    }
}

fn kind_of(happening: &Happening) -> Option<&Kind> {
    match happening {
        Happening::JobMoved { kind, .. } => Some(kind),
        _ => None,
    }
}

/// The job that an event is about; `None` if about none, or if the event does not name it.
pub(crate) fn job_of(happening: &Happening) -> Option<&JobId> {
    match happening {
        Happening::JobMoved { job, .. }
        | Happening::JobProgressed { job, .. }
        | Happening::JobRemoved { job, .. } => Some(job),
        _ => None,
    }
}

/// The worker that an event is about; `None` if about none.
pub(crate) fn worker_of(happening: &Happening) -> Option<&Worker> {
    match happening {
        Happening::JobMoved { worker, .. } => worker.as_ref(),
        Happening::WorkerSeen { worker } | Happening::WorkerGone { worker } => Some(worker),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ganger_types::Timestamp;

    fn event(position: u64, second: u64) -> Event {
        Event {
            position: Position(position),
            at: Timestamp(second * MICROS_PER_SECOND + position),
            namespace: Namespace::default(),
            happening: Happening::WorkerSeen {
                worker: Worker::from_static("w"),
            },
        }
    }

    fn found(shard: &str, events: &[Event]) -> Found {
        let mut tally = Tally::default();
        for event in events.iter().rev() {
            tally.note(event);
        }
        let listed = tally.positions();
        let events = events.iter().filter(|it| listed.contains(&it.position.0));
        Found {
            place: Place {
                shard: ShardId::new(shard).expect("a shard"),
                oldest: 0,
                end: 0,
                from: 0,
                to: 0,
                is_cut: false,
            },
            events: events.cloned().collect(),
            tally,
        }
    }

    #[test]
    fn the_first_events_of_a_second_are_listed_and_the_others_summed_whichever_way_they_are_read() {
        let busy: Vec<Event> = (0..120).map(|position| event(position, 7)).collect();
        let mut forward = Tally::default();
        for event in &busy {
            forward.note(event);
        }
        let backward = found("1", &busy);
        assert_eq!(forward.positions(), backward.tally.positions());
        assert_eq!(forward.positions().last(), Some(&49));
        assert_eq!(forward.rows_without(None), 51);
        assert_eq!(forward.rows_without(Some(7)), 0);
        let rows = rows(vec![backward]);
        assert_eq!(rows.len(), 51);
        assert_eq!(
            rows[0],
            Row::Sum {
                second: 7,
                more: 70
            }
        );
        assert!(matches!(&rows[1], Row::Event(_, event) if event.position.0 == 49));
    }

    #[test]
    fn a_second_of_two_shards_is_one_second() {
        let one: Vec<Event> = (0..40).map(|position| event(position, 7)).collect();
        let two: Vec<Event> = (0..40).map(|position| event(position, 7)).collect();
        let quiet = [event(99, 8)];
        let rows = rows(vec![found("1", &one), found("2", &two), found("3", &quiet)]);
        assert!(matches!(&rows[0], Row::Event(shard, _) if shard.as_str() == "3"));
        assert_eq!(
            rows[1],
            Row::Sum {
                second: 7,
                more: 30
            }
        );
        assert_eq!(rows.len(), 52);
    }
}
