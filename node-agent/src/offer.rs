//! Which of its classes a node offers. One whose program is not there would fail each open that another node
//! could serve. It is looked for at the start and at each reload, and by `check`.

use crate::sandbox::{Ability, missing_below, missing_of};
use crate::settings::{mistakes_of_sandboxes, read_classes};
use rota_model::ClassName;
use rota_node::class::Class;
use std::collections::BTreeMap;
use std::path::Path;

/// What came of a look at the programs of classes.
#[derive(Debug, Default)]
pub struct Offer {
    /// What is offered.
    pub classes: BTreeMap<ClassName, Class>,
    /// What is not, each with the reason.
    pub withheld: BTreeMap<ClassName, String>,
    /// What is offered, and whose sessions cannot start as a user of their own as far as can be seen.
    pub doubtful: BTreeMap<ClassName, String>,
}

impl Offer {
    /// Reads the classes of a folder, and looks for their programs.
    ///
    /// # Errors
    /// All mistakes in its files, and classes that this node must not offer.
    pub fn read(folder: &Path, ability: &Ability) -> Result<Self, Vec<String>> {
        let classes = read_classes(folder)?;
        // A class that is new must not get more rights than one that was there at the start.
        let mistakes = mistakes_of_sandboxes(ability, &classes);
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let own = missing_in(&classes, folder);
        let mut offer = Self::of(classes, ability);
        offer.classes.retain(|name, _| !own.contains_key(name));
        offer.withheld.extend(own);
        Ok(offer)
    }

    /// Looks for the programs of these classes on this machine.
    pub fn of(mut classes: BTreeMap<ClassName, Class>, ability: &Ability) -> Self {
        let withheld = missing(&classes);
        classes.retain(|name, _| !withheld.contains_key(name));
        let why = |(name, class): (&ClassName, &Class)| {
            Some((name.clone(), ability.unreachable_of(class)?))
        };
        let doubtful = classes.iter().filter_map(why).collect();
        Self { classes, withheld, doubtful }
    }

    /// Logs what operators should know.
    pub fn tell(&self) {
        for (name, why) in &self.withheld {
            tracing::warn!(class = %name, why, "this class is not offered: its program is not there");
        }
        for (name, why) in &self.doubtful {
            tracing::warn!(class = %name, why, "sessions of this class cannot start");
        }
    }
}

/// The classes whose program is not on this machine, each with where it was looked for.
pub fn missing(classes: &BTreeMap<ClassName, Class>) -> BTreeMap<ClassName, String> {
    let why = |(name, class): (&ClassName, &Class)| Some((name.clone(), missing_of(class)?));
    classes.iter().filter_map(why).collect()
}

/// The classes whose program should lie in their own folder, and does not, each with the reason.
fn missing_in(classes: &BTreeMap<ClassName, Class>, folder: &Path) -> BTreeMap<ClassName, String> {
    let why = |(name, class): (&ClassName, &Class)| {
        let own = folder.join(name.as_str());
        Some((name.clone(), missing_below(class, own.to_str()?)?))
    };
    classes.iter().filter_map(why).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::UserRange;

    fn classes(argv: &[(&str, &str)]) -> BTreeMap<ClassName, Class> {
        let parsed = argv.iter().map(|(name, argv)| {
            let text = format!("name = \"{name}\"\nkind = \"program\"\nargv = {argv}");
            (ClassName::parse(name).unwrap(), Class::parse("c.toml", &text).unwrap())
        });
        parsed.collect()
    }

    #[test]
    fn a_class_whose_program_is_not_there_is_not_offered_and_is_named_with_the_reason() {
        let data = tempfile::tempdir().unwrap();
        let range = "200000-200001".parse::<UserRange>().unwrap();
        let ability = Ability::look(data.path(), range);
        let offer = Offer::of(
            classes(&[
                ("there", "[\"sh\"]"),
                ("gone", "[\"no-such-program-here\"]"),
                ("nowhere", "[\"/no/such/folder/program\"]"),
                ("no-program", "[\"/etc/passwd\"]"),
                ("below", "[\"{folder}/made-later\"]"),
                ("relative", "[\"./made-later\"]"),
            ]),
            &ability,
        );
        let names = |all: &BTreeMap<ClassName, _>| -> Vec<String> {
            all.keys().map(ToString::to_string).collect()
        };
        let offered: Vec<String> = offer.classes.keys().map(ToString::to_string).collect();
        assert_eq!(offered, ["below", "relative", "there"]);
        assert_eq!(names(&offer.withheld), ["gone", "no-program", "nowhere"]);
        let why = &offer.withheld[&ClassName::parse("gone").unwrap()];
        assert!(why.starts_with("argv[0]: no-such-program-here is in no folder of"), "{why}");
    }
}
