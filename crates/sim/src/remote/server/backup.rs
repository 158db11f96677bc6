//! Backups of a server, and what becomes of it when one is restored.

use super::{Servers, Standby};

impl Servers {
    /// Takes a backup of a server.
    pub(crate) fn back_up(&mut self, number: usize) {
        let server = &mut self.all[number];
        server.backup = Some(server.tables.copy());
    }

    /// Restores the backup of a server, which has a standby like it then; false if there is none. With `keeps_sessions` the
    /// sessions without a transaction go on in the restored database, as it is behind a pooler.
    pub(crate) fn restore(&mut self, number: usize, keeps_sessions: bool) -> bool {
        let Some(tables) = self.all[number].backup.take() else {
            return false;
        };
        let on_it = self.sessions.iter();
        let ended = on_it.filter(|(_, session)| {
            session.server == number && (!keeps_sessions || session.transaction.is_some())
        });
        let ended: Vec<u64> = ended.map(|(session, _)| *session).collect();
        for session in ended {
            self.terminate(session);
        }
        let server = &mut self.all[number];
        server.run.database_oid += 1;
        server.standby = server.standby.is_some().then(|| Standby {
            tables: tables.copy(),
            received: 0,
            stalled_until: 0,
        });
        server.wal.clear();
        let gone = std::mem::replace(&mut server.tables, tables);
        self.replaced.push(gone);
        true
    }
}
