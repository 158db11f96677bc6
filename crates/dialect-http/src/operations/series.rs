//! Operations on the series for charts.

use ganger_access::Right;
use ganger_document::view::series::{Kinds, Latency, Series};
use http::Method;

use super::{Operation, operation};
use crate::resource::series;

const QUEUE: (&str, &str) = ("queue", "of this queue; of all queues if absent");
const KIND: (&str, &str) = ("kind", "of jobs of this kind");
const FROM: (&str, &str) = (
    "from",
    "beginning, as a time or how long ago; -1h if absent",
);
const TO: (&str, &str) = ("to", "end, as a time or how long ago; now if absent");

pub(super) fn about_series() -> Vec<Operation> {
    use Method as M;
    vec![
        operation(
            M::GET,
            "/api/v1/series",
            "getSeries",
            Right::OBSERVE,
            "Shows counters and gauges of queues step by step.",
            series::series,
        )
        .query(&[
            QUEUE,
            KIND,
            FROM,
            TO,
            (
                "step",
                "10s (kept for 1 h), 1m (24 h) or 1h (31 days); the shortest that fits if absent",
            ),
            ("metrics", "names with commas between; all if absent"),
            (
                "by",
                "queue, or total to add all queues up; queue if absent",
            ),
        ])
        .reply::<Series>(),
        operation(
            M::GET,
            "/api/v1/latency",
            "getLatency",
            Right::OBSERVE,
            "Shows how long jobs waited and attempts ran.",
            series::latency,
        )
        .query(&[
            QUEUE,
            KIND,
            FROM,
            TO,
            (
                "quantiles",
                "numbers from 0 to 1 with commas between, 20 at most; 0.5,0.95,0.99 if absent",
            ),
        ])
        .reply::<Latency>(),
        operation(
            M::GET,
            "/api/v1/kinds",
            "listKinds",
            Right::OBSERVE,
            "Shows what happened to the jobs of each kind.",
            series::kinds,
        )
        .query(&[
            QUEUE,
            FROM,
            TO,
            ("after", "goes on after this kind"),
            ("limit", "on a page, 1 to 1000; 100 if absent"),
        ])
        .reply::<Kinds>(),
    ]
}
