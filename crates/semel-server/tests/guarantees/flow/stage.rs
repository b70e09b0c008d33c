//! A database, somebody to call, and the sandboxes between them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use semel::flow::{FlowFilter, FlowRecord, FlowState, FlowStore};
use semel::intent;
use semel_testkit::control::{CONTROL_VARIABLE, Control};
use semel_testkit::poll::{PATIENCE, until, until_none_left, until_some};
use semel_testkit::process::Service;
use serde_json::json;

use super::outside::Outside;
use super::shop::{PIECES, PRICE, REFERRAL, Shop};
use crate::relay::stage::Counting;
use crate::world::{SEMEL, client};

/// How long a worker that is not heard of keeps its flow.
pub(crate) const LEASE: Duration = Duration::from_secs(1);

/// How many pieces there are before the first order.
pub(crate) const STOCK: u64 = 1_000_000;

/// A store that flows can be tried on.
pub(crate) trait Flowing: Counting + FlowStore {}

impl<S: Counting + FlowStore> Flowing for S {}

/// Where a test plays.
pub(crate) struct Stage<S: Flowing> {
    pub(crate) outside: Outside,
    pub(crate) store: S,
    pub(crate) home: S::Home,
    pub(crate) url: String,
    told: Vec<(&'static str, String)>,
}

impl<S: Flowing> Stage<S> {
    /// A stage with a new database and a new ledger at the provider, which is started with `flags`. Every sandbox is
    /// told the `settings`.
    pub(crate) async fn set(flags: &[&str], settings: &[(&'static str, &str)]) -> Stage<S> {
        let (home, url, store) = S::create().await;
        let outside = Outside::start(flags).await;
        let lease = format!("{}ms", LEASE.as_millis());
        let mut told = vec![
            ("SEMEL_PROVIDER_URL", outside.url()),
            ("SEMEL_FLOW_LEASE", lease.clone()),
            // Events of a relay that was killed are not to wait for longer than the flows do.
            ("SEMEL_RELAY_LEASE", lease),
        ];
        told.extend(settings.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let stage = Stage { outside, store, home, url, told };
        let mut shop = stage.start().await;
        for account in ["shop", "bob"] {
            shop.put(&format!("/accounts/{account}"), json!({ "currency": "EUR" })).await;
        }
        shop.put("/stock/tea", json!({ "quantity": STOCK })).await;
        shop.service.terminate().await;
        stage
    }

    /// A sandbox that takes orders.
    pub(crate) async fn start(&self) -> Shop {
        self.start_as(&[]).await
    }

    /// A sandbox that stops at `point`, once it has passed it `passed` times, and tells `control`.
    pub(crate) async fn start_armed(&self, point: &str, passed: u32, control: &Control) -> Shop {
        let armed = match passed {
            0 => format!("{point}=1*return"),
            passed => format!("{point}={passed}*off->1*return"),
        };
        self.start_as(&[("FAILPOINTS", &armed), (CONTROL_VARIABLE, &control.address().to_string())]).await
    }

    async fn start_as(&self, more: &[(&str, &str)]) -> Shop {
        let mut environment: Vec<(&str, &str)> =
            self.told.iter().map(|(name, value)| (*name, value.as_str())).collect();
        environment.extend(more);
        let arguments = ["sandbox", "--listen", "127.0.0.1:0", "--database-url", &self.url];
        Shop { service: Service::spawn(SEMEL, &arguments, &environment).await, client: client() }
    }

    /// Has a sandbox take one order and kills it where that has come to.
    pub(crate) async fn kill_at(&self, point: &str, key: &str) {
        let mut control = Control::listen().await;
        let mut doomed = self.start_armed(point, 0, &control).await;
        let placing = doomed.placing(key);
        let unanswered = tokio::spawn(async move { placing.once().await });
        let parked = control.reached(point, PATIENCE).await;
        doomed.service.kill9().await;
        drop(parked);
        assert!(unanswered.await.unwrap().is_err(), "nobody answers from the grave");
    }

    /// Has a sandbox go on with what another left, and kills it where that has come to.
    pub(crate) async fn kill_on_the_way(&self, point: &str) {
        let mut control = Control::listen().await;
        let mut doomed = self.start_armed(point, 0, &control).await;
        let parked = control.reached(point, PATIENCE).await;
        doomed.service.kill9().await;
        drop(parked);
    }

    /// The order that has begun with this key.
    pub(crate) async fn order(&self, key: &str) -> FlowRecord {
        self.orders().await.remove(key).expect("the order has begun")
    }

    /// The key under which the processor is asked for the charge of an order.
    pub(crate) async fn charged_under(&self, key: &str) -> String {
        let order = self.order(key).await;
        intent::key(&order.scope, &order.flow, &order.key, "charge")
    }

    /// Every order that has begun, by its key.
    pub(crate) async fn orders(&self) -> BTreeMap<String, FlowRecord> {
        let filter = FlowFilter { flow: Some("order".to_owned()), limit: 10_000, ..FlowFilter::default() };
        let flows = self.store.list_flows(&filter).await.unwrap();
        flows.into_iter().map(|flow| (flow.key.as_str().to_owned(), flow)).collect()
    }

    /// Waits until every order that has begun is finished, by itself. What was on its way to the database when a
    /// process was killed may still begin there.
    pub(crate) async fn all_finished(&self) -> BTreeMap<String, FlowRecord> {
        until_some("every order is finished", async || {
            let orders = self.orders().await;
            orders.values().all(|order| order.state == FlowState::Completed).then_some(orders)
        })
        .await
    }

    /// Waits until these orders have come to this state, by themselves.
    pub(crate) async fn until_all(&self, keys: &[impl AsRef<str> + Debug], state: FlowState) {
        until(&format!("{keys:?} are {}", state.as_str()), async || {
            let orders = self.orders().await;
            keys.iter().all(|key| orders[key.as_ref()].state == state)
        })
        .await;
    }

    /// Waits until so many orders, counted from the first, have had their mail. Asserts that each was charged, reserved
    /// and written to once: at the provider, whose own ledger says so, and in the books.
    pub(crate) async fn charged_once(&self, shop: &Shop, orders: usize, when: &str) {
        let counted = orders as u64;
        until_none_left(&format!("every order has its mail {when}"), async || {
            orders.saturating_sub(self.outside.count("mail").await)
        })
        .await;
        for kind in ["charge", "mail"] {
            let by_order = self.outside.by_reference(kind).await;
            assert_eq!(by_order.len(), orders, "{when}: orders with a {kind}");
            assert!(by_order.values().all(|times| *times == 1), "{when}: more than one {kind}: {by_order:?}");
        }
        assert_eq!((self.outside.repeated_keys().await, self.outside.count("refund").await), (0, 0), "{when}");
        assert_eq!(shop.stock().await, STOCK - counted * PIECES, "{when}: pieces left");
        let summary = shop.get("/ledger/summary").await;
        assert_eq!((&summary["charges"], &summary["sum"]), (&counted.into(), &0.into()), "{when}: {summary}");
    }

    /// The same for orders that were referred: once whoever follows the books has come as far as they have, each has
    /// had its referral, once.
    pub(crate) async fn once_each(&self, shop: &Shop, orders: usize, when: &str) {
        self.charged_once(shop, orders, when).await;
        let counted = orders as u64;
        until(&format!("{orders} orders have their referral {when}"), async || {
            shop.balance("bob").await >= counted * REFERRAL
        })
        .await;
        until(&format!("every event is applied {when}"), async || {
            let consumed = shop.get("/ledger/consumed").await;
            consumed["charges"] == consumed["receipts"] && consumed["apart"] == 0
        })
        .await;
        let balances = (shop.balance("shop").await, shop.balance("bob").await);
        assert_eq!(balances, (counted * (PRICE - REFERRAL), counted * REFERRAL), "{when}: money");
        let summary = shop.get("/ledger/summary").await;
        assert_eq!((&summary["transfers"], &summary["sum"]), (&counted.into(), &0.into()), "{when}: {summary}");
    }
}
