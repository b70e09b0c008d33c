//! Whom a webhook over TLS trusts: the machine's certificate authorities, and those of a file.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;
use url::Host;

use super::Error;

/// What it takes to speak TLS with `host`. The certificate must name the host of the URL, not the address it has.
pub(super) fn connector(
    host: &Host<String>,
    roots_file: Option<&Path>,
) -> Result<(TlsConnector, ServerName<'static>), Error> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = roots_file {
        let unreadable = |source: rustls::pki_types::pem::Error| Error::Roots(source.into());
        for certificate in CertificateDer::pem_file_iter(path).map_err(unreadable)? {
            roots.add(certificate.map_err(unreadable)?).map_err(|source| Error::Roots(source.into()))?;
        }
    }
    if roots.is_empty() {
        return Err(Error::Roots("this machine has no certificate authorities and no file was named".into()));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|source| Error::Roots(source.into()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = match host {
        Host::Ipv4(address) => ServerName::from(std::net::IpAddr::V4(*address)),
        Host::Ipv6(address) => ServerName::from(std::net::IpAddr::V6(*address)),
        Host::Domain(name) => ServerName::try_from(name.trim_end_matches('.').to_owned())
            .map_err(|_| Error::Url("its host is no name that a certificate can carry"))?,
    };
    Ok((TlsConnector::from(Arc::new(config)), name))
}
