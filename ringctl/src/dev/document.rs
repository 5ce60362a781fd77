//! What runs: the document that `ringctl dev` prints once everything is ready.

use serde::{Deserialize, Serialize};

/// The whole cluster.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
pub struct Document {
    /// Always true: it is printed only then.
    pub ready: bool,
    /// Its name, as managers and node-agents are told it with `--cluster`.
    #[serde(default)]
    pub cluster: String,
    /// In order of their numbers.
    pub managers: Vec<ManagerProcess>,
    /// Those started here; a pool's nodes come and go.
    pub nodes: Vec<NodeProcess>,
    /// The config store.
    pub config_store: StoreProcess,
    /// The data folder.
    pub data: String,
}

/// A manager process.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
pub struct ManagerProcess {
    pub number: u32,
    /// As in its log's file name.
    pub id: String,
    pub grpc: String,
    pub http: String,
    pub pid: u32,
}

/// A node-agent process.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeProcess {
    pub id: String,
    pub address: String,
    pub pid: u32,
}

/// The config store's process.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq, Debug, Default)]
pub struct StoreProcess {
    pub address: String,
    pub pid: u32,
}

impl Document {
    /// Every manager's gRPC address, as `--endpoint` takes it.
    pub fn endpoints(&self) -> String {
        let addresses: Vec<&str> = self.managers.iter().map(|it| it.grpc.as_str()).collect();
        addresses.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_exactly_these_fields_in_this_order() {
        let document = Document {
            ready: true,
            cluster: "dev-1".to_owned(),
            managers: vec![ManagerProcess {
                number: 340,
                id: "m1".to_owned(),
                grpc: "127.0.0.1:1".to_owned(),
                http: "127.0.0.1:2".to_owned(),
                pid: 3,
            }],
            nodes: vec![NodeProcess {
                id: "n1".to_owned(),
                address: "127.0.0.1:4".to_owned(),
                pid: 5,
            }],
            config_store: StoreProcess { address: "127.0.0.1:6".to_owned(), pid: 7 },
            data: "/d".to_owned(),
        };
        assert_eq!(
            serde_json::to_string(&document).unwrap(),
            "{\"ready\":true,\"cluster\":\"dev-1\",\"managers\":[{\"number\":340,\"id\":\"m1\",\
             \"grpc\":\"127.0.0.1:1\",\"http\":\"127.0.0.1:2\",\"pid\":3}],\"nodes\":[{\"id\":\"n1\",\
             \"address\":\"127.0.0.1:4\",\"pid\":5}],\"config_store\":\
             {\"address\":\"127.0.0.1:6\",\"pid\":7},\"data\":\"/d\"}"
        );
    }
}
