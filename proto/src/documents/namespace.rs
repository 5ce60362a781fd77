//! Namespaces: their descriptions and what they hold.

use super::document::stamp;
use crate::v1;
use crate::wire::{WireError, named};
use rota_docstore::{Description, Limits, Stamp, Suspended, Usage};
use rota_model::Namespace;

/// A namespace as operators see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamespaceState {
    /// Its name.
    pub name: Namespace,
    /// What the space for configuration says of it.
    pub description: Description,
    /// What it holds, all owners together; or why that is not known, which changes nothing of the rest.
    pub usage: Result<Usage, String>,
    /// Version of its description; `None`: nobody has described it.
    pub version: Option<Stamp>,
}

impl From<Limits> for v1::NamespaceLimits {
    fn from(limits: Limits) -> Self {
        Self {
            documents: limits.documents,
            item_bytes: limits.item_bytes,
            attachment_bytes: limits.attachment_bytes,
        }
    }
}

impl From<&Suspended> for v1::TasksSuspended {
    fn from(it: &Suspended) -> Self {
        Self { all: it.all, queues: it.queues.iter().map(|it| (*it).into()).collect() }
    }
}

impl TryFrom<v1::TasksSuspended> for Suspended {
    type Error = WireError;
    fn try_from(it: v1::TasksSuspended) -> Result<Self, WireError> {
        let wrong = |_| WireError::new("TasksSuspended.queues", "has a number above 255");
        let queues = it.queues.into_iter().map(u8::try_from).collect::<Result<_, _>>();
        Ok(Self { all: it.all, queues: queues.map_err(wrong)? })
    }
}

impl From<&NamespaceState> for v1::NamespaceInfo {
    fn from(it: &NamespaceState) -> Self {
        let Description { description, off, limits, readers, suspended } = &it.description;
        let usage = it.usage.as_ref().copied().unwrap_or_default();
        Self {
            name: it.name.as_str().into(),
            description: description.clone(),
            off: off.clone(),
            limits: Some((*limits).into()),
            readers: readers.iter().map(|it| it.as_str().into()).collect(),
            documents: usage.documents,
            item_bytes: usage.item_bytes,
            attachment_bytes: usage.attachment_bytes,
            version: it.version.map_or(0, Stamp::as_u64),
            usage_unknown: it.usage.as_ref().err().cloned(),
            suspended: (!suspended.is_nothing()).then(|| suspended.into()),
        }
    }
}

impl TryFrom<v1::NamespaceInfo> for NamespaceState {
    type Error = WireError;
    fn try_from(it: v1::NamespaceInfo) -> Result<Self, WireError> {
        let limits = it.limits.unwrap_or_default();
        let reader = |it: &String| named("NamespaceInfo.readers", Namespace::parse(it));
        let description = Description {
            description: it.description,
            off: it.off,
            limits: Limits {
                documents: limits.documents,
                item_bytes: limits.item_bytes,
                attachment_bytes: limits.attachment_bytes,
            },
            readers: it.readers.iter().map(reader).collect::<Result<_, _>>()?,
            suspended: it.suspended.map(TryInto::try_into).transpose()?.unwrap_or_default(),
        };
        named("NamespaceInfo.description", description.check())?;
        let version = match it.version {
            0 => None,
            number => Some(stamp("NamespaceInfo.version", number)?),
        };
        Ok(Self {
            name: named("NamespaceInfo.name", Namespace::parse(&it.name))?,
            description,
            usage: match it.usage_unknown {
                Some(why) => Err(why),
                None => Ok(Usage {
                    documents: it.documents,
                    item_bytes: it.item_bytes,
                    attachment_bytes: it.attachment_bytes,
                }),
            },
            version,
        })
    }
}
