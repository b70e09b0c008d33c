//! Encryption on the way to the database.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use semel::Error;

/// TLS that checks the server's certificate and name, against `sslrootcert` if given and the system's roots otherwise:
/// for `sslmode=require`.
pub(crate) fn verified(root_certificate: Option<&str>) -> Result<ClientConfig, Error> {
    let mut roots = RootCertStore::empty();
    match root_certificate {
        Some(path) => {
            let bad = |problem: String| Error::Settings(format!("sslrootcert {path:?} cannot be used: {problem}"));
            let certificates = CertificateDer::pem_file_iter(path).map_err(|error| bad(error.to_string()))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|error| bad(error.to_string()))?;
                roots.add(certificate).map_err(|error| bad(error.to_string()))?;
            }
        }
        None => {
            for certificate in rustls_native_certs::load_native_certs().certs {
                if let Err(error) = roots.add(certificate) {
                    tracing::debug!(%error, "a root certificate of this system was left out");
                }
            }
            if roots.is_empty() {
                return Err(Error::Settings(
                    "sslmode=require needs root certificates and this system has none; add sslrootcert=PATH to the URL"
                        .to_owned(),
                ));
            }
        }
    }
    Ok(builder()?.with_root_certificates(roots).with_no_client_auth())
}

/// TLS that keeps out eavesdroppers but takes any certificate: for `sslmode=prefer`, which promises no more.
pub(crate) fn unverified() -> Result<ClientConfig, Error> {
    let verifier = Arc::new(AnyCertificate(Arc::new(ring::default_provider())));
    Ok(builder()?.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth())
}

fn builder() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, Error> {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Settings(error.to_string()))
}

/// Takes any certificate, and still checks that the server holds its private key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
