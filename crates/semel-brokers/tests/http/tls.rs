//! Webhooks over TLS.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::serve::Listener;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use semel::sink::Error;
use semel_brokers::http::{HttpSink, Options};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::receiver::{Receiver, Script, listener, outgoing, publish_one, told};

struct TlsListener {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let (socket, address) = self.listener.accept().await.expect("a connection");
            // A client that rejects the certificate ends the handshake.
            if let Ok(stream) = self.acceptor.accept(socket).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

#[tokio::test]
async fn a_certificate_must_be_trusted_and_name_the_host_of_the_url() {
    let certified = rcgen::generate_simple_self_signed(["hooks.example".to_owned()]).expect("a certificate");
    let roots = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(roots.path(), certified.cert.pem()).expect("written");
    let key = PrivateKeyDer::Pkcs8(certified.signing_key.serialize_der().into());
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .expect("a certificate");
    let listener = listener(([127, 0, 0, 1], 0).into()).await;
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let receiver = Receiver::on(TlsListener { listener, acceptor }, async |_| StatusCode::OK);
    let port = receiver.address.port();
    let sink = |host: &str, trusted: bool| {
        let options = Options {
            allow_loopback: true,
            resolver: Script::new(&[&["127.0.0.1"]]),
            roots_file: trusted.then(|| roots.path().to_owned()),
            ..Options::default()
        };
        HttpSink::new(&format!("https://{host}:{port}/"), options).expect("a sink")
    };

    publish_one(&sink("hooks.example", true), &outgoing("a", 1)).await.expect("acknowledged");
    for (host, trusted) in [("hooks.example", false), ("other.example", true), ("127.0.0.1", true)] {
        let error = publish_one(&sink(host, trusted), &outgoing("a", 2)).await.expect_err("not trusted");
        assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
        assert!(told(&error).contains("certificate"), "{}", told(&error));
    }
    assert_eq!(receiver.seen().len(), 1);
}
