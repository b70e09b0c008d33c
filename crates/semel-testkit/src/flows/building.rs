//! What cannot work is refused before anything runs.

use std::time::Duration;

use semel::flow::{self, Definition, Flows, Invalid, Settings};
use semel::once::Settings as SemelSettings;
use semel::provider::{Invalid as InvalidProvider, Keys, Provider};
use semel::{Flow, Reply, Retention, Semel};

use super::harness::Harness;
use super::lab::{DAY, Lab};

const HOUR: Duration = Duration::from_secs(60 * 60);

fn flow_of<H: Harness>(name: &str) -> Definition<H::Store> {
    Definition::new(name, |_: Flow<H::Store>, (): ()| async { Ok::<Reply, flow::Error>(Reply::new(200, "")?) })
}

fn refused<H: Harness>(semel: &Semel<H::Store>, definition: Definition<H::Store>) -> Invalid {
    Flows::builder(semel.clone()).register(definition).build().unwrap_err()
}

/// I9: what is forgotten here while the provider or a client may still come back with it would run a second time.
pub async fn a_flow_that_would_be_forgotten_too_early_is_refused<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let psp = Provider::http("psp", Keys::Kept(2 * DAY));
    let invalid = refused::<H>(&lab.semel, flow_of::<H>("order").calling([psp.clone()]));
    let Invalid::Provider { flow, invalid } = &invalid else { panic!("its provider keeps keys longer: {invalid:?}") };
    assert_eq!(flow, "order");
    assert!(matches!(invalid, InvalidProvider::Forgotten { kept, window, .. } if (*kept, *window) == (DAY, 2 * DAY)));
    let kept = flow_of::<H>("order").calling([psp]).retain(2 * DAY);
    assert!(Flows::builder(lab.semel.clone()).register(kept).build().is_ok());

    let invalid = refused::<H>(&lab.semel, flow_of::<H>("order").retain(HOUR));
    assert_eq!(invalid, Invalid::Forgotten { flow: "order".to_owned(), kept: HOUR, horizon: DAY });
    let short = SemelSettings { retention: Retention::new(HOUR, HOUR).unwrap(), ..SemelSettings::default() };
    let semel = Semel::with_settings(lab.store().clone(), short).await.unwrap();
    assert!(Flows::builder(semel).register(flow_of::<H>("order").retain(HOUR)).build().is_ok());
}

/// I12: names, lives and settings have bounds.
pub async fn a_flow_that_cannot_work_is_refused<H: Harness>() {
    let lab = Lab::<H>::open().await;
    let twice = Flows::builder(lab.semel.clone()).register(flow_of::<H>("order")).register(flow_of::<H>("order"));
    assert_eq!(twice.build().unwrap_err(), Invalid::Twice("order".to_owned()));
    assert_eq!(refused::<H>(&lab.semel, flow_of::<H>("an order")), Invalid::Name("an order".to_owned()));
    let endless = refused::<H>(&lab.semel, flow_of::<H>("order").lives_for(2 * DAY));
    assert!(matches!(endless, Invalid::Life { .. }), "{endless}");
    let nameless = refused::<H>(&lab.semel, flow_of::<H>("order").calling([Provider::http("", Keys::None)]));
    assert!(matches!(nameless, Invalid::Provider { .. }), "{nameless}");
    let hasty = Settings { lease_for: Duration::ZERO, ..Settings::default() };
    let hasty = Flows::builder(lab.semel.clone()).settings(hasty).build().unwrap_err();
    assert!(matches!(hasty, Invalid::Settings(_)), "{hasty}");
}
