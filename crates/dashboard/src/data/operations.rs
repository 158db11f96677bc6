//! Operations of the shards of a view.

use ganger_shard::Handle;
use ganger_types::query::Query;
use ganger_types::{OperationNumber, OperationRecord, Reply, ShardId};
use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::question::Question;
use crate::view::{Missing, View};
use crate::wire::Stored;

/// The newest operations of a shard.
#[derive(Serialize, Deserialize)]
pub(crate) struct Newest {
    limit: usize,
}

impl Question for Newest {
    const NAME: &'static str = "operations";
    type Answer = Vec<Stored<OperationRecord>>;

    fn operation(&self) -> &'static str {
        "listOperations"
    }

    async fn ask(&self, view: &View, shard: &Handle) -> Result<Self::Answer, Fault> {
        let query = Query::Operations(view.namespace().clone(), None, self.limit);
        match view.ask(shard, query).await? {
            Reply::Operations(records) => Ok(records.into_iter().map(Stored).collect()),
            _ => Err(Fault::unexpected_reply()),
        }
    }
}

/// The newest operations of each shard of the view, at most so many of each.
pub(crate) async fn all(
    view: &View,
    limit: usize,
) -> Result<(Vec<(ShardId, OperationRecord)>, Missing), Fault> {
    let gathered = view.gather(&Newest { limit }).await?;
    let rows = gathered.found.into_iter().flat_map(|(shard, records)| {
        let records = records.into_iter();
        records.map(move |Stored(record)| (shard.clone(), record))
    });
    Ok((rows.collect(), gathered.missing))
}

/// The shard and the number in the name of an operation, `shard/op-7`; without a shard, that of the view.
pub(crate) fn parse(view: &View, id: &str) -> Result<(Handle, OperationNumber), Fault> {
    let wrong = || Fault::value("id", "must name an operation, such as 1/op-7");
    let (shard, number) = match id.rsplit_once('/') {
        Some((shard, number)) => {
            let shard = ShardId::new(shard).ok_or_else(wrong)?;
            (view.shard(&shard)?.clone(), number)
        }
        None => {
            let first = view.shards().first().unwrap_or(view.home());
            (first.clone(), id)
        }
    };
    let number = OperationNumber::parse(number).ok_or_else(wrong)?;
    Ok((shard, number))
}
