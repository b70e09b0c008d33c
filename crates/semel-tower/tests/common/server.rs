//! The server under test.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode, header};
use semel::{Semel, Settings};
use semel_tower::{Policy, Principal};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::backend::Backend;
use super::client::{Client, Sending, client};
use super::handlers;
use super::script::World;

pub struct Server<B> {
    pub backend: B,
    pub world: Arc<World>,
    pub address: SocketAddr,
    client: Client,
    serving: JoinHandle<()>,
}

impl<B: Backend> Server<B> {
    pub async fn start(policy: Policy) -> Server<B> {
        Server::start_on(B::start().await, policy, Settings::default()).await
    }

    pub async fn start_with(policy: Policy, settings: Settings) -> Server<B> {
        Server::start_on(B::start().await, policy, settings).await
    }

    pub async fn start_on(backend: B, policy: Policy, settings: Settings) -> Server<B> {
        let semel = Semel::with_settings(backend.store(), settings).await.unwrap();
        let world = Arc::new(World::default());
        let router = handlers::router::<B>(semel, policy, Arc::clone(&world));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = router.layer(middleware::from_fn(authenticate));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Server { backend, world, address, client: client(), serving }
    }

    pub fn request(&self, method: Method, path: &str) -> Sending {
        Sending::new(self.client.clone(), method, format!("http://{}{path}", self.address))
    }

    pub fn post(&self, path: &str) -> Sending {
        self.request(Method::POST, path)
    }
}

impl<B> Drop for Server<B> {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A token's first character is its tenant; the token `revoked` is nobody's, and `anonymous` names no principal.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let token = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    match token.and_then(|value| value.strip_prefix("Bearer ")) {
        None | Some("revoked") => return StatusCode::UNAUTHORIZED.into_response(),
        Some("anonymous") => {}
        Some(token) => {
            let tenant = token[..1].to_owned();
            request.extensions_mut().insert(Principal::new(tenant));
        }
    }
    next.run(request).await
}
