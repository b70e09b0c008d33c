//! Which cryptography the client libraries use.

/// Makes *ring* the process's default for rustls, unless the program has chosen another already. Without a default, a
/// client library panics when it opens a TLS connection in a program that links two of them.
pub(crate) fn choose_cryptography() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}
