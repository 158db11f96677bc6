//! `ganger job result`, `payload`, `inputs`: the bytes that go in and come out.

use clap::Args;

use crate::command::run::write_result;
use crate::context::{Context, remark};
use crate::exit::{Exit, Outcome};
use crate::show::json::{PayloadLine, ResultLine};
use crate::show::table::Rows;
use crate::show::{escape, json as views};

/// Number of inputs fetched at once.
const PAGE_INPUTS: u32 = 500;

/// Prints a job's result.
#[derive(Args, Debug)]
pub(crate) struct ResultArgs {
    /// Id of the job.
    pub(super) job: String,

    /// Print a result that is a JSON string as plain text.
    #[arg(short, long)]
    raw: bool,
}

/// Prints a job's payload.
#[derive(Args, Debug)]
pub(crate) struct PayloadArgs {
    /// Id of the job.
    pub(super) job: String,
}

/// Prints a job's inputs.
#[derive(Args, Debug)]
pub(crate) struct InputsArgs {
    /// Id of the job.
    pub(super) job: String,
}

pub(crate) async fn result(context: &Context, args: &ResultArgs) -> Outcome {
    let (state, result) = context.client().await?.result(&args.job).await?;
    if context.is_json() {
        context.json(&ResultLine {
            id: args.job.clone(),
            state: state.as_str(),
            result: result.as_ref().into(),
            failure: None,
        })?;
    } else if let Some(result) = &result {
        let text: Option<String> = serde_json::from_slice(result).ok().filter(|_| args.raw);
        write_result(text.as_ref().map_or(result, |text| text.as_bytes()))?;
    }
    if state.is_terminal() {
        if result.is_none() && !context.is_json() {
            remark(format!("the job {state}; it has no result"));
        }
        return Ok(if result.is_some() {
            Exit::Done
        } else {
            Exit::Failed
        });
    }
    if !context.is_json() {
        remark(format!(
            "the job is {state}; `ganger job wait {}` waits for it",
            escape::line(&args.job)
        ));
    }
    Ok(Exit::StillRunning)
}

pub(crate) async fn payload(context: &Context, args: &PayloadArgs) -> Outcome {
    let payload = context.client().await?.payload(&args.job).await?;
    if context.is_json() {
        context.json(&PayloadLine::new(&args.job, &payload))?;
    } else {
        write_result(&payload)?;
    }
    Ok(Exit::Done)
}

pub(crate) async fn inputs(context: &Context, args: &InputsArgs) -> Outcome {
    let client = context.client().await?;
    let mut rows = Rows::new(&[">position", "state", "dependency", "value"]);
    let mut from = 0;
    loop {
        let (page, next) = client.inputs(&args.job, from, PAGE_INPUTS, true).await?;
        for input in page {
            if context.is_json() {
                context.json(&views::input(&input))?;
                continue;
            }
            let position = input.position();
            let position = position.map_or_else(|| "-".to_owned(), |place| place.to_string());
            let value = input
                .value
                .as_ref()
                .map(|value| escape::bytes(value))
                .unwrap_or_default();
            let dependency = escape::line(input.dependency.as_deref().unwrap_or_default());
            rows.push([
                position,
                escape::line(&input.state),
                dependency,
                escape::short(&value, 60),
            ]);
        }
        match next {
            Some(next) => from = next,
            None => break,
        }
    }
    if !context.is_json() {
        context.line(rows.text())?;
    }
    Ok(Exit::Done)
}
