//! A private Apache Kafka: one node in KRaft mode, free loopback ports, no part in anyone else's.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::account::find_program;
use crate::cluster::{free_port, target_dir};

/// The variable that names the Kafka tests publish to, as `kafka://host:port`.
pub const SERVER_VARIABLE: &str = "SEMEL_TEST_KAFKA_URL";

/// The only user that the listener with passwords lets in.
pub const USER: &str = "semel";

/// That user's password.
pub const PASSWORD: &str = "once-and-only-once";

/// The longest transaction the private server allows: Kafka's own default.
pub const TRANSACTION_MAX_TIMEOUT: Duration = Duration::from_secs(15 * 60);

const CLUSTER_ID: &str = "c2VtZWwtdGVzdC1rYWZrYQ";
const STARTED: &str = "Kafka Server started";
const PORT_ATTEMPTS: u32 = 5;
const WAIT: Duration = Duration::from_secs(180);
/// Kafka's own default.
const SHARED_SESSION: Duration = Duration::from_secs(9);
/// Short, because tests kill it and start it again.
const TEMPORARY_SESSION: Duration = Duration::from_secs(3);
/// The password of a key store that never leaves this machine; Java insists on one.
const STORE_PASSWORD: &str = "semel-test";

/// A running Kafka. Dropping it stops the server, unless it was started to [`Kafka::keep_running`].
#[derive(Debug)]
pub struct Kafka {
    dir: PathBuf,
    ports: Ports,
    /// How long a broker that was killed counts as alive: so long does its successor wait to be let in.
    session: Duration,
    /// The server, if it is this process that started it and must wait for its end.
    child: Option<Child>,
    stop_on_drop: bool,
    remove_on_drop: bool,
}

/// Names what Java is given instead of the options of a test's broker, for one that has to be fast.
pub const JAVA_OPTIONS: &str = "SEMEL_TEST_KAFKA_JAVA_OPTIONS";

#[derive(Debug, Clone, Copy)]
struct Ports {
    plain: u16,
    password: u16,
    tls: u16,
    controller: u16,
}

impl Kafka {
    /// Starts the Kafka that lives in `dir`, creating it the first time. If it is running already, this joins it.
    /// What was acknowledged before a stop or a [`Kafka::kill`] is there again.
    pub fn start(dir: &Path) -> io::Result<Kafka> {
        Kafka::start_with(dir, SHARED_SESSION)
    }

    fn start_with(dir: &Path, session: Duration) -> io::Result<Kafka> {
        if let Some(running) = Kafka::running(dir)? {
            return Ok(running);
        }
        fs::create_dir_all(dir)?;
        let dir = dir.canonicalize()?;
        let mut attempt = 1;
        loop {
            let ports = Ports::free()?;
            let (dir, child) = (dir.clone(), None);
            let mut kafka = Kafka { dir, ports, session, child, stop_on_drop: true, remove_on_drop: false };
            // One that lives but does not serve would share its data with the one to be started.
            kafka.kill()?;
            match kafka.create().and_then(|()| kafka.launch()) {
                Ok(()) => return Ok(kafka),
                // Another process may take a port between our look and the server's bind.
                Err(error) if attempt < PORT_ATTEMPTS && kafka.log().contains("Address already in use") => {
                    eprintln!("{error}");
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Starts a Kafka of its own for one test, removed when dropped; kept if the test panicked.
    pub fn temporary() -> io::Result<Kafka> {
        static SERIAL: AtomicU32 = AtomicU32::new(1);
        let name = format!("{}-{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
        let mut kafka = Kafka::start_with(&target_dir().join("kafka").join(name), TEMPORARY_SESSION)?;
        kafka.remove_on_drop = true;
        Ok(kafka)
    }

    /// The Kafka in `dir` if it is running.
    pub fn running(dir: &Path) -> io::Result<Option<Kafka>> {
        let Ok(dir) = dir.canonicalize() else { return Ok(None) };
        let Some(ports) = Ports::read(&dir) else { return Ok(None) };
        let (session, child) = (SHARED_SESSION, None);
        let kafka = Kafka { dir, ports, session, child, stop_on_drop: true, remove_on_drop: false };
        if kafka.pid().is_some() && TcpStream::connect_timeout(&kafka.address(), Duration::from_secs(1)).is_ok() {
            return Ok(Some(kafka));
        }
        kafka.keep_running();
        Ok(None)
    }

    /// How a sink reaches it without a password.
    pub fn url(&self) -> String {
        format!("kafka://{}/", self.address())
    }

    /// How a sink reaches the listener that asks for a password, as [`USER`].
    pub fn url_with_password(&self, password: &str) -> String {
        format!("kafka://{USER}:{password}@127.0.0.1:{}/", self.ports.password)
    }

    /// How a sink reaches the listener that asks for a password over TLS, trusting its certificate.
    pub fn url_with_tls(&self) -> String {
        let ca = self.certificate();
        format!("kafka://{USER}:{PASSWORD}@127.0.0.1:{}/?tls=true&ca={}", self.ports.tls, ca.display())
    }

    /// Where it listens without a password: what a client calls its bootstrap server.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.ports.plain).into()
    }

    /// The certificate of the TLS listener, in PEM.
    pub fn certificate(&self) -> PathBuf {
        self.dir.join("certificate.pem")
    }

    /// The server's log.
    pub fn log_file(&self) -> PathBuf {
        self.dir.join("kafka.log")
    }

    /// Lets the server outlive this value and this process.
    pub fn keep_running(mut self) {
        self.stop_on_drop = false;
    }

    /// Stops the server in good order, and returns when it has ended.
    pub fn stop(&mut self) -> io::Result<()> {
        self.end(rustix::process::Signal::TERM)
    }

    /// Crashes the server with SIGKILL, and returns when it has ended.
    pub fn kill(&mut self) -> io::Result<()> {
        self.end(rustix::process::Signal::KILL)
    }

    /// Starts the server again on the same ports, after [`Kafka::stop`] or [`Kafka::kill`], and returns when it
    /// serves.
    pub fn restart(&mut self) -> io::Result<()> {
        self.launch()
    }

    fn create(&self) -> io::Result<()> {
        self.create_certificate()?;
        fs::write(self.dir.join("server.properties"), self.properties())?;
        self.ports.write(&self.dir)?;
        if self.dir.join("data").join("meta.properties").exists() {
            return Ok(());
        }
        let output = java("kafka.tools.StorageTool")?
            .args(["format", "--ignore-formatted", "-t", CLUSTER_ID, "-c"])
            .arg(self.dir.join("server.properties"))
            .args(["--add-scram", &format!("SCRAM-SHA-256=[name={USER},password={PASSWORD}]")])
            .args(["--add-scram", &format!("SCRAM-SHA-512=[name={USER},password={PASSWORD}]")])
            .output()?;
        if output.status.success() {
            return Ok(());
        }
        let said = [output.stdout, output.stderr].concat();
        Err(io::Error::other(format!("Kafka's storage could not be formatted:\n{}", String::from_utf8_lossy(&said))))
    }

    fn create_certificate(&self) -> io::Result<()> {
        let store = self.dir.join("keystore.p12");
        if self.certificate().exists() {
            return Ok(());
        }
        // What an interrupted attempt has left.
        let _ = fs::remove_file(&store);
        let keytool = find_program("keytool").ok_or_else(java_missing)?;
        let arguments = ["-alias", "kafka", "-storetype", "PKCS12", "-storepass", STORE_PASSWORD, "-keystore"];
        let key = ["-keyalg", "EC", "-validity", "3650", "-dname", "CN=localhost", "-ext", "san=ip:127.0.0.1"];
        let steps: [(&str, &[&str]); 2] = [("-genkeypair", &key), ("-exportcert", &["-rfc"])];
        let mut printed = Vec::new();
        for (step, more) in steps {
            let output = Command::new(&keytool).arg(step).args(arguments).arg(&store).args(more).output()?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stdout);
                return Err(io::Error::other(format!("keytool {step} failed: {said}")));
            }
            printed = output.stdout;
        }
        fs::write(self.certificate(), printed)
    }

    fn properties(&self) -> String {
        let Ports { plain, password, tls, controller } = self.ports;
        let dir = self.dir.display();
        let login =
            format!("org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}=\"{PASSWORD}\";");
        // Its users are in the cluster's metadata.
        let scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;";
        format!(
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{controller}\n\
             listeners=PLAIN://127.0.0.1:{plain},PASSWORD://127.0.0.1:{password},TLS://127.0.0.1:{tls},\
             CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners=PLAIN://127.0.0.1:{plain},PASSWORD://127.0.0.1:{password},TLS://127.0.0.1:{tls}\n\
             listener.security.protocol.map=PLAIN:PLAINTEXT,PASSWORD:SASL_PLAINTEXT,TLS:SASL_SSL,CONTROLLER:PLAINTEXT\n\
             controller.listener.names=CONTROLLER\ninter.broker.listener.name=PLAIN\n\
             sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512\n\
             listener.name.tls.scram-sha-256.sasl.jaas.config={scram}\n\
             listener.name.tls.scram-sha-512.sasl.jaas.config={scram}\n\
             listener.name.password.scram-sha-256.sasl.jaas.config={scram}\n\
             listener.name.password.scram-sha-512.sasl.jaas.config={scram}\n\
             listener.name.password.plain.sasl.jaas.config={login}\nlistener.name.tls.plain.sasl.jaas.config={login}\n\
             listener.name.tls.ssl.keystore.type=PKCS12\nlistener.name.tls.ssl.keystore.location={dir}/keystore.p12\n\
             listener.name.tls.ssl.keystore.password={STORE_PASSWORD}\n\
             listener.name.tls.ssl.key.password={STORE_PASSWORD}\n\
             log.dirs={dir}/data\nauto.create.topics.enable=false\nnum.partitions=4\n\
             offsets.topic.replication.factor=1\noffsets.topic.num.partitions=4\n\
             transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n\
             transaction.state.log.num.partitions=4\ntransaction.max.timeout.ms={}\n\
             group.initial.rebalance.delay.ms=0\nbroker.session.timeout.ms={}\nbroker.heartbeat.interval.ms=500\n",
            TRANSACTION_MAX_TIMEOUT.as_millis(),
            self.session.as_millis()
        )
    }

    fn launch(&mut self) -> io::Result<()> {
        let log = OpenOptions::new().create(true).append(true).open(self.log_file())?;
        let written_before = log.metadata()?.len();
        let mut child = java("kafka.Kafka")?
            .arg(self.dir.join("server.properties"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()?;
        fs::write(self.dir.join("pid"), child.id().to_string())?;
        let deadline = Instant::now() + WAIT;
        loop {
            if read_from(&self.log_file(), written_before)?.contains(STARTED) {
                self.child = Some(child);
                return Ok(());
            }
            let ended = child.try_wait()?.is_some();
            if ended || Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                let log = self.log();
                let tail: Vec<&str> = log.lines().rev().take(20).collect();
                let tail = tail.into_iter().rev().collect::<Vec<_>>().join("\n");
                return Err(io::Error::other(format!("Kafka did not start; {}:\n{tail}", self.log_file().display())));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn end(&mut self, signal: rustix::process::Signal) -> io::Result<()> {
        let Some(pid) = self.pid() else { return Ok(()) };
        if let Some(pid) = rustix::process::Pid::from_raw(pid) {
            // It may have ended by itself in between.
            let _ = rustix::process::kill_process(pid, signal);
        }
        let deadline = Instant::now() + WAIT;
        loop {
            let reaped = match &mut self.child {
                Some(child) => child.try_wait()?.is_some(),
                None => false,
            };
            if reaped || self.pid().is_none() {
                self.child = None;
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(io::Error::other(format!("Kafka (process {pid}) did not end")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The process of this server. A number that now belongs to another program is nobody's.
    fn pid(&self) -> Option<i32> {
        let pid: i32 = fs::read_to_string(self.dir.join("pid")).ok()?.trim().parse().ok()?;
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let settings = self.dir.join("server.properties");
        String::from_utf8_lossy(&arguments).contains(&*settings.to_string_lossy()).then_some(pid)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }
}

impl Drop for Kafka {
    fn drop(&mut self) {
        if !self.stop_on_drop {
            return;
        }
        // What is removed anyway need not be put in order first.
        let removed = self.remove_on_drop && !std::thread::panicking();
        let ended = if removed { self.kill() } else { self.stop() };
        if let Err(error) = ended {
            eprintln!("{error}");
        }
        if removed {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

impl Ports {
    fn free() -> io::Result<Ports> {
        Ok(Ports { plain: free_port()?, password: free_port()?, tls: free_port()?, controller: free_port()? })
    }

    fn read(dir: &Path) -> Option<Ports> {
        let text = fs::read_to_string(dir.join("ports")).ok()?;
        let mut ports = text.split_whitespace().map(|port| port.parse().ok());
        Some(Ports { plain: ports.next()??, password: ports.next()??, tls: ports.next()??, controller: ports.next()?? })
    }

    fn write(self, dir: &Path) -> io::Result<()> {
        let Ports { plain, password, tls, controller } = self;
        fs::write(dir.join("ports"), format!("{plain} {password} {tls} {controller}\n"))
    }
}

/// Stops and removes the temporary servers of test processes that were killed before they could, and says how many.
pub fn stop_orphans() -> io::Result<u32> {
    let mut stopped = 0;
    for entry in fs::read_dir(target_dir().join("kafka")).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.split('-').next()?.parse::<i32>().ok());
        let orphaned = owner.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists());
        if orphaned && let Some(mut kafka) = Kafka::running(&entry.path())? {
            kafka.remove_on_drop = true;
            stopped += 1;
        }
    }
    Ok(stopped)
}

/// Where `cargo xtask services up` keeps its Kafka.
pub fn server_dir() -> PathBuf {
    target_dir().join("services").join("kafka").join("server")
}

/// Where Kafka's jars are, or belong.
pub fn library_dir() -> PathBuf {
    target_dir().join("services").join("kafka").join("lib")
}

/// Whether Kafka's jars are there, or an error that says what to run.
pub fn find_library() -> io::Result<PathBuf> {
    let names = fs::read_dir(library_dir()).into_iter().flatten().flatten().map(|entry| entry.file_name());
    if names.into_iter().any(|name| name.to_string_lossy().starts_with("kafka_2.13-")) {
        return Ok(library_dir());
    }
    Err(io::Error::new(
        io::ErrorKind::NotFound,
        format!(
            "Kafka's jars were not found in {}: run `cargo xtask services up`, which fetches them with Maven",
            library_dir().display()
        ),
    ))
}

fn java(main_class: &str) -> io::Result<Command> {
    let library = find_library()?;
    let mut command = Command::new(find_program("java").ok_or_else(java_missing)?);
    match std::env::var(JAVA_OPTIONS) {
        Ok(options) => command.args(options.split_whitespace()),
        // A small heap and the quick compiler only: a test's broker lives for seconds.
        Err(_) => command.args(["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]),
    };
    command.arg("-cp").arg(library.join("*")).arg(main_class);
    Ok(command)
}

fn java_missing() -> io::Error {
    io::Error::new(
        io::ErrorKind::NotFound,
        "Java was not found: run `apt-get install openjdk-17-jre-headless`, or put java and keytool on PATH",
    )
}

fn read_from(file: &Path, offset: u64) -> io::Result<String> {
    let mut file = File::open(file)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
