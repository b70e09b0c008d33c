//! What transactions that accept messages do to each other on PostgreSQL, and what becomes of a message behind a
//! savepoint.
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::Duration;

use semel::inbox::{Accepted, JoinInbox, Offset, Rule, Sequence, Version};
use semel::{Consumer, Delivery, Error, Event, Inbox, Outbox, Tx as _};
use semel_postgres::{Deferred, Isolation, Options, Postgres, Tx};
use semel_testkit::database::TempDatabase;
use semel_testkit::poll::until;
use tokio_postgres::{Client, IsolationLevel, Transaction};

struct Lab {
    database: TempDatabase,
    store: Postgres,
    consumer: Consumer,
}

impl Lab {
    async fn open() -> Lab {
        let database = TempDatabase::with_schema(&semel_postgres::schema_sql()).await;
        let store = Postgres::open(&database.url(), Options::default()).unwrap();
        database.connect().await.batch_execute("CREATE TABLE effects (label text NOT NULL)").await.unwrap();
        let lab = Lab { database, store, consumer: Consumer::new("receipts").unwrap() };
        // Otherwise whoever comes second waits for the consumer's registration.
        lab.commit(&[by_id("registers the consumer")]).await;
        lab
    }

    /// Accepts messages that are new, and commits.
    async fn commit(&self, deliveries: &[Delivery]) {
        let (tx, accepted) = self.store.accept(&self.consumer, deliveries).await.unwrap();
        assert!(accepted.iter().all(|accepted| *accepted == Accepted::First), "{accepted:?}");
        self.store.commit_consumed(tx).await.unwrap();
    }

    /// Waits until this many sessions wait for others.
    async fn until_waiting(&self, sessions: i64) {
        let client = self.database.connect().await;
        let sql =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
        until("sessions wait for others", async || {
            client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == sessions
        })
        .await;
    }

    async fn effects(&self) -> Vec<String> {
        let client = self.database.connect().await;
        let rows = client.query("SELECT label FROM effects ORDER BY label", &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }
}

fn by_id(id: &str) -> Delivery {
    Delivery::by_id(id).unwrap()
}

fn by_sequence(lane: u16, sequence: u64) -> Delivery {
    let place = Sequence { incarnation: "1-1".to_owned(), topic: "charges".to_owned(), lane, sequence };
    Delivery::by_sequence(place).unwrap()
}

fn by_offset(partition: i32, offset: i64) -> Delivery {
    let (source, topic) = ("cluster".to_owned(), "charges".to_owned());
    Delivery::by_offset(Offset { source, topic, partition, from: offset, offset }).unwrap()
}

fn versioned(id: &str, entity: &str, version: u64, rule: Rule) -> Delivery {
    by_id(id).with_version(Version { entity: entity.to_owned(), version, rule }).unwrap()
}

async fn joined(transaction: &mut Transaction<'_>, deliveries: &[Delivery]) -> Result<Vec<Accepted>, Error> {
    let consumer = Consumer::new("receipts").unwrap();
    JoinInbox::<Postgres>::accept(transaction, &consumer, deliveries).await
}

/// I6: a look before the insert would find nothing in both.
#[tokio::test(flavor = "multi_thread")]
async fn the_second_of_two_deliveries_waits_and_is_told_what_became_of_the_first() {
    let lab = Lab::open().await;
    for commit in [true, false] {
        let name = if commit { "commits" } else { "rolls back" };
        let (lane, partition) = (u16::from(commit), i32::from(commit));
        // Places of which something is stored already, and places of which nothing is.
        lab.commit(&[by_sequence(10 + lane, 1), by_offset(10 + partition, 6)]).await;
        let messages = [
            vec![by_id(name)],
            vec![by_id(&format!("{name} 1")), by_id(&format!("{name} 2"))],
            vec![by_sequence(lane, 1)],
            vec![by_sequence(lane, 2), by_sequence(lane + 2, 2)],
            vec![by_sequence(10 + lane, 2)],
            vec![by_sequence(10 + lane, 3), by_sequence(10 + lane, 5)],
            vec![by_offset(partition, 7)],
            vec![by_offset(10 + partition, 7)],
        ];
        for deliveries in messages {
            let (first, accepted) = lab.store.accept(&lab.consumer, &deliveries).await.unwrap();
            assert_eq!(accepted, vec![Accepted::First; deliveries.len()]);
            let (store, consumer, again) = (lab.store.clone(), lab.consumer.clone(), deliveries.clone());
            let second = tokio::spawn(async move { store.accept(&consumer, &again).await });
            lab.until_waiting(1).await;
            let wanted = if commit {
                lab.store.commit_consumed(first).await.unwrap();
                Accepted::Duplicate
            } else {
                first.rollback().await;
                Accepted::First
            };
            let (second, accepted) = second.await.unwrap().unwrap();
            assert_eq!(accepted, vec![wanted; deliveries.len()], "the first {name}: {deliveries:?}");
            second.rollback().await;
        }
    }
}

/// Order within an entity: two messages that carry the same version.
#[tokio::test(flavor = "multi_thread")]
async fn the_second_of_two_versions_waits_and_is_told_what_became_of_the_first() {
    let lab = Lab::open().await;
    for (commit, known, rule) in [
        (true, true, Rule::Each),
        (true, false, Rule::Each),
        (false, true, Rule::Each),
        (false, false, Rule::Each),
        (true, true, Rule::Latest),
        (false, true, Rule::Latest),
    ] {
        let entity = format!("{commit} {known} {rule:?}");
        let version = if known { 2 } else { 1 };
        if known {
            lab.commit(&[versioned(&format!("{entity} before"), &entity, 1, rule)]).await;
        }
        let [one, two] = ["one", "two"].map(|name| versioned(&format!("{entity} {name}"), &entity, version, rule));
        let (first, accepted) = lab.store.accept(&lab.consumer, &[one]).await.unwrap();
        assert_eq!(accepted, [Accepted::First]);
        let (store, consumer) = (lab.store.clone(), lab.consumer.clone());
        let second = tokio::spawn(async move { store.accept(&consumer, &[two]).await });
        lab.until_waiting(1).await;
        let wanted = if commit {
            lab.store.commit_consumed(first).await.unwrap();
            Accepted::Stale
        } else {
            first.rollback().await;
            Accepted::First
        };
        let (second, accepted) = second.await.unwrap().unwrap();
        assert_eq!(accepted, [wanted], "{entity}");
        second.rollback().await;
    }
}

/// The first message of all registers the consumer, in the same transaction.
#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_is_registered_by_the_acceptance_that_commits() {
    let lab = Lab::open().await;
    let client = lab.database.connect().await;
    let registered = async |name: &str| {
        let row = client.query_one("SELECT count(*) FROM semel.consumers WHERE name = $1", &[&name]).await.unwrap();
        row.get::<_, i64>(0)
    };
    for commit in [true, false] {
        let consumer = Consumer::new(format!("new {commit}")).unwrap();
        let (first, _) = lab.store.accept(&consumer, &[by_id("1")]).await.unwrap();
        let (store, same) = (lab.store.clone(), consumer.clone());
        let second = tokio::spawn(async move { store.accept(&same, &[by_id("2")]).await });
        lab.until_waiting(1).await;
        assert_eq!(registered(consumer.name()).await, 0);
        if commit {
            lab.store.commit_consumed(first).await.unwrap()
        } else {
            first.rollback().await
        }
        let (second, accepted) = second.await.unwrap().unwrap();
        assert_eq!(accepted, [Accepted::First]);
        lab.store.commit_consumed(second).await.unwrap();
        assert_eq!(registered(consumer.name()).await, 1);
    }
}

/// Both batches wait for a third transaction that has what lies in the middle. Had each taken its first message before
/// that, they would wait for each other afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn batches_in_opposite_orders_do_not_deadlock() {
    let lab = Lab::open().await;
    let entity = |batch: &str, name: &str| versioned(&format!("{batch} {name}"), name, 1, Rule::Latest);
    let batches: [[Vec<Delivery>; 3]; 5] = [
        [vec![by_id("m")], ["a", "m", "z"].map(by_id).into(), ["z", "m", "a"].map(by_id).into()],
        [
            vec![by_sequence(5, 1)],
            [1, 5, 9].map(|lane| by_sequence(lane, 1)).into(),
            [9, 5, 1].map(|lane| by_sequence(lane, 1)).into(),
        ],
        // Lanes that have rows already.
        [
            vec![by_sequence(5, 2)],
            [1, 5, 9].map(|lane| by_sequence(lane, 2)).into(),
            [9, 5, 1].map(|lane| by_sequence(lane, 2)).into(),
        ],
        [
            vec![by_offset(5, 1)],
            [1, 5, 9].map(|partition| by_offset(partition, 1)).into(),
            [9, 5, 1].map(|partition| by_offset(partition, 1)).into(),
        ],
        [
            vec![entity("holds", "m")],
            ["a", "m", "z"].map(|name| entity("one", name)).into(),
            ["z", "m", "a"].map(|name| entity("two", name)).into(),
        ],
    ];
    let (mut one, mut two) = (lab.database.connect().await, lab.database.connect().await);
    for [middle, forwards, backwards] in batches {
        let (holds, _) = lab.store.accept(&lab.consumer, &middle).await.unwrap();
        let release = async {
            lab.until_waiting(2).await;
            holds.rollback().await;
        };
        let (forwards, backwards, ()) =
            tokio::join!(commit(&mut one, &forwards), commit(&mut two, &backwards), release);
        let (forwards, backwards) = (forwards.unwrap(), backwards.unwrap());
        let applied = forwards.iter().chain(&backwards).filter(|accepted| **accepted == Accepted::First);
        assert_eq!(applied.count(), 3, "{forwards:?} {backwards:?}");
    }
}

async fn commit(client: &mut Client, deliveries: &[Delivery]) -> Result<Vec<Accepted>, Error> {
    let mut transaction = client.transaction().await.unwrap();
    let accepted = joined(&mut transaction, deliveries).await?;
    transaction.commit().await.unwrap();
    Ok(accepted)
}

/// Whatever was committed after the snapshot is either seen or ends in a conflict; nothing is decided by what was.
#[tokio::test(flavor = "multi_thread")]
async fn above_read_committed_an_old_snapshot_decides_nothing() {
    let lab = Lab::open().await;
    let mut client = lab.database.connect().await;
    for (round, level) in (1..).zip([IsolationLevel::RepeatableRead, IsolationLevel::Serializable]) {
        let (lane, partition) = (10 * round, 10 * i32::from(round));
        let entity = |n: u16| format!("entity {n} of {round}");
        let id = |n: u16| format!("id {n} of {round}");
        // A row that the snapshot sees, and one that it does not.
        lab.commit(&[by_sequence(lane, 1), by_offset(partition, 1), versioned(&id(1), &entity(1), 1, Rule::Each)])
            .await;
        // What commits after the snapshot, and what is accepted under it.
        let other = by_id(&id(90));
        let cases: [(Vec<Delivery>, Vec<Delivery>); 16] = [
            (vec![by_id(&id(2))], vec![by_id(&id(2))]),
            (vec![by_id(&id(3))], vec![by_id(&id(3)), other.clone()]),
            (vec![by_sequence(lane, 2)], vec![by_sequence(lane, 2)]),
            (vec![by_sequence(lane, 3)], vec![by_sequence(lane, 9)]),
            (vec![by_sequence(lane, 4)], vec![by_sequence(lane, 4), by_sequence(lane, 9)]),
            (vec![by_sequence(lane + 1, 2)], vec![by_sequence(lane + 1, 2)]),
            (vec![by_sequence(lane + 2, 2)], vec![by_sequence(lane + 2, 9)]),
            (vec![by_sequence(lane + 3, 2)], vec![by_sequence(lane + 3, 9), by_sequence(lane + 3, 2)]),
            (vec![by_offset(partition, 2)], vec![by_offset(partition, 2)]),
            (vec![by_offset(partition, 3)], vec![by_offset(partition, 4)]),
            (vec![by_offset(partition + 1, 2)], vec![by_offset(partition + 1, 2)]),
            (vec![by_offset(partition + 2, 2)], vec![by_offset(partition + 2, 3)]),
            (vec![versioned(&id(4), &entity(1), 2, Rule::Each)], vec![versioned(&id(5), &entity(1), 2, Rule::Each)]),
            // Early by the snapshot.
            (vec![versioned(&id(6), &entity(1), 3, Rule::Each)], vec![versioned(&id(7), &entity(1), 4, Rule::Each)]),
            (
                vec![versioned(&id(8), &entity(2), 1, Rule::Latest)],
                vec![versioned(&id(9), &entity(2), 1, Rule::Latest)],
            ),
            (vec![versioned(&id(10), &entity(3), 1, Rule::Each)], vec![versioned(&id(11), &entity(3), 2, Rule::Each)]),
        ];
        for (commits, accepts) in cases {
            let mut old = begin(&mut client, level).await;
            lab.commit(&commits).await;
            let refused = joined(&mut old, &accepts).await;
            assert!(matches!(refused, Err(Error::Conflict(_))), "{level:?} {commits:?} {accepts:?}: {refused:?}");
            old.rollback().await.unwrap();
        }
        // The control: nothing has happened since the snapshot.
        let mut new = begin(&mut client, level).await;
        let known = [by_id(&id(2)), by_sequence(lane, 4), by_offset(partition, 3)];
        assert_eq!(joined(&mut new, &known).await.unwrap(), [Accepted::Duplicate; 3]);
        let fresh = [other, by_sequence(lane, 9), by_offset(partition, 4)];
        assert_eq!(joined(&mut new, &fresh).await.unwrap(), [Accepted::First; 3]);
        new.rollback().await.unwrap();
    }
}

/// A consumer that was registered after the snapshot has a number that the snapshot does not show.
#[tokio::test]
async fn above_read_committed_a_consumer_registered_meanwhile_is_a_conflict() {
    let lab = Lab::open().await;
    let mut client = lab.database.connect().await;
    let mut old = begin(&mut client, IsolationLevel::RepeatableRead).await;
    let late = Consumer::new("late").unwrap();
    let (tx, _) = lab.store.accept(&late, &[by_id("1")]).await.unwrap();
    lab.store.commit_consumed(tx).await.unwrap();
    let refused = JoinInbox::<Postgres>::accept(&mut old, &late, &[by_id("2")]).await;
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
}

/// A transaction whose snapshot is taken.
async fn begin(client: &mut Client, level: IsolationLevel) -> Transaction<'_> {
    let transaction = client.build_transaction().isolation_level(level).start().await.unwrap();
    transaction.query("SELECT pg_current_snapshot()", &[]).await.unwrap();
    transaction
}

/// The store's own transactions run again by themselves.
#[tokio::test(flavor = "multi_thread")]
async fn at_every_level_messages_that_race_apply_once() {
    let lab = Lab::open().await;
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable] {
        let options = Options { isolation, ..Options::default() };
        let settings = semel::Settings { attempts: 50, ..semel::Settings::default() };
        let store = Postgres::connect(&lab.database.url(), options).await.unwrap();
        let semel = semel::Semel::with_settings(store, settings).await.unwrap();
        let lane = isolation as u16;
        let mut workers = tokio::task::JoinSet::new();
        for worker in 0..6 {
            let (semel, consumer) = (semel.clone(), lab.consumer.clone());
            workers.spawn(async move {
                for step in 0..8 {
                    let n = (step + 3 * worker) % 8;
                    let label = format!("{isolation:?} {n}");
                    for delivery in [by_id(&label), by_sequence(lane, n + 1)] {
                        let label = label.clone();
                        let inserted = semel.consume(&consumer, &delivery, async move |tx: &mut Tx| {
                            tx.execute("INSERT INTO effects VALUES ($1)", &[&label.as_str()]).await
                        });
                        inserted.await.unwrap();
                    }
                }
            });
        }
        workers.join_all().await;
    }
    let effects = lab.effects().await;
    assert_eq!(effects.len(), 3 * 8 * 2);
    assert!(effects.chunks(2).all(|pair| pair[0] == pair[1]), "{effects:?}");
}

/// What a message did, deferred and emitted goes back with it, and what others did stays, however they ended.
#[tokio::test]
async fn a_message_behind_a_savepoint_goes_back_with_all_it_did() {
    let lab = Lab::open().await;
    let (store, consumer) = (&lab.store, &lab.consumer);
    lab.commit(&[by_id("seen"), by_sequence(1, 1)]).await;
    let mut tx = store.begin_consuming().await.unwrap();
    let refused = store.take_back(&mut tx).await.unwrap_err();
    assert!(refused.to_string().contains("statement"), "{refused:?}");
    let act = async |tx: &mut Tx, label: &str| {
        tx.execute("INSERT INTO effects VALUES ($1)", &[&label]).await.unwrap();
        tx.defer(Deferred::expecting(1, "INSERT INTO effects VALUES ($1)").bind(format!("{label}, deferred")));
        tx.emit(Event::new("topic", label, "test.happened", &label).unwrap());
    };
    for duplicate in [by_id("seen"), by_sequence(1, 1), by_id("seen")] {
        assert_eq!(store.accept_isolated(&mut tx, consumer, &duplicate).await.unwrap(), Accepted::Duplicate);
    }
    for (delivery, label, keeps) in [
        (by_id("1"), "bad", false),
        (by_id("2"), "good", true),
        (by_sequence(1, 2), "bad too", false),
        (by_sequence(1, 3), "good too", true),
    ] {
        assert_eq!(store.accept_isolated(&mut tx, consumer, &delivery).await.unwrap(), Accepted::First);
        act(&mut tx, label).await;
        if keeps {
            store.keep(&mut tx).await.unwrap()
        } else {
            store.take_back(&mut tx).await.unwrap()
        }
        assert_eq!(store.accept_isolated(&mut tx, consumer, &by_id("seen")).await.unwrap(), Accepted::Duplicate);
    }
    store.commit_consumed(tx).await.unwrap();
    assert_eq!(lab.effects().await, ["good", "good too", "good too, deferred", "good, deferred"]);
    let (tx, accepted) =
        store.accept(consumer, &[by_id("1"), by_id("2"), by_sequence(1, 2), by_sequence(1, 3)]).await.unwrap();
    let (first, duplicate) = (Accepted::First, Accepted::Duplicate);
    assert_eq!(accepted, [first, duplicate, first, duplicate]);
    tx.rollback().await;
    let limit = semel::outbox::PageLimit { events: 10, bytes: 1 << 20 };
    let lanes: Vec<_> = semel::sink::Lane::all().collect();
    let page = store.page(semel::outbox::Cursor::START, &lanes, limit).await.unwrap().unwrap();
    let mut emitted: Vec<&str> = page.events.iter().map(|event| event.event.ordering_key.as_str()).collect();
    emitted.sort_unstable();
    assert_eq!(emitted, ["good", "good too"]);
}

/// The effect does not know what became of a statement that it gave up, or says nothing of one that failed. Neither is
/// kept, and both can be taken back.
#[tokio::test]
async fn an_effect_that_hides_what_happened_is_not_kept() {
    let lab = Lab::open().await;
    let (store, consumer) = (&lab.store, &lab.consumer);
    let mut tx = store.begin_consuming().await.unwrap();
    let hides: [&str; 3] = ["gives up", "fails", "defers what fails"];
    for hidden in hides {
        assert_eq!(store.accept_isolated(&mut tx, consumer, &by_id(hidden)).await.unwrap(), Accepted::First);
        tx.execute("INSERT INTO effects VALUES ($1)", &[&hidden]).await.unwrap();
        match hidden {
            "gives up" => {
                let slow = tx.query("SELECT pg_sleep(0.2)", &[]);
                assert!(tokio::time::timeout(Duration::from_millis(1), slow).await.is_err());
            }
            "fails" => assert!(tx.execute("INSERT INTO effects VALUES (NULL)", &[]).await.is_err()),
            _ => tx.defer(Deferred::expecting(1, "INSERT INTO effects VALUES (NULL)")),
        }
        let refused = store.keep(&mut tx).await.unwrap_err();
        assert!(matches!(refused, Error::Statement(_)), "{hidden}: {refused:?}");
        store.take_back(&mut tx).await.unwrap();
    }
    assert_eq!(store.accept_isolated(&mut tx, consumer, &by_id("good")).await.unwrap(), Accepted::First);
    tx.execute("INSERT INTO effects VALUES ('good')", &[]).await.unwrap();
    store.keep(&mut tx).await.unwrap();
    store.commit_consumed(tx).await.unwrap();
    assert_eq!(lab.effects().await, ["good"]);
    let (tx, accepted) = store.accept(consumer, &hides.map(by_id)).await.unwrap();
    assert_eq!(accepted, [Accepted::First; 3]);
    tx.rollback().await;
}
