//! Where the database is, and how it is used.

use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::config::{ChannelBinding, Host, SslMode, TargetSessionAttrs};
use tokio_postgres::{Config, config};

use crate::limits::Limits;
use crate::settings_error::SettingsError;
use crate::tls::TlsFiles;

/// The default of [`Settings::readers`].
const READERS: usize = 4;
/// The default of [`Settings::patience`].
const PATIENCE: Duration = Duration::from_secs(10);
/// The default of [`Settings::outage_max`].
const OUTAGE_MAX: Duration = Duration::from_secs(60);
/// Time that one address of a host may take to accept a connection.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// An idle connection is probed after this time, this often, and given up after this many probes.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(5);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(2);
const KEEPALIVES_MAX: u32 = 3;
/// Time after which sent bytes must be acknowledged by the peer's system.
const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(10);

/// Where the password is.
#[derive(Clone, PartialEq, Eq)]
pub enum PasswordSource {
    /// In the URL, or none is needed.
    Url,
    /// In a file, which is read for every connection.
    File(PathBuf),
    /// In this environment variable.
    Environment(String),
}

/// Where the database is, and how it is used.
#[derive(Clone)]
pub struct Settings {
    /// One for each host of the address, in its order.
    hosts: Vec<Config>,
    tls: Option<TlsFiles>,
    /// Source of the password; from the URL by default.
    pub password: PasswordSource,
    /// Whether statements are prepared once a connection; true by default. False for a pooler in transaction mode
    /// that does not follow prepared statements, such as pgbouncer before 1.21.
    pub prepared: bool,
    /// Largest number of connections that read, for all shards of this process; 4 by default.
    pub readers: usize,
    /// Time to wait for the answer of the database before a connection is given up; 10 s by default.
    pub patience: Duration,
    /// Longest outage of the database that a shard outlasts, for example while a standby is promoted; 60 s by default.
    /// Only a shard that was open before waits: the first time it says at once what is wrong.
    pub outage_max: Duration,
    /// Whether the database's storage itself survives the loss of a machine, as that of Aurora, Neon and `AlloyDB`;
    /// false by default.
    pub has_replicated_storage: bool,
    /// Whether a database that may lose acknowledged commits in a crash is used nevertheless; false by default.
    pub accepts_loss: bool,
    /// When rows are written behind the log.
    #[doc(hidden)]
    pub limits: Limits,
}

impl Settings {
    /// Reads the address of a database, such as `postgres://ganger_node@db1,db2/ganger?sslmode=verify-full`.
    ///
    /// Several hosts are tried in order for one that accepts writes; the next is tried too if one says nothing. Without
    /// `sslmode`, connections to loopback addresses and sockets are plain, and all others are encrypted. `sslrootcert`,
    /// `sslcert` and `sslkey` name files in PEM. Channel binding is required where a password is sent over TLS;
    /// `channel_binding=prefer` allows a pooler between.
    ///
    /// # Errors
    /// If the address has the wrong form, or asks for something that is not possible.
    pub fn from_url(url: &str) -> Result<Self, SettingsError> {
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let mut parameters = Parameters::default();
        let mut rest = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            if !parameters.take(pair) {
                rest.push(pair);
            }
        }
        let plain = if rest.is_empty() {
            address.to_owned()
        } else {
            format!("{address}?{}", rest.join("&"))
        };
        if !["postgres://", "postgresql://"]
            .iter()
            .any(|scheme| address.starts_with(scheme))
        {
            let reason = "it does not begin with postgres://".to_owned();
            return Err(SettingsError::Form(reason));
        }
        // The parser's own message may show a part of the password.
        let reason = || "a part of it cannot be read".to_owned();
        let parsed = plain.parse();
        let config: Config = parsed.map_err(|_| SettingsError::Form(reason()))?;
        Self::new(config, &parameters)
    }

    fn new(mut config: Config, parameters: &Parameters) -> Result<Self, SettingsError> {
        let (hosts, addresses) = (config.get_hosts().len(), config.get_hostaddrs().len());
        if config.get_hosts().is_empty() {
            return Err(SettingsError::Missing("host"));
        }
        if config.get_user().is_none() {
            return Err(SettingsError::Missing("user"));
        }
        if config.get_dbname().is_none() {
            return Err(SettingsError::Missing("database"));
        }
        if config.get_ports().len() > 1 && config.get_ports().len() != hosts {
            return Err(SettingsError::Form(
                "it has more ports than hosts".to_owned(),
            ));
        }
        if addresses > 0 && addresses != hosts {
            let reason = format!("it has {hosts} hosts and {addresses} of `hostaddr`");
            return Err(SettingsError::Form(reason));
        }
        let tls = parameters.tls(config.get_hosts().iter().all(is_local))?;
        if tls.is_some() {
            config.ssl_mode(SslMode::Require);
            if !parameters.has_channel_binding {
                config.channel_binding(ChannelBinding::Require);
            } else if let Some(binding) = parameters.channel_binding {
                config.channel_binding(binding);
            }
        } else {
            config.ssl_mode(SslMode::Disable);
            config.channel_binding(ChannelBinding::Disable);
        }
        Ok(Self {
            hosts: (0..hosts).map(|host| of_host(&config, host)).collect(),
            tls,
            password: PasswordSource::Url,
            prepared: true,
            readers: READERS,
            patience: PATIENCE,
            outage_max: OUTAGE_MAX,
            has_replicated_storage: false,
            accepts_loss: false,
            limits: Limits::default(),
        })
    }

    /// Returns what a connection with this name needs, for each host; the password is read now.
    pub(crate) fn connections(
        &self,
        application_name: &str,
    ) -> Result<(Vec<Config>, Option<TlsFiles>), SettingsError> {
        let password = self.read_password()?;
        let mut hosts = self.hosts.clone();
        for config in &mut hosts {
            config.application_name(application_name);
            if let Some(password) = &password {
                config.password(password);
            }
        }
        Ok((hosts, self.tls.clone()))
    }

    /// Reads the password; `None` if it is in the URL.
    fn read_password(&self) -> Result<Option<String>, SettingsError> {
        match &self.password {
            PasswordSource::Url => Ok(None),
            PasswordSource::File(path) => {
                let read = std::fs::read_to_string(path);
                let password = read.map_err(|error| SettingsError::File {
                    path: path.display().to_string(),
                    reason: error.to_string(),
                })?;
                Ok(Some(password.trim_end_matches(['\r', '\n']).to_owned()))
            }
            PasswordSource::Environment(name) => {
                let password = std::env::var(name);
                let password = password.map_err(|_| SettingsError::Environment(name.clone()))?;
                Ok(Some(password))
            }
        }
    }

    /// How many hosts the address names.
    pub(crate) fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// Whether the address has a password, which others may read where addresses are shown.
    pub fn has_password(&self) -> bool {
        self.hosts[0].get_password().is_some()
    }

    /// Returns the database in words, without the password.
    pub(crate) fn label(&self) -> String {
        let hosts: Vec<_> = self.hosts.iter().map(show_host).collect();
        let name = self.hosts[0].get_dbname().unwrap_or_default();
        format!("postgres://{}/{name}", hosts.join(","))
    }
}

/// Returns the host that a connection goes to, in words.
pub(crate) fn show_host(config: &Config) -> String {
    match config.get_hosts() {
        [Host::Tcp(name), ..] => name.clone(),
        #[cfg(unix)]
        [Host::Unix(path), ..] => path.display().to_string(),
        [] => String::new(),
    }
}

/// Returns the same for one of the hosts only.
fn of_host(all: &Config, host: usize) -> Config {
    let mut one = Config::new();
    match &all.get_hosts()[host] {
        Host::Tcp(name) => one.host(name),
        #[cfg(unix)]
        Host::Unix(path) => one.host_path(path),
    };
    if let Some(address) = all.get_hostaddrs().get(host) {
        one.hostaddr(*address);
    }
    let ports = all.get_ports();
    if let Some(port) = ports.get(host).or(ports.first()) {
        one.port(*port);
    }
    if let Some(user) = all.get_user() {
        one.user(user);
    }
    if let Some(password) = all.get_password() {
        one.password(password);
    }
    if let Some(name) = all.get_dbname() {
        one.dbname(name);
    }
    if let Some(options) = all.get_options() {
        one.options(options);
    }
    one.keepalives(all.get_keepalives())
        .ssl_negotiation(all.get_ssl_negotiation())
        .ssl_mode(all.get_ssl_mode())
        .channel_binding(all.get_channel_binding())
        .target_session_attrs(TargetSessionAttrs::ReadWrite)
        .connect_timeout(CONNECT_MAX)
        .keepalives_idle(KEEPALIVE_AFTER)
        .keepalives_interval(KEEPALIVE_EVERY)
        .keepalives_retries(KEEPALIVES_MAX)
        .tcp_user_timeout(UNACKNOWLEDGED_MAX);
    one
}

/// Whether nobody else sees the bytes of connections to a host.
fn is_local(host: &config::Host) -> bool {
    match host {
        Host::Tcp(name) => {
            name == "localhost"
                || name
                    .parse::<std::net::IpAddr>()
                    .is_ok_and(|address| address.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    }
}

/// Parameters of a URL that are read here.
#[derive(Default)]
struct Parameters {
    ssl_mode: Option<String>,
    roots: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    has_channel_binding: bool,
    channel_binding: Option<ChannelBinding>,
}

impl Parameters {
    /// Takes a parameter; false if it is one for the parser of addresses.
    fn take(&mut self, pair: &str) -> bool {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name {
            "sslmode" => self.ssl_mode = Some(value.to_owned()),
            "sslrootcert" => self.roots = Some(value.into()),
            "sslcert" => self.certificate = Some(value.into()),
            "sslkey" => self.key = Some(value.into()),
            "channel_binding" => {
                self.channel_binding = match value {
                    "require" => Some(ChannelBinding::Require),
                    "prefer" => Some(ChannelBinding::Prefer),
                    "disable" => Some(ChannelBinding::Disable),
                    _ => return false,
                };
                self.has_channel_binding = true;
            }
            _ => return false,
        }
        true
    }

    fn tls(&self, is_local: bool) -> Result<Option<TlsFiles>, SettingsError> {
        let is_encrypted = match self.ssl_mode.as_deref() {
            Some("disable") => false,
            Some("verify-full") => true,
            None => !is_local,
            Some(other) => return Err(SettingsError::SslMode(other.to_owned())),
        };
        let client = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
            (None, None) => None,
            (Some(_), None) => return Err(SettingsError::Half("sslcert", "sslkey")),
            (None, Some(_)) => return Err(SettingsError::Half("sslkey", "sslcert")),
        };
        Ok(is_encrypted.then(|| TlsFiles {
            roots: self.roots.clone(),
            client,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str) -> Result<Settings, SettingsError> {
        Settings::from_url(url)
    }

    #[test]
    fn connections_beyond_the_machine_are_encrypted_unless_that_is_refused() {
        let is_encrypted = |url| read(url).expect("it is whole").tls.is_some();
        assert!(is_encrypted("postgres://n@db.example/g"));
        assert!(is_encrypted("postgres://n@127.0.0.1,db.example/g"));
        assert!(!is_encrypted("postgres://n@127.0.0.1,[::1]:6432/g"));
        assert!(is_encrypted("postgres://n@localhost/g?sslmode=verify-full"));
        assert!(!is_encrypted("postgres://n@db.example/g?sslmode=disable"));
    }

    #[test]
    fn an_address_names_host_user_and_database() {
        for (url, missing) in [
            ("postgres://n@/g", "host"),
            ("postgres://h/g", "user"),
            ("postgres://n@h", "database"),
        ] {
            assert_eq!(read(url).err(), Some(SettingsError::Missing(missing)));
        }
    }

    #[test]
    fn what_cannot_be_used_is_refused_without_showing_the_password() {
        for url in [
            "mysql://n:geheim@h/g",
            "postgres://n:ge:heim@h:port/g",
            "postgres://n:geheim@h/g?sslmode=require",
            "postgres://n:geheim@h/g?sslcert=x",
            "postgres://n:geheim@h/g?nothing=1",
        ] {
            let error = read(url).err().expect(url);
            assert!(!format!("{error} {error:?}").contains("heim"), "{error}");
        }
        let settings = read("postgres://n:geheim@h/g").expect("it is whole");
        assert_eq!(settings.label(), "postgres://h/g");
    }

    #[test]
    fn a_password_comes_from_a_file_that_is_read_for_every_connection() {
        let file = tempfile::NamedTempFile::new().expect("a file can be made");
        let mut settings = read("postgres://n@localhost/g").expect("it is whole");
        settings.password = PasswordSource::File(file.path().into());
        for password in ["one", "two"] {
            std::fs::write(file.path(), format!("{password}\n")).expect("it can be written");
            let (hosts, _) = settings.connections("test").expect("the file is there");
            assert_eq!(hosts[0].get_password(), Some(password.as_bytes()));
        }
    }

    #[test]
    fn a_connection_to_one_of_several_hosts_keeps_the_rest_of_the_address() {
        let url = "postgres://n:p@a:1,b:2/g?options=-c%20jit%3Doff&hostaddr=10.0.0.1,10.0.0.2";
        let (hosts, _) = read(url)
            .and_then(|settings| settings.connections("test"))
            .expect("it is whole");
        let whole: Config = url.parse().expect("it is whole");
        assert_eq!(hosts.len(), 2);
        for (at, host) in hosts.iter().enumerate() {
            assert_eq!(host.get_hosts(), &whole.get_hosts()[at..=at]);
            assert_eq!(host.get_hostaddrs(), &whole.get_hostaddrs()[at..=at]);
            assert_eq!(host.get_ports(), &whole.get_ports()[at..=at]);
            assert_eq!(host.get_user(), whole.get_user());
            assert_eq!(host.get_password(), whole.get_password());
            assert_eq!(host.get_dbname(), whole.get_dbname());
            assert_eq!(host.get_options(), whole.get_options());
            assert_eq!(host.get_application_name(), Some("test"));
        }
    }

    #[test]
    fn ports_and_addresses_belong_to_hosts() {
        for url in [
            "postgres://n@a,b/g?port=1,2,3",
            "postgres://n@a,b/g?hostaddr=10.0.0.1",
        ] {
            assert!(matches!(read(url).err(), Some(SettingsError::Form(_))));
        }
    }
}
