//! Operations on schedules.

use ganger_access::Right;
use ganger_document::request::schedule::ScheduleIn;
use ganger_document::view::schedule::{Schedule, ScheduleTimes, Schedules};
use http::Method;

use super::{Operation, PAGE, operation};
use crate::resource::numbers::Done;
use crate::resource::schedules;

const COUNT: &[(&str, &str)] = &[("count", "how many, 1 to 20; 5 if absent")];

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
        .query(PAGE)
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
            "/api/v1/schedules/preview",
            "previewNewSchedule",
            Right::OBSERVE,
            "Lists the next times of a schedule that is not saved.",
            schedules::preview_new,
        )
        .query(COUNT)
        .body::<ScheduleIn>()
        .reply::<ScheduleTimes>(),
        operation(
            M::POST,
            "/api/v1/schedules/{schedule}/pause",
            "pauseSchedule",
            Right::OPERATE,
            "Pauses a schedule: nothing fires.",
            schedules::pause,
        )
        .reply::<Schedule>(),
        operation(
            M::POST,
            "/api/v1/schedules/{schedule}/resume",
            "resumeSchedule",
            Right::OPERATE,
            "Resumes a paused schedule.",
            schedules::resume,
        )
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
        .query(COUNT)
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
