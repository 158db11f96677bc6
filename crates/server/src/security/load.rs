//! Loads credentials from files, at the start and when they change.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError, RwLock};

use ganger_access::{AccessFile, Audit, Outcome, Record};
use ganger_tls::{Server, ServerFiles};
use jiff::Timestamp;
use tokio::sync::watch as channel;

use super::attempts::LoginAttempts;
use super::watch::stamps;
use super::{Credentials, Require, Security};
use crate::config::{Config, ConfigError};
use crate::error::StartError;
use crate::secret::Secret;

/// The files with certificates, tokens and rights.
pub(super) struct Files {
    pub(super) tls: Option<ServerFiles>,
    pub(super) token: Option<PathBuf>,
    pub(super) access: Option<PathBuf>,
    pub(super) peer_token: Option<PathBuf>,
}

impl Files {
    /// Returns all files that are read again when they change.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let tls = self.tls.iter().flat_map(ServerFiles::paths);
        tls.chain(&self.token)
            .chain(&self.access)
            .chain(&self.peer_token)
            .cloned()
            .collect()
    }
}

fn fault(place: &str, reason: impl Into<String>) -> StartError {
    StartError::Config(ConfigError {
        place: place.to_owned(),
        reason: reason.into(),
    })
}

impl Security {
    /// Reads everything that the settings name.
    ///
    /// # Errors
    /// If settings contradict each other, or a file cannot be used.
    pub(crate) fn load(config: &Config) -> Result<Self, StartError> {
        let has_tokens =
            config.token.is_some() || config.token_file.is_some() || config.access_file.is_some();
        let has_client_ca = config.tls.client_ca.is_some();
        let require = |own: Option<Require>, place: &str| {
            let require = own.or(config.require);
            let require =
                require.unwrap_or_else(|| Require::default_for(has_tokens, has_client_ca));
            let checked = require.check(has_tokens, has_client_ca);
            checked.map_err(|reason| fault(place, format!("{require}: {reason}")))?;
            Ok::<_, StartError>(require)
        };
        let http = require(config.require_http, "http.require or require")?;
        let grpc = require(config.require_grpc, "grpc.require or require")?;
        let is_client_required = http.always_wants_certificate() && grpc.always_wants_certificate();
        #[cfg(feature = "redis")]
        let resp = require(config.redis.require, "resp_require or require")?;
        #[cfg(feature = "redis")]
        let is_client_required =
            is_client_required && (config.redis.addr.is_none() || resp.always_wants_certificate());
        let files = Files {
            tls: tls_files(config, is_client_required)?,
            token: config.token_file.clone(),
            access: config.access_file.clone(),
            peer_token: config.peer_token_file.clone(),
        };
        // Taken before the files are read, so that no change in between is missed.
        let stamps_at_start = stamps(&files.paths());
        let audit = match &config.audit_log {
            None => Audit::to_log(),
            Some(path) => Audit::to_file(path).map_err(|error| {
                fault(
                    "audit_log",
                    format!("{} cannot be written: {error}", path.display()),
                )
            })?,
        };
        let audit = audit.keeping();
        let current = Credentials {
            tls: files.tls.as_ref().map(read_certificates).transpose()?,
            shared_token: match &files.token {
                Some(path) => Some(read_token(path)?),
                None => config.token.clone(),
            },
            access: files.access.as_deref().map(read_access).transpose()?,
            peer_token: files.peer_token.as_deref().map(read_token).transpose()?,
            cluster: config.cluster().map(str::to_owned),
        };
        Ok(Self {
            files,
            stamps_at_start,
            current: RwLock::new(current),
            changes: channel::Sender::new(0),
            http,
            grpc,
            #[cfg(feature = "redis")]
            resp,
            attempts: LoginAttempts::default(),
            audit,
            logins_failed: AtomicU64::new(0),
        })
    }

    /// Reads all files again. A file that cannot be used is refused and logged, and the old content stays in use.
    pub(crate) fn reload(&self) {
        if let Err(error) = self.audit.reopen() {
            tracing::error!(%error, "the audit log cannot be reopened; the old file stays in use");
        }
        let mut fresh = self.current();
        let mut changes = Vec::new();
        if let Some(files) = &self.files.tls
            && let Some(tls) = self.accept_or_log("certificates", read_certificates(files))
        {
            // A change cannot be detected here. Open connections keep their encryption; client certificates are
            // verified again.
            fresh.tls = Some(tls);
        }
        if let Some(path) = &self.files.token
            && let Some(token) = self.accept_or_log("token_file", read_token(path))
            && fresh.shared_token.replace(token.clone()) != Some(token)
        {
            changes.push("the shared token has changed".to_owned());
        }
        if let Some(path) = &self.files.peer_token
            && let Some(token) = self.accept_or_log("peer_token_file", read_token(path))
            && fresh.peer_token.replace(token.clone()) != Some(token)
        {
            changes.push("the token for other servers has changed".to_owned());
        }
        if let Some(path) = &self.files.access
            && let Some(access) = self.accept_or_log("access_file", read_access(path))
        {
            let before = fresh.access.replace(Arc::clone(&access));
            changes.extend(access.changes_since(&before.unwrap_or_default()));
        }
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        self.changes.send_modify(|count| *count += 1);
        for change in changes {
            tracing::info!(change, "rights have changed");
            self.audit_own_action("rights", Outcome::Done, change);
        }
        tracing::info!("certificates and tokens have been read again");
    }

    /// Wakes requests in progress if a token has expired between these times.
    pub(super) fn note_expired(&self, since: Timestamp, until: Timestamp) {
        let access = self.current().access;
        if access.is_some_and(|access| access.expires_within(since, until)) {
            self.changes.send_modify(|count| *count += 1);
        }
    }

    fn accept_or_log<T>(&self, what: &'static str, loaded: Result<T, StartError>) -> Option<T> {
        match loaded {
            Ok(loaded) => Some(loaded),
            Err(error) => {
                tracing::error!(what, %error, "a changed file is refused; the old content stays in use");
                self.audit_own_action("configuration", Outcome::Refused, error.to_string());
                None
            }
        }
    }

    /// Records in the audit log what the server did by itself.
    pub(crate) fn audit_own_action(&self, what: &str, outcome: Outcome, detail: String) {
        self.audit.write(&Record {
            detail: Some(detail),
            ..Record::new("the server", what, outcome)
        });
    }
}

fn tls_files(config: &Config, is_client_required: bool) -> Result<Option<ServerFiles>, StartError> {
    let tls = &config.tls;
    let (certificate, key) = match (&tls.cert, &tls.key) {
        (Some(certificate), Some(key)) => (certificate.clone(), key.clone()),
        (Some(_), None) => {
            return Err(fault(
                "tls.cert",
                "needs the certificate's key: set tls.key",
            ));
        }
        (None, Some(_)) => {
            return Err(fault(
                "tls.key",
                "needs the key's certificate: set tls.cert",
            ));
        }
        (None, None) if tls.client_ca.is_some() => {
            return Err(fault(
                "tls.client_ca",
                "needs the server's own certificate: set tls.cert and tls.key",
            ));
        }
        (None, None) => return Ok(None),
    };
    if tls.client_crl.is_some() && tls.client_ca.is_none() {
        return Err(fault(
            "tls.client_crl",
            "needs the authority of clients: set tls.client_ca",
        ));
    }
    warn_if_others_may_read(&key);
    Ok(Some(ServerFiles {
        certificate,
        key,
        client_ca: tls.client_ca.clone(),
        client_crl: tls.client_crl.clone(),
        is_client_required,
    }))
}

fn read_certificates(files: &ServerFiles) -> Result<Arc<Server>, StartError> {
    Ok(Arc::new(Server::read(files)?))
}

fn read_token(path: &Path) -> Result<Secret, StartError> {
    let refused = |reason: String| StartError::Token {
        path: path.to_owned(),
        reason,
    };
    warn_if_others_may_read(path);
    let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    Secret::new(&text).map_err(refused)
}

fn read_access(path: &Path) -> Result<Arc<AccessFile>, StartError> {
    warn_if_others_may_read(path);
    Ok(Arc::new(AccessFile::load(path)?))
}

fn warn_if_others_may_read(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    if let Ok(metadata) = std::fs::metadata(path)
        && metadata.permissions().mode() & 0o007 != 0
    {
        tracing::warn!(path = %path.display(), "every user of this machine can read this secret: chmod 600");
    }
}
