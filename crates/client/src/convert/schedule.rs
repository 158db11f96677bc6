//! Schedules.

use std::time::Duration;

use ganger_proto::v1;

use super::{at, labels, ms, pairs, some, us};
use crate::error::Error;
use crate::model::{CatchUp, NewSchedule, Overlap, Schedule, ScheduleSpec};

impl From<NewSchedule> for v1::Schedule {
    fn from(rule: NewSchedule) -> Self {
        use v1::schedule::Spec;
        let spec = match rule.spec {
            ScheduleSpec::Interval { every, first_at } => Spec::Interval(v1::Interval {
                every_ms: ms(every),
                first_at_us: first_at.map(us),
            }),
            ScheduleSpec::Cron {
                expression,
                time_zone,
            } => Spec::Cron(v1::Cron {
                expression,
                time_zone,
            }),
        };
        let overlap = match rule.overlap {
            Overlap::Allow => v1::Overlap::Allow,
            Overlap::Skip => v1::Overlap::Skip,
            Overlap::Replace => v1::Overlap::Replace,
        };
        Self {
            id: rule.id,
            spec: Some(spec),
            catch_up: Some(wire_catch_up(rule.catch_up)),
            overlap: i32::from(overlap),
            paused: rule.paused,
            queue: rule.queue,
            kind: rule.kind,
            payload: rule.payload,
            priority: rule.priority,
            retry: rule.retry.map(Into::into),
            timeout_ms: rule.timeout.map(ms),
            tags: rule.tags,
            labels: labels(rule.labels),
            ..Self::default()
        }
    }
}

fn wire_catch_up(catch_up: CatchUp) -> v1::CatchUp {
    use v1::catch_up::Rule;
    let rule = match catch_up {
        CatchUp::None => Rule::None(v1::Done {}),
        CatchUp::Last => Rule::Last(v1::Done {}),
        CatchUp::All { max } => Rule::AllMax(max),
    };
    v1::CatchUp { rule: Some(rule) }
}

impl TryFrom<v1::Schedule> for Schedule {
    type Error = Error;

    fn try_from(wire: v1::Schedule) -> Result<Self, Error> {
        use v1::catch_up::Rule;
        use v1::schedule::Spec;
        let overlap = match wire.overlap() {
            v1::Overlap::Skip => Overlap::Skip,
            v1::Overlap::Replace => Overlap::Replace,
            v1::Overlap::Allow | v1::Overlap::Unspecified => Overlap::Allow,
        };
        let spec = match wire.spec {
            Some(Spec::Interval(interval)) => ScheduleSpec::Interval {
                every: Duration::from_millis(interval.every_ms),
                first_at: interval.first_at_us.map(at),
            },
            Some(Spec::Cron(cron)) => ScheduleSpec::Cron {
                expression: cron.expression,
                time_zone: cron.time_zone,
            },
            None => return Err(Error::bad_reply("a schedule that never fires")),
        };
        let catch_up = match wire.catch_up.and_then(|catch_up| catch_up.rule) {
            Some(Rule::None(_)) => CatchUp::None,
            Some(Rule::AllMax(max)) => CatchUp::All { max },
            Some(Rule::Last(_)) | None => CatchUp::Last,
        };
        Ok(Self {
            rule: NewSchedule {
                id: wire.id,
                spec,
                catch_up,
                overlap,
                paused: wire.paused,
                queue: wire.queue,
                kind: wire.kind,
                payload: wire.payload,
                priority: wire.priority,
                retry: wire.retry.map(Into::into),
                timeout: wire.timeout_ms.map(Duration::from_millis),
                tags: wire.tags,
                labels: pairs(wire.labels),
            },
            created_at: at(wire.created_at_us),
            next_at: wire.next_at_us.map(at),
            runs: wire.runs,
            last_job: some(wire.last_job),
        })
    }
}
