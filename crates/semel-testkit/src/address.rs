//! PostgreSQL URLs, taken apart so that a test can go to another database or through another port.

use std::fmt;

/// A URL of the form `postgres://user:password@host:port/database?parameters`, one host only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresUrl {
    user: String,
    /// The host, as written.
    pub host: String,
    /// The port; 5432 if none is written.
    pub port: u16,
    /// The database; empty if none is written.
    pub database: String,
    parameters: String,
}

impl PostgresUrl {
    /// Reads a URL, or says what is wrong with it.
    pub fn parse(url: &str) -> Result<PostgresUrl, String> {
        let rest = url
            .strip_prefix("postgres://")
            .or_else(|| url.strip_prefix("postgresql://"))
            .ok_or("a PostgreSQL URL starts with postgres://")?;
        let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (host, port) = match host.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() => {
                (host, port.parse().map_err(|_| format!("`{port}` is not a port"))?)
            }
            _ => (host, 5432),
        };
        if host.is_empty() || host.contains([',', '[', '%']) {
            return Err("tests need one TCP host in the PostgreSQL URL, such as 127.0.0.1".into());
        }
        Ok(PostgresUrl {
            user: user.into(),
            host: host.into(),
            port,
            database: database.into(),
            parameters: parameters.into(),
        })
    }

    /// The same server, another database.
    pub fn with_database(&self, database: &str) -> PostgresUrl {
        PostgresUrl { database: database.into(), ..self.clone() }
    }

    /// The same database by way of 127.0.0.1 and another port: a proxy or a pooler.
    pub fn with_port(&self, port: u16) -> PostgresUrl {
        PostgresUrl { host: "127.0.0.1".into(), port, ..self.clone() }
    }

    /// The user's name, without a password; empty if none is written.
    pub fn user_name(&self) -> &str {
        self.user.split(':').next().unwrap_or_default()
    }

    /// The password, if one is written.
    pub fn password(&self) -> Option<&str> {
        self.user.split_once(':').map(|(_, password)| password)
    }

    /// Host and port, to connect to.
    pub fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "postgres://")?;
        if !self.user.is_empty() {
            write!(f, "{}@", self.user)?;
        }
        write!(f, "{}:{}/{}", self.host, self.port, self.database)?;
        if !self.parameters.is_empty() {
            write!(f, "?{}", self.parameters)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::PostgresUrl;

    #[test]
    fn a_url_keeps_its_user_and_parameters_when_database_and_port_change() {
        let url = PostgresUrl::parse("postgresql://me:s@db.example:6000/shop?sslmode=disable").unwrap();
        assert_eq!(url.with_database("t").with_port(7).to_string(), "postgres://me:s@127.0.0.1:7/t?sslmode=disable");
        assert_eq!((url.user_name(), url.password()), ("me", Some("s")));
    }

    #[test]
    fn a_url_without_port_and_database_gets_the_usual_port() {
        assert_eq!(PostgresUrl::parse("postgres://localhost").unwrap().to_string(), "postgres://localhost:5432/");
    }

    #[test]
    fn a_url_that_is_not_one_tcp_host_is_refused() {
        for url in ["mysql://x/y", "postgres:///db", "postgres://a:1,b:2/db", "postgres://a:port/db"] {
            assert!(PostgresUrl::parse(url).is_err(), "{url}");
        }
    }
}
