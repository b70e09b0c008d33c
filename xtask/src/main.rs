//! `cargo xtask`: the repository's own commands.
#![allow(clippy::print_stdout)]

mod bench;
mod brokers;
mod install;
mod interrupt;
mod kafka;
mod services;
mod test;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <command>

  services up      start private servers under target/services and print how to reach them
  services down    stop them
  services status  tell which are running
  test [--long] [-- ARGS]
                   everything that continuous integration runs; ARGS go to cargo test
  tidy             only the style checks
  bench NAME [ARGS]
                   measure something beside its alternatives, in one run; `bench --help` lists what there is";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["services", "up"] => services::up(),
        ["services", "down"] => services::down(),
        ["services", "status"] => services::status(),
        ["test", rest @ ..] => test::Options::parse(rest).and_then(|options| test::run(&options)),
        ["tidy"] => test::tidy(),
        ["bench", name, rest @ ..] => bench::run(name, rest),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => Err(anyhow::anyhow!("{}\n\n{USAGE}", unknown(&words))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn unknown(words: &[&str]) -> String {
    if words.is_empty() { "a command is missing".into() } else { format!("unknown command `{}`", words.join(" ")) }
}
