//! What a part serves while this process has its shard: always, or by turns as a node of a cluster.

use std::sync::{PoisonError, RwLock};

use tokio_util::sync::CancellationToken;

/// Something over a shard, such as a port, that exists only while this process serves the shard.
pub(crate) struct ByTurns<T> {
    now: RwLock<Option<(T, CancellationToken)>>,
    /// Ends with the server.
    stopping: CancellationToken,
}

impl<T: Clone> ByTurns<T> {
    pub(crate) fn new(stopping: CancellationToken) -> Self {
        Self {
            now: RwLock::default(),
            stopping,
        }
    }

    /// Returns it; `None` while another process serves the shard.
    pub(crate) fn now(&self) -> Option<T> {
        let now = self.now.read().unwrap_or_else(PoisonError::into_inner);
        now.as_ref().map(|(it, _)| it.clone())
    }

    /// Makes it from a token that is cancelled at the end of the turn.
    pub(crate) fn begin(&self, make: impl FnOnce(CancellationToken) -> T) {
        let turn = self.stopping.child_token();
        let over_shard = make(turn.clone());
        self.replace(Some((over_shard, turn)));
    }

    /// Ends the turn: another process serves the shard from now on.
    pub(crate) fn end(&self) {
        self.replace(None);
    }

    fn replace(&self, next: Option<(T, CancellationToken)>) {
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, turn)) = std::mem::replace(&mut *now, next) {
            turn.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_of_a_turn_ends_with_it_and_with_the_server() {
        let stopping = CancellationToken::new();
        let turns = ByTurns::new(stopping.clone());
        assert!(turns.now().is_none());
        turns.begin(|turn| turn);
        let first = turns.now().expect("a turn has begun");
        turns.begin(|turn| turn);
        assert!(first.is_cancelled());
        let second = turns.now().expect("a turn has begun");
        turns.end();
        assert!(second.is_cancelled() && turns.now().is_none());
        turns.begin(|turn| turn);
        let third = turns.now().expect("a turn has begun");
        stopping.cancel();
        assert!(third.is_cancelled());
    }
}
