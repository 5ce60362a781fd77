//! The classes of documents that managers keep of sessions and pools. Their items are described in
//! [`rota_model::items`]; whoever keeps a copy of a session's document in step reads them by type:
//! `document.one::<Standing>()`.

use crate::schema::{Keyed, Schema, Singleton};
use rota_model::items::{
    CLASS_ITEM, LIFETIME_ITEM, MACHINE_ITEM, Machine, NUMBER_CLASS, NUMBER_ITEM, ORDERS_CLASS,
    ORDERS_ITEM, Orders, POOL_CLASS, REQUEST_CLASS, REQUEST_ITEM, Remembered, SESSION_CLASS,
    SESSION_NUMBERS_CLASS, SESSION_NUMBERS_ITEM, SETTINGS_ITEM, SPEC_ITEM, STANDING_ITEM,
    SessionNumbers, StableNumber, Standing,
};
use rota_model::{ClassText, Lifetime, PoolSettings, SessionSpec};

impl Singleton for SessionSpec {
    const CLASS: &'static str = SPEC_ITEM;
}

impl Singleton for Standing {
    const CLASS: &'static str = STANDING_ITEM;
}

impl Singleton for Machine {
    const CLASS: &'static str = MACHINE_ITEM;
}

impl Singleton for Lifetime {
    const CLASS: &'static str = LIFETIME_ITEM;
}

impl Keyed for Remembered {
    const CLASS: &'static str = REQUEST_ITEM;
}

impl Singleton for PoolSettings {
    const CLASS: &'static str = SETTINGS_ITEM;
}

impl Keyed for ClassText {
    const CLASS: &'static str = CLASS_ITEM;
}

impl Singleton for Orders {
    const CLASS: &'static str = ORDERS_ITEM;
}

impl Singleton for StableNumber {
    const CLASS: &'static str = NUMBER_ITEM;
}

impl Singleton for SessionNumbers {
    const CLASS: &'static str = SESSION_NUMBERS_ITEM;
}

impl Schema {
    /// Adds the classes of sessions, of what they remember of requests, of pools and their orders, and of
    /// stable numbers.
    #[must_use]
    pub fn with_sessions(self) -> Self {
        self.class(SESSION_CLASS, |class| {
            class
                .singleton::<SessionSpec>()
                .singleton::<Standing>()
                .singleton::<Machine>()
                .singleton::<Lifetime>()
                .keyed::<Remembered>()
        })
        .class(REQUEST_CLASS, |it| it.keyed::<Remembered>())
        .class(POOL_CLASS, |it| it.singleton::<PoolSettings>().keyed::<ClassText>())
        .class(ORDERS_CLASS, |it| it.singleton::<Orders>())
        .class(NUMBER_CLASS, |it| it.singleton::<StableNumber>())
        .class(SESSION_NUMBERS_CLASS, |it| it.singleton::<SessionNumbers>())
    }
}
