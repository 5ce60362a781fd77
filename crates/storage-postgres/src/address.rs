//! Where a server is, and what a client without TLS may use.

use rota_model::FieldError;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// How long one attempt to connect may take, for each host.
const CONNECT: Duration = Duration::from_secs(5);
/// Silence of a connection after which the kernel asks, and ends it when nobody answers.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// Where a server is, and as whom. It may hold a password, which is never shown.
#[derive(Clone)]
pub struct Address {
    config: Config,
    shown: String,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.shown)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl PartialEq for Address {
    fn eq(&self, other: &Self) -> bool {
        self.config == other.config
    }
}
impl Eq for Address {}

impl Address {
    /// Reads `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`, or `host=... user=... dbname=...`. Records would cross a
    /// network in clear, so a host outside of this machine needs `insecure`. `field` is what the text came from.
    ///
    /// # Errors
    /// The text does not parse; it names no host or database; it asks for TLS; the host is elsewhere.
    pub fn parse(field: &str, text: &str, insecure: bool) -> Result<Self, FieldError> {
        let wrong = |problem: String| FieldError::new(field, problem);
        let mut config = Config::from_str(text).map_err(|error| {
            // The source names the option that is wrong, and no value of it.
            let why = std::error::Error::source(&error).map(|it| format!(": {it}"));
            wrong(format!(
                "does not parse{}; it must be postgresql://USER:PASSWORD@HOST:PORT/DATABASE",
                why.unwrap_or_default()
            ))
        })?;
        if config.get_ssl_mode() == SslMode::Require {
            let problem = "asks for sslmode=require, and this program speaks no TLS: lead the connection through \
                           a tunnel of this machine, and name its end here";
            return Err(wrong(problem.to_owned()));
        }
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            let problem = "names no host: give HOST, 127.0.0.1, or the folder of a UNIX socket as \
                           ?host=/run/postgresql";
            return Err(wrong(problem.to_owned()));
        }
        if config.get_dbname().is_none() {
            return Err(wrong("names no database: end it in /DATABASE".to_owned()));
        }
        let elsewhere = elsewhere(&config).filter(|_| !insecure);
        if let Some(host) = elsewhere {
            return Err(wrong(format!(
                "names host {host}, outside of this machine, and nothing is encrypted: lead the connection through \
                 a tunnel, or give --insecure-engine where the network may see all records"
            )));
        }
        config.ssl_mode(SslMode::Disable).connect_timeout(CONNECT);
        config.tcp_user_timeout(KEEPALIVE).keepalives_idle(KEEPALIVE);
        config.keepalives_interval(KEEPALIVE / 2).keepalives_retries(2);
        let shown = shown(&config);
        Ok(Self { config, shown })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }
}

fn is_near(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|it| it.is_loopback())
}

/// The first host that is another machine, as far as the text says. An address stands for its host.
fn elsewhere(config: &Config) -> Option<String> {
    let addresses = config.get_hostaddrs();
    if !addresses.is_empty() {
        return addresses.iter().find(|it| !it.is_loopback()).map(ToString::to_string);
    }
    config.get_hosts().iter().find_map(|host| match host {
        Host::Tcp(name) => (!is_near(name)).then(|| name.clone()),
        Host::Unix(_) => None,
    })
}

/// Host, port and database: what messages show.
fn shown(config: &Config) -> String {
    let ports = config.get_ports();
    let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(5432);
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .enumerate()
        .map(|(at, host)| match host {
            Host::Tcp(name) => format!("{name}:{}", port(at)),
            Host::Unix(path) => format!("{}/.s.PGSQL.{}", path.display(), port(at)),
        })
        .collect();
    let addresses = config.get_hostaddrs().iter().enumerate();
    let addresses: Vec<String> =
        addresses.map(|(at, it)| std::net::SocketAddr::new(*it, port(at)).to_string()).collect();
    let hosts = if hosts.is_empty() { addresses } else { hosts };
    format!(
        "PostgreSQL at {}, database {}",
        hosts.join(","),
        config.get_dbname().unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let told = Address::parse("--engine-url-file", text, false).unwrap_err().to_string();
        assert!(told.starts_with("--engine-url-file "), "{told}");
        assert!(!told.contains("sesame"), "the password is shown: {told}");
        told
    }

    #[test]
    fn sockets_and_loopback_are_taken_and_no_password_is_shown() {
        for (text, shown) in [
            (
                "postgresql://u:sesame@127.0.0.1:5433/rota",
                "PostgreSQL at 127.0.0.1:5433, database rota",
            ),
            ("postgresql://u@localhost/rota", "PostgreSQL at localhost:5432, database rota"),
            ("postgresql://u@[::1]:1/rota", "PostgreSQL at ::1:1, database rota"),
            (
                "postgresql:///rota?host=/run/postgresql&user=u&port=77",
                "PostgreSQL at /run/postgresql/.s.PGSQL.77, database rota",
            ),
            (
                "host=/x user=u dbname=d password=sesame",
                "PostgreSQL at /x/.s.PGSQL.5432, database d",
            ),
        ] {
            let address = Address::parse("url", text, false).unwrap();
            assert_eq!(address.to_string(), shown);
            assert!(!format!("{address:?}").contains("sesame"));
        }
    }

    #[test]
    fn what_leaves_this_machine_or_asks_for_tls_is_refused_with_what_to_do() {
        for text in [
            "postgresql://u:sesame@db.example.org/rota",
            "postgresql://u:sesame@127.0.0.1,10.1.2.3/rota",
            "postgresql://u:sesame@localhost/rota?hostaddr=10.1.2.3",
        ] {
            assert!(refused(text).contains("--insecure-engine"), "{text}");
            Address::parse("url", text, true).unwrap();
        }
        let told = refused("postgresql://u:sesame@127.0.0.1/rota?sslmode=require");
        assert!(told.contains("speaks no TLS"), "{told}");
        assert!(refused("postgresql:///rota?user=u").contains("names no host"));
        assert!(refused("postgresql://u:sesame@127.0.0.1").contains("names no database"));
        assert!(refused("postgresql://u:sesame@127.0.0.1:x/rota").contains("does not parse"));
        assert!(refused("mysql://u:sesame@127.0.0.1/rota").contains("must be postgresql://"));
    }
}
