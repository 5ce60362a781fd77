//! Names, numbers and the other small things.

use super::Any;
use proptest::prelude::*;
use proptest::sample::select;
use rota_model::node_msg::{NodeLoad, SlotRange};
use rota_model::*;

/// A checked name: short, with any printable characters, or as long as it may be.
pub fn name<T: std::fmt::Debug + 'static>(parse: fn(&str) -> Result<T, FieldError>) -> Any<T> {
    let text = prop_oneof![
        6 => "[a-z0-9.-]{1,8}",
        // Few letters, so that one name is often the beginning of another.
        4 => "[ab !é]{1,4}",
        2 => "\\PC{1,20}",
        1 => Just("x".repeat(NAME_BYTES_MAX)),
    ];
    text.prop_map(move |it| parse(&it).expect("the strategies make valid names")).boxed()
}

/// A namespace that was given: it has no slash.
pub fn namespace() -> Any<Namespace> {
    name(|text| Namespace::parse(&text.replace('/', "-")))
}

pub fn key() -> Any<SessionKey> {
    let namespace = prop_oneof![Just(Namespace::default_space()), namespace()];
    (namespace, name(SessionId::parse))
        .prop_map(|(namespace, id)| SessionKey::new(namespace, id))
        .boxed()
}

pub fn request_id() -> Any<RequestId> {
    name(RequestId::parse)
}

pub fn number() -> Any<ManagerNumber> {
    any::<u32>().prop_map(ManagerNumber).boxed()
}

pub fn slot() -> Any<SlotId> {
    prop_oneof![0..4_u32, any::<u32>()].prop_map(SlotId).boxed()
}

pub fn epoch() -> Any<Epoch> {
    any::<u64>().prop_map(Epoch).boxed()
}

pub fn at() -> Any<LogPos> {
    (epoch(), any::<u64>()).prop_map(|(pe, seq)| LogPos::new(pe, Seq(seq))).boxed()
}

pub fn token() -> Any<Token> {
    at().prop_map(Token).boxed()
}

pub fn stamp() -> Any<Stamp> {
    let ms = Stamp::MIN.to_epoch_ms()..=Stamp::MAX.to_epoch_ms();
    prop_oneof![9 => ms.prop_map(Stamp::from_epoch_ms), 1 => select(vec![Stamp::MIN, Stamp::MAX])]
        .boxed()
}

pub fn state() -> Any<SessionState> {
    select(SessionState::ALL).boxed()
}

pub fn reason() -> Any<Reason> {
    select(Reason::ALL).boxed()
}

pub fn exit() -> Any<Exit> {
    prop_oneof![
        any::<i32>().prop_map(Exit::Code),
        any::<i32>().prop_map(Exit::Signal),
        ".{0,8}".prop_map(Exit::FinalState),
    ]
    .boxed()
}

pub fn text() -> Any<String> {
    prop_oneof![Just(String::new()), ".{0,20}"].boxed()
}

pub fn address() -> Any<String> {
    prop_oneof![Just(String::new()), "127\\.0\\.0\\.1:[1-9][0-9]{0,3}"].boxed()
}

pub fn boot() -> Any<BootId> {
    any::<u64>().prop_map(BootId).boxed()
}

pub fn load() -> Any<NodeLoad> {
    let all = (resources(), resources(), any::<u32>());
    all.prop_map(|(used, offered, kept)| NodeLoad { used, offered, kept }).boxed()
}

pub fn resources() -> Any<Resources> {
    any::<(u32, u32, u32)>()
        .prop_map(|(places, cpu_millis, memory_mib)| Resources { places, cpu_millis, memory_mib })
        .boxed()
}

pub fn labels() -> Any<Labels> {
    // No equals sign, as in any name of a label.
    let names = "[a-z0-9.-]{1,8}".prop_map(|it| LabelName::parse(&it).expect("a valid name"));
    proptest::collection::btree_map(names, name(LabelValue::parse), 0..3).boxed()
}

pub fn slot_range() -> Any<SlotRange> {
    (slot(), slot()).prop_map(|(first, last)| SlotRange { first, last }).boxed()
}
