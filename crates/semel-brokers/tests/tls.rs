//! TLS to real brokers: an authority named in the URL is trusted, and without it a stranger's certificate is not.
#![allow(clippy::unwrap_used, missing_docs)]

use std::fs;
use std::io;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use semel_brokers::connect;
use semel_testkit::broker::{Broker, PASSWORD, Recipe, USER};
use semel_testkit::nats::NatsRecipe;
use semel_testkit::rabbitmq::RabbitMqRecipe;
use semel_testkit::redis::RedisRecipe;
use semel_testkit::sinks::{batch, publish};

/// Changes a broker's settings file so that it speaks TLS on the same port.
fn with_tls(settings: &Path, change: impl Fn(String) -> String) -> io::Result<()> {
    let home = settings.parent().unwrap();
    let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    fs::write(home.join("certificate.pem"), certified.cert.pem())?;
    fs::write(home.join("key.pem"), certified.signing_key.serialize_pem())?;
    fs::write(settings, change(fs::read_to_string(settings)?))
}

#[derive(Debug)]
struct TlsNats;

impl Recipe for TlsNats {
    const NAME: &'static str = "NATS with TLS";
    const DIRECTORY: &'static str = "nats-tls";
    const VARIABLE: &'static str = NatsRecipe::VARIABLE;

    fn prepare(home: &Path, port: u16) -> io::Result<Command> {
        let command = NatsRecipe::prepare(home, port)?;
        with_tls(&home.join("nats.conf"), |settings| {
            settings + "tls { cert_file: \"certificate.pem\", key_file: \"key.pem\" }\n"
        })?;
        Ok(command)
    }

    fn answers(_stream: TcpStream) -> io::Result<bool> {
        Ok(true)
    }

    fn url(port: u16) -> String {
        format!("nats://{USER}:{PASSWORD}@127.0.0.1:{port}/?stream=tls&prefix=tls.&create=true&tls=true")
    }
}

#[derive(Debug)]
struct TlsRedis;

impl Recipe for TlsRedis {
    const NAME: &'static str = "Redis with TLS";
    const DIRECTORY: &'static str = "redis-tls";
    const VARIABLE: &'static str = RedisRecipe::VARIABLE;

    fn prepare(home: &Path, port: u16) -> io::Result<Command> {
        let command = RedisRecipe::prepare(home, port)?;
        with_tls(&home.join("redis.conf"), |settings| {
            settings.replace("\nport ", "\nport 0\ntls-port ")
                + "tls-cert-file certificate.pem\ntls-key-file key.pem\ntls-auth-clients no\n"
        })?;
        Ok(command)
    }

    fn answers(_stream: TcpStream) -> io::Result<bool> {
        Ok(true)
    }

    fn url(port: u16) -> String {
        format!("rediss://{USER}:{PASSWORD}@127.0.0.1:{port}/0?timeout_ms=10000")
    }
}

#[derive(Debug)]
struct TlsRabbitMq;

impl Recipe for TlsRabbitMq {
    const NAME: &'static str = "RabbitMQ with TLS";
    const DIRECTORY: &'static str = "rabbitmq-tls";
    const VARIABLE: &'static str = RabbitMqRecipe::VARIABLE;

    fn prepare(home: &Path, port: u16) -> io::Result<Command> {
        let command = RabbitMqRecipe::prepare(home, port)?;
        let file = |name: &str| home.join(name).display().to_string();
        with_tls(&home.join("rabbitmq.conf"), |settings| {
            let (certificate, key) = (file("certificate.pem"), file("key.pem"));
            settings.replace("listeners.tcp.local", "listeners.tcp = none\nlisteners.ssl.local")
                + &format!("ssl_options.certfile = {certificate}\nssl_options.keyfile = {key}\n")
        })?;
        Ok(command)
    }

    fn answers(_stream: TcpStream) -> io::Result<bool> {
        Ok(true)
    }

    fn url(port: u16) -> String {
        format!("amqps://{USER}:{PASSWORD}@127.0.0.1:{port}/%2F?timeout_ms=10000")
    }
}

/// `topic` must be one that the broker takes without preparation, or there is none and connecting has to do.
async fn only_a_trusted_certificate_is_accepted<R: Recipe>(topic: Option<&str>) {
    let server = Broker::<R>::temporary().unwrap();
    let error = connect(&server.url(), "test").await.map(drop).unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(text.to_lowercase().contains("certificate") && !text.contains(PASSWORD), "{text}");

    let authority: PathBuf = server.log_file().with_file_name("certificate.pem");
    let sink = connect(&format!("{}&tls_ca={}", server.url(), authority.display()), "test").await.unwrap();
    if let Some(topic) = topic {
        let results = publish(&sink, &batch(topic, 0, 0..20, 5)).await;
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    }
}

#[tokio::test]
async fn nats_over_tls_needs_a_trusted_certificate() {
    only_a_trusted_certificate_is_accepted::<TlsNats>(Some("orders")).await;
}

#[tokio::test]
async fn redis_over_tls_needs_a_trusted_certificate() {
    only_a_trusted_certificate_is_accepted::<TlsRedis>(Some("orders")).await;
}

#[tokio::test]
async fn rabbitmq_over_tls_needs_a_trusted_certificate() {
    only_a_trusted_certificate_is_accepted::<TlsRabbitMq>(None).await;
}
