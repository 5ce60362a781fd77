//! Whether a client may read a body: by a document that names it, or did not long ago. Otherwise a
//! namespace that is off, or may not be read, would show its bodies through any other one.

use super::{Bodies, Peer, STALL, refused, status_of};
use rota_model::{RefusalKind, SlotId};
use rota_proto::bodies::{Names, Naming, names_request, naming};
use rota_storage::attachments::AttachmentError;
use tokio::time::timeout;
use tonic::{Code, Status};

impl Bodies {
    /// N-BODY, as if there were none, when documents name the body, or did, but none of that place. A
    /// body that no manager knows to be named was put a while ago, or given up before the start of who
    /// has it: whoever knows its digest may read it. Asks managers one after the other, those with a
    /// copy of the slot's partition first; nearly always this one knows, or the first.
    pub async fn check_named(&self, slot: SlotId, names: &Names) -> Result<(), Status> {
        let Naming { asked, mut others } = self.namers().naming(names, self.now_ms());
        if asked {
            return Ok(());
        }
        let view = self.view()?;
        let mut unreached = None;
        for peer in self.peers(&view, slot) {
            match self.ask_naming(&peer, names).await {
                Ok(Naming { asked: true, .. }) => return Ok(()),
                Ok(it) => others |= it.others,
                // Who is down holds nothing that nobody else does.
                Err(status) => {
                    if view.managers.get(&peer.number).is_some_and(|it| it.serves()) {
                        unreached = Some((peer.number, status));
                    }
                }
            }
        }
        if let Some((number, status)) = unreached {
            let text = format!("manager {number} may know the body: {}", status.message());
            return Err(refused(RefusalKind::NotServing, text));
        }
        if others {
            return Err(status_of(&AttachmentError::Missing { sha256: names.sha256 }));
        }
        Ok(())
    }

    async fn ask_naming(&self, peer: &Peer, names: &Names) -> Result<Naming, Status> {
        let asked = async {
            let mut client = self.shared.channels.client(peer).await?;
            let request = names_request(&self.shared.cluster, names);
            client.names_body(request).await.map(|it| naming(it.into_inner()))
        };
        let asked = timeout(STALL, asked).await;
        let asked = asked.unwrap_or_else(|_| Err(Status::unavailable("a manager is silent")));
        if let Err(status) = &asked
            && status.code() == Code::Unavailable
        {
            self.shared.channels.forget(peer);
        }
        asked
    }
}
