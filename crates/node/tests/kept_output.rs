//! What a class says of the output that the ring keeps.

use rota_node::class::{Class, ClassKind, ClassMistake, KeptOutput};

fn kept(more: &str) -> Result<Option<KeptOutput>, Vec<ClassMistake>> {
    let text = format!("name = \"c\"\nkind = \"program\"\nargv = [\"x\"]\n{more}");
    Class::parse("c.toml", &text).map(|class| match class.kind {
        ClassKind::Program(program) => program.kept_output,
        ClassKind::Machine(_) => None,
    })
}

#[test]
fn a_program_keeps_the_end_of_its_output_for_a_day_unless_its_class_says_otherwise() {
    let of = |keep_ms, kib| Ok(Some(KeptOutput { keep_ms, kib }));
    assert_eq!(kept(""), of(86_400_000, 64));
    assert_eq!(kept("output_kept = \"90s\"\noutput_kept_kib = 1024"), of(90_000, 1_024));
    assert_eq!(kept("output_kept = \"0s\"\noutput_kept_kib = 8"), Ok(None));
}

#[test]
fn what_is_too_long_or_too_much_is_a_mistake_of_its_field() {
    for (more, told) in [
        ("output_kept = \"31d\"", "output_kept is \"31d\"; it must be 0s to 30d"),
        ("output_kept = \"soon\"", "output_kept is \"soon\"; it must be a whole number with ms"),
        ("output_kept_kib = 0", "output_kept_kib is 0; it must be a whole number from 1 to 1024"),
        ("output_kept_kib = 1025", "output_kept_kib is 1025; it must be"),
    ] {
        let mistakes = kept(more).expect_err(more);
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        assert!(mistakes[0].to_string().contains(told), "{mistakes:?}");
    }
    let machine = "name = \"m\"\nkind = \"machine\"\nstates = [\"on\"]\ninitial = \"on\"\noutput_kept = \"1s\"";
    let mistakes = Class::parse("m.toml", machine).expect_err("a machine prints nothing");
    assert!(mistakes[0].to_string().contains("output_kept is a field of kind"), "{mistakes:?}");
}
