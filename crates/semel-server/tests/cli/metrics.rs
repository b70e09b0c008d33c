//! `GET /metrics`.

use std::collections::BTreeSet;

use crate::harness::{Home, Sandbox, on_both_stores, root};

on_both_stores!(the_documented_metrics_are_all_there_from_the_start_and_no_others_come);

async fn the_documented_metrics_are_all_there_from_the_start_and_no_others_come(home: Home) {
    let document = std::fs::read_to_string(root().join("docs/reference/metrics.md")).unwrap();
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `semel_")?.split(['`', '{']).next());
    let documented: BTreeSet<String> = rows.map(|name| format!("semel_{name}")).collect();

    let sandbox = Sandbox::consuming(&home, &[]).await;
    assert_eq!(names(&sandbox).await, documented);
    sandbox.open_account("alice").await;
    sandbox.charge("order-1").await;
    sandbox.charge("order-1").await;
    assert_eq!(names(&sandbox).await, documented);

    let text = metrics(&sandbox).await;
    for series in [
        r#"semel_key_requests_total{operation="POST /charges",outcome="fresh"} 1"#,
        r#"semel_key_requests_total{operation="POST /charges",outcome="replayed"} 1"#,
        r#"semel_key_requests_total{operation="POST /charges",outcome="mismatch"} 0"#,
        r#"semel_key_requests_total{operation="POST /transfers",outcome="fresh"} 0"#,
        "semel_claim_seconds_count 2",
        "semel_keys_stuck 0",
    ] {
        assert!(text.lines().any(|line| line == series), "{series} is missing from\n{text}");
    }
    assert!(text.contains(r#"semel_claim_seconds_bucket{le="0.001"}"#), "{text}");
    assert!(!text.contains("order-1") && !text.contains("tenant"), "{text}");
}

async fn metrics(sandbox: &Sandbox) -> String {
    let answer = sandbox.http.get(sandbox.service.url("/metrics")).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    answer.text().await.unwrap()
}

/// The names of the metrics, each of which has a line of help as well.
async fn names(sandbox: &Sandbox) -> BTreeSet<String> {
    let text = metrics(sandbox).await;
    let declared = |kind: &str| -> BTreeSet<String> {
        let declarations = text.lines().filter_map(|line| line.strip_prefix(kind));
        declarations.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    };
    assert_eq!(declared("# HELP "), declared("# TYPE "));
    declared("# TYPE ")
}
