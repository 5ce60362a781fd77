//! The classes of this node: those of `--classes` and those of the content that it follows, each with its folder.

use crate::mailbox::{Event, Mailbox};
use crate::offer::Offer;
use crate::sandbox::Ability;
use rota_model::ClassName;
use rota_node::class::Class;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A class, and the folder of class files that it stands in.
#[derive(Clone, Debug)]
pub struct Rooted {
    /// The class.
    pub class: Class,
    /// Its folder: programs and actions of a class lie below it.
    pub root: Arc<Path>,
}

/// Classes by name, with their folders.
pub type Classes = BTreeMap<ClassName, Rooted>;

/// Those of one folder.
#[derive(Clone, Debug, Default)]
struct Source {
    classes: BTreeMap<ClassName, Class>,
    root: Option<PathBuf>,
}

impl Source {
    fn rooted(&self) -> Classes {
        let root: Arc<Path> = Arc::from(self.root.as_deref().unwrap_or(Path::new("")));
        let rooted = |class: &Class| Rooted { class: class.clone(), root: root.clone() };
        self.classes.iter().map(|(name, class)| (name.clone(), rooted(class))).collect()
    }
}

#[derive(Debug, Default)]
struct Sources {
    local: Source,
    content: Source,
}

/// The classes of both folders. Clones are the same.
#[derive(Clone)]
pub struct Catalog {
    /// A lock because reloads and the follower of content change it; it is held for one change.
    sources: Arc<Mutex<Sources>>,
    /// Held from a change until the agent is told: it hears of the newest one last.
    telling: Arc<tokio::sync::Mutex<()>>,
    ability: Arc<Ability>,
    mailbox: Mailbox,
}

impl Catalog {
    /// What is offered at the start: of `--classes`, and of the content that the node had.
    pub fn new(
        local: (BTreeMap<ClassName, Class>, Option<PathBuf>),
        content: (BTreeMap<ClassName, Class>, Option<PathBuf>),
        ability: Ability,
        mailbox: Mailbox,
    ) -> Self {
        let source = |(classes, root)| Source { classes, root };
        let sources = Sources { local: source(local), content: source(content) };
        let (sources, ability) = (Arc::new(Mutex::new(sources)), Arc::new(ability));
        Self { sources, telling: Arc::default(), ability, mailbox }
    }

    /// All classes. One that is in both folders is that of `--classes`.
    pub fn classes(&self) -> Classes {
        let sources = self.locked();
        let mut all = sources.content.rooted();
        all.extend(sources.local.rooted());
        all
    }

    /// Reads the classes of a folder, and looks for their programs.
    ///
    /// # Errors
    /// All mistakes in its files.
    pub fn read(&self, folder: &Path) -> Result<Offer, Vec<String>> {
        Offer::read(folder, &self.ability)
    }

    /// Offers what was read again of `--classes`.
    pub async fn offer_local(&self, offer: Offer) {
        offer.tell();
        let _telling = self.telling.lock().await;
        self.locked().local.classes = offer.classes;
        self.tell().await;
    }

    /// Offers the classes of a version of content.
    pub async fn offer_content(&self, offer: Offer, root: PathBuf) {
        offer.tell();
        let _telling = self.telling.lock().await;
        {
            let mut sources = self.locked();
            for name in offer.classes.keys().filter(|it| sources.local.classes.contains_key(*it)) {
                tracing::warn!(class = %name, "the class of content is not used: --classes has one of that name");
            }
            sources.content = Source { classes: offer.classes, root: Some(root) };
        }
        self.tell().await;
    }

    /// Offers no class of content.
    pub async fn offer_no_content(&self) {
        let _telling = self.telling.lock().await;
        self.locked().content = Source::default();
        self.tell().await;
    }

    /// The folder of the version of content that is in use.
    pub fn content_root(&self) -> Option<PathBuf> {
        self.locked().content.root.clone()
    }

    async fn tell(&self) {
        let classes = self.classes();
        self.mailbox.give(Event::Classes(classes)).await;
    }

    fn locked(&self) -> MutexGuard<'_, Sources> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
