//! `ganger whoami`: who the server takes the caller for, and what it may do.

use clap::Args;
use ganger_document::view::whoami;

use crate::context::Context;
use crate::exit::{Exit, Outcome};
use crate::show::table::facts;
use crate::show::{escape, time};

/// Shows who the server takes the caller for, and what the caller may do.
#[derive(Args, Debug)]
pub(crate) struct WhoAmIArgs {}

pub(crate) async fn run(context: &Context, _: &WhoAmIArgs) -> Outcome {
    let who = context.client().await?.whoami().await?;
    if context.is_json() {
        context.json(&whoami::WhoAmI {
            who: who.who,
            grants: who.grants,
            expires_at: who.expires_at,
            read_only: who.read_only,
        })?;
        return Ok(Exit::Done);
    }
    let roles = who.grants.iter().map(|grant| {
        let namespace = escape::line(&grant.namespace);
        format!("{} in {namespace}", escape::line(&grant.role))
    });
    let roles: Vec<String> = roles.collect();
    let or_nothing = |words: &[String]| match words {
        [] => "nothing".to_owned(),
        words => words.join(", "),
    };
    let namespace = escape::line(&context.global.namespace);
    let may = format!("may in {namespace}");
    context.line(facts(&[
        ("who", escape::line(&who.who)),
        ("roles", or_nothing(&roles)),
        (&may, or_nothing(&who.may)),
        (
            "until",
            who.expires_at
                .map_or("it is revoked".to_owned(), time::absolute),
        ),
    ]))?;
    Ok(Exit::Done)
}
