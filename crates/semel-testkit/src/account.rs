//! Who a private server runs as: PostgreSQL and pgbouncer refuse to run as root.

use std::io;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The account that private servers run under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Account {
    /// The user who runs the tests.
    Current,
    /// Another user, because the tests run as root.
    Other {
        /// The user id.
        uid: u32,
        /// The group id.
        gid: u32,
    },
}

impl Account {
    /// The current user, or `postgres` (else `nobody`) when that is root.
    pub fn for_servers() -> io::Result<Account> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Account::Current);
        }
        let users = std::fs::read_to_string("/etc/passwd")?;
        ["postgres", "nobody"].into_iter().find_map(|name| find(&users, name)).ok_or_else(|| {
            io::Error::other("servers cannot run as root and there is no user `postgres`: run `useradd postgres`")
        })
    }

    /// A command that runs under this account.
    pub fn command(self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        if let Account::Other { uid, gid } = self {
            command.uid(uid).gid(gid);
        }
        // A caller's settings for its own server must not reach a private one.
        for variable in ["PGDATA", "PGHOST", "PGPORT", "PGUSER", "PGDATABASE", "PGOPTIONS", "PGSERVICE"] {
            command.env_remove(variable);
        }
        command.env("LC_ALL", "C").stdin(Stdio::null());
        command
    }

    /// Makes `wanted` a directory of this account and returns it, or returns one under the system's temporary
    /// directory when the account cannot reach `wanted`, as below root's home. The same `wanted` always gives the same
    /// answer, so that a later process finds the server again.
    pub fn directory(self, wanted: &Path) -> io::Result<PathBuf> {
        self.own(wanted)?;
        let wanted = wanted.canonicalize()?;
        if self.reaches(&wanted) {
            return Ok(wanted);
        }
        let elsewhere = elsewhere(&wanted);
        self.own(&elsewhere)?;
        if self.reaches(&elsewhere) {
            return Ok(elsewhere);
        }
        Err(io::Error::other(format!(
            "the account that runs private servers reaches neither {} nor {}: set CARGO_TARGET_DIR to a directory \
             whose parents every user may enter",
            wanted.display(),
            elsewhere.display()
        )))
    }

    /// Removes what [`Account::directory`] made for `wanted`, wherever that was.
    pub fn remove_directory(self, wanted: &Path) {
        if let Ok(wanted) = wanted.canonicalize() {
            for directory in [elsewhere(&wanted), wanted] {
                let _ = std::fs::remove_dir_all(directory);
            }
        }
    }

    /// Writes a file that this account can read, whatever the umask.
    pub fn write(self, file: &Path, contents: &str) -> io::Result<()> {
        std::fs::write(file, contents)?;
        if let Account::Other { uid, gid } = self {
            chown(file, Some(uid), Some(gid))?;
        }
        Ok(())
    }

    fn own(self, directory: &Path) -> io::Result<()> {
        std::fs::create_dir_all(directory)?;
        if !std::fs::symlink_metadata(directory)?.is_dir() {
            return Err(io::Error::other(format!("{} is not a directory: remove it", directory.display())));
        }
        if let Account::Other { uid, gid } = self {
            chown(directory, Some(uid), Some(gid))?;
        }
        Ok(())
    }

    fn reaches(self, directory: &Path) -> bool {
        // The child changes its directory after it has changed its user, so this fails where the account cannot enter.
        self.command("true").current_dir(directory).status().is_ok_and(|status| status.success())
    }
}

fn elsewhere(wanted: &Path) -> PathBuf {
    let name = wanted.to_string_lossy().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    std::env::temp_dir().join(format!("semel{name}"))
}

fn find(users: &str, name: &str) -> Option<Account> {
    let fields: Vec<&str> = users.lines().map(|line| line.split(':').collect()).find(|f: &Vec<&str>| f[0] == name)?;
    Some(Account::Other { uid: fields.get(2)?.parse().ok()?, gid: fields.get(3)?.parse().ok()? })
}

/// Finds `program` in `PATH` and the directories where Debian keeps servers.
pub fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// Asks a process and all of its group to end.
pub fn terminate_group(leader: u32) {
    if let Some(leader) = i32::try_from(leader).ok().and_then(rustix::process::Pid::from_raw) {
        // They may have ended by themselves in between.
        let _ = rustix::process::kill_process_group(leader, rustix::process::Signal::TERM);
    }
}
