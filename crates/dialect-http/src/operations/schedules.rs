//! Operations on schedules.

use http::Method;

use super::{Operation, operation};
use crate::inward::schedule::ScheduleIn;
use crate::outward::schedule::{ScheduleView, SchedulesView};
use crate::resource::numbers::Done;
use crate::resource::schedules;

pub(super) fn about_schedules() -> Vec<Operation> {
    use Method as M;
    vec![
        operation(
            M::GET,
            "/api/v1/schedules",
            "listSchedules",
            "Lists the schedules.",
            schedules::list,
        )
        .reply::<SchedulesView>(),
        operation(
            M::GET,
            "/api/v1/schedules/{schedule}",
            "getSchedule",
            "Shows a schedule.",
            schedules::show,
        )
        .reply::<ScheduleView>(),
        operation(
            M::PUT,
            "/api/v1/schedules/{schedule}",
            "setSchedule",
            "Makes or replaces a schedule.",
            schedules::put,
        )
        .body::<ScheduleIn>()
        .reply::<ScheduleView>(),
        operation(
            M::DELETE,
            "/api/v1/schedules/{schedule}",
            "deleteSchedule",
            "Removes a schedule; its jobs stay.",
            schedules::delete,
        )
        .reply::<Done>(),
    ]
}
