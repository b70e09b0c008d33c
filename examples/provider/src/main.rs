//! `semel-provider`: the provider in a process of its own, to be killed. See the library's documentation.

use std::error::Error;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use semel_provider::{Keys, Options, Provider, Settings};

const ABOUT: &str = "Somebody else's API for tests: a card processor and a mailer that fail as told";

#[derive(Debug, Parser)]
#[command(name = "semel-provider", version, about = ABOUT, max_term_width = 120)]
struct Cli {
    /// Where to listen: a loopback address. Port 0 takes any that is free; the first line of stdout says which
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// The ledger, a file that is made if it is not there
    #[arg(long, value_name = "PATH")]
    ledger: PathBuf,

    /// How a new ledger's provider treats keys; one that is there keeps its settings
    #[arg(long, value_name = "on|off|MILLISECONDS", default_value = "on")]
    keys: Keys,

    /// With a new ledger, answer look-ups with 501
    #[arg(long)]
    no_look_up: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Cli::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let mut stderr = std::io::stderr().lock();
            // With stderr gone there is nobody left to tell, and the exit code still does.
            let _ = writeln!(stderr, "error: {error}");
            let mut cause = error.source();
            while let Some(error) = cause {
                let _ = writeln!(stderr, "caused by: {error}");
                cause = error.source();
            }
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> Result<(), Box<dyn Error>> {
    let settings = Settings { keys: cli.keys, look_up: !cli.no_look_up };
    let mut provider = Provider::bind(cli.listen, Options { settings, ..Options::new(cli.ledger) }).await?;
    let line = serde_json::json!({ "listening": provider.address() });
    writeln!(std::io::stdout(), "{line}")?;
    provider.ended().await;
    Ok(())
}
