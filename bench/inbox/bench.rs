//! The servers and databases that everything runs on: private, durable, gone afterwards.

use std::path::PathBuf;

use anyhow::{Context, Result};
use semel_bench::stage::{Database, Stage};
use semel_postgres::{Options as PostgresOptions, Postgres};
use semel_sqlite::{Options as SqliteOptions, Sqlite};
use semel_testkit::cluster::target_dir;
use semel_testkit::kafka::Kafka;

use crate::cache::Cache;
use crate::case::{Case, Run, Tier};
use crate::options::Options;
use crate::{postgres, sqlite};

/// A run.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) options: Options,
    pub(crate) stage: Stage,
    cache: Option<Cache>,
    kafka: Option<Kafka>,
}

impl Bench {
    /// Starts what these cases need.
    pub(crate) async fn start(options: Options, cases: &[Case]) -> Result<Bench> {
        let cache = cases.iter().any(|case| matches!(case, Case::Runner(Run { tier: Tier::Redis, .. })));
        let kafka = cases.iter().any(|case| matches!(case, Case::Pipeline(_)));
        let starting = tokio::task::spawn_blocking(move || -> Result<_> {
            Ok((cache.then(Cache::temporary).transpose()?, kafka.then(Kafka::temporary).transpose()?))
        });
        let (cache, kafka) = starting.await??;
        Ok(Bench { options, stage: Stage::start(postgres::SCHEMA).await?, cache, kafka })
    }

    /// A database that holds the tables and no messages.
    pub(crate) async fn postgres(&self) -> Result<(Postgres, Database)> {
        let database = self.stage.database().await?;
        let store = Postgres::connect(&database.url, PostgresOptions::default()).await?;
        Ok((store, database))
    }

    /// A file that holds the tables and no messages, below a directory of its own.
    pub(crate) async fn sqlite(&self) -> Result<(Sqlite, PathBuf)> {
        let name = format!("{}-{}", std::process::id(), self.stage.fresh_name());
        let directory = target_dir().join("bench").join(name);
        std::fs::create_dir_all(&directory)?;
        let file = directory.join("inbox.db");
        semel_sqlite::migrate(&file).await?;
        let store = Sqlite::open(&file, SqliteOptions::default()).await?;
        let mut tx = store.begin().await?;
        tx.execute_batch(sqlite::SCHEMA).await?;
        tx.commit().await?;
        Ok((store, directory))
    }

    /// How a tier of its own reaches Redis.
    pub(crate) fn cache_url(&self) -> Result<String> {
        let url = self.cache.as_ref().context("no Redis was started")?.url();
        Ok(format!("{url}?prefix={}", self.stage.fresh_name()))
    }

    pub(crate) fn kafka(&self) -> Result<&Kafka> {
        self.kafka.as_ref().context("no Kafka was started")
    }
}
