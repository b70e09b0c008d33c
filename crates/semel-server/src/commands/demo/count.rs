//! What the demo comes to, counted from its file.

use semel_sqlite::rusqlite::{self, Connection};
use serde_json::{Map, Value};

use crate::commands::text;

/// The statement that counts. It is printed as it is run.
pub(super) const SQL: &str = include_str!("../../sql/demo_count.sql");

/// The figures that make the table; the others say what is wrong.
const TABLE: [&str; 9] =
    ["intents", "attempts", "replays", "effects", "events", "deliveries", "applied", "duplicates", "lost"];

/// The figures of a file, in the order of the statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Figures(Vec<(String, i64)>);

impl Figures {
    /// Counts. The clients' notes must be in the file.
    pub(super) fn count(connection: &Connection) -> rusqlite::Result<Figures> {
        let mut statement = connection.prepare(SQL)?;
        let rows = statement.query_map((), |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect::<rusqlite::Result<_>>().map(Figures)
    }

    fn get(&self, figure: &str) -> i64 {
        self.0.iter().find(|(name, _)| name == figure).map_or(0, |(_, number)| *number)
    }

    /// What does not add up, in words; nothing if all does.
    ///
    /// One effect for each intent, two events for each effect, and each of them applied once. That some were delivered
    /// more than once is part of it: otherwise the demo would have shown nothing.
    pub(super) fn wrong(&self) -> Vec<String> {
        let mut wrong: Vec<String> = self
            .0
            .iter()
            .filter(|(name, number)| !TABLE.contains(&name.as_str()) && *number != 0)
            .map(|(name, number)| format!("{name}: {number}"))
            .collect();
        let mut equal = |name: &str, number: i64, other: &str| {
            if self.get(name) != number {
                wrong.push(format!("{} {name} for {number} {other}", self.get(name)));
            }
        };
        equal("duplicates", 0, "expected");
        equal("lost", 0, "expected");
        equal("effects", self.get("intents"), "intents");
        equal("events", 2 * self.get("effects"), "announcements of effects");
        equal("applied", self.get("events"), "events");
        if self.get("attempts") <= self.get("intents") || self.get("deliveries") <= self.get("events") {
            wrong.push("nothing was sent twice, so nothing was shown".to_owned());
        }
        wrong
    }

    /// The table.
    pub(super) fn table(&self) -> String {
        let meaning = |name| match name {
            "intents" => "charges that clients wanted",
            "attempts" => "requests that they sent for them",
            "replays" => "answers that were replays of an earlier one",
            "effects" => "charges in the books",
            "events" => "committed with the charges, two for each",
            "deliveries" => "events that reached the consumer",
            "applied" => "events that it applied",
            "duplicates" => "charged, announced or applied twice",
            _ => "never charged, announced or applied",
        };
        let row = |name: &&'static str| vec![(*name).to_owned(), self.get(name).to_string(), meaning(name).to_owned()];
        text::table(&["FIGURE", "COUNT", "OF"], &TABLE.iter().map(row).collect::<Vec<_>>())
    }

    /// All figures, by name.
    pub(super) fn to_json(&self) -> Value {
        let member = |(name, number): &(String, i64)| (name.replace(' ', "_"), Value::from(*number));
        Value::Object(self.0.iter().map(member).collect::<Map<_, _>>())
    }
}

#[cfg(test)]
mod tests {
    use semel::Settings;
    use semel_payments::Ledger;
    use semel_sqlite::{Options, Sqlite};

    use super::*;

    /// A file in which two intents were charged, announced and applied.
    async fn file(folder: &tempfile::TempDir) -> Connection {
        let path = folder.path().join("demo.db");
        let store = Sqlite::open(&path, Options::default()).await.unwrap();
        store.migrate().await.unwrap();
        semel::Semel::with_settings(store.clone(), Settings::default()).await.unwrap();
        store.install().await.unwrap();
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch(include_str!("../../sql/demo_notes.sql")).unwrap();
        for number in 1..=2 {
            let statements = format!(
                "INSERT INTO demo_intents VALUES ({number}, 2, 1, 'ch_{number}', 1);
                 INSERT INTO demo_deliveries VALUES ('a{number}', 2), ('b{number}', 1);
                 INSERT INTO payments_accounts VALUES ('a', 'x{number}', 'EUR', {number}, 1);
                 INSERT INTO payments_charges VALUES ('a', 'ch_{number}', 'x{number}', {number}, 'EUR');
                 INSERT INTO payments_receipts
                 VALUES ('payments', 0, 'a', 'ch_{number}', 'x{number}', {number}, 'EUR', 1);
                 INSERT INTO payments_balances VALUES ('payments', 0, 'a', 'x{number}', 'EUR', {number}, 1, 1);"
            );
            connection.execute_batch(&statements).unwrap();
            for event_type in ["charge.created", "account.credited"] {
                event(&connection, event_type, &format!("ch_{number}"));
            }
        }
        connection
    }

    fn event(connection: &Connection, event_type: &str, charge: &str) {
        let sql = "INSERT INTO semel_events (id, lane, emitted_at, topic, ordering_key, type, content_type, headers,
                   payload) VALUES (randomblob(16), 0, 0, 't', 'k', ?1, 'application/json', '[]', ?2)";
        let payload = format!(r#"{{"id":"{charge}"}}"#).into_bytes();
        connection.execute(sql, (event_type, payload)).unwrap();
    }

    #[tokio::test]
    async fn what_happened_once_adds_up_and_what_did_not_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let connection = file(&folder).await;
        let right = Figures::count(&connection).unwrap();
        assert_eq!(right.wrong(), Vec::<String>::new(), "{}", right.table());
        let named = ["intents", "attempts", "effects", "events", "deliveries", "applied", "duplicates", "lost"];
        assert_eq!(named.map(|name| right.get(name)), [2, 4, 2, 4, 6, 4, 0, 0]);

        for (tampering, told, figure) in [
            ("INSERT INTO payments_charges VALUES ('a', 'ch_3', 'x1', 1, 'EUR')", "charged twice: 1", "duplicates"),
            ("DELETE FROM payments_charges WHERE id = 'ch_1'", "never charged: 1", "lost"),
            (
                "INSERT INTO semel_events SELECT 99, randomblob(16), lane, emitted_at, topic, ordering_key, type,
                 content_type, headers, NULL, NULL, payload FROM semel_events WHERE seq = 1",
                "announced twice: 1",
                "duplicates",
            ),
            ("DELETE FROM semel_events WHERE seq = 1", "never announced: 1", "lost"),
            ("UPDATE payments_receipts SET issued = 2 WHERE charge = 'ch_1'", "applied twice: 1", "duplicates"),
            ("DELETE FROM payments_receipts WHERE charge = 'ch_1'", "never applied: 1", "lost"),
            ("UPDATE payments_balances SET applied = 2 WHERE account = 'x1'", "applied twice: 1", "duplicates"),
            ("DELETE FROM payments_balances WHERE account = 'x1'", "never applied: 1", "lost"),
            ("UPDATE payments_balances SET amount = 7 WHERE account = 'x1'", "balances apart: 1", ""),
            ("UPDATE demo_intents SET answers = 2 WHERE number = 1", "answered wrongly: 1", ""),
            ("UPDATE demo_intents SET charge = 'ch_2' WHERE number = 1", "answered wrongly: 1", ""),
            ("UPDATE demo_intents SET charge = NULL WHERE number = 1", "answered wrongly: 1", ""),
            ("UPDATE demo_deliveries SET deliveries = 1", "nothing was shown", ""),
            ("UPDATE demo_intents SET attempts = 1", "nothing was shown", ""),
        ] {
            connection.execute_batch("BEGIN").unwrap();
            connection.execute_batch(tampering).unwrap();
            let figures = Figures::count(&connection).unwrap();
            let wrong = figures.wrong();
            assert!(wrong.iter().any(|line| line.contains(told)), "{tampering}: {wrong:?}");
            assert!(figure.is_empty() || figures.get(figure) == 1, "{tampering}: {}", figures.table());
            connection.execute_batch("ROLLBACK").unwrap();
        }
        assert_eq!(Figures::count(&connection).unwrap(), right);
    }
}
