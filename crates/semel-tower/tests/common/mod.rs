//! What the contract tests run on: a real HTTP server over a real store, and a client that sends what it is told.
#![allow(dead_code, unreachable_pub)]

pub mod backend;
pub mod client;
pub mod faulty;
pub mod handlers;
pub mod script;
pub mod server;

pub use backend::{Backend, Postgres, Sqlite};
pub use client::Answer;
pub use script::{Script, World};
pub use server::Server;

/// Makes each guarantee a test on both stores.
#[macro_export]
macro_rules! on_both_stores {
    ($($name:ident),* $(,)?) => {
        mod postgres {
            $(#[tokio::test]
            async fn $name() {
                super::$name::<$crate::common::Postgres>().await;
            })*
        }
        mod sqlite {
            $(#[tokio::test]
            async fn $name() {
                super::$name::<$crate::common::Sqlite>().await;
            })*
        }
    };
}
