//! Conversion of schedules to create.

use ganger_proto::v1;

use super::{labels, ms, us};
use crate::model::{NewSchedule, ScheduleSpec};

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
        Self {
            id: rule.id,
            spec: Some(spec),
            catch_up: Some(rule.catch_up.into()),
            overlap: i32::from(v1::Overlap::from(rule.overlap)),
            paused: rule.paused,
            queue: rule.queue,
            kind: rule.kind,
            payload: rule.payload,
            priority: rule.priority,
            retry: rule.retry.as_ref().map(Into::into),
            timeout_ms: rule.timeout.map(ms),
            tags: rule.tags,
            labels: labels(rule.labels),
            ..Self::default()
        }
    }
}
