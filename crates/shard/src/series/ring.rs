//! Points of one series in steps of equal length, oldest first. Steps without a point take no memory.

use std::collections::VecDeque;
use std::time::Duration;

use ganger_types::Timestamp;
use ganger_types::time::MICROS_PER_SECOND;
use serde::{Deserialize, Serialize};

/// Length of the steps of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Steps of 10 s, kept for an hour.
    TenSeconds,
    /// Steps of a minute, kept for a day.
    Minute,
    /// Steps of an hour, kept for 31 days.
    Hour,
}

impl Step {
    /// All lengths, shortest first.
    pub const ALL: [Self; 3] = [Self::TenSeconds, Self::Minute, Self::Hour];

    /// Length of a step in seconds.
    pub fn seconds(self) -> u32 {
        match self {
            Self::TenSeconds => 10,
            Self::Minute => 60,
            Self::Hour => 3_600,
        }
    }

    /// Number of steps that are kept, the current one included.
    pub fn kept(self) -> u32 {
        match self {
            Self::TenSeconds => 360,
            Self::Minute => 1_440,
            Self::Hour => 744,
        }
    }

    /// Returns the length of the steps for a time: the given one, or the shortest that is kept for so long. Kinds have no
    /// steps of 10 s.
    ///
    /// # Errors
    /// The reason, for people, if there are no such steps.
    pub fn choose(given: Option<Self>, time: Duration, is_of_kind: bool) -> Result<Self, String> {
        let kept = |step: Self| u64::from(step.seconds()) * u64::from(step.kept());
        let offered = |step: &Self| !(is_of_kind && *step == Self::TenSeconds);
        let Some(step) = given else {
            let mut all = Self::ALL.into_iter().filter(offered);
            let fits = all.find(|step| time.as_secs() <= kept(*step));
            return Ok(fits.unwrap_or(Self::Hour));
        };
        if !offered(&step) {
            return Err("kinds have no steps of 10s: ask for 1m or 1h".to_owned());
        }
        if time.as_secs() > kept(step) {
            let hours = kept(step) / 3_600;
            return Err(format!(
                "steps of this length are kept for {hours} h: ask for longer ones, or a shorter time"
            ));
        }
        Ok(step)
    }

    /// Number of the step that contains a time, counted from 1970.
    pub fn number(self, at: Timestamp) -> u32 {
        let number = at.0 / MICROS_PER_SECOND / u64::from(self.seconds());
        u32::try_from(number).unwrap_or(u32::MAX)
    }

    /// Time at which the step of this number begins.
    pub fn start(self, number: u32) -> Timestamp {
        Timestamp(u64::from(number) * u64::from(self.seconds()) * MICROS_PER_SECOND)
    }
}

/// A value that is added to another of its kind.
pub(super) trait Fold: Default {
    /// Adds the value of another series in the same step.
    fn fold(&mut self, other: &Self);

    /// Bytes on the heap.
    fn heap(&self) -> usize {
        0
    }
}

/// Points of one series, by the number of their step.
#[derive(Debug)]
pub(super) struct Ring<T> {
    step: Step,
    points: VecDeque<(u32, T)>,
}

impl<T: Fold> Ring<T> {
    pub(super) fn new(step: Step) -> Self {
        Self {
            step,
            points: VecDeque::new(),
        }
    }

    /// The point of the step that contains `at`. A clock that went back finds its earlier points again.
    pub(super) fn at(&mut self, at: Timestamp) -> &mut T {
        self.of(self.step.number(at))
    }

    fn of(&mut self, number: u32) -> &mut T {
        let place = if self.points.back().is_none_or(|last| last.0 < number) {
            self.points.len()
        } else {
            self.points.partition_point(|point| point.0 < number)
        };
        if self.points.get(place).is_none_or(|point| point.0 != number) {
            self.points.insert(place, (number, T::default()));
        }
        &mut self.points[place].1
    }

    /// Points of the steps from `from` to `to`, both included.
    pub(super) fn between(&self, from: u32, to: u32) -> impl Iterator<Item = (u32, &T)> {
        let first = self.points.partition_point(|point| point.0 < from);
        let points = self.points.range(first..);
        points
            .take_while(move |point| point.0 <= to)
            .map(|(number, value)| (*number, value))
    }

    /// All points, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.points.iter().map(|point| &point.1)
    }

    /// Removes points that are older than the series keeps them, and the oldest beyond that number.
    pub(super) fn prune(&mut self, now: Timestamp) {
        let oldest = self.step.number(now).saturating_sub(self.step.kept() - 1);
        let most = usize::try_from(self.step.kept()).unwrap_or(usize::MAX);
        while self
            .points
            .front()
            .is_some_and(|point| point.0 < oldest || self.points.len() > most)
        {
            self.points.pop_front();
        }
        if self.points.capacity() > 2 * self.points.len() + 16 {
            self.points.shrink_to_fit();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Adds all points of another series.
    pub(super) fn merge(&mut self, other: &Self) {
        for (number, value) in &other.points {
            self.of(*number).fold(value);
        }
    }

    /// Bytes that the points take.
    pub(super) fn bytes(&self) -> usize {
        let heap: usize = self.points.iter().map(|point| point.1.heap()).sum();
        heap + self.points.capacity() * size_of::<(u32, T)>()
    }
}
