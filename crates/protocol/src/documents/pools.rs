//! Operations of administrators on pools, in the namespace for configuration: `pool.create`, `pool.set`,
//! `pool.remove`.

use crate::documents::about;
use crate::documents::administer::{Removed, beside_spaces, configured, remove};
use crate::documents::form::all_of;
use rota_docstore::{
    About, Exception, FieldError, Namespace, Operation, Place, Transaction, Wanted, codes,
};
use rota_model::items::POOL_CLASS;
use rota_model::{PoolName, PoolSettings};
use serde::Deserialize;
use serde_json::{Map, Value};

/// All mistakes of settings, in one exception.
fn check(name: &PoolName, settings: &PoolSettings) -> Result<(), Exception> {
    let mistakes = settings.mistakes_of(name);
    if mistakes.is_empty() {
        return Ok(());
    }
    Err(all_of(mistakes))
}

fn missing(name: &PoolName) -> Exception {
    let problem = format!("{name} is not described: create it first");
    Exception::of_field(codes::DOCUMENT, FieldError::new("name", problem))
}

fn wanted(space: &Namespace, name: &PoolName) -> Result<Vec<Wanted>, Exception> {
    configured(space, POOL_CLASS, ("name", name.as_str()))
}

/// A pool that must not be described yet, unless just so.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Creating {
    name: PoolName,
    #[serde(default)]
    settings: PoolSettings,
}

/// Describes a pool.
pub(crate) struct PoolCreate(Creating);

impl Operation for PoolCreate {
    const NAME: &'static str = "pool.create";
    const PLACE: Place = Place::Inline;
    type Parameters = Creating;

    fn about() -> About {
        about::POOL_CREATE
    }

    fn new(creating: Creating) -> Result<Self, Exception> {
        check(&creating.name, &creating.settings)?;
        Ok(Self(creating))
    }

    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
        wanted(space, &self.0.name)
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let Creating { name, settings } = &self.0;
        let document = transaction.name(POOL_CLASS, name.as_str())?;
        let beside = beside_spaces(transaction)?;
        if transaction.repeated::<()>(&beside)?.is_some() {
            return Ok(());
        }
        let edited = transaction.current(&document)?;
        // Somebody may ask again.
        let found = edited.one::<PoolSettings>()?;
        if found.as_ref() != Some(settings) {
            if found.is_some() {
                let problem =
                    format!("{name} is described already, in another way: set changes it");
                let field = FieldError::new("name", problem);
                return Err(Exception::of_field(codes::EXISTS, field));
            }
            // It may be there with classes that nodes have.
            edited.ensure();
            edited.put_one(settings)?;
        }
        transaction.remember(&beside, &())
    }
}

/// What changes of a pool's settings.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Setting {
    name: PoolName,
    /// It is described if it was not.
    #[serde(default)]
    allow_missing: bool,
    /// By name of the field; `null` gives a field its default again.
    settings: Map<String, Value>,
}

impl Setting {
    fn apply(&self, to: &PoolSettings) -> Result<PoolSettings, Exception> {
        let wrong = |it: serde_json::Error| FieldError::new("settings", it.to_string());
        let Value::Object(mut fields) = serde_json::to_value(to).map_err(wrong)? else {
            return Err(FieldError::new("settings", "are no object").into());
        };
        for (name, value) in &self.settings {
            fields.remove(name);
            if !value.is_null() {
                fields.insert(name.clone(), value.clone());
            }
        }
        let settings: PoolSettings =
            serde_json::from_value(Value::Object(fields)).map_err(wrong)?;
        check(&self.name, &settings)?;
        Ok(settings)
    }
}

/// Changes what is given of a pool's settings.
pub(crate) struct PoolSet(Setting);

impl Operation for PoolSet {
    const NAME: &'static str = "pool.set";
    const PLACE: Place = Place::Inline;
    type Parameters = Setting;

    fn about() -> About {
        about::POOL_SET
    }

    fn new(setting: Setting) -> Result<Self, Exception> {
        let known = PoolSettings::FIELDS;
        if let Some(name) = setting.settings.keys().find(|it| !known.contains(&it.as_str())) {
            let known = known.map(|it| format!("`{it}`")).join(", ");
            let problem = format!("is not a field of a pool, expected one of {known}");
            return Err(FieldError::new(name.as_str(), problem).into());
        }
        // What is wrong with a field whatever the others say is told ahead of any work.
        let given = setting.settings.iter().filter(|(_, value)| !value.is_null());
        let given = given.map(|(name, value)| (name.clone(), value.clone())).collect();
        let read = serde_json::from_value::<PoolSettings>(Value::Object(given));
        read.map_err(|it| FieldError::new("settings", it.to_string()))?;
        Ok(Self(setting))
    }

    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
        wanted(space, &self.0.name)
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let name = &self.0.name;
        let document = transaction.name(POOL_CLASS, name.as_str())?;
        let beside = beside_spaces(transaction)?;
        if transaction.repeated::<()>(&beside)?.is_some() {
            return Ok(());
        }
        let edited = transaction.current(&document)?;
        let found = edited.one::<PoolSettings>()?;
        if found.is_none() && !self.0.allow_missing {
            return Err(missing(name));
        }
        let settings = self.0.apply(&found.clone().unwrap_or_default())?;
        edited.ensure();
        if found.as_ref() != Some(&settings) {
            edited.put_one(&settings)?;
        }
        transaction.remember(&beside, &())
    }
}

/// `{"name": ...}`.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Removing {
    name: PoolName,
}

/// Takes the description of a pool away.
pub(crate) struct PoolRemove(Removing);

impl Operation for PoolRemove {
    const NAME: &'static str = "pool.remove";
    const PLACE: Place = Place::Inline;
    type Parameters = Removing;

    fn about() -> About {
        about::POOL_REMOVE
    }

    fn new(removing: Removing) -> Result<Self, Exception> {
        Ok(Self(removing))
    }

    fn documents(&self, space: &Namespace) -> Result<Vec<Wanted>, Exception> {
        wanted(space, &self.0.name)
    }

    fn work(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Exception> {
        let document = transaction.name(POOL_CLASS, self.0.name.as_str())?;
        let beside = beside_spaces(transaction)?;
        if let Some(removed) = transaction.repeated::<Removed>(&beside)? {
            return transaction.answer_json(&removed);
        }
        remove(transaction, &document, &beside)
    }
}
