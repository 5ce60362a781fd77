//! What callers are told of the operations that every manager knows: what each does, its parameters as a
//! JSON Schema, and parameters with which it works. `ringctl document operations` shows it.

use rota_docstore::About;

/// The properties of the limits of a namespace.
macro_rules! limits {
    () => {
        r#"        "documents": {"type": ["integer", "null"], "description": "Most documents."},
        "item_bytes": {"type": ["integer", "null"], "description": "Most bytes of names and contents of items."},
        "attachment_bytes": {"type": ["integer", "null"], "description": "Most bytes of attachments."}}},
"#
    };
}

pub(crate) const DOCUMENT_WRITE: About = About {
    summary: "Changes documents of one slot, all or none. Runs at the id of one of them.",
    parameters: r#"{
  "type": "object", "required": ["changes"], "additionalProperties": false,
  "properties": {"changes": {
    "type": "array", "minItems": 1, "description": "One for each document.",
    "items": {
      "type": "object", "required": ["class", "docid"], "additionalProperties": false,
      "properties": {
        "class": {"type": "string", "description": "Class of the document."},
        "docid": {"type": "string", "description": "Id of the document, in the caller's namespace."},
        "life": {"enum": ["keep", "create", "ensure", "destroy"], "default": "keep",
          "description": "keep: it must exist. create: it must not. ensure: it is created unless it exists. destroy: it ends, with all items, and nothing else may be given."},
        "expect": {"type": "object", "additionalProperties": false,
          "description": "What the caller found: A-EXPECTED if it has changed since. What is left out is not looked at.",
          "properties": {
            "ctime": {"type": "integer", "description": "Stamp at which its life began."},
            "version": {"type": "integer", "description": "Stamp of its last change."}}},
        "put": {"type": "array", "description": "Items to put, each with exactly one of json, raw and attachment.",
          "items": {
            "type": "object", "required": ["class"], "additionalProperties": false,
            "properties": {
              "class": {"type": "string", "description": "Class of the item."},
              "key": {"type": "string", "description": "Its key; left out for the only item of its class."},
              "json": {"description": "Content: any JSON but null."},
              "raw": {"type": "string", "contentEncoding": "base64", "description": "Content: bytes in base64."},
              "attachment": {"type": "object", "required": ["mime", "size", "sha256"], "additionalProperties": false,
                "description": "Content: a body that put-body stored before.",
                "properties": {
                  "mime": {"type": "string", "description": "Mime type of the body."},
                  "size": {"type": "integer", "description": "Its bytes."},
                  "sha256": {"type": "string", "description": "Its digest: 64 small hexadecimal digits."}}}}}},
        "remove": {"type": "array", "description": "Items to remove. One that is not there is no mistake.",
          "items": {
            "type": "object", "required": ["class"], "additionalProperties": false,
            "properties": {
              "class": {"type": "string", "description": "Class of the item."},
              "key": {"type": "string", "description": "Its key; left out for the only item of its class."}}}},
        "touch": {"type": "boolean", "default": false,
          "description": "Gives the document a new version even if nothing changes."}}}},
    "tasks": {"type": "array", "maxItems": 4, "description": "Work for later, registered in the same commit.",
      "items": {
        "type": "object", "required": ["operation", "place"], "additionalProperties": false,
        "properties": {
          "operation": {"type": "string", "description": "The operation to run; or exec, http, grpc."},
          "place": {"type": "string", "description": "Part in braces of the ids above, or such an id without braces."},
          "param": {"description": "Parameters of the operation."},
          "info": {"type": "string", "description": "Text by which administrators find it."},
          "start_at": {"type": "integer", "description": "Not before this stamp. Left out: at once, or at the next run of cron."},
          "cron": {"type": "string", "description": "It runs again after each success, as D0425."}}}}}
}"#,
    example: r#"{"changes": [
  {"class": "Cart", "docid": "cart-7", "life": "ensure",
   "put": [{"class": "Line", "key": "1", "json": {"article": "tea"}},
           {"class": "Note", "raw": "aGVsbG8="},
           {"class": "P", "key": "photo.jpg", "attachment": {"mime": "image/jpeg", "size": 5,
            "sha256": "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"}}],
   "remove": [{"class": "Line", "key": "2"}], "touch": true},
  {"class": "Order", "docid": "cart-7", "life": "keep",
   "expect": {"ctime": 261122070308123, "version": 261122070308456}}],
 "tasks": [{"operation": "document.touch", "place": "cart-7", "param": {"class": "Cart", "docid": "cart-7"},
   "info": "carts/7", "start_at": 991231235959000, "cron": "D0425"}]}"#,
};

pub(crate) const DOCUMENT_READ: About = About {
    summary: "Shows documents. Those that are read without a tolerance are shown as of one moment, and share \
              the slot at which it runs.",
    parameters: r#"{
  "type": "object", "required": ["documents"], "additionalProperties": false,
  "properties": {"documents": {
    "type": "array", "description": "Which documents.",
    "items": {
      "type": "object", "required": ["class", "docid"], "additionalProperties": false,
      "properties": {
        "namespace": {"type": "string", "description": "Namespace of the document; the caller's own where it is left out."},
        "class": {"type": "string", "description": "Class of the document; \"session\" shows a session."},
        "docid": {"type": "string", "description": "Id of the document."},
        "tolerance_s": {"type": "integer", "default": 0,
          "description": "How stale it may be, in seconds. 0: the newest state. More: also of other slots and namespaces."},
        "items": {"type": "array", "items": {"type": "string"},
          "description": "Only items of these classes; all where it is left out."}}}}}
}"#,
    example: r#"{"documents": [
  {"class": "Cart", "docid": "cart-7", "items": ["Line"]},
  {"namespace": "prices", "class": "Article", "docid": "tea", "tolerance_s": 10}
]}"#,
};

pub(crate) const DOCUMENT_TOUCH: About = About {
    summary: "Gives a document a new version, and creates it where there is none: for lock documents. Answers \
              the version.",
    parameters: r#"{
  "type": "object", "required": ["class", "docid"], "additionalProperties": false,
  "properties": {
    "class": {"type": "string", "description": "Class of the document."},
    "docid": {"type": "string", "description": "Id of the document, in the caller's namespace."}}
}"#,
    example: r#"{"class": "Lock", "docid": "cart-7"}"#,
};

pub(crate) const NAMESPACE_PUT: About = About {
    summary: "Describes a namespace anew; on or off it stays as it is. Runs at z/spaces, for administrators.",
    parameters: concat!(
        r#"{
  "type": "object", "required": ["name"], "additionalProperties": false,
  "properties": {
    "name": {"type": "string", "description": "The namespace."},
    "create": {"type": "boolean", "default": false,
      "description": "True: it must not exist, unless it is described just so. False: it must exist."},
    "description": {"type": "string", "default": "", "description": "A text for people."},
    "limits": {"type": "object", "additionalProperties": false,
      "description": "How much it may hold; without a limit where one is left out or null.",
      "properties": {
"#,
        limits!(),
        r#"    "readers": {"type": "array", "items": {"type": "string"}, "default": [],
      "description": "Namespaces whose operations may read its documents; at most 64."}}
}"#
    ),
    example: r#"{"name": "shop", "create": true, "description": "Carts and orders",
  "limits": {"documents": 100000, "item_bytes": 1000000000, "attachment_bytes": null}, "readers": ["billing"]}"#,
};

pub(crate) const NAMESPACE_SET: About = About {
    summary: "Changes what is given of a namespace's description, and leaves the rest. Runs at z/spaces, for \
              administrators.",
    parameters: concat!(
        r#"{
  "type": "object", "required": ["name"], "additionalProperties": false,
  "properties": {
    "name": {"type": "string", "description": "The namespace; it must have been created."},
    "description": {"type": "string", "description": "A text for people."},
    "limits": {"type": "object", "additionalProperties": false,
      "description": "null takes a limit away; one that is left out stays.",
      "properties": {
"#,
        limits!(),
        r#"    "add_readers": {"type": "array", "items": {"type": "string"}, "default": [],
      "description": "Namespaces whose operations may read its documents from now on."},
    "remove_readers": {"type": "array", "items": {"type": "string"}, "default": [],
      "description": "Those that may no more."}}
}"#
    ),
    example: r#"{"name": "shop", "description": "Carts", "limits": {"documents": null, "item_bytes": 5000, "attachment_bytes": 0},
  "add_readers": ["audit"], "remove_readers": ["billing"]}"#,
};

pub(crate) const NAMESPACE_SWITCH: About = About {
    summary: "Switches a namespace off or on. Runs at z/spaces, for administrators.",
    parameters: r#"{
  "type": "object", "required": ["name"], "additionalProperties": false,
  "properties": {
    "name": {"type": "string", "description": "The namespace; it must have been created."},
    "off": {"type": ["string", "null"],
      "description": "The message for its clients: it is off. Left out or null: it is on."}}
}"#,
    example: r#"{"name": "shop", "off": "Back at noon"}"#,
};

pub(crate) const NAMESPACE_REMOVE: About = About {
    summary: "Removes the description of a namespace that is switched off; its documents are not looked at. \
              Runs at z/spaces, for administrators.",
    parameters: r#"{
  "type": "object", "required": ["name"], "additionalProperties": false,
  "properties": {"name": {"type": "string", "description": "The namespace."}}
}"#,
    example: r#"{"name": "shop"}"#,
};

/// The properties of the settings of a pool.
macro_rules! pool_settings {
    () => {
        r#"        "description": {"type": ["string", "null"], "description": "A text for people."},
        "provisioner": {"type": ["string", "null"], "description": "Who starts nodes: a name that managers were started with."},
        "places": {"type": ["integer", "null"], "description": "Places of each node that is started."},
        "load_limit": {"type": ["number", "null"], "description": "Load at which a node takes no more sessions, 0.001 to 1."},
        "policy": {"enum": ["pack", "spread", null], "description": "Which node with room is chosen: the most or the least loaded."},
        "min_nodes": {"type": ["integer", "null"], "description": "So many nodes are kept."},
        "max_nodes": {"type": ["integer", "null"], "description": "More nodes are not started."},
        "warm_places": {"type": ["integer", "null"], "description": "So many places are kept free."},
        "warm_nodes": {"type": ["integer", "null"], "description": "As much room as so many empty nodes have is kept free; instead of warm_places."},
        "scale_in_delay_s": {"type": ["integer", "null"], "description": "A node that was started is ended when it was not needed for so many seconds; 0: never."},
        "scale_in_below": {"type": ["number", "null"], "description": "A node is not needed below this load, if all that runs there may always be disturbed; null: only while nothing runs there."},
        "labels": {"type": ["object", "null"], "additionalProperties": {"type": "string"}, "description": "Labels of each node that is started."},
        "cpu_millis": {"type": ["integer", "null"], "description": "Processors of each node that is started, in thousandths."},
        "memory_mib": {"type": ["integer", "null"], "description": "Memory of each node that is started, in MiB."},
        "schedules": {"type": ["array", "null"], "description": "What is kept from moments on, in place of min_nodes and of the warm buffer. At most 16.",
          "items": {"type": "object", "required": ["at"], "additionalProperties": false, "properties": {
            "at": {"type": "string", "description": "A cron text, in UTC: D0600 is each day at 06:00."},
            "min_nodes": {"type": ["integer", "null"], "description": "So many nodes are kept; null: it does not set that."},
            "warm_places": {"type": ["integer", "null"], "description": "So many places are kept free; null: it does not set that."},
            "warm_nodes": {"type": ["integer", "null"], "description": "As much room as so many empty nodes have is kept free; instead of warm_places."}}}},
        "namespaces": {"type": ["array", "null"], "items": {"type": "string"},
          "description": "Namespaces whose sessions may run there; none: all. At most 64."}}}}
"#
    };
}

pub(crate) const POOL_CREATE: About = About {
    summary: "Describes a pool of nodes that is not described yet, unless just so. Runs at z/spaces, for \
              administrators.",
    parameters: concat!(
        r#"{
  "type": "object", "required": ["name"], "additionalProperties": false,
  "properties": {
    "name": {"type": "string", "description": "The pool."},
    "settings": {"type": "object", "additionalProperties": false,
      "properties": {
"#,
        pool_settings!(),
        "}"
    ),
    example: r#"{"name": "small", "settings": {"description": "For shops", "provisioner": "process",
  "places": 10, "load_limit": 0.8, "policy": "pack", "min_nodes": 1, "max_nodes": 5, "warm_places": 4, "namespaces": ["shop"],
  "warm_nodes": 0, "scale_in_delay_s": 600, "scale_in_below": 0.2, "labels": {"zone": "a"}, "cpu_millis": 2000, "memory_mib": 512,
  "schedules": [{"at": "D0600", "min_nodes": 3, "warm_places": 20}, {"at": "D2000", "min_nodes": 0, "warm_nodes": 0}]}}"#,
};

pub(crate) const POOL_SET: About = About {
    summary: "Changes what is given of a pool's settings, and leaves the rest. Runs at z/spaces, for \
              administrators.",
    parameters: concat!(
        r#"{
  "type": "object", "required": ["name", "settings"], "additionalProperties": false,
  "properties": {
    "name": {"type": "string", "description": "The pool."},
    "allow_missing": {"type": "boolean", "default": false, "description": "True: it is described if it was not."},
    "settings": {"type": "object", "additionalProperties": false,
      "description": "What changes; null gives a field its default again.",
      "properties": {
"#,
        pool_settings!(),
        "}"
    ),
    example: r#"{"name": "small", "allow_missing": true, "settings": {"description": null, "provisioner": "process",
  "places": 10, "load_limit": 0.8, "policy": "spread", "min_nodes": 1, "max_nodes": 5, "warm_places": 4, "namespaces": ["shop"],
  "warm_nodes": 0, "scale_in_delay_s": 600, "scale_in_below": 0.2, "labels": {"zone": "a"}, "cpu_millis": 2000, "memory_mib": 512,
  "schedules": [{"at": "D0600", "min_nodes": 3, "warm_places": 20}, {"at": "D2000", "min_nodes": 0, "warm_nodes": 0}]}}"#,
};

pub(crate) const POOL_REMOVE: About = About {
    summary: "Removes the description of a pool; its nodes are not looked at. Runs at z/spaces, for administrators.",
    parameters: r#"{
  "type": "object", "required": ["name"], "additionalProperties": false,
  "properties": {"name": {"type": "string", "description": "The pool."}}
}"#,
    example: r#"{"name": "small"}"#,
};

pub(crate) const WEB_PUT: About = About {
    summary: "Puts a small web resource, which every manager serves under /web/PATH. Runs at z/PATH, for \
              administrators.",
    parameters: r#"{
  "type": "object", "required": ["path", "mime", "body"], "additionalProperties": false,
  "properties": {
    "path": {"type": "string", "description": "Its path below /web/."},
    "mime": {"type": "string", "description": "Its mime type: 1 to 255 printable characters of ASCII."},
    "body": {"type": "string", "contentEncoding": "base64", "description": "Its bytes in base64."}}
}"#,
    example: r#"{"path": "index.html", "mime": "text/html", "body": "PGgxPkhlbGxvPC9oMT4="}"#,
};

pub(crate) const WEB_REMOVE: About = About {
    summary: "Removes a web resource. Runs at z/PATH, for administrators.",
    parameters: r#"{
  "type": "object", "required": ["path"], "additionalProperties": false,
  "properties": {"path": {"type": "string", "description": "Its path below /web/."}}
}"#,
    example: r#"{"path": "index.html"}"#,
};

pub(crate) const CONTENT_COMMIT: About = About {
    summary: "Adds a commit to a repository of content, whose files are stored as bodies already. Refused (A-EXPECTED) \
              unless its parent is the newest commit. Runs at z/REPOSITORY, for administrators.",
    parameters: r#"{
  "type": "object", "required": ["repository", "commit", "bodies"], "additionalProperties": false,
  "properties": {
    "repository": {"type": "string", "description": "Which; it is made if it is not there."},
    "commit": {"type": "object", "required": ["hash", "at_ms", "tree", "files", "bytes", "changed"],
      "additionalProperties": false,
      "properties": {
        "hash": {"type": "string", "description": "Its name: small hexadecimal digits."},
        "number": {"type": "integer", "description": "Not looked at: the next one is given."},
        "parent": {"type": ["string", "null"], "description": "The newest commit; left out for the first."},
        "at_ms": {"type": "integer", "description": "When it was made, in milliseconds since 1970."},
        "message": {"type": "string", "description": "What its author says of it; 4096 bytes."},
        "author": {"type": "string", "description": "Who made it."},
        "source": {"type": ["string", "null"], "description": "The commit of git that it was made from."},
        "restores": {"type": ["string", "null"], "description": "The commit whose files it brings back."},
        "tree": {"type": "object", "required": ["sha256", "bytes"], "additionalProperties": false,
          "properties": {"sha256": {"type": "string"}, "bytes": {"type": "integer"}},
          "description": "The body that lists its files, a ContentTree."},
        "files": {"type": "integer", "description": "How many files it has."},
        "bytes": {"type": "integer", "description": "How many bytes these have."},
        "changed": {"type": "integer", "description": "How many files it adds, changes and removes."}}},
    "bodies": {"type": "array", "description": "The bodies that hold its files, at most 6000.",
      "items": {"type": "object", "required": ["sha256", "bytes"], "additionalProperties": false,
        "properties": {"sha256": {"type": "string"}, "bytes": {"type": "integer"}}}},
    "keep": {"type": ["integer", "null"], "description": "How many commits are kept, 1 to 200; left out: as before, or 20."},
    "hold": {"type": "array", "items": {"type": "string"},
      "description": "Commits that pools hold: these stay, and all after them."}}
}"#,
    example: r#"{"repository": "main", "keep": 20, "hold": [],
  "bodies": [{"sha256": "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae", "bytes": 3}],
  "commit": {"hash": "0a1b2c3d4e5f", "number": 0, "parent": null, "at_ms": 1790000000000, "message": "first", "author": "ada",
    "source": null, "restores": null, "files": 0, "bytes": 0, "changed": 0,
    "tree": {"sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "bytes": 0}}}"#,
};

pub(crate) const CONTENT_FOLLOW: About = About {
    summary: "Says which repository of content the nodes of a pool follow, and which commit of it. Runs at z/POOL, for \
              administrators.",
    parameters: r#"{
  "type": "object", "required": ["pool"], "additionalProperties": false,
  "properties": {
    "pool": {"type": "string", "description": "The pool."},
    "repository": {"type": ["string", "null"], "description": "Which; null or left out: its nodes follow none."},
    "commit": {"type": ["string", "null"], "description": "The commit that they get; null or left out: the newest."},
    "canary_percent": {"type": "integer",
      "description": "With a commit: of a hundred nodes, how many get the newest commit all the same."}}
}"#,
    example: r#"{"pool": "default", "repository": "main", "commit": "0a1b2c3d4e5f", "canary_percent": 10}"#,
};

pub(crate) const CONTENT_REMOVE: About = About {
    summary: "Removes a repository of content with all its commits. Runs at z/REPOSITORY, for administrators.",
    parameters: r#"{
  "type": "object", "required": ["repository"], "additionalProperties": false,
  "properties": {"repository": {"type": "string", "description": "Which."}}
}"#,
    example: r#"{"repository": "main"}"#,
};

pub(crate) const SESSION_OUTPUT: About = About {
    summary: "Keeps what the program of a life of a session printed last, beside the session. Nodes ask for it when a \
              program has ended. Its bytes are stored first. Runs at the session.",
    parameters: r#"{
  "type": "object", "required": ["id", "life", "node", "keep_ms"], "additionalProperties": false,
  "properties": {
    "id": {"type": "string", "description": "The session."},
    "life": {"type": "integer", "description": "Its life, as a stamp."},
    "node": {"type": "string", "description": "Where the program ran."},
    "keep_ms": {"type": "integer", "description": "How long it is kept, in milliseconds; at most 30 days."},
    "stdout": {"type": ["object", "null"], "required": ["from", "bytes"], "additionalProperties": false,
      "description": "The end of its standard output; null or left out: it printed nothing there.",
      "properties": {
        "from": {"type": "integer", "description": "How many bytes come before."},
        "bytes": {"type": "integer", "description": "How many are kept, at most 1 MiB."},
        "text": {"type": ["string", "null"], "description": "The bytes, where they are few, and text."},
        "sha256": {"type": ["string", "null"], "description": "Else the digest of a body that is stored, in hexadecimal."}}},
    "stderr": {"type": ["object", "null"], "required": ["from", "bytes"], "additionalProperties": false,
      "description": "The same of its standard error.",
      "properties": {
        "from": {"type": "integer", "description": "How many bytes come before."},
        "bytes": {"type": "integer", "description": "How many are kept, at most 1 MiB."},
        "text": {"type": ["string", "null"], "description": "The bytes, where they are few, and text."},
        "sha256": {"type": ["string", "null"], "description": "Else the digest of a body that is stored, in hexadecimal."}}}}
}"#,
    example: r#"{"id": "room-7", "life": 261128093000000, "node": "n1", "keep_ms": 86400000,
  "stdout": {"from": 0, "bytes": 5, "text": "hello", "sha256": null},
  "stderr": {"from": 1024, "bytes": 5, "text": null,
    "sha256": "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"}}"#,
};

pub(crate) const SESSION_FORGET_OUTPUT: About = About {
    summary: "Removes what is kept of the output of a session's programs. Runs at the session.",
    parameters: r#"{
  "type": "object", "required": ["id"], "additionalProperties": false,
  "properties": {
    "id": {"type": "string", "description": "The session."},
    "life": {"type": ["integer", "null"], "description": "That of one life; null or left out: all."}}
}"#,
    example: r#"{"id": "room-7", "life": 261128093000000}"#,
};

#[cfg(test)]
mod tests {
    use crate::documents::registry::operations;
    use rota_docstore::{About, JsonText};
    use serde_json::{Map, Value};
    use std::collections::{BTreeMap, BTreeSet};

    fn check(name: &str, parameters: &Value) -> Result<(), String> {
        let text = JsonText::parse(&parameters.to_string()).unwrap();
        operations().check(name, Some(&text)).map_err(|it| it.to_string())
    }

    fn abouts() -> Vec<(&'static str, About)> {
        operations().abouts().collect()
    }

    fn parsed(text: &str) -> Value {
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
    }

    /// The properties of every object in a schema, by its place.
    fn objects(schema: &Value, place: &str, into: &mut BTreeMap<String, BTreeSet<String>>) {
        if let Some(properties) = schema["properties"].as_object() {
            into.insert(place.to_owned(), properties.keys().cloned().collect());
            for (name, it) in properties {
                objects(it, &format!("{place}/{name}"), into);
            }
        }
        if schema["items"].is_object() {
            objects(&schema["items"], &format!("{place}[]"), into);
        }
    }

    /// Every value with one unknown field more, by the place of that field; and the fields that are used.
    fn with_odd_fields(
        value: &Value,
        place: &str,
        used: &mut BTreeMap<String, BTreeSet<String>>,
    ) -> Vec<(String, Value)> {
        let mut all = Vec::new();
        match value {
            Value::Object(fields) => {
                used.entry(place.to_owned()).or_default().extend(fields.keys().cloned());
                let mut odd = fields.clone();
                odd.insert("?".to_owned(), Value::Null);
                all.push((place.to_owned(), Value::Object(odd)));
                for (name, it) in fields {
                    for (at, odd) in with_odd_fields(it, &format!("{place}/{name}"), used) {
                        let mut fields: Map<String, Value> = fields.clone();
                        fields.insert(name.clone(), odd);
                        all.push((at, Value::Object(fields)));
                    }
                }
            }
            Value::Array(items) => {
                for (number, it) in items.iter().enumerate() {
                    for (at, odd) in with_odd_fields(it, &format!("{place}[]"), used) {
                        let mut items = items.clone();
                        items[number] = odd;
                        all.push((at, Value::Array(items)));
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        all
    }

    /// The names between backticks after "expected".
    fn expected(refusal: &str) -> BTreeSet<String> {
        let (_, list) = refusal.split_once("expected").unwrap_or_else(|| panic!("{refusal}"));
        list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn each_operation_says_what_it_does_and_takes_its_own_example() {
        assert_eq!(abouts().len(), 26);
        for (name, about) in abouts() {
            assert!(about.summary.ends_with('.'), "{name}");
            assert_eq!(check(name, &parsed(about.example)), Ok(()), "{name}");
        }
    }

    #[test]
    fn schemas_name_exactly_the_fields_that_operations_take_and_examples_use_all_of_them() {
        for (name, about) in abouts() {
            let (mut told, mut used) = (BTreeMap::new(), BTreeMap::new());
            objects(&parsed(about.parameters), "", &mut told);
            for (place, odd) in with_odd_fields(&parsed(about.example), "", &mut used) {
                // What is below may be anything: the content of an item.
                let Some(fields) = told.get(&place) else { continue };
                let refusal = check(name, &odd).unwrap_err();
                assert_eq!(*fields, expected(&refusal), "{name} at {place:?}: {refusal}");
            }
            for (place, fields) in told {
                assert_eq!(used.get(&place), Some(&fields), "the example of {name} at {place:?}");
            }
        }
    }
}
