#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn canonical(text: &str) -> Option<String> {
    json(text.as_bytes()).map(|bytes| String::from_utf8(bytes).unwrap())
}

/// The example of RFC 8785, section 3.2.2, with one digit less: the RFC rounds 333333333.33333329, and we do not.
const SAMPLE: &str = r#"{
  "numbers": [333333333.3333333, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
  "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
  "literals": [null, true, false]
}"#;

#[test]
fn the_sample_of_rfc_8785_comes_out_as_printed_there() {
    let expected = concat!(
        r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"#,
        r#""string":"€$\u000f\nA'B\"\\\\\"/"}"#,
    );
    assert_eq!(canonical(SAMPLE).as_deref(), Some(expected));
    assert_eq!(canonical(&SAMPLE.replace("333333333.3333333", "333333333.33333329")), None);
}

#[test]
fn members_are_sorted_by_utf16_code_units_as_in_rfc_8785() {
    let input = r#"{"\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One", "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis"}"#;
    let sorted: Vec<String> = ["\\r", "1", "\u{80}", "ö", "€", "😀", "\u{fb33}"].map(String::from).to_vec();
    let output = canonical(input).unwrap();
    let places: Vec<usize> = sorted.iter().map(|name| output.find(&format!("\"{name}\":")).unwrap()).collect();
    assert!(places.is_sorted(), "{output}");
}

#[test]
fn the_test_data_of_rfc_8785_comes_out_as_published() {
    let cases = [
        // arrays
        (r#"[56, {"d": true, "10": null, "1": [ ]}]"#, r#"[56,{"1":[],"10":null,"d":true}]"#),
        // french
        (
            r#"{"peach": "This sorting order", "péché": "is wrong according to French",
                "pêche": "but canonicalization MUST", "sin": "ignore locale"}"#,
            concat!(
                r#"{"peach":"This sorting order","péché":"is wrong according to French","#,
                r#""pêche":"but canonicalization MUST","sin":"ignore locale"}"#,
            ),
        ),
        // structures
        (
            r#"{"1": {"f": {"f": "hi","F": 5} ,"\n": 56.0}, "10": { }, "": "empty", "a": { },
                "111": [ {"e": "yes", "E": "no" } ], "A": { } }"#,
            concat!(
                r#"{"":"empty","1":{"\n":56,"f":{"F":5,"f":"hi"}},"10":{},"#,
                r#""111":[{"E":"no","e":"yes"}],"A":{},"a":{}}"#,
            ),
        ),
        // unicode: nothing is normalised
        ("{\"Unnormalized Unicode\":\"A\u{30a}\"}", "{\"Unnormalized Unicode\":\"A\u{30a}\"}"),
        // weird
        (
            r#"{"\u20ac": "Euro Sign", "\r": "Carriage Return", "\u000a": "Newline", "1": "One",
                "\u0080": "Control\u007f", "\ud83d\ude02": "Smiley", "\u00f6": "Latin Small Letter O With Diaeresis",
                "\ufb33": "Hebrew Letter Dalet With Dagesh", "</script>": "Browser Challenge"}"#,
            concat!(
                r#"{"\n":"Newline","\r":"Carriage Return","1":"One","</script>":"Browser Challenge","#,
                "\"\u{80}\":\"Control\u{7f}\",",
                r#""ö":"Latin Small Letter O With Diaeresis","€":"Euro Sign","😂":"Smiley","#,
                "\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}",
            ),
        ),
    ];
    for (input, expected) in cases {
        assert_eq!(canonical(input).as_deref(), Some(expected), "{input}");
    }
}

#[test]
fn a_number_has_one_form_however_it_is_written() {
    for (form, literals) in [
        ("1", ["1", "1.0", "1e0", "10e-1", "0.1e1", "1E+0"].as_slice()),
        ("0", ["0", "-0", "0.0", "-0e5", "0e99999999999999999999999"].as_slice()),
        ("-1500", ["-1500", "-1.5e3", "-15E2"].as_slice()),
        ("9007199254740992", ["9007199254740992", "9007199254740992.000"].as_slice()),
        ("1e+21", ["1000000000000000000000", "1e21"].as_slice()),
        ("1e-7", ["0.0000001", "1e-7"].as_slice()),
        ("5e-324", ["5e-324"].as_slice()),
        ("1.7976931348623157e+308", ["1.7976931348623157e308", "17976931348623157e292"].as_slice()),
    ] {
        for literal in literals {
            assert_eq!(canonical(literal).as_deref(), Some(form), "{literal}");
        }
    }
    let padded = format!("1{}e-1000000", "0".repeat(1_000_000));
    assert_eq!(canonical(&padded).as_deref(), Some("1"));
}

#[test]
fn a_number_that_a_double_cannot_hold_has_no_canonical_form() {
    for literal in [
        "9007199254740993",
        "0.1000000000000000055",
        "1e400",
        "-1e400",
        "1e-400",
        "4.9e-324",
        "1e99999999999999999999",
        "123456789012345678",
        // Halfway between two shortest forms: ECMAScript prints the even one, ending in 2.
        "1723795397765055.3",
    ] {
        assert_eq!(canonical(literal), None, "{literal}");
    }
}

#[test]
fn two_members_of_one_name_have_no_canonical_form() {
    for text in [
        r#"{"a":1,"a":1}"#,
        r#"{"a":1,"b":2,"a":3}"#,
        r#"{"a":1,"\u0061":2}"#,
        r#"[{"x":{"":1,"":2}}]"#,
        r#"{"\ud83d\ude00":1,"😀":2}"#,
    ] {
        assert_eq!(canonical(text), None, "{text}");
    }
}

#[test]
fn what_is_not_json_has_no_canonical_form() {
    for text in [
        "",
        " ",
        "{",
        "[1",
        "[1,]",
        "[,1]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "1 2",
        "nul",
        "nulll",
        "True",
        "01",
        "-",
        "+1",
        ".5",
        "1.",
        "1e",
        "1e+",
        "--1",
        "0x1",
        "NaN",
        "Infinity",
        "'a'",
        "\"a",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\t\"",
        "\"\u{0}\"",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800\\n\"",
        "\"\\ud800\\u0041\"",
        "\"\\udc00\\ud800\"",
        "\u{feff}1",
        "1\u{feff}",
        "\u{a0}1",
        "[1]]",
        "{}{}",
        "// 1\n1",
        "\u{c}1",
    ] {
        assert_eq!(canonical(text), None, "{text:?}");
    }
    assert_eq!(json(b"\"\xff\""), None);
    assert_eq!(json(b"\"\xed\xa0\x80\""), None);
}

#[test]
fn nesting_has_a_limit() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(canonical(&nested(MAX_DEPTH)), Some(nested(MAX_DEPTH)));
    assert_eq!(canonical(&nested(MAX_DEPTH + 1)), None);
    let objects = |depth: usize| format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
    assert!(canonical(&objects(MAX_DEPTH)).is_some());
    assert_eq!(canonical(&objects(MAX_DEPTH + 1)), None);
}

#[test]
fn a_megabyte_of_anything_takes_no_longer_than_its_size() {
    const SIZE: usize = 1 << 20;
    let deep_and_unsorted =
        format!("{}\"{}\"{}", "{\"b\":0,\"a\":".repeat(MAX_DEPTH), "x".repeat(SIZE), "}".repeat(MAX_DEPTH));
    let backwards: Vec<String> = (0..SIZE / 10).rev().map(|n| format!("\"{n:06}\":1")).collect();
    let common_prefix: Vec<String> = (0..1024).rev().map(|n| format!("\"{}{n:04}\":1", "x".repeat(1020))).collect();
    for (name, text) in [
        ("brackets", "[".repeat(SIZE)),
        ("digits", "1".repeat(SIZE)),
        ("fraction", format!("0.{}", "1".repeat(SIZE))),
        ("zeros", format!("1{}", "0".repeat(SIZE))),
        ("exponent", format!("1e{}", "9".repeat(SIZE))),
        ("quotes", "\"".repeat(SIZE)),
        ("escapes", format!("\"{}\"", "\\u0001".repeat(SIZE / 6))),
        ("space", " ".repeat(SIZE)),
        ("array", format!("[{}1]", "1,".repeat(SIZE / 2))),
        ("numbers", format!("[{}1]", "1.7976931348623157e308,".repeat(SIZE / 23))),
        ("backwards", format!("{{{}}}", backwards.join(","))),
        ("common prefix", format!("{{{}}}", common_prefix.join(","))),
        ("deep and unsorted", deep_and_unsorted),
    ] {
        let started = Instant::now();
        let _ = json(text.as_bytes());
        // A quadratic pass over a megabyte takes minutes; the bound leaves room for a slow, unoptimised build.
        assert!(started.elapsed() < Duration::from_secs(5), "{name} took {:?}", started.elapsed());
    }
}

/// Any JSON value whose numbers are doubles.
fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-(1i64 << 53)..=1 << 53).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[\\x00-\\x20\"\\\\/\u{7f}\u{2028}😀]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Writes `value` with white space, order of members and escapes chosen by `seed`.
fn shuffled(value: &Value, seed: &mut u64, out: &mut String) {
    let mut next = |below: usize| {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        usize::try_from(*seed >> 33).unwrap() % below
    };
    out.push_str(["", " ", "\n\t", "\r "][next(4)]);
    match value {
        Value::Array(items) => {
            out.push('[');
            for (position, item) in items.iter().enumerate() {
                out.push_str(if position > 0 { "," } else { "" });
                shuffled(item, seed, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            for position in (1..members.len()).rev() {
                members.swap(position, next(position + 1));
            }
            out.push('{');
            for (position, (name, member)) in members.into_iter().enumerate() {
                out.push_str(if position > 0 { " , " } else { " " });
                shuffled(&Value::from(name.as_str()), seed, out);
                out.push_str("\t:");
                shuffled(member, seed, out);
            }
            out.push('}');
        }
        Value::String(text) if next(2) == 0 => {
            let escaped: String = text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
            out.push_str(&format!("\"{escaped}\""));
        }
        other => out.push_str(&other.to_string()),
    }
    out.push_str(["", " "][usize::from(*seed & (1 << 40) > 0)]);
}

/// Equal as JSON: 1 and 1.0 are one number. serde_json may be off by the last bit when it reads a double.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            (a - b).abs() <= a.abs() * 1e-15 + f64::MIN_POSITIVE
        }
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

proptest! {
    #[test]
    fn order_space_and_escapes_do_not_matter_and_nothing_is_lost(value in any_value(), mut seed in any::<u64>()) {
        let plain = value.to_string();
        let form = canonical(&plain);
        prop_assert!(form.is_some(), "{}", plain);
        let form = form.unwrap();
        let mut other = String::new();
        shuffled(&value, &mut seed, &mut other);
        prop_assert_eq!(canonical(&other), Some(form.clone()));
        prop_assert_eq!(canonical(&form), Some(form.clone()));
        prop_assert!(same(&serde_json::from_str(&form).unwrap(), &value), "{} became {}", plain, form);
    }

    #[test]
    fn every_finite_double_keeps_its_value(double in any::<f64>().prop_filter("finite", |double| double.is_finite())) {
        let form = canonical(&Value::from(double).to_string()).unwrap();
        let back: f64 = form.parse().unwrap();
        prop_assert_eq!(back, double);
    }

    #[test]
    fn an_integer_keeps_its_digits_or_has_no_form(integer in any::<i64>()) {
        if let Some(form) = canonical(&integer.to_string()) {
            prop_assert_eq!(form, integer.to_string());
        } else {
            prop_assert!(integer.unsigned_abs() > 1 << 53);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = json(&bytes);
    }

    #[test]
    fn what_it_takes_serde_json_takes_too(text in r#"[\[\]{}":,\\0-9eE+.tnu a-]{0,24}"#) {
        if let Some(form) = canonical(&text) {
            let read: Result<Value, _> = serde_json::from_str(&text);
            prop_assert!(read.is_ok(), "{} became {}", text, form);
        }
    }
}
