//! Which database, and how to name it without its password.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};

/// A database. Shown without its password, whatever shows it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum DatabaseUrl {
    /// A file.
    Sqlite(PathBuf),
    /// A server, as its driver wants it.
    Postgres(String),
}

impl DatabaseUrl {
    /// Reads `sqlite:PATH` or `postgres://…`.
    pub(crate) fn parse(text: &str) -> Result<DatabaseUrl> {
        if let Some(path) = text.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            ensure!(!path.is_empty(), "the path after sqlite: is missing");
            ensure!(path != ":memory:", "an in-memory database would forget every key at the next start");
            ensure!(!path.contains('?'), "parameters after '?' are not supported");
            return Ok(DatabaseUrl::Sqlite(PathBuf::from(path)));
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(DatabaseUrl::Postgres(text.to_owned()));
        }
        bail!("it starts neither with sqlite: nor with postgres://")
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DatabaseUrl::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            DatabaseUrl::Postgres(url) => f.write_str(&without_password(url)),
        }
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Leaves scheme, user, hosts and database. The parameters are dropped, since a password may stand there too, and where
/// an unescaped `?` or `@` leaves open which part is the password, only the scheme is left.
fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("postgres", url));
    let Some((user, rest)) = rest.rsplit_once('@') else {
        return format!("{scheme}://{}", rest.split('?').next().unwrap_or_default());
    };
    if user.contains('?') {
        return format!("{scheme}://…");
    }
    let user = user.split([':', '/']).next().unwrap_or_default();
    format!("{scheme}://{user}@{}", rest.split('?').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_or_a_server_is_a_database() {
        let file = |path: &str| DatabaseUrl::Sqlite(path.into());
        assert_eq!(DatabaseUrl::parse("sqlite:semel.db").unwrap(), file("semel.db"));
        assert_eq!(DatabaseUrl::parse("sqlite://semel.db").unwrap(), file("semel.db"));
        assert_eq!(DatabaseUrl::parse("sqlite:///var/semel.db").unwrap(), file("/var/semel.db"));
        assert_eq!(DatabaseUrl::parse("sqlite:/var/semel.db").unwrap(), file("/var/semel.db"));
        assert!(matches!(DatabaseUrl::parse("postgresql://h/d").unwrap(), DatabaseUrl::Postgres(_)));
        for wrong in ["", "semel.db", "sqlite:", "sqlite::memory:", "sqlite:a?mode=ro", "mysql://h/d"] {
            assert!(DatabaseUrl::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        for url in [
            "postgres://u:hunter2@h:5432/d",
            "postgres://u:hunter2@h/d?sslmode=require",
            "postgres://u@h/d?password=hunter2",
            "postgres://u:p/w?x@hunter2@h/d",
            "postgres://h/d?user=u&password=hunter2@x",
            "postgres://h/d?password=a@hunter2",
        ] {
            let parsed = DatabaseUrl::parse(url).unwrap();
            assert!(!format!("{parsed} {parsed:?}").contains("hunter2"), "{parsed}");
        }
        let parsed = DatabaseUrl::parse("postgres://u:hunter2@h:5432/d").unwrap();
        assert_eq!(parsed.to_string(), "postgres://u@h:5432/d");
    }
}
