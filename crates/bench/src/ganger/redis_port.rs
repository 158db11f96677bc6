//! ganger's Redis port, with the raw lists that Redis itself is measured with.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::target::Target;
use crate::redis::Lists;
use crate::{Blocking, Error, Links, Load, Peer, Role, Used};

/// A ganger server that is reached over its Redis port.
pub(super) struct RedisPort<'a> {
    target: &'a Target,
    lists: Blocking<Lists>,
}

impl<'a> RedisPort<'a> {
    /// Fails if the server has no such port.
    pub(super) fn new(target: &'a Target) -> Result<Self, Error> {
        let address = target.redis_address.ok_or_else(|| {
            Error::failed("the Redis port of a server that runs already cannot be measured: leave out --attach, or redis of --apis")
        })?;
        Ok(Self {
            target,
            lists: Blocking(Lists::new(address, None)),
        })
    }
}

impl Peer for RedisPort<'_> {
    fn connect<'a>(
        &'a self,
        load: &'a Arc<Load>,
        role: Role,
    ) -> BoxFuture<'a, Result<Links, Error>> {
        self.lists.connect(load, role)
    }

    fn used(&self) -> BoxFuture<'_, Used> {
        self.target.used().boxed()
    }

    fn blocks(&self) -> bool {
        true
    }
}
