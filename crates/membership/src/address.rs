//! Which config store a process is told to use.

use crate::consul::{ConsulAddress, ConsulStore};
use crate::embedded::EmbeddedStore;
use crate::port::ConfigStore;
use rota_model::address::Address;
use rota_model::{ClusterName, FieldError};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The address of a config store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StoreAddress {
    /// `HOST:PORT`: a `rota-config-store`.
    Embedded(String),
    /// `consul://HOST:PORT/PREFIX`: a Consul agent.
    Consul(ConsulAddress),
}

impl StoreAddress {
    /// Reads an address.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, FieldError> {
        if text.contains("://") {
            return ConsulAddress::parse(text).map(Self::Consul);
        }
        if Address::parse(text).is_some() {
            return Ok(Self::Embedded(text.to_owned()));
        }
        let problem = format!("is {text:?}, not a HOST:PORT or consul://HOST:PORT/PREFIX");
        Err(FieldError::new("config store address", problem))
    }

    /// A client that awaits every answer for `deadline`. Nothing is sent yet.
    ///
    /// # Errors
    /// When no client can be made of it.
    pub fn open(
        &self,
        cluster: ClusterName,
        deadline: Duration,
    ) -> Result<Arc<dyn ConfigStore>, FieldError> {
        Ok(match self {
            Self::Embedded(address) => Arc::new(EmbeddedStore::new(address, cluster, deadline)?),
            Self::Consul(address) => Arc::new(ConsulStore::new(address, cluster, deadline)?),
        })
    }

    /// The Consul agent, if that is what it names.
    pub fn consul(&self) -> Option<&ConsulAddress> {
        match self {
            Self::Embedded(_) => None,
            Self::Consul(address) => Some(address),
        }
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Embedded(address) => address.fmt(f),
            Self::Consul(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_which_store_it_is() {
        for text in ["127.0.0.1:7", "[::1]:7", "consul://h:1/p"] {
            assert_eq!(StoreAddress::parse(text).unwrap().to_string(), text);
        }
        assert!(StoreAddress::parse("consul://h:1").unwrap().consul().is_some());
        for text in ["", "h", "h:0", "etcd://h:1", "h:1/p"] {
            assert!(StoreAddress::parse(text).unwrap_err().problem.contains("consul://"), "{text}");
        }
    }
}
