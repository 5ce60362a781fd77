use super::*;
use crate::fields::Kind;
use proptest::prelude::*;

fn fields() -> Fields {
    Fields::new()
        .with("docid", Kind::Text)
        .with("state", Kind::Word(&["PENDING", "READY", "CLOSED"]))
        .with("count", Kind::Integer)
        .with("price", Kind::Number)
        .with("created", Kind::Time)
        .with("age", Kind::Age)
        .with_family("attr.", Kind::Text)
}

fn parse(text: &str) -> Result<Filter, String> {
    Filter::parse(text, &fields()).map_err(|it| it.to_string())
}

fn printed(text: &str) -> String {
    parse(text).expect("it parses").to_string()
}

struct Session(Vec<(&'static str, Value)>);

impl Values for Session {
    fn values(&self, field: &str, each: &mut dyn FnMut(&Value)) {
        self.0.iter().filter(|it| it.0 == field).for_each(|it| each(&it.1));
    }
}

#[test]
fn a_filter_prints_as_a_text_that_reads_alike() {
    for (text, expected) in [
        (r#"attr.user = "x" and state=ready"#, "attr.user = x and state = READY"),
        (r#"age>10m AND docid starts "room-""#, "age > 10m and docid starts room-"),
        ("age > 90s and age <= 1500ms", "age > 90s and age <= 1500ms"),
        ("age in [0s, 36h)", "age in [0s, 36h)"),
        ("count in (-5,7]", "count in (-5, 7]"),
        ("price >= 0.5 and price < 1e300", "price >= 0.5 and price < 1e300"),
        ("created < 2026-11-27T19:30:00Z", "created < 2026-11-27T19:30:00.000Z"),
        (r#"attr.a = "a b\"\\\u{7}" "#, r#"attr.a = "a b\"\\\u{7}""#),
        (r#""attr.odd name" = """#, r#""attr.odd name" = """#),
        ("attr.and = and and attr.in = in", "attr.and = and and attr.in = in"),
        ("", ""),
    ] {
        assert_eq!(printed(text), expected, "{text}");
        assert_eq!(parse(expected), parse(text));
    }
}

#[test]
fn a_mistake_is_told_with_its_column_and_what_was_expected() {
    let names = "age, count, created, docid, price, state, attr.NAME";
    for (text, expected) in [
        ("color = red", format!("column 1: \"color\" is no known field; there are {names}")),
        ("count = ", "column 9: the end is no value of count; expected an integer".into()),
        ("count = 1.5", "column 9: `1.5` is no value of count; expected an integer".into()),
        ("count ! 1", "column 7: `!` has no meaning here; expected a word, a text in quotes, or one of = < <= > >=".into()),
        ("count 1", "column 7: `1` is no operator; expected one of = < <= > >= starts in".into()),
        ("count starts 1", "column 7: `starts` is for texts, and count is an integer; expected one of = < <= > >= in".into()),
        ("state = DONE", "column 9: `DONE` is no value of state; expected one of PENDING, READY, CLOSED".into()),
        ("count = 1 or count = 2", "column 11: `or` cannot stand here; expected `and` or the end".into()),
        ("count = 1 and", format!("column 14: the end cannot stand here; expected a field: {names}")),
        ("docid = \"abc", "column 9: the text does not end; expected a closing quote".into()),
        (r#"docid = "é\x""#, r#"column 11: expected one of \" \\ \n \r \t \u{...}"#.into()),
        ("count in 1", "column 10: `1` cannot stand here; expected `[` or `(`".into()),
        ("count in [1 2]", "column 13: `2` cannot stand here; expected `,`".into()),
        ("count in [3, 2]", "column 10: count must be a range from low to high".into()),
        ("age > soon", "column 7: `soon` is no value of age; expected a length of time such as 10m".into()),
        ("age > 101years", "column 7: `101years` is no value of age; expected a length of time such as 10m".into()),
        ("created > 10m", "column 11: `10m` is no value of created; expected a time such as 2026-11-27T19:30:00Z".into()),
        ("price = NaN", "column 9: `NaN` is no value of price; expected a number".into()),
    ] {
        assert_eq!(parse(text), Err(format!("filter {expected}")), "{text}");
    }
    let many = vec!["count = 1"; CONDITIONS_MAX + 1].join(" and ");
    assert!(parse(&many).is_err_and(|it| it.ends_with("there are more than 16 conditions")));
    assert!(parse(&"x".repeat(5_000)).is_err_and(|it| it.ends_with("the limit is 4096")));
}

#[test]
fn everything_must_hold_and_of_many_values_one_is_enough() {
    let now = Stamp::parse(261_127_193_000_000).unwrap();
    let session = Session(vec![
        ("state", Value::text("READY")),
        ("attr.user", Value::text("x")),
        ("created", Value::Time(now.minus_ms(600_001))),
        ("age", Value::Time(now.minus_ms(600_001))),
        ("count", Value::Integer(1)),
        ("count", Value::Integer(9)),
    ]);
    let selects = |text: &str| parse(text).expect("it parses").matches(&session, now);
    for text in [
        "",
        "attr.user = x and state = READY and age > 10m",
        "count = 1 and count = 9",
        "count in (8, 9]",
        "attr.user starts x",
        "age < 11m and created < 2026-11-27T19:20:00Z",
    ] {
        assert!(selects(text), "{text}");
    }
    for text in [
        "attr.user = y",
        "attr.other = x",
        "state = READY and age > 11m",
        "count in (1, 9)",
        "attr.user starts xx",
        "age in [0s, 10m]",
        "price > 0",
    ] {
        assert!(!selects(text), "{text}");
    }
    let young = Session(vec![("age", Value::Time(now.plus_ms(5)))]);
    assert!(parse("age <= 0s").expect("it parses").matches(&young, now), "its age is 0");
}

/// Texts that look like filters, so that many of them are.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "docid",
        "state",
        "count",
        "price",
        "created",
        "age",
        "attr.user",
        "=",
        "<",
        "<=",
        ">",
        ">=",
        "starts",
        "in",
        "[",
        "(",
        "]",
        ")",
        ",",
        "and",
        "READY",
        "7",
        "-1.25",
        "10m",
        "1h30m",
        "2ms",
        "2026-11-27T19:30:00Z",
        "\"a\\u{202e}b\"",
        "\"\"",
        "\"",
        "\\",
        "é",
        "0s",
        "1e9",
        "\0",
    ]);
    prop::collection::vec(piece, 0..14).prop_map(|it| it.join(" "))
}

fn conditions() -> impl Strategy<Value = String> {
    let one = prop_oneof![
        ("count [<>]?= -?[0-9]{1,18}"),
        ("count in [(\\[]-[0-9]{1,9}, [0-9]{1,9}[)\\]]"),
        ("price (<|>) -?[0-9]{1,9}\\.[0-9]{1,9}"),
        ("age >=? [1-9][0-9]{0,2}(ms|s|m|h|d|w)"),
        ("docid (starts|=) \"[^\"\\\\]{0,9}\""),
        ("attr\\.[a-z/@]{1,4} = [a-zA-Z0-9:+_-]{1,9}"),
        ("created < 20[0-9]{2}-0[1-9]-1[0-9]T1[0-9]:00:0[0-9]Z"),
    ];
    prop::collection::vec(one, 1..6).prop_map(|it| it.join(" and "))
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_fail_in_another_way_than_with_an_error(
        text in prop_oneof![any::<String>(), pieces()],
    ) {
        match Filter::parse(&text, &fields()) {
            Ok(filter) => {
                let again = Filter::parse(&filter.to_string(), &fields());
                prop_assert_eq!(again, Ok(filter));
            }
            Err(error) => {
                prop_assert_eq!(error.field, "filter");
                prop_assert!(!error.problem.is_empty());
            }
        }
    }

    #[test]
    fn every_filter_reads_back_as_it_is_printed(text in conditions()) {
        let filter = Filter::parse(&text, &fields());
        prop_assert!(filter.is_ok(), "{text}: {filter:?}");
        let filter = filter.expect("it was checked");
        prop_assert_eq!(Filter::parse(&filter.to_string(), &fields()), Ok(filter));
    }
}
