//! Operations on schedules.

use ganger_access::Right;
use ganger_document::request::schedule::ScheduleIn;
use ganger_document::view::schedule::{Schedule, ScheduleTimes, Schedules};
use http::Method;

use super::{Operation, operation};
use crate::resource::numbers::Done;
use crate::resource::schedules;

pub(super) fn about_schedules() -> Vec<Operation> {
    use Method as M;
    vec![
        operation(
            M::GET,
            "/api/v1/schedules",
            "listSchedules",
            Right::OBSERVE,
            "Lists the schedules.",
            schedules::list,
        )
        .reply::<Schedules>(),
        operation(
            M::GET,
            "/api/v1/schedules/{schedule}",
            "getSchedule",
            Right::OBSERVE,
            "Shows a schedule.",
            schedules::show,
        )
        .reply::<Schedule>(),
        operation(
            M::PUT,
            "/api/v1/schedules/{schedule}",
            "setSchedule",
            Right::OPERATE,
            "Makes or replaces a schedule.",
            schedules::put,
        )
        .body::<ScheduleIn>()
        .reply::<Schedule>(),
        operation(
            M::POST,
            "/api/v1/schedules/{schedule}/run",
            "runSchedule",
            Right::OPERATE,
            "Enqueues a job of a schedule now; the answer names it as the last job.",
            schedules::run,
        )
        .reply::<Schedule>(),
        operation(
            M::GET,
            "/api/v1/schedules/{schedule}/preview",
            "previewSchedule",
            Right::OBSERVE,
            "Lists the next times of a schedule, as if it were not paused.",
            schedules::preview,
        )
        .query(&[("count", "how many, 1 to 20; 5 if absent")])
        .reply::<ScheduleTimes>(),
        operation(
            M::DELETE,
            "/api/v1/schedules/{schedule}",
            "deleteSchedule",
            Right::OPERATE,
            "Removes a schedule; its jobs stay.",
            schedules::delete,
        )
        .reply::<Done>(),
    ]
}
