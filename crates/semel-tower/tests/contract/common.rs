//! What the contract tests run on: a real HTTP server over a real store, and a client that sends what it is told.

pub(crate) mod backend;
pub(crate) mod client;
pub(crate) mod faulty;
pub(crate) mod handlers;
pub(crate) mod script;
pub(crate) mod server;

pub(crate) use backend::{Backend, Postgres, Sqlite};
pub(crate) use script::Script;
pub(crate) use server::Server;

/// Makes each guarantee a test on both stores.
macro_rules! on_both_stores {
    ($($name:ident),* $(,)?) => {
        mod postgres {
            $(#[tokio::test]
            async fn $name() {
                super::$name::<crate::common::Postgres>().await;
            })*
        }
        mod sqlite {
            $(#[tokio::test]
            async fn $name() {
                super::$name::<crate::common::Sqlite>().await;
            })*
        }
    };
}

pub(crate) use on_both_stores;
