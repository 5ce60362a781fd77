//! Bodies of attachments between managers.

use crate::documents::PIECE_BYTES_MAX;
use crate::documents::document::{digest, digest_bytes};
use crate::v1;
use crate::v1::{keep_body_request, send_body_response};
use crate::wire::{WireError, check_cluster, named, required};
use bytes::Bytes;
use rota_docstore::Digest;
use rota_model::{ClusterName, Namespace, SlotId};

/// A body that is about to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keep {
    /// Its digest.
    pub sha256: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// Hand it over to the other copies of this slot's partition as well.
    pub slot: Option<SlotId>,
}

/// A body that is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Send {
    /// Its digest.
    pub sha256: Digest,
    /// Begin at this byte.
    pub offset: u64,
}

/// A question whose documents name a body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Names {
    /// Its digest.
    pub sha256: Digest,
    /// A namespace.
    pub space: Namespace,
    /// The docid of documents there.
    pub docid: String,
}

/// Whose documents name a body, or did not long ago.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Naming {
    /// One that was asked for.
    pub asked: bool,
    /// Others.
    pub others: bool,
}

/// The first message of a body to keep.
pub fn keep_request(cluster: &ClusterName, keep: Keep) -> v1::KeepBodyRequest {
    let begin = keep_body_request::Begin {
        cluster: cluster.as_str().into(),
        size: keep.size,
        sha256: digest_bytes(keep.sha256),
        slot: keep.slot.map(|it| it.0),
    };
    v1::KeepBodyRequest { part: Some(keep_body_request::Part::Begin(begin)) }
}

/// The same, read. Refuses one of another cluster.
pub fn keep(
    cluster: &ClusterName,
    request: Option<v1::KeepBodyRequest>,
) -> Result<Keep, WireError> {
    let part = required("KeepBodyRequest.part", request.and_then(|it| it.part))?;
    let keep_body_request::Part::Begin(begin) = part else {
        return Err(WireError::new("KeepBodyRequest.begin", "must be the first message"));
    };
    check_cluster("KeepBodyRequest.cluster", cluster, &begin.cluster)?;
    Ok(Keep {
        sha256: named("KeepBodyRequest.sha256", digest(&begin.sha256))?,
        size: begin.size,
        slot: begin.slot.map(SlotId),
    })
}

/// A later message.
pub fn keep_piece_request(bytes: Bytes) -> v1::KeepBodyRequest {
    v1::KeepBodyRequest { part: Some(keep_body_request::Part::Bytes(bytes)) }
}

/// The same, read.
pub fn keep_piece(request: v1::KeepBodyRequest) -> Result<Bytes, WireError> {
    match required("KeepBodyRequest.part", request.part)? {
        keep_body_request::Part::Bytes(bytes) => short_piece("KeepBodyRequest.bytes", bytes),
        keep_body_request::Part::Begin(_) => {
            Err(WireError::new("KeepBodyRequest.begin", "comes a second time"))
        }
    }
}

/// A request for a body.
pub fn send_request(cluster: &ClusterName, send: Send) -> v1::SendBodyRequest {
    v1::SendBodyRequest {
        cluster: cluster.as_str().into(),
        sha256: digest_bytes(send.sha256),
        offset: send.offset,
    }
}

/// The same, read. Refuses one of another cluster.
pub fn send(cluster: &ClusterName, request: &v1::SendBodyRequest) -> Result<Send, WireError> {
    check_cluster("SendBodyRequest.cluster", cluster, &request.cluster)?;
    let sha256 = named("SendBodyRequest.sha256", digest(&request.sha256))?;
    Ok(Send { sha256, offset: request.offset })
}

/// A question whose documents name a body.
pub fn names_request(cluster: &ClusterName, names: &Names) -> v1::NamesBodyRequest {
    v1::NamesBodyRequest {
        cluster: cluster.as_str().into(),
        sha256: digest_bytes(names.sha256),
        namespace: names.space.as_str().into(),
        docid: names.docid.clone(),
    }
}

/// The same, read. Refuses one of another cluster.
pub fn names(cluster: &ClusterName, request: v1::NamesBodyRequest) -> Result<Names, WireError> {
    check_cluster("NamesBodyRequest.cluster", cluster, &request.cluster)?;
    let sha256 = named("NamesBodyRequest.sha256", digest(&request.sha256))?;
    let space = named("NamesBodyRequest.namespace", Namespace::parse(&request.namespace))?;
    Ok(Names { sha256, space, docid: request.docid })
}

/// The answer.
pub fn names_response(naming: Naming) -> v1::NamesBodyResponse {
    v1::NamesBodyResponse { asked: naming.asked, others: naming.others }
}

/// The same, read.
pub fn naming(response: v1::NamesBodyResponse) -> Naming {
    Naming { asked: response.asked, others: response.others }
}

/// The first message of a body that is sent: its size.
pub fn sent_size(size: u64) -> v1::SendBodyResponse {
    v1::SendBodyResponse { part: Some(send_body_response::Part::Size(size)) }
}

/// A later message: bytes.
pub fn sent_piece(bytes: Bytes) -> v1::SendBodyResponse {
    v1::SendBodyResponse { part: Some(send_body_response::Part::Bytes(bytes)) }
}

/// The size, read from the first message.
pub fn read_size(response: Option<v1::SendBodyResponse>) -> Result<u64, WireError> {
    match required("SendBodyResponse.part", response.and_then(|it| it.part))? {
        send_body_response::Part::Size(size) => Ok(size),
        send_body_response::Part::Bytes(_) => {
            Err(WireError::new("SendBodyResponse.size", "must be the first message"))
        }
    }
}

/// Bytes, read from a later message.
pub fn read_piece(response: v1::SendBodyResponse) -> Result<Bytes, WireError> {
    match required("SendBodyResponse.part", response.part)? {
        send_body_response::Part::Bytes(bytes) => short_piece("SendBodyResponse.bytes", bytes),
        send_body_response::Part::Size(_) => {
            Err(WireError::new("SendBodyResponse.size", "comes a second time"))
        }
    }
}

fn short_piece(field: &'static str, bytes: Bytes) -> Result<Bytes, WireError> {
    if bytes.len() > PIECE_BYTES_MAX {
        let problem = format!("are {}; the limit of one piece is {PIECE_BYTES_MAX}", bytes.len());
        return Err(WireError::new(field, problem));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(name: &str) -> ClusterName {
        ClusterName::parse(name).unwrap()
    }

    #[test]
    fn what_managers_say_of_bodies_comes_back_and_another_cluster_is_refused_by_name() {
        let body = Keep { sha256: Digest([7; 32]), size: 9, slot: Some(SlotId(3)) };
        let request = keep_request(&cluster("c"), body);
        assert_eq!(keep(&cluster("c"), Some(request.clone())), Ok(body));
        let error = keep(&cluster("d"), Some(request)).unwrap_err().to_string();
        assert!(error.contains("KeepBodyRequest.cluster") && error.contains("\"c\""), "{error}");
        let wanted = Send { sha256: Digest([7; 32]), offset: 4 };
        assert_eq!(send(&cluster("c"), &send_request(&cluster("c"), wanted)), Ok(wanted));
        let space = Namespace::parse("shop").unwrap();
        let asked = Names { sha256: Digest([7; 32]), space, docid: "a".to_owned() };
        let request = names_request(&cluster("c"), &asked);
        assert_eq!(names(&cluster("c"), request.clone()), Ok(asked));
        let error = names(&cluster("d"), request).unwrap_err().to_string();
        assert!(error.contains("NamesBodyRequest.cluster"), "{error}");
        let both = Naming { asked: false, others: true };
        assert_eq!(naming(names_response(both)), both);
        assert_eq!(read_size(Some(sent_size(9))), Ok(9));
        let bytes = Bytes::from_static(b"abc");
        assert_eq!(read_piece(sent_piece(bytes.clone())), Ok(bytes.clone()));
        assert_eq!(keep_piece(keep_piece_request(bytes)), Ok(Bytes::from_static(b"abc")));
    }

    #[test]
    fn messages_out_of_order_and_pieces_too_large_are_refused() {
        let large = Bytes::from(vec![0; PIECE_BYTES_MAX + 1]);
        assert!(keep_piece(keep_piece_request(large.clone())).is_err());
        assert!(read_piece(sent_piece(large)).is_err());
        assert!(read_size(Some(sent_piece(Bytes::new()))).is_err());
        assert!(keep(&cluster("c"), Some(keep_piece_request(Bytes::new()))).is_err());
        assert!(keep(&cluster("c"), None).is_err());
        assert!(read_size(None).is_err());
    }
}
