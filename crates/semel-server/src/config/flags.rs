//! Flags made from the table of settings.

use std::collections::BTreeMap;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::setting::{ALL, SETTINGS, Setting};

/// The flags of a command: those settings whose `used_by` shares a bit with `USED_BY`, and those of every command.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flags<const USED_BY: u8> {
    given: BTreeMap<&'static str, String>,
}

impl<const USED_BY: u8> Flags<USED_BY> {
    /// What was given, by the names of settings.
    pub(crate) fn given(&self) -> &BTreeMap<&'static str, String> {
        &self.given
    }

    fn settings() -> impl Iterator<Item = (&'static Setting, String)> {
        SETTINGS
            .iter()
            .filter(|setting| setting.used_by & (USED_BY | ALL) != 0)
            .filter_map(|setting| Some((setting, setting.flag()?)))
    }
}

impl<const USED_BY: u8> FromArgMatches for Flags<USED_BY> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Flags::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for (setting, _) in Self::settings() {
            if let Some(value) = matches.get_one::<String>(setting.name) {
                self.given.insert(setting.name, value.clone());
            }
        }
        Ok(())
    }
}

impl<const USED_BY: u8> Args for Flags<USED_BY> {
    fn augment_args(command: Command) -> Command {
        Self::settings().fold(command, |command, (setting, flag)| {
            let default = match setting.default {
                "" => String::new(),
                default => format!(" [default: {default}]"),
            };
            let variable = setting.variable();
            let help = format!("{}{default} [env: {variable}]", setting.meaning);
            let long_help = format!("{}.\nGive {}.{default} [env: {variable}]", setting.meaning, setting.accepts);
            let value_name = setting.name.rsplit('.').next().unwrap_or(setting.name).to_uppercase();
            command.arg(
                Arg::new(setting.name)
                    .long(flag)
                    .value_name(value_name)
                    .help(help)
                    .long_help(long_help)
                    .help_heading("Settings"),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
