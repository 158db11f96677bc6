//! `config.get`, `config.set`, `config.unset`: options. Their values are texts; commands that need numbers parse them.

use std::collections::BTreeMap;

use bytes::Bytes;
use ganger_types::qless::{QlessAnswer, QlessReply};

use crate::call::{Arguments, Call};
use crate::events;
use crate::json::Writer;
use crate::number;
use crate::procedures::configuration::{GRACE, HEARTBEAT, JOBS_HISTORY, JOBS_HISTORY_COUNT};
use crate::state::Qless;

/// Default value of an option.
enum Default {
    Text(&'static str),
    Number(f64),
}

/// The defaults that `config.get` shows. Other options have defaults that commands use but `config.get` does not show;
/// `application`, `stats-history` and `histogram-history` are shown but not used.
const DEFAULTS: [(&str, Default); 7] = [
    ("application", Default::Text("qless")),
    ("heartbeat", Default::Number(HEARTBEAT)),
    ("grace-period", Default::Number(GRACE)),
    ("stats-history", Default::Number(30.0)),
    ("histogram-history", Default::Number(7.0)),
    ("jobs-history-count", Default::Number(JOBS_HISTORY_COUNT)),
    ("jobs-history", Default::Number(JOBS_HISTORY)),
];

/// `config.get [option]`: returns the value of an option, nil if it has none; or all options as JSON.
#[expect(
    clippy::unnecessary_wraps,
    reason = "commands are alike, whether or not they may refuse"
)]
pub(super) fn get(state: &mut Qless, _: &mut Call<'_>, arguments: Arguments<'_>) -> QlessAnswer {
    let Some(option) = arguments.get(0) else {
        return Ok(all(state));
    };
    if let Some(value) = state.setting(option) {
        return Ok(QlessReply::Text(value.clone()));
    }
    let default = DEFAULTS.iter().find(|(name, _)| option == name);
    Ok(match default {
        Some((_, Default::Text(text))) => QlessReply::Text(Bytes::from_static(text.as_bytes())),
        Some((_, Default::Number(value))) => QlessReply::Number(number::truncate(*value)),
        None => QlessReply::Nil,
    })
}

/// `config.set option value`: sets an option.
pub(super) fn set(state: &mut Qless, call: &mut Call<'_>, arguments: Arguments<'_>) -> QlessAnswer {
    let option = arguments.required(0, "config.set(): Arg \"option\" missing")?;
    let value = arguments.required(1, "config.set(): Arg \"value\" missing")?;

    events::config_set(call, option, value);
    state.set_option(option, Some(value.clone()));
    Ok(QlessReply::Nil)
}

/// `config.unset option`: restores the default of an option.
pub(super) fn unset(
    state: &mut Qless,
    call: &mut Call<'_>,
    arguments: Arguments<'_>,
) -> QlessAnswer {
    let option = arguments.required(0, "config.unset(): Arg \"option\" missing")?;

    events::config_unset(call, option);
    state.set_option(option, None);
    Ok(QlessReply::Nil)
}

/// Returns all options as JSON: the defaults, replaced and extended by the options that were set.
fn all(state: &Qless) -> QlessReply {
    let set: BTreeMap<&[u8], &Bytes> = (state.settings())
        .map(|(option, value)| (&option[..], value))
        .collect();
    let mut out = Writer::default();
    out.begin();
    for (option, default) in &DEFAULTS {
        if !set.contains_key(option.as_bytes()) {
            match default {
                Default::Text(text) => out.key(option).string(text),
                Default::Number(value) => out.key(option).number(*value),
            }
        }
    }
    for (option, value) in set {
        out.key(option).string(value);
    }
    out.end();
    out.into()
}
