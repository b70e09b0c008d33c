//! The server under test.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode, header};
use semel::{Semel, Settings};
use semel_tower::{Policy, Principal};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::backend::Backend;
use super::client::{Answer, Client, Sending, client};
use super::handlers;
use super::script::World;

/// How long something may take that a test waits for.
pub const PATIENCE: Duration = Duration::from_secs(60);

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
        Server::serve(backend, world, router).await
    }

    /// Serves routes of a test's own.
    pub async fn serve(backend: B, world: Arc<World>, router: Router) -> Server<B> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = router.layer(middleware::from_fn(authenticate));
        let router = router.layer(middleware::from_fn_with_state(Arc::clone(&world), watch_drops));
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Server { backend, world, address, client: client(), serving }
    }

    pub fn request(&self, method: Method, path: &str) -> Sending {
        Sending::new(self.client.clone(), method, format!("http://{}{path}", self.address))
    }

    /// Waits until the server has dropped a request that it had not answered.
    pub async fn dropped(&self) {
        let mut dropped = self.world.dropped().subscribe();
        let waiting = dropped.wait_for(|count| *count > 0);
        timeout(PATIENCE, waiting).await.expect("the request is dropped").unwrap();
    }

    /// Asks for the key `k` until nobody holds it any more.
    pub async fn post_until_settled(&self, path: &str) -> Answer {
        let asking = async {
            loop {
                let answer = self.post(path).key("k").send().await;
                if answer.status != StatusCode::CONFLICT {
                    return answer;
                }
            }
        };
        timeout(PATIENCE, asking).await.expect("nobody holds the key any more")
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

/// Counts the request if it is dropped before it is answered.
async fn watch_drops(State(world): State<Arc<World>>, request: Request, next: Next) -> Response {
    struct Unanswered(Option<Arc<World>>);
    impl Drop for Unanswered {
        fn drop(&mut self) {
            if let Some(world) = &self.0 {
                world.dropped().send_modify(|count| *count += 1);
            }
        }
    }
    let mut unanswered = Unanswered(Some(world));
    let response = next.run(request).await;
    unanswered.0 = None;
    response
}
