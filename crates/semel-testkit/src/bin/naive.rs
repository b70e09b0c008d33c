//! `naive DATABASE_URL`: the service that race tests use as their control. See [`semel_testkit::naive`].
#![allow(clippy::print_stdout)]

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    let Some(url) = std::env::args().nth(1) else {
        eprintln!("usage: naive postgres://…");
        return ExitCode::FAILURE;
    };
    match semel_testkit::naive::serve(&url).await {
        Ok(address) => {
            println!("naive listening on http://{address}");
            std::future::pending().await
        }
        Err(error) => {
            eprintln!("naive could not start: {error}");
            ExitCode::FAILURE
        }
    }
}
