//! The steps of `examples/tour.rs`.

#[path = "../../examples/tour.rs"]
mod steps;

#[test]
fn the_tour_shows_each_step() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut out = Vec::new();
    steps::walk(folder.path(), &mut out).expect("it works");
    let text = String::from_utf8(out).expect("text");
    let steps = [
        "1 open       0 documents",
        "2 run        1 at version ",
        "3 repeat     1 at version ",
        "4 sync       full, 1 items; the cache has \"Welcome\"",
        "5 sync       unchanged, 0 items; the cache has \"Welcome\"",
        "6 sync       case 1, 1 items; the cache has \"Hello\"",
        "7 put        15 bytes, New: ",
        "8 attach     named by P[picture] at version ",
        "9 refuse     A-INVALID: content is 2000022 bytes long; the limit is 1048576",
        "10 reopen    2 documents, and the picture: \"A picture, say.\"",
        "11 sync      case 1, 1 items; the cache has \"Hello\"",
    ];
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), steps.len(), "{text}");
    for (line, step) in lines.iter().zip(steps) {
        assert!(line.starts_with(step), "{line}");
    }
    let version =
        |line: usize| lines[line].split(' ').find(|it| it.trim_end_matches(':').len() == 15);
    assert_eq!(version(1), version(2), "the repetition has the first one's version");
}
