//! The numbers of the chart as comma-separated values.

use std::fmt::Write as _;

use axum::body::Body;
use http::{HeaderValue, Response, header};

use crate::fault::Fault;
use crate::format::exact;
use crate::view::View;

use super::{Asked, SHOWN, find};

/// Answers with a row for each step of the chart; with a comparison, the earlier values stand behind the others.
pub(crate) async fn csv(view: &View, query: &str) -> Result<Response<Body>, Fault> {
    let asked = Asked::read(view, query)?;
    let found = find(view, &asked).await?;
    let mut text = String::from("from");
    let all = [Some(&found.rates), found.earlier.as_ref()];
    let all: Vec<_> = all.into_iter().flatten().collect();
    for prefix in ["", "earlier_"].iter().take(all.len()) {
        for (metric, ..) in SHOWN {
            write!(text, ",{prefix}{}", metric.as_str()).expect("strings take everything");
        }
    }
    text.push('\n');
    let step = asked.window.step;
    let first = step.number(found.rates.from);
    let steps = found.rates.values.first().map_or(0, Vec::len);
    for (place, number) in (0..steps).zip(first..) {
        text.push_str(&exact(step.start(number)));
        for values in all.iter().flat_map(|totals| &totals.values) {
            text.push(',');
            // A step in which nothing was counted is empty, which is not zero.
            if let Some(value) = values.get(place).copied().flatten() {
                text.push_str(&value.to_string());
            }
        }
        text.push('\n');
    }
    let mut response = Response::new(Body::from(text));
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, "text/csv; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, "sandbox"),
        (
            header::CONTENT_DISPOSITION,
            "attachment; filename=\"rates.csv\"",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}
