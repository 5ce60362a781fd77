//! One suite for every config store, and what only the embedded store's process and a real Consul
//! can show.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod clients;
mod conformance;
mod consul;
mod consul_command;
mod consul_process;
mod crash;
mod process;
mod refusals;
mod services;

mod fake {
    use crate::conformance::{self, Rig, conformance, name};
    use rota_membership::{ConfigStore, FakeStore, Outage};
    use rota_model::ClusterName;
    use std::sync::Arc;

    struct FakeRig {
        store: FakeStore,
        cuts: u32,
    }

    impl Rig for FakeRig {
        fn cluster(&self) -> ClusterName {
            name("suite")
        }

        fn client(&self) -> Arc<dyn ConfigStore> {
            Arc::new(self.store.clone())
        }

        async fn cut(&mut self) {
            self.cuts += 1;
            let lost = self.cuts.is_multiple_of(2);
            self.store.set_outage(if lost { Outage::AnswersLost } else { Outage::Away });
        }

        async fn mend(&mut self) {
            self.store.set_outage(Outage::None);
        }
    }

    async fn rig() -> FakeRig {
        FakeRig { store: FakeStore::default(), cuts: 0 }
    }

    conformance!(rig);
}

mod embedded {
    use crate::conformance::{self, Rig, conformance, name};
    use crate::process::{Folder, StoreProcess};
    use rota_membership::ConfigStore;
    use rota_model::ClusterName;
    use std::sync::Arc;

    struct ProcessRig {
        folder: Folder,
        process: Option<StoreProcess>,
    }

    impl Rig for ProcessRig {
        fn cluster(&self) -> ClusterName {
            name("suite")
        }

        fn client(&self) -> Arc<dyn ConfigStore> {
            Arc::new(self.process.as_ref().expect("the store runs").client())
        }

        async fn cut(&mut self) {
            self.process.take().expect("the store runs").kill().await;
        }

        async fn mend(&mut self) {
            self.process = Some(StoreProcess::start(&self.folder, &[]).await);
        }
    }

    async fn rig() -> ProcessRig {
        let folder = Folder::new();
        let process = Some(StoreProcess::start(&folder, &[]).await);
        ProcessRig { folder, process }
    }

    conformance!(rig);
}
