//! Where a webhook may go.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::http::StatusCode;
use semel::sink::Error;
use semel_brokers::http::{self, HttpSink, Options};

use crate::receiver::{Receiver, Script, listener, outgoing, publish_one, told};

/// The forms in which an address that is not public can be written.
const INNER: &str = "
    127.0.0.1 127.1 127.0.1 2130706433 0x7f000001 0x7f.1 0x7F.0x0.0x0.0x1 017700000001 0177.0.0.1 0177.0.0.01
    127.0.0.1. 0x7f.1. 127。0。0。1 127．0．0．1 １２７.0.0.1 ①②⑦.0.0.1 %31%32%37.0.0.1 127%2E0%2E0%2E1 %30x7f.1 0 0.0.0.0 0x0
    10.1.2.3 012.1.2.3 167772161 172.16.0.1 172.31.255.255 192.168.1.1 3232235777 169.254.169.254 2852039166
    0xA9FEA9FE 0251.0376.0251.0376 169.254.43518 100.64.0.1 100.100.100.200 168.63.129.16 192.0.0.192 192.0.2.1
    198.18.0.1 198.51.100.7 203.0.113.7 224.0.0.1 255.255.255.255 [::1] [::] [0:0:0:0:0:0:0:1] [::ffff:127.0.0.1]
    [::ffff:7f00:1] [::FFFF:0a00:0001] [::127.0.0.1] [64:ff9b::127.0.0.1] [64:ff9b::a9fe:a9fe] [64:ff9b:1::7f00:1]
    [2002:7f00:1::] [2002:a9fe:a9fe::] [2001:0:7f00:1::1] [fc00::1] [fd00:ec2::254] [fe80::1] [ff02::1] [2001:db8::1]
    [fec0::1] [::ffff:0:127.0.0.1]
";

/// The host is what follows the last @, whatever stands before it.
const BEHIND_USERINFO: &str = "
    example.com@127.0.0.1 example.com:80@127.0.0.1 example.com%2F@127.0.0.1 a@b@127.0.0.1 example.com%23@127.0.0.1
";

#[test]
fn an_address_that_is_not_public_is_refused_however_it_is_written() {
    for host in INNER.split_whitespace().chain(BEHIND_USERINFO.split_whitespace()) {
        for scheme in ["http", "https"] {
            match HttpSink::new(&format!("{scheme}://{host}/"), Options::default()) {
                Err(http::Error::Blocked(_)) => {}
                other => panic!("{scheme}://{host}/ gave {other:?}"),
            }
        }
    }
}

const NO_WEB_ADDRESS: &str = "
    ftp://example.com/ file:///etc/passwd gopher://example.com/ example.com http:// http://[::1
    http://[fe80::1%25eth0]/ http://127.0.0.1%00.example.com/ http://256.256.256.256/ http://1.2.3.4.5/
    http://0x7f.0.0.0.1/ http://user:pa:ss%40 unix:///run/x.sock http://a%3A80/
";

#[test]
fn a_url_that_is_no_web_address_is_refused() {
    for url in NO_WEB_ADDRESS.split_whitespace().chain(["", "http://exa mple.com/"]) {
        match HttpSink::new(url, Options::default()) {
            Err(http::Error::Url(_)) => {}
            other => panic!("{url} gave {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_name_that_resolves_inside_is_refused_and_its_server_hears_nothing() {
    let receiver = Receiver::acknowledging().await;
    let url = format!("http://hooks.example:{}/", receiver.address.port());
    for addresses in [
        &["127.0.0.1"][..],
        &["::1"],
        &["::ffff:127.0.0.1"],
        &["64:ff9b::7f00:1"],
        &["10.0.0.1"],
        &["169.254.169.254"],
        // One address inside spoils the others, in either order.
        &["127.0.0.1", "1.1.1.1"],
        &["1.1.1.1", "127.0.0.1"],
    ] {
        let options = Options { resolver: Script::new(&[addresses]), ..Options::default() };
        let sink = HttpSink::new(&url, options).expect("a sink");
        let error = publish_one(&sink, &outgoing("a", 1)).await.expect_err("refused");
        assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
        assert!(told(&error).contains("may not be sent to"), "{}", told(&error));
    }
    assert!(receiver.seen().is_empty());

    let options = Options { resolver: Script::new(&[&["127.0.0.1"]]), allow_loopback: true, ..Options::default() };
    let sink = HttpSink::new(&url, options).expect("a sink");
    publish_one(&sink, &outgoing("a", 1)).await.expect("the setting allows it");
    assert_eq!(receiver.seen()[0].header("host"), Some(url["http://".len()..].trim_end_matches('/')));
}

#[tokio::test]
async fn the_machines_own_resolver_is_checked_too() {
    let receiver = Receiver::acknowledging().await;
    for name in ["localhost", "LOCALHOST", "localhost."] {
        let url = format!("http://{name}:{}/", receiver.address.port());
        let sink = HttpSink::new(&url, Options::default()).expect("a sink");
        publish_one(&sink, &outgoing("a", 1)).await.expect_err("refused");
        assert!(receiver.seen().is_empty(), "{name}");
    }
    let url = format!("http://localhost:{}/", receiver.address.port());
    let sink = HttpSink::new(&url, Options { allow_loopback: true, ..Options::default() }).expect("a sink");
    publish_one(&sink, &outgoing("a", 1)).await.expect("the setting allows it");
}

#[tokio::test]
async fn the_connection_goes_to_the_address_that_was_checked() {
    let first = Receiver::acknowledging().await;
    let elsewhere = listener(([127, 0, 0, 2], first.address.port()).into()).await;
    let elsewhere = Receiver::on(elsewhere, async |_| StatusCode::NO_CONTENT);
    let resolver = Script::new(&[&["127.0.0.1"], &["127.0.0.2"]]);
    let options = Options { resolver: resolver.clone(), allow_loopback: true, ..Options::default() };
    let url = format!("http://hooks.example:{}/", first.address.port());
    let sink = HttpSink::new(&url, options).expect("a sink");
    for sequence in 0..3 {
        publish_one(&sink, &outgoing("a", sequence)).await.expect("acknowledged");
    }
    assert_eq!((first.seen().len(), elsewhere.seen().len()), (3, 0));
    assert_eq!(resolver.asked.load(Ordering::SeqCst), 1, "a connection is resolved once");
}

#[tokio::test]
async fn a_name_that_moves_inside_is_refused_at_its_next_connection() {
    let receiver = Receiver::start(async |_| [("connection", "close")]).await;
    let resolver = Script::new(&[&["127.0.0.1"], &["169.254.169.254"]]);
    let options = Options { resolver: resolver.clone(), allow_loopback: true, ..Options::default() };
    let url = format!("http://hooks.example:{}/", receiver.address.port());
    let sink = HttpSink::new(&url, options).expect("a sink");
    publish_one(&sink, &outgoing("a", 1)).await.expect("acknowledged");
    let error = publish_one(&sink, &outgoing("a", 2)).await.expect_err("refused");
    assert!(told(&error).contains("169.254.169.254: it is link-local"), "{}", told(&error));
    assert_eq!(resolver.asked.load(Ordering::SeqCst), 2);
    assert_eq!(receiver.seen().len(), 1);
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_its_event_waits() {
    let inner = Receiver::acknowledging().await;
    let location = inner.url();
    let outer = Receiver::start(move |seen| {
        let location = location.clone();
        let status = StatusCode::from_u16(u16::try_from(seen.sequence()).expect("a status")).expect("a status");
        async move { (status, [("location", location)]) }
    })
    .await;
    let sink = outer.sink(Options::default());
    let codes = [300, 301, 302, 303, 307, 308];
    for code in codes {
        let error = publish_one(&sink, &outgoing("a", code)).await.expect_err("not followed");
        assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
        assert!(told(&error).contains("redirects are not followed"), "{}", told(&error));
        assert!(!told(&error).contains(&inner.address.to_string()), "{}", told(&error));
    }
    assert_eq!((outer.seen().len(), inner.seen().len()), (codes.len(), 0));
}

#[tokio::test]
async fn a_name_without_an_address_is_unavailable() {
    struct Nowhere(fn() -> std::io::Result<Vec<std::net::IpAddr>>);
    impl http::Resolve for Nowhere {
        fn resolve(&self, _: &str) -> http::Addresses {
            Box::pin(std::future::ready(self.0()))
        }
    }
    let nowhere = [
        (Nowhere(|| Ok(Vec::new())), "has no address"),
        (Nowhere(|| Err(std::io::ErrorKind::NotFound.into())), "cannot be resolved"),
    ];
    for (resolver, reason) in nowhere {
        let options = Options { resolver: Arc::new(resolver), timeout: Duration::from_secs(5), ..Options::default() };
        let sink = HttpSink::new("http://hooks.example/", options).expect("a sink");
        let error = publish_one(&sink, &outgoing("a", 1)).await.expect_err("nowhere");
        assert!(matches!(error, Error::Unavailable(_)) && told(&error).contains(reason), "{}", told(&error));
    }
}
